# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's side of layer-3 attachments: what is there is held against what the one plan says, and put right.

ADD, CHECK, DEL and the repair all come here, so that none of them makes or removes what another one does not know.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from ..errors import TRY_AGAIN, ConfigError, PodnetError
from ..kernel import hostlink, pod
from ..kernel.fastpath import remove_link
from ..kernel.routed import Routing
from ..model.paths import NODE_LOCK
from ..model.routing import FROM_POD, HostRoute, HostRule, Plan, Proxy, Seen, Way, change, plan, table_of, words
from . import routed_record as records
from .common import attempt
from .routed_record import Record
from .wish import is_host_name

TURN_SECONDS = 10.0
REPAIR_SECONDS = 30.0
"""Between two repairs without an occasion."""


def install(record: Record, mac: str, seconds: float) -> list[str]:
    """Makes the routes, rules and proxy entries of a new attachment, whose pair is there with `mac` at the pod's
    end. Gives the addresses that the node answers for on their uplink.

    What there still is for its addresses, of ours, belonged to another attachment and goes. Raises PodnetError.
    """
    asked = []
    with records.turn(min(seconds, TURN_SECONDS)), Routing() as routing:
        for address in sorted(record.addresses):
            if routing.is_own(address):  # rules about it would send the node's own packets astray
                raise ConfigError("ipam", f"{address} is an address of the node itself", "take it out of the range")
        records.write(record)
        for other in records.load_all():
            left = tuple(way for way in other.ways if way.address not in record.addresses)
            if other.host != record.host and left != other.ways:
                records.write(replace(other, ways=left))
        for way in record.ways:
            wanted = _plan_of(way, record.host)
            if wanted is None:
                raise PodnetError(f"the uplink {way.uplink} is gone, or down", "bring it up", TRY_AGAIN)
            _converge(routing, wanted, way)
            asked += [way.address] if wanted.proxies else []
        # Nobody asks on that link: the pod's end is no secret, and needs no address of the node's to be asked from.
        routing.know(pod.index_of(record.host) or 0, mac, sorted(record.addresses))
    return asked


def missing(record: Record) -> list[str]:
    """What of an attachment is not as it should be, in words; nothing if all is well. Raises PodnetError."""
    found = []
    with Routing() as routing:
        seen = routing.look()
    for way in record.ways:
        wanted = _plan_of(way, record.host)
        if wanted is None:
            found.append(f"the uplink {way.uplink} of {way.address} is gone, or down")
            continue
        todo = change(wanted, seen, _is_pods)
        found += [f"{words(item)} is missing" for item in todo.new]
        found += [f"{words(item)} is there, and should not be" for item in (*todo.first, *todo.last)]
    return found


def withdraw(host: str) -> bool:
    """The link of an attachment goes, by the name of the host's end, and then all that was for its addresses.

    Gives whether there was anything. Raises PodnetError after all was tried.
    """
    failed: list[PodnetError] = []
    seen, there = Seen(), False
    with records.turn(TURN_SECONDS):
        record, index = records.load(host), pod.index_of(host)
        with Routing() as routing:
            try:
                seen = routing.look()
            except PodnetError as error:
                failed.append(error)
            addresses = set(record.addresses) if record else set()
            addresses |= seen.led_to(index) if index is not None else set()
            for other in records.load_all():
                addresses -= other.addresses if other.host != host else set()
            attempt(failed, partial(remove_link, host))
            there = bool(record or index is not None)
            tables = _tables(record) | seen.left_behind()
            attempt(failed, partial(_clear, routing, seen.about(addresses), tables))
        if not failed:
            records.forget(host)
    if failed:
        raise failed[0]
    return there


def sweep() -> int:
    """Rules about addresses that no attachment has, and that lead to no pod, go with all that belongs to them; and what
    a killed call left in tables of links that are gone. Gives how many things. Raises PodnetError.
    """
    with records.turn(TURN_SECONDS), Routing() as routing:
        seen = routing.look()
        alive = {address for record in records.load_all() for address in record.addresses}
        for link in {item.device for item in seen.routes}:
            alive |= seen.led_to(link) if _is_pods(link) else set()
        lost = {rule.address for rule in seen.rules} - alive
        return _clear(routing, seen.about(lost), seen.left_behind())


@dataclass
class Repaired:
    """How many things were made or removed, and addresses by uplink that the node answers for anew: neighbours may
    know another MAC address for them.
    """

    things: int = 0
    asked: dict[str, list[str]] = field(default_factory=dict)


def repair(now: Callable[[str], str]) -> Repaired:
    """Puts right what attachments have lost: rules lead to the table of an uplink that is a new link by now, or a
    network manager has taken routes away.

    `now`: the link that an uplink's addresses are on at the moment, by what it was called. An uplink that is away is
    waited for: its pods are cut off meanwhile. Raises the first PodnetError after all, and with code 11 if the node's
    own links are just being changed.
    """
    from ..kernel.files import locked  # which takes longer to load than an ADD may

    failed: list[PodnetError] = []
    done = Repaired()
    with locked(NODE_LOCK, 0.0), records.turn(TURN_SECONDS), Routing() as routing:
        present, look_up = lru_cache(None)(now), lru_cache(None)(_uplink)
        seen = routing.look()
        for record in records.load_all():
            ways = tuple(replace(way, uplink=present(way.named)) if way.named else way for way in record.ways)
            if ways != record.ways:
                attempt(failed, partial(records.write, replace(record, ways=ways)))
            for way in ways:
                wanted = _plan_of(way, record.host, look_up)
                if wanted is not None and not seen.has(wanted):
                    attempt(failed, partial(_count, done, routing, wanted, way))
                    seen = routing.look()
    if failed:
        raise failed[0]
    return done


class Watch:
    """Repairs when an uplink has become another link, or has lost its routes, and from time to time anyway."""

    def __init__(self, now: Callable[[str], str]) -> None:
        """`now`: see `repair`."""
        self._now = now
        self._stamp = 0
        self._uplinks: frozenset[str] = frozenset()
        self._state: dict[str, object] = {}
        self._due = 0.0

    def look(self) -> Repaired:
        """To be called each second or so: costs nothing without attachments. Gives what `repair` does."""
        stamp = records.stamp()
        if not stamp:
            return Repaired()
        if stamp != self._stamp:
            self._uplinks = frozenset(way.uplink for record in records.load_all() for way in record.ways)
            self._stamp = stamp
        state = {name: _state_of(name) for name in self._uplinks}
        if state == self._state and time.monotonic() < self._due:
            return Repaired()
        done = repair(self._now)
        self._state = state
        self._due = time.monotonic() + REPAIR_SECONDS
        return done


def _state_of(uplink: str) -> object:
    """What changes when pods may be cut off: another link, up again, a table without its routes."""
    link = hostlink.link(uplink)
    if link is None:
        return None
    with Routing() as routing:
        return link.index, link.up, routing.table(table_of(link.index))


def _uplink(name: str) -> tuple[int, tuple[str, ...]] | None:
    """Its index and networks. None if it is gone, or down: the kernel then takes no routes by it."""
    link = hostlink.link(name)
    return (link.index, tuple(hostlink.networks_on(link.index))) if link is not None and link.up else None


def _plan_of(
    way: Way, host: str, look_up: Callable[[str], tuple[int, tuple[str, ...]] | None] = _uplink
) -> Plan | None:
    """None without the uplink, or the pod."""
    uplink, index = look_up(way.uplink), pod.index_of(host)
    return plan(way, uplink[0], index, uplink[1]) if uplink is not None and index is not None else None


def _converge(routing: Routing, wanted: Plan, way: Way) -> int:
    """Makes what is there what is wanted; gives how many things were made or removed."""
    todo = change(wanted, routing.look(), _is_pods)
    if wanted.proxies:
        hostlink.answer_for_others(way.uplink, way.family)
    removed = routing.drop(todo.first)
    routing.add(todo.new)
    return removed + len(todo.new) + _clear(routing, todo.last)


def _count(done: Repaired, routing: Routing, wanted: Plan, way: Way) -> None:
    done.things += _converge(routing, wanted, way)
    if wanted.proxies:
        done.asked.setdefault(way.uplink, []).append(way.address)


def _clear(
    routing: Routing, things: Iterable[HostRoute | HostRule | Proxy], tables: Iterable[tuple[int, int]] = ()
) -> int:
    """Takes them away, and what is in the tables that no rule names any more, of those that the rules among them named
    and `tables` (family and number). Gives how many things there were.
    """
    gone = list(things)
    removed = routing.drop(gone)
    named = {(item.family, item.table) for item in gone if isinstance(item, HostRule) and item.priority == FROM_POD}
    tables = named.union(tables)
    return removed + (routing.drop(routing.look().unused(tables)) if tables else 0)


def _tables(record: Record | None) -> set[tuple[int, int]]:
    """The tables of its uplinks, as far as these are there, by family."""
    indices = {(way.family, pod.index_of(way.uplink)) for way in record.ways} if record else set()
    return {(family, table_of(index)) for family, index in indices if index is not None}


def _is_pods(index: int) -> bool:
    try:
        return is_host_name(socket.if_indextoname(index))
    except OSError:
        return False
