# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-ovs`: a pod's interface as an access port of an Open vSwitch bridge."""

from __future__ import annotations

import ipaddress
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..cni.config import valid_attachments
from ..cni.reply import Reported
from ..cni.request import Request
from ..cni.result import Interface, Result, Route, parse_result, render
from ..errors import (
    INVALID_CONFIG,
    UNAVAILABLE,
    ConfigError,
    DeadlineExceeded,
    NetnsError,
    OvsdbError,
    PodnetError,
    RefusedError,
)
from ..kernel import fastpath, pod
from ..kernel.netns import inside, is_own
from ..model.ownership import OWNER_OVS, Mark
from ..model.paths import OVSDB
from ..vswitch.attachments import ACCESS, Attachment
from ..vswitch.fastpath import Switch, open_switch
from . import lease as ipam, owed
from .call import Call
from .wish import Wish, derived_mac, host_mac, host_name, load_node, parse_wish, refuse_closed

TYPE = "podnet-ovs"
ANSWER_SECONDS = 1.2
"""How long the database may take to answer; when it works that is a millisecond."""
PORT_SECONDS = 10.0
"""How long an ovs-vswitchd that is at work may take to open a port. One that does nothing at all is given up sooner."""
UNDO_SECONDS = 5.0


class Undo:
    """What to take back, last thing first, if a call fails. Each step runs whatever the others do."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        self._steps.append(step)

    def run(self) -> list[str]:
        """Errors of the way back, in words."""
        failed = []
        for step in reversed(self._steps):
            try:
                step()
            except (PodnetError, OSError) as error:
                failed.append(str(error))
        return failed


def add(call: Call) -> dict[str, Any]:
    """ADD: the interface, its port, its addresses; gives the result in the configuration's version.

    What fails takes back exactly what it made. Raises PodnetError.
    """
    node = load_node()
    request, conf = call.request, call.conf
    wish = parse_wish(conf, request, node)
    refuse_closed(wish, request, node)
    netns_fd = _netns(call)
    undo = Undo()
    with fastpath.PodSpace(netns_fd) as space:
        if space.index(request.ifname) is not None:
            raise _taken(request.ifname)
        try:
            return _add(call, wish, node.ovsdb, space, undo)
        except BaseException as error:
            left = undo.run()
            if left and isinstance(error, PodnetError):
                error.hint = "; ".join([*([error.hint] if error.hint else []), "on the way back: " + ", ".join(left)])
            raise


def _add(call: Call, wish: Wish, endpoint: str, space: fastpath.PodSpace, undo: Undo) -> dict[str, Any]:
    request = call.request
    key = (request.container_id, request.ifname)
    host, mac = host_name(*key), wish.mac or derived_mac(*key)
    with open_switch(endpoint, call.seconds(ANSWER_SECONDS)) as switch:
        stale = _look(request, wish, host, switch)
        lease = ipam.Lease(call)
        undo.add(lambda: lease.release(time.monotonic() + UNDO_SECONDS))
        try:
            fastpath.make_veth(host, host_mac(*key), request.ifname, mac, wish.mtu, space.netns_fd)
        except fastpath.LinkExists as error:  # made since it was looked for
            raise _taken(request.ifname) from error
        undo.add(lambda: fastpath.remove_link(host))
        # Before it is sent: what arrives late has to go too.
        undo.add(lambda: detach(request, endpoint))
        switch.attach(wish.bridge, host, wish.vlan, _mark(call, Result(), wish), stale)
        # While ovs-vswitchd opens the port.
        given = lease.result()
        result = render(_result(call, given, host, mac, wish.mtu), call.conf.version)
        if wish.userspace:
            space.compute_checksums(request.ifname)
        cidrs = [item.address for item in given.addresses]
        space.configure(request.ifname, cidrs, [_route(item, given) for item in given.routes])
        switch.settle(host, _mark(call, given, wish), call.seconds(PORT_SECONDS))
    call.announcer(space.take_packet_socket(request.ifname), mac, cidrs)
    return result


def delete(call: Call) -> None:
    """DEL: link, port, lease, each whether or not the one before failed; what is missing is done.

    Needs neither namespace nor database nor prevResult. Raises PodnetError for a link or lease that could not go. An
    attachment of which there is no trace has no lease either: an IPAM plugin that then refuses a configuration, which
    ADD got to hear too, does not keep the runtime from going on.
    """
    host = host_name(call.request.container_id, call.request.ifname)
    failed, trace = let_go(call.request)
    refused: list[PodnetError] = []
    _attempt(refused, lambda: ipam.release(call, call.deadline))
    if not refused:
        owed.forget(host)
    elif trace or owed.is_owed(host) or not isinstance(refused[0], Reported):
        _attempt(failed, lambda: owed.remember(host))
        failed += refused
    if failed:
        raise failed[0]


def let_go(request: Request) -> tuple[list[PodnetError], bool]:
    """Link and port of an attachment go. Gives what went wrong with the link, and whether there was or may be either.

    A port that stays because the database is away is marked, and leads nowhere: the next ADD or GC takes it.
    """
    failed: list[PodnetError] = []
    unseen: list[PodnetError] = []
    there: list[object] = []
    host = host_name(request.container_id, request.ifname)
    _attempt(failed, lambda: there.append(fastpath.remove_link(host)))
    _attempt(unseen, lambda: there.append(detach(request, _endpoint())))
    return failed, bool(failed or unseen or any(there))


def detach(request: Request, endpoint: str) -> list[Attachment]:
    """The attachment's port goes, or ports if something went wrong; gives what was there. Raises PodnetError."""
    with open_switch(endpoint, ANSWER_SECONDS) as switch:
        mine = switch.look(request.container_id, request.ifname).mine
        switch.detach(mine)
        return mine


def check(call: Call) -> None:
    """CHECK: what prevResult promises of this interface is so. Raises PodnetError that names the difference."""
    request, conf = call.request, call.conf
    if conf.prev_result is None:
        raise ConfigError("prevResult", "CHECK needs the result of ADD")
    previous = parse_result(conf.prev_result, "prevResult")
    index = next(
        (i for i, item in enumerate(previous.interfaces) if item.name == request.ifname and item.sandbox), None
    )
    if index is None:
        raise ConfigError("prevResult.interfaces", f"{request.ifname} of the container is not among them")
    netns_fd = _netns(call)
    host = host_name(request.container_id, request.ifname)
    _check_link(inside(netns_fd, lambda: pod.observe(request.ifname)), previous, index)
    if not pod.exists(host):
        raise _differs(f"the host's end {host} is gone")
    with open_switch(_endpoint(), call.seconds(ANSWER_SECONDS)) as switch:
        _check_port(call, host, switch.look(request.container_id, request.ifname).mine)
    ipam.check(call)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    node = load_node()
    name = call.conf.raw.get("bridge") or (node.bridges[0].name if node.bridges else "")
    with open_switch(node.ovsdb, call.seconds(ANSWER_SECONDS)) as switch:
        if name not in switch.bridges():
            raise PodnetError(f"bridge {name or 'none'} is not there", "run the role podnet.ovs.node", UNAVAILABLE)
        try:
            switch.wait_for_switch(call.seconds(ANSWER_SECONDS))
        except DeadlineExceeded as error:
            raise PodnetError(error.message, error.hint, UNAVAILABLE) from error
    ipam.status(call)


def collect(call: Call) -> None:
    """GC: attachments of this network that the runtime does not list go, with their leases.

    A runtime that gives no list changes nothing. Raises the first PodnetError after all was tried.
    """
    keep = valid_attachments(call.conf.raw)
    if keep is None:
        return
    failed: list[PodnetError] = []
    with open_switch(_endpoint(), call.seconds(ANSWER_SECONDS)) as switch:
        gone = [
            item
            for item in switch.attachments()
            if item.mark.network == call.conf.name and (item.mark.container_id, item.mark.ifname) not in keep
        ]
        for item in gone:
            _attempt(failed, partial(fastpath.remove_link, item.port))
        _attempt(failed, lambda: switch.detach(gone))
    for item in gone:
        # Plugins of before 1.1.0 know no GC: each lost attachment is released by name as well.
        lost = call.of(item.mark.container_id, item.mark.ifname)
        _attempt(failed, partial(ipam.release, lost, call.deadline))
    _attempt(failed, lambda: ipam.collect(call))
    if failed:
        raise failed[0]


def _netns(call: Call) -> int:
    if call.netns_fd is None:
        raise NetnsError(f"CNI_NETNS {call.request.netns!r} cannot be opened", "is the container gone?")
    if is_own(call.netns_fd) and not call.env.get("CNI_NETNS_OVERRIDE"):
        raise NetnsError(
            f"CNI_NETNS {call.request.netns!r} is the node's own network namespace",
            "a pod of the host's network has no CNI",
        )
    return call.netns_fd


def _taken(ifname: str) -> RefusedError:
    hint = "DEL that attachment first, or take another CNI_IFNAME"
    return RefusedError(f"the container has an interface {ifname} already", hint)


def _endpoint() -> str:
    """The node's database; of a node that is not prepared (any more) the usual one."""
    try:
        return load_node().ovsdb
    except PodnetError:
        return OVSDB


def _look(request: Request, wish: Wish, host: str, switch: Switch) -> list[Attachment]:
    """Checks bridge and host, and gives the ports that dead calls have left."""
    view = switch.look(request.container_id, request.ifname)
    if wish.bridge not in view.bridges:
        known = ", ".join(view.bridges) or "none"
        raise ConfigError("bridge", f"there is no bridge {wish.bridge}", f"this node has: {known}")
    if pod.exists(host):
        # It is live in another namespace: this one has no such interface.
        raise RefusedError(
            f"container {request.container_id[:13]} has its interface {request.ifname} already, in another namespace",
            "DEL that attachment first",
        )
    dead = [item for item in view.broken if not pod.exists(item.port)]
    return [*view.mine, *(item for item in dead if item not in view.mine)]


def _mark(call: Call, given: Result, wish: Wish) -> Mark:
    args = call.request.args
    return Mark(
        OWNER_OVS, call.request.container_id, call.request.ifname, call.conf.name, call.request.pod_namespace,
        args.get("K8S_POD_NAME", ""), args.get("K8S_POD_UID", ""), tuple(item.address for item in given.addresses),
        wish.mtu,
    )  # fmt: skip


def _route(route: Route, given: Result) -> pod.PodRoute:
    """A route without a gateway goes by the gateway of the first address of its family that has one."""
    gateway = route.gateway or next(
        (item.gateway for item in given.addresses if item.family == route.family and item.gateway), ""
    )
    return pod.PodRoute(route.destination, gateway, **route.extra)


def _result(call: Call, given: Result, host: str, mac: str, mtu: int) -> Result:
    container = Interface(call.request.ifname, mac, call.request.netns, mtu)
    ends = (Interface(host, host_mac(call.request.container_id, call.request.ifname), "", mtu), container)
    before = parse_result(call.conf.prev_result, "prevResult") if call.conf.prev_result else Result()
    index = len(before.interfaces) + 1
    mine = tuple(replace(item, interface=index) for item in given.addresses)
    return Result(
        (*before.interfaces, *ends), (*before.addresses, *mine), (*before.routes, *given.routes),
        {**before.dns, **(given.dns or call.conf.dns)},
    )  # fmt: skip


def _attempt(failed: list[PodnetError], step: Callable[[], object]) -> None:
    try:
        step()
    except PodnetError as error:
        failed.append(error)
    except OSError as error:
        failed.append(PodnetError(str(error)))


def _differs(what: str) -> PodnetError:
    return PodnetError(what, "the attachment is damaged: delete the pod, so that it is made anew", INVALID_CONFIG)


def _check_link(seen: pod.Seen | None, previous: Result, index: int) -> None:
    wanted = previous.interfaces[index]
    if seen is None:
        raise _differs(f"the container's interface {wanted.name} is gone")
    if wanted.mac and seen.mac.lower() != wanted.mac.lower():
        raise _differs(f"{wanted.name} has the MAC {seen.mac}, not {wanted.mac}")
    if wanted.mtu and seen.mtu != wanted.mtu:
        raise _differs(f"{wanted.name} has the MTU {seen.mtu}, not {wanted.mtu}")
    if not seen.up:
        raise _differs(f"{wanted.name} is down")
    for item in previous.addresses:
        if item.interface == index and str(ipaddress.ip_interface(item.address)) not in seen.addresses:
            raise _differs(f"{wanted.name} has not the address {item.address}")
    gateways = {item.gateway for item in previous.addresses if item.interface == index}
    routed = {destination for destination, _gateway in seen.routes}
    for route in previous.routes:
        mine = not route.gateway or route.gateway in gateways
        if mine and str(ipaddress.ip_network(route.destination, strict=False)) not in routed:
            raise _differs(f"the route to {route.destination} by {wanted.name} is gone")


def _check_port(call: Call, host: str, found: list[Attachment]) -> None:
    if not found:
        raise _differs(f"port {host} is not in the Open vSwitch database")
    port = found[0]
    bridge, vlan = call.conf.raw.get("bridge"), call.conf.raw.get("vlan")
    if bridge and port.bridge != bridge:
        raise _differs(f"port {port.port} is on bridge {port.bridge}, not {bridge}")
    if (port.tag or 0, port.vlan_mode) != (vlan or 0, ACCESS):
        raise _differs(f"port {port.port} has tag {port.tag} and mode {port.vlan_mode or 'none'}, not VLAN {vlan or 0}")
    if port.error:
        raise OvsdbError(f"ovs-vswitchd cannot use {port.port}: {port.error}")
