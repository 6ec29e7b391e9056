# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-routed`: a pod's interface that the node routes for, by the uplink that its addresses belong to.

A pair of links leads to the node and no further. What the node has for an address is in model/routing.py.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from ..cni.config import valid_attachments
from ..cni.request import Request
from ..cni.result import Interface, Result, render
from ..errors import TRY_AGAIN, UNAVAILABLE, ConfigError, DeadlineExceeded, PodnetError, RefusedError
from ..kernel import fastpath, hostlink, pod
from ..kernel.defaults import default_families
from ..kernel.routed import families, neighbour
from ..kernel.rtnetlink import LinkExists
from ..model.node import Node
from ..model.routing import GATEWAYS
from ..vswitch.fastpath import Switch
from . import ending, lease as ipam, routed_host, routed_record as records, uplinks
from .call import Call, Means
from .common import attempt, earlier, known_endpoint, open_space, refuse_taken, taken
from .keys import UPLINK_KEY
from .plugin import Plugin
from .promise import differs, look, own_index, promised
from .routed_record import Record
from .routed_wish import Wish, in_pod, parse_wish, pod_routes, refuse_closed, refuse_useless, ways
from .undo import Undo, undoing
from .uplinks import Home
from .wish import derived_mac, host_mac, host_name, load_node

TYPE = "podnet-routed"
UNDO_SECONDS = 5.0
_PREPARE = {
    4: "sysctl -w net.ipv4.ip_forward=1, and in /etc/sysctl.d",
    6: "sysctl -w net.ipv6.conf.all.forwarding=1, and in /etc/sysctl.d; accept_ra=2 on links that learn from routers",
}


def add(call: Call) -> dict[str, Any]:
    """ADD: the pair, its addresses, the way in and out; gives the result in the configuration's version.

    What fails takes back exactly what it made. Raises PodnetError.
    """
    with ExitStack() as stack:
        lease = ipam.Lease(call)
        stack.callback(lease.drop)
        call.steps.done("ipam starts")
        node = load_node()
        request = call.request
        wish = parse_wish(call.conf, request)
        space = stack.enter_context(open_space(call))
        refuse_taken(call, space)
        switch = stack.enter_context(call.switch(node.ovsdb))
        named = _open_uplink(call, switch, node, Interface(wish.uplink), "uplink") if wish.uplink else None
        call.steps.done("configuration")
        with undoing() as undo:
            undo.add(lambda: lease.release(time.monotonic() + UNDO_SECONDS))
            lease.begin()
            given = lease.result(with_interfaces=True)
            call.steps.done("ipam")
            refuse_useless(given, wish, call.conf.ipam_type)
            homes = _homes(call, given, wish, named, switch, node)
            call.steps.done("uplink")
            return _add(call, wish, given, homes, space, undo)


def _add(
    call: Call, wish: Wish, given: Result, homes: Sequence[Home], space: fastpath.PodSpace, undo: Undo
) -> dict[str, Any]:  # fmt: skip
    request, done = call.request, call.steps.done
    key = (request.container_id, request.ifname)
    host, mac, theirs = host_name(*key), wish.mac or derived_mac(*key), host_mac(*key)
    links = [_link_of(home) for home in homes]
    versions = {item.family for item in given.addresses}
    for link in links:
        _refuse_idle(link.name, versions)
    have = in_pod(given)
    _refuse_second_default(space, have, given)
    most = min(link.mtu for link in links)
    mtu = wish.mtu or most
    if mtu > most:
        raise ConfigError("mtu", f"{mtu} bytes are more than the {most} of the uplink", "leave the key away")
    record = Record(*key, call.conf.name, ways(given, homes))
    result = render(_result(call, have, host, mac, mtu), call.conf.version)
    try:
        fastpath.make_veth(host, theirs, request.ifname, mac, mtu, space.netns_fd)
    except LinkExists as error:  # made since it was looked for
        raise taken(request.ifname) from error
    undo.add(lambda: routed_host.withdraw(host))
    hostlink.face_pod(host, with_ipv6=6 in versions)
    done("link")
    asked = routed_host.install(record, mac, call.seconds(routed_host.TURN_SECONDS))
    done("routes and rules")
    space.bring_up(request.ifname)
    cidrs = [item.address for item in have.addresses]
    space.configure(request.ifname, cidrs, ())
    index = space.index(request.ifname) or 0
    space.talk([neighbour(index, theirs, GATEWAYS[version]) for version in sorted(versions)])
    space.configure(request.ifname, (), pod_routes(have))
    done("addresses")
    for name in sorted({way.uplink for way in record.ways}):
        mine = [way.address for way in record.ways if way.uplink == name and way.address in asked]
        if mine:
            call.means.announce(-1, [(name, "", mine)])
    return result


def delete(call: Call) -> None:
    """DEL: link, rules, routes, lease; see `ending.delete`."""
    ending.delete(call, let_go)


def let_go(request: Request, _means: Means) -> tuple[list[PodnetError], bool]:
    """All of an attachment but its lease. Gives what went wrong, and whether there was or may be anything."""
    failed: list[PodnetError] = []
    there: list[bool] = []
    host = host_name(request.container_id, request.ifname)
    attempt(failed, lambda: there.append(routed_host.withdraw(host)))
    # Whatever kept the rest from going: nothing is to answer on the address any more.
    attempt(failed, lambda: there.append(fastpath.remove_link(host)))
    return failed, bool(failed or any(there))


def leaves_trace(request: Request, means: Means) -> bool:
    """`let_go` for a DEL that brings no configuration: whether there was or may be anything."""
    return any(let_go(request, means))


def check(call: Call) -> None:
    """CHECK: what prevResult promises is so, on both ends. Raises PodnetError that names the difference."""
    request = call.request
    previous = promised(call)
    host = host_name(request.container_id, request.ifname)
    with open_space(call) as space:
        index = own_index(previous, request.ifname, request.netns)
        look(space, previous, index)
    if not pod.exists(host):
        raise differs(f"the host's end {host} is gone")
    link = hostlink.link(host)
    if link is not None and not link.up:
        raise differs(f"the host's end {host} is down")
    record = records.load(host)
    if record is None:
        raise differs(f"the node has no record of {host} in {records.FOLDER}")
    mine = {item.address.partition("/")[0] for item in previous.addresses if item.interface == index}
    if mine != record.addresses:
        other = ", ".join(sorted(mine ^ record.addresses))
        raise differs(f"{other} is not what the node has a record of: another attachment may have it by now")
    with records.turn(call.seconds(routed_host.TURN_SECONDS)):
        found = routed_host.missing(record)
    if found:
        hint = "the agent and a GC put that right, or delete the pod, so that it is made anew"
        raise PodnetError("; ".join(found), hint, differs("").code)
    for way in record.ways:
        for name in (way.uplink, host):
            _refuse_idle(name, {way.family})
    ipam.check(call)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    node = load_node()
    wish = parse_wish(call.conf, call.request, strict=False)
    with call.switch(node.ovsdb) as switch:
        if wish.uplink:
            try:
                link = _link_of(uplinks.find(switch, Interface(wish.uplink), 0.0, "uplink"))
            except PodnetError as error:
                raise PodnetError(error.message, error.hint, UNAVAILABLE) from error
            idle = [hostlink.forwards(link.name, version) for version in families()]
            if all(idle):
                raise PodnetError(f"the node does not forward: {idle[0]} is not 1", _PREPARE[4], UNAVAILABLE)
    ipam.status(call)


def collect(call: Call) -> None:
    """GC: attachments of this network that the runtime does not list go, with their leases; then what nobody has.

    A runtime that gives no list changes nothing. Raises the first PodnetError after all was tried.
    """
    keep = valid_attachments(call.conf.raw)
    if keep is None:
        return
    failed: list[PodnetError] = []
    gone = [
        item
        for item in records.load_all()
        if item.network == call.conf.name and (item.container_id, item.ifname) not in keep
    ]
    for item in gone:
        attempt(failed, partial(routed_host.withdraw, item.host))
        # Plugins of before 1.1.0 know no GC: each lost attachment is released by name as well.
        attempt(failed, partial(ipam.release, call.of(item.container_id, item.ifname), call.deadline))
    attempt(failed, routed_host.sweep)
    attempt(failed, lambda: _repair(call))
    attempt(failed, lambda: ipam.collect(call))
    if failed:
        raise failed[0]


def _repair(call: Call) -> None:
    """Whoever changes the node at this moment is followed by another look, the agent's or a later GC's."""
    if not records.any_there():
        return
    with suppress(DeadlineExceeded), call.switch(known_endpoint()) as switch:
        repaired = routed_host.repair(partial(uplinks.now, switch))
        for name, addresses in repaired.asked.items():
            call.means.announce(-1, [(name, "", addresses)])


def _homes(
    call: Call, given: Result, wish: Wish, named: Home | None, switch: Switch, node: Node
) -> list[Home]:  # fmt: skip
    """The uplink of each address."""
    if not wish.from_ipam:
        return [named for _item in given.addresses] if named else []
    found: dict[tuple[str, str], Home] = {}
    homes = []
    for hint in uplinks.hints(given, call.conf.ipam_type):
        key = (hint.name, hint.mac)
        home = found.get(key) or _open_uplink(call, switch, node, hint, UPLINK_KEY)
        found[key] = home
        if named is not None and home.device != named.device:
            raise ConfigError(
                "uplink", f"{wish.uplink} is given, but {call.conf.ipam_type} names {home.device}", "leave uplink away"
            )
        homes.append(home)
    return homes


def _open_uplink(call: Call, switch: Switch, node: Node, hint: Interface, key: str) -> Home:
    """Raises PolicyError if the pod may not leave by it."""
    home = uplinks.find(switch, hint, call.seconds(uplinks.WAIT_SECONDS), key)
    refuse_closed(home, call.request, node)
    return home


def _link_of(home: Home) -> hostlink.HostLink:
    link = hostlink.link(home.device)
    if link is None:
        raise PodnetError(f"the uplink {home.device} is not there", "is ovs-vswitchd running?", TRY_AGAIN)
    if not link.up:
        raise PodnetError(f"the uplink {home.device} is down", f"ip link set {home.device} up", TRY_AGAIN)
    return link


def _refuse_idle(name: str, versions: Iterable[int]) -> None:
    """Raises PodnetError unless packets that come in on a link are forwarded."""
    for version in sorted(versions):
        if version not in families():
            raise PodnetError("this node has no IPv6, and the pod has an address of it", "take that range out of ipam")
        setting = hostlink.forwards(name, version)
        if setting:
            raise PodnetError(f"the node does not forward: {setting} is not 1", _PREPARE[version], UNAVAILABLE)


def _refuse_second_default(space: fastpath.PodSpace, have: Result, given: Result) -> None:
    """A pod's default route by another interface is never replaced because the IPAM plugin said nothing of routes."""
    there = default_families(space)
    for route in have.routes[len(given.routes) :]:
        if route.family in there:
            raise RefusedError(
                f"ipam: no IPv{route.family} routes are given, and the pod has a default route already",
                "name the destinations that this interface leads to: routes in ipam",
            )


def _result(call: Call, have: Result, host: str, mac: str, mtu: int) -> Result:
    container = Interface(call.request.ifname, mac, call.request.netns, mtu)
    ends = (Interface(host, host_mac(call.request.container_id, call.request.ifname), "", mtu), container)
    return earlier(call).extended(ends, have.addresses, have.routes, have.dns or call.conf.dns, owner=1)


PLUGIN = Plugin(TYPE, add, delete, check, status, collect, leaves_trace)
