# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has to change until a device carries a snapshot and another one no longer does. Pure: from what was seen to the
messages, in the order in which no packet is lost.

It never asks what was done before, so that it is right from any half-done state, in both directions.
"""

from __future__ import annotations

import errno
import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass

from ..model.l3 import L3, Address, Route, left
from . import l3_item as item, l3_route as route
from .l3_read import Seen, neighbours_of
from .l3_wire import (
    APPEND,
    CREATE,
    DELADDR,
    DELNEIGH,
    DELROUTE,
    DELRULE,
    EXCL,
    NEWADDR,
    NEWLINK,
    NEWNEIGH,
    NEWNEXTHOP,
    NEWROUTE,
    NEWRULE,
    REPLACE,
    Change,
)

_GONE = (errno.ESRCH, errno.ENOENT, errno.ENODEV, errno.EADDRNOTAVAIL)
_THERE = (errno.EEXIST,)
_NEIGHBOURS = 512
"""Learnt neighbours that are copied at most: the kernel keeps 1024 of all devices by default (arp(7), gc_thresh3)."""
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


@dataclass(frozen=True)
class Work:
    """A snapshot, what is, and the two devices: their names and indexes, 0 for one that is not there."""

    l3: L3
    seen: Seen
    source: str
    target: str
    age: float
    """Seconds since the snapshot was taken."""

    @property
    def source_index(self) -> int:
        """The index of the device that gives."""
        return self.seen.index(self.source)

    @property
    def target_index(self) -> int:
        """The index of the device that takes."""
        return self.seen.index(self.target)

    def move(self, index: int) -> int:
        """The device that takes the place of one in the snapshot."""
        if index == self.l3.index:
            return self.target_index
        return self.seen.index(self.l3.others.get(str(index), "")) or index

    def addresses(self) -> list[Address]:
        """The addresses that have not expired."""
        return [address for address in self.l3.addresses if left(address.valid, self.age) != 0]

    def routes(self) -> list[tuple[Route, bytes]]:
        """The routes that have not expired, as they are to be: by rank, in the kernel's order within one."""
        found = []
        for entry in sorted(self.l3.routes, key=lambda entry: entry.rank):
            expires = left(entry.expires, self.age)
            if expires != 0:
                found.append((entry, route.with_devices(bytes.fromhex(entry.message), self.move, expires)))
        return found


def staging(work: Work) -> list[Change]:
    """Addresses, neighbours and rules that the target lacks. None of them draws traffic to it."""
    return [*_addresses(work), *_brought(work), *_neighbours(work), *_rules(work)]


def moving(work: Work, keep: bool) -> list[Change]:
    """All that is left to do, staging included; nothing if it is done."""
    replaced: set[bytes] = set()
    routes = list(_routes(work, replaced))
    first = [change for rank, change in routes if rank < 2]
    last = [change for rank, change in routes if rank == 2]
    changes = [*staging(work), *first, *_nexthops(work), *last, *_vxlan(work)]
    if work.source_index:
        changes += _route_removals(work, replaced, keep)
    changes += _rule_removals(work)
    if work.source_index and not keep:
        changes += [*_neighbour_removals(work), *_address_removals(work)]
    return [*changes, *_final_flags(work)]


def connected(l3: L3, address: Address) -> bool:
    """Whether the device has the connected route that the kernel gives along with this address."""
    message = bytes.fromhex(address.message)
    plain = item.connected_route(message, l3.index)
    for entry in l3.routes:
        body = bytes.fromhex(entry.message)
        if entry.rank == 0 and route.key(body) == route.key(plain):
            return address.family == 6 or route.identity(body) == route.identity(plain)
    return False


def present(work: Work, address: Address) -> bytes | None:
    """The message of an address of the snapshot that the target has."""
    key = item.address_key(bytes.fromhex(address.message))
    for body in work.seen.addresses_of(work.target_index):
        if item.address_key(body) == key:
            return body
    return None


def _addresses(work: Work) -> Iterator[Change]:
    """IPv4 in order, since the first of a network is its primary; IPv6 from the last, since the newest is the first."""
    wanted = work.addresses()
    ordered = [entry for entry in wanted if entry.family == 4] + [entry for entry in wanted if entry.family == 6][::-1]
    for address in ordered:
        there = present(work, address)
        if there is not None and not item.address_flags(there) & item.DADFAILED:
            continue
        if there is not None:
            yield Change(DELADDR, 0, item.address_removal(there, work.target_index), address.cidr, _GONE)
        yield Change(NEWADDR, CREATE | EXCL, _address(work, address), f"address {address.cidr}", _THERE)


def _address(work: Work, address: Address) -> bytes:
    more = item.NODAD | item.NOPREFIXROUTE if address.family == 6 else 0
    label = item.moved_label(address.label, work.l3.device, work.target) if address.label else ""
    valid, preferred = left(address.valid, work.age), left(address.preferred, work.age)
    return item.address_message(bytes.fromhex(address.message), work.target_index, label, valid, preferred, more)


def _brought(work: Work) -> Iterator[Change]:
    """Takes away each connected route that the kernel gives along with an IPv4 address and that does not belong.

    Those that belong are put behind the source's, which is the first to be found until it goes.
    """
    there = {route.identity(body) for body in work.seen.routes}
    for address in work.addresses():
        message = bytes.fromhex(address.message)
        if address.family == 4 and item.brings_route(message) and not connected(work.l3, address):
            body = item.connected_route(message, work.target_index)
            if present(work, address) is None or route.identity(body) in there:
                yield Change(DELROUTE, 0, body, f"unwanted route {route.text(body)}", _GONE)


def _neighbours(work: Work) -> Iterator[Change]:
    states = {item.neighbour_key(body): item.neighbour_state(body)[0] for body in work.seen.neighbours}
    gateways = {entry.gateway for entry in work.l3.routes}
    fresh = list(neighbours_of(work.seen, work.source_index)) if work.source_index else []
    known = {(entry.family, entry.address, entry.proxy): entry for entry in fresh if not entry.permanent}
    for entry in work.l3.neighbours:
        known.setdefault((entry.family, entry.address, entry.proxy), entry)
    own = {entry.address for entry in work.l3.neighbours if entry.permanent or entry.proxy}
    learnt = 0
    for entry in sorted(known.values(), key=lambda entry: (entry.address not in own, entry.address not in gateways)):
        if (entry.permanent or entry.proxy) and entry.address not in own:
            continue
        learnt += not (entry.permanent or entry.proxy)
        body = item.neighbour_message(bytes.fromhex(entry.message), work.target_index)
        state = states.get(item.neighbour_key(body))
        if state is not None and (entry.proxy or state & (item.NUD_PERMANENT if entry.permanent else _KNOWN)):
            continue
        if learnt <= _NEIGHBOURS:
            yield Change(NEWNEIGH, CREATE | REPLACE, body, f"neighbour {entry.address}")


def _rules(work: Work) -> Iterator[Change]:
    there = {item.rule_identity(body) for body in work.seen.rules}
    for rule in work.l3.rules:
        body = item.rule_message(bytes.fromhex(rule.message), work.l3.device, work.target)
        if item.rule_identity(body) not in there:
            yield Change(NEWRULE, CREATE | EXCL, body, f"rule {item.rule_text(body)}", _THERE)


def _routes(work: Work, replaced: set[bytes]) -> Iterator[tuple[int, Change]]:
    """Each route that the target lacks, with its rank. `replaced` takes the messages whose routes these replace."""
    wanted = work.routes()
    ends = {end for _entry, body in wanted for end in route.ends(body)}
    there: dict[tuple[object, ...], list[bytes]] = {}
    for body in work.seen.routes:
        if route.is_configured(body):
            there.setdefault(route.key(body), []).append(body)
    for entry, body in wanted:
        if entry.router:
            continue
        same = there.get(route.key(body), [])
        found = {end for other in same for end in route.ends(other)}
        if route.ends(body) <= found:
            continue
        victim = _replaceable(work, body, same, ends, replaced)
        if victim is not None:
            replaced.add(victim)
        new = body if victim is not None else route.only_new(body, found)
        flags = CREATE | (APPEND if victim is None else REPLACE)
        yield entry.rank, Change(NEWROUTE, flags, new, f"route {entry.text}", _THERE)


def _replaceable(
    work: Work, body: bytes, same: list[bytes], ends: set[tuple[object, ...]], replaced: set[bytes]
) -> bytes | None:
    """The route that the kernel would replace with this one, if that is right.

    The kernel takes the first of the same key, on whatever device that is (IPv4), or the first of those that may have
    siblings (IPv6): fe80::/64 is a route of every device. So only what is ours, and of IPv6 only what is alone.
    """
    if not same or (body[0] != _IPV4 and len(same) > 1):
        return None
    first = same[0]
    ours = {work.source_index, work.target_index} | route.devices(body)
    kept = route.ends(first) & ends - route.ends(body)
    if first in replaced or kept or not route.devices(first) <= ours:
        return None
    return first


def _nexthops(work: Work) -> Iterator[Change]:
    there = set(work.seen.nexthops)
    for nexthop in sorted(work.l3.nexthops, key=lambda nexthop: nexthop.rank):
        body = route.nexthop_with_devices(bytes.fromhex(nexthop.message), work.move)
        if not any(route.nexthop_with_devices(other, route.same) == body for other in there):
            yield Change(NEWNEXTHOP, CREATE | REPLACE, body, nexthop.text)


def _vxlan(work: Work) -> Iterator[Change]:
    for child in work.l3.vxlan:
        link = work.seen.links.get(child.name)
        if link is not None and link.vni == child.vni and link.lower not in (0, work.target_index):
            yield Change(NEWLINK, 0, item.lower_message(link.index, work.target_index), f"VXLAN link {child.name}")


def _route_removals(work: Work, replaced: set[bytes], keep: bool) -> Iterator[Change]:
    for body in work.seen.routes_of(work.source_index):
        if body in replaced or route.nexthop_number(body) or (keep and _is_link_local(body)):
            continue
        for single in route.singles(body):
            if route.devices(single) == {work.source_index}:
                message = route.with_devices(single, route.same)
                yield Change(DELROUTE, 0, message, f"old route {route.text(single)}", _GONE)


def _is_link_local(body: bytes) -> bool:
    """Whether a device that still answers to its neighbours needs this route."""
    to = route.destination(body)
    return to != "default" and ipaddress.ip_interface(to).ip in _LINK_LOCAL


def _rule_removals(work: Work) -> Iterator[Change]:
    there = {item.rule_identity(body) for body in work.seen.rules}
    for rule in work.l3.rules:
        body = item.rule_message(bytes.fromhex(rule.message), work.l3.device, work.source)
        if item.rule_identity(body) in there:
            yield Change(DELRULE, 0, body, f"old rule {item.rule_text(body)}", _GONE)


def _neighbour_removals(work: Work) -> Iterator[Change]:
    there = {item.neighbour_key(body) for body in work.seen.neighbours}
    for entry in work.l3.neighbours:
        body = item.neighbour_message(bytes.fromhex(entry.message), work.source_index)
        if (entry.permanent or entry.proxy) and item.neighbour_key(body) in there:
            yield Change(DELNEIGH, 0, body, f"old neighbour {entry.address}", _GONE)


def _address_removals(work: Work) -> Iterator[Change]:
    """IPv4 from the last, for the first of a network takes the others along; IPv6 in order.

    What is neither of the snapshot nor the kernel's or a client's own stays: it is somebody else's.
    """
    ours = {item.address_key(bytes.fromhex(address.message)) for address in work.l3.addresses}
    there = work.seen.addresses_of(work.source_index)
    ipv4 = [body for body in there if body[0] == _IPV4][::-1]
    for body in [*ipv4, *(body for body in there if body[0] != _IPV4)]:
        _family, length, own, _far = item.address_key(body)
        host = ipaddress.ip_address(own)
        limited = not item.address_flags(body) & item.PERMANENT
        if item.address_key(body) in ours or limited or (host.version == 6 and host.is_link_local):
            removal = item.address_removal(body, work.source_index)
            yield Change(DELADDR, 0, removal, f"old address {host}/{length}", _GONE)


def _final_flags(work: Work) -> Iterator[Change]:
    """IPv6 addresses are staged without their connected route, and get their own flags when that is there."""
    mask = item.NODAD | item.NOPREFIXROUTE
    for address in work.addresses():
        if address.family != 6:
            continue
        message = bytes.fromhex(address.message)
        more = 0 if connected(work.l3, address) else item.NOPREFIXROUTE
        there = present(work, address)
        wanted = (item.address_flags(message) | more) & mask
        if there is not None and item.address_flags(there) & mask == wanted:
            continue
        valid, preferred = (
            (left(address.valid, work.age), left(address.preferred, work.age))
            if there is None
            else item.address_lifetimes(there)
        )
        body = item.address_message(message, work.target_index, "", valid, preferred, more)
        yield Change(NEWADDR, REPLACE, body, f"flags of {address.cidr}")


_IPV4 = item.FAMILY_IPV4
_KNOWN = item.NUD_LEARNT | item.NUD_PERMANENT
