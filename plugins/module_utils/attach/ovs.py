# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-ovs`: a pod's interface as a port of an Open vSwitch bridge."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from ..cni.config import valid_attachments
from ..cni.request import Request
from ..cni.result import Interface, Result, render
from ..errors import UNAVAILABLE, ConfigError, DeadlineExceeded, PodnetError
from ..kernel import fastpath
from ..kernel.rtnetlink import LinkExists
from ..model.node import ONE_HEADER, TWO_HEADERS, Node
from ..model.ownership import OWNER_OVS, Mark
from ..model.port import Bandwidth
from ..model.vlan import VlanSet
from ..vswitch.fastpath import Switch
from ..vswitch.podport import PodPort
from . import ending, lease as ipam, opening, spoof, subinterfaces
from .call import ANSWER_SECONDS, Call, Means
from .check import check
from .common import attempt, earlier, known_endpoint, open_space, pod_routes, refuse_taken, taken
from .keys import UPLINK_KEY
from .leases import Leases
from .plugin import Plugin
from .undo import Undo, undoing
from .wish import Wish, derived_mac, host_mac, host_name, load_node, parse_wish, refuse_closed

TYPE = "podnet-ovs"
PORT_SECONDS = 10.0
"""How long an ovs-vswitchd that is at work may take to open a port. One that does nothing at all is given up sooner."""
UNDO_SECONDS = 5.0


def add(call: Call) -> dict[str, Any]:
    """ADD: the interface, its port, its addresses; gives the result in the configuration's version.

    What fails takes back exactly what it made. Raises PodnetError.
    """
    with ExitStack() as stack:
        lease = ipam.Lease(call)
        stack.callback(lease.drop)
        call.steps.done("ipam starts")
        node = load_node()
        request = call.request
        wish = parse_wish(call.conf, request, node)
        if not wish.from_ipam:
            refuse_closed(wish, request, node)
        space = stack.enter_context(open_space(call))
        refuse_taken(call, space)
        subinterfaces.refuse_taken(space, wish.subinterfaces, call.waited or call.means.doubled)
        call.steps.done("configuration")
        with undoing() as undo:
            return _add(call, wish, lease, node, space, undo, stack)


def _add(
    call: Call, wish: Wish, lease: ipam.Lease, node: Node, space: fastpath.PodSpace, undo: Undo, stack: ExitStack
) -> dict[str, Any]:  # fmt: skip
    """All that takes its time begins at once: the IPAM plugin, then ovs-vswitchd, then the kernel.

    If the IPAM plugin is to name the uplink, nothing can begin before it has answered.
    """
    endpoint = node.ovsdb
    request, done = call.request, call.steps.done
    key = (request.container_id, request.ifname)
    host, mac = host_name(*key), wish.mac or derived_mac(*key)
    undo.add(lambda: lease.release(time.monotonic() + UNDO_SECONDS))
    lease.begin()
    others = Leases(subinterfaces.lease_calls(call, wish.subinterfaces), undo)
    switch = stack.enter_context(call.switch(endpoint, host))
    own: Result | None = None
    if wish.from_ipam:
        own = lease.result(with_interfaces=True)
        wish = _on_uplink(call, own, switch, node)
        done("uplink")
    port = _port(call, wish, host)
    guarded: list[str] = []
    # Before it is sent: what arrives late has to go too.
    undo.add(lambda: opening.abandon(call, endpoint, switch, port, guarded))
    if wish.ofport_request is not None:
        opening.refuse_number(switch.holder_of(wish.bridge, wish.ofport_request), wish, host)
    if wish.bandwidth:
        # After a port of the same name has gone: seen once, the new link had no limits, as if ovs-vswitchd had taken it
        # for the old one.
        switch.wait_for_switch(call.seconds(PORT_SECONDS))
    switch.begin(port)
    done("database begins")
    try:
        fastpath.make_veth(host, host_mac(*key), request.ifname, mac, wish.mtu, space.netns_fd)
    except LinkExists as error:  # made since it was looked for
        raise taken(request.ifname) from error
    undo.add(lambda: fastpath.remove_link(host))
    fastpath.silence(host)
    if wish.userspace:
        space.compute_checksums(request.ifname)
    if not wish.spoof_check:
        _bring_up(space, request, wish)
    done("link")
    opening.inserted(switch, port)
    if wish.spoof_check:
        spoof.refuse_ruled(switch, wish.bridge)
    if wish.vlans.cvlans and switch.vlan_limit() == 1:
        raise ConfigError("cvlans", ONE_HEADER, TWO_HEADERS)
    done("database")
    names = [request.ifname, *(item.name for item in wish.subinterfaces)]
    given = [own or lease.result(), *others.results()]
    if wish.spoof_check:
        spoof.refuse_many([text for each in given for text in _cidrs(each)])
    switch.mark(port, _mark(call, given, wish, mac))
    result = render(_result(call, given, host, mac, wish), call.conf.version)
    done("ipam")
    if not wish.spoof_check:
        _configure(space, names, given)
    done("addresses")
    ofport = switch.settle(port, call.seconds(PORT_SECONDS))
    done("switch")
    if wish.ofport_request not in (None, ofport):
        opening.refuse_number("another port", wish, host)
    opening.refuse_unlimited(wish, host)
    if wish.spoof_check:  # nothing passes before the flows are there
        guarded.append(wish.bridge)
        spoof.guard(wish.bridge, host, ofport, mac, [text for each in given for text in _cidrs(each)], call.turn_fd)
        _bring_up(space, request, wish)
        _configure(space, names, given)
        done("flows")
    call.means.announce(space.netns_fd, [(name, mac, _cidrs(each)) for name, each in zip(names, given)])
    return result


def _bring_up(space: fastpath.PodSpace, request: Request, wish: Wish) -> None:
    space.bring_up(request.ifname)
    subinterfaces.make(space, request.ifname, wish.subinterfaces, wish.mtu)


def _configure(space: fastpath.PodSpace, names: Sequence[str], given: Sequence[Result]) -> None:
    for name, each in zip(names, given):
        space.configure(name, _cidrs(each), pod_routes(each))


def _cidrs(given: Result) -> list[str]:
    return [item.address for item in given.addresses]


def delete(call: Call) -> None:
    """DEL: link, port, leases; see `ending.delete`."""
    recorded: list[VlanSet] = []
    ending.delete(
        call,
        partial(let_go, recorded=recorded),
        lambda host, trace: subinterfaces.release(call, host, trace, VlanSet.union(recorded)),
    )


def let_go(
    request: Request, means: Means, recorded: list[VlanSet] | None = None
) -> tuple[list[PodnetError], bool]:  # fmt: skip
    """Link and port of an attachment go. Gives what went wrong with the link, and whether there was or may be either.

    A port that stays because the database is away is marked, and leads nowhere: the next ADD or GC takes it. `recorded`
    gets the VLANs of the pod that the port knows of.
    """
    failed: list[PodnetError] = []
    unseen: list[PodnetError] = []
    there: list[object] = []
    host = host_name(request.container_id, request.ifname)
    links: list[fastpath.LinkRemoval] = []
    attempt(failed, lambda: links.append(fastpath.LinkRemoval(host)))
    attempt(unseen, lambda: there.append(_detach(host, means, [] if recorded is None else recorded)))
    for link in links:
        attempt(failed, partial(_waited, link, there))
    return failed, bool(failed or unseen or any(there))


def leaves_trace(request: Request, means: Means) -> bool:
    """`let_go` for a DEL that brings no configuration: whether there was or may be anything."""
    return any(let_go(request, means))


def _waited(link: fastpath.LinkRemoval, there: list[object]) -> None:
    there.append(link.wait())


def _detach(host: str, means: Means, recorded: list[VlanSet]) -> bool:
    with means.switch(known_endpoint(), ANSWER_SECONDS, host) as switch:
        known = switch.followed(host)
        port = switch.attachment(host) if known and known.subinterfaces else None
        recorded += [port.mark.subinterfaces] if port else []
        guarded = switch.attachment(host) if known and known.spoof_check else None
        if guarded is not None:
            # First: a switch that does not take it now keeps its port, which says that there are flows of it.
            spoof.unguard(guarded.bridge, host)
        return switch.detach(host)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    node = load_node()
    raw = call.conf.raw
    name = raw.get("bridge") or (node.bridges[0].name if node.bridges else "")
    with call.switch(node.ovsdb) as switch:
        there = switch.bridges()
        if name not in there and not (there and raw.get(UPLINK_KEY) and not raw.get("bridge")):
            raise PodnetError(f"bridge {name or 'none'} is not there", "run the role podnet.ovs.node", UNAVAILABLE)
        try:
            switch.wait_for_switch(call.seconds(ANSWER_SECONDS))
        except DeadlineExceeded as error:
            raise PodnetError(error.message, error.hint, UNAVAILABLE) from error
    for each in (call, *subinterfaces.by_ipam(call)):
        ipam.status(each)


def collect(call: Call) -> None:
    """GC: attachments of this network that the runtime does not list go, with their leases.

    A runtime that gives no list changes nothing. Raises the first PodnetError after all was tried.
    """
    keep = valid_attachments(call.conf.raw)
    if keep is None:
        return
    failed: list[PodnetError] = []
    with call.switch(known_endpoint()) as switch:
        there = switch.attachments()
        gone = [
            item
            for item in there
            if item.mark.network == call.conf.name and (item.mark.container_id, item.mark.ifname) not in keep
        ]
        for item in gone:
            attempt(failed, partial(fastpath.remove_link, item.port))
        attempt(failed, lambda: spoof.detach(switch, gone))
        attempt(failed, switch.drop_stray_limits)
    for item in gone:
        # Plugins of before 1.1.0 know no GC: each lost attachment is released by name as well.
        lost = call.of(item.mark.container_id, item.mark.ifname)
        for each in (lost, *subinterfaces.lost_leases(lost, item.mark.subinterfaces)):
            attempt(failed, partial(ipam.release, each, call.deadline))
    full = subinterfaces.expanded_call(call, {
        (item.mark.container_id, item.mark.ifname): item.mark.subinterfaces for item in there
    })  # fmt: skip
    for each in (full, *subinterfaces.by_ipam(full)):
        attempt(failed, partial(ipam.collect, each))
    if failed:
        raise failed[0]


def _on_uplink(call: Call, given: Result, switch: Switch, node: Node) -> Wish:
    """What is asked for, on the bridge of the uplink that the IPAM plugin has named."""
    from . import uplinks  # only who asks for it pays for it

    seconds = call.seconds(uplinks.WAIT_SECONDS)
    named = uplinks.hints(given, call.conf.ipam_type)
    homes = {item.name or item.mac: uplinks.find(switch, item, seconds) for item in named}
    bridge = uplinks.one_bridge(homes, call.conf.raw.get("bridge"))
    wish = parse_wish(call.conf, call.request, node, bridge=bridge)
    refuse_closed(wish, call.request, node)
    return wish


def _port(call: Call, wish: Wish, host: str) -> PodPort:
    return PodPort(
        host, wish.bridge, wish.vlans.columns(), _mark(call, (), wish, ""), wish.ofport_request, wish.isolated,
        wish.bandwidth or Bandwidth(),
    )  # fmt: skip


def _mark(call: Call, given: Sequence[Result], wish: Wish, mac: str) -> Mark:
    args = call.request.args
    addresses = tuple(text for each in given for text in _cidrs(each))
    return Mark(
        OWNER_OVS, call.request.container_id, call.request.ifname, call.conf.name, call.request.pod_namespace,
        args.get("K8S_POD_NAME", ""), args.get("K8S_POD_UID", ""), addresses,
        wish.mtu, mac if wish.spoof_check else "", wish.spoof_check,
        VlanSet.of(item.vlan for item in wish.subinterfaces),
    )  # fmt: skip


def _result(call: Call, given: Sequence[Result], host: str, mac: str, wish: Wish) -> Result:
    own, others = given[0], given[1:]
    container = Interface(call.request.ifname, mac, call.request.netns, wish.mtu)
    ends = (Interface(host, host_mac(call.request.container_id, call.request.ifname), "", wish.mtu), container)
    result = earlier(call).extended(ends, own.addresses, own.routes, own.dns or call.conf.dns, owner=1)
    return subinterfaces.extend(result, wish.subinterfaces, others, call.request.netns, mac, wish.mtu)


PLUGIN = Plugin(TYPE, add, delete, check, status, collect, leaves_trace)
