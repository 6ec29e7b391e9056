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

from ..cni.config import valid_attachments
from ..cni.result import Interface, Result, Route, parse_result
from ..errors import (
    INVALID_CONFIG,
    UNAVAILABLE,
    ConfigError,
    DeadlineExceeded,
    NetnsError,
    OvsdbError,
    PodnetError,
)
from ..kernel import announce, pod
from ..kernel.netns import inside, is_own
from ..kernel.offload import compute_checksums
from ..model.ownership import OWNER_OVS, Mark
from ..vswitch import attachments as ports
from ..vswitch.session import Session
from . import lease as ipam
from .call import Call
from .wish import Wish, derived_mac, host_name, load_node, parse_wish, refuse_closed

TYPE = "podnet-ovs"
OPEN_SECONDS = 3.0
"""How long the database may take to answer."""
PORT_SECONDS = 5.0
"""How long ovs-vswitchd may take to open a port."""
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
            except PodnetError as error:
                failed.append(str(error))
        return failed


def add(call: Call) -> Result:
    """ADD: the interface, its port, its addresses. What fails takes back exactly what it made. Raises PodnetError."""
    node = load_node()
    request, conf = call.request, call.conf
    wish = parse_wish(conf, request, node)
    refuse_closed(wish, request, node)
    netns_fd = _netns(call)
    inside(netns_fd, lambda: pod.refuse_existing(request.ifname))
    undo = Undo()
    with call.sessions(call.seconds(OPEN_SECONDS)) as session:
        try:
            return _add(call, wish, netns_fd, session, undo)
        except BaseException as error:
            left = undo.run()
            if left and isinstance(error, PodnetError):
                error.hint = "; ".join([*([error.hint] if error.hint else []), "on the way back: " + ", ".join(left)])
            raise


def _add(call: Call, wish: Wish, netns_fd: int, session: Session, undo: Undo) -> Result:
    request = call.request
    host = host_name(request.container_id, request.ifname)
    mac = wish.mac or derived_mac(request.container_id, request.ifname)
    stale = _prepare(call, wish, host, session)
    addresses = ipam.Lease(call)
    undo.add(lambda: addresses.release(time.monotonic() + UNDO_SECONDS))
    undo.add(lambda: pod.remove_link(host))
    pod.make_veth(host, request.ifname, mac, wish.mtu, netns_fd)
    given = addresses.result()
    undo.add(lambda: ports.detach(session, [host], UNDO_SECONDS))
    ports.attach(session, wish.bridge, host, wish.vlan, _mark(call, given, wish), stale, call.seconds(PORT_SECONDS))
    mtu = inside(netns_fd, lambda: _configure(request.ifname, given, wish.userspace))
    _wait_for_port(session, host, call.seconds(PORT_SECONDS))
    cidrs = [item.address for item in given.addresses]
    call.announcer(netns_fd, request.ifname, mac, cidrs)
    return _result(call, given, host, mac, mtu)


def delete(call: Call) -> None:
    """DEL: link, port, lease, each whether or not the one before failed; what is missing is done.

    Needs neither namespace nor database nor prevResult. Raises PodnetError for a link or lease that could not go.
    """
    request = call.request
    host = host_name(request.container_id, request.ifname)
    failed: list[PodnetError] = []
    _attempt(failed, lambda: pod.remove_link(host))
    # A port that stays is marked: the next GC takes it, and its link is gone.
    _attempt([], lambda: _detach(call, host))
    _attempt(failed, lambda: ipam.release(call, call.deadline))
    if failed:
        raise failed[0]


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
    with call.sessions(call.seconds(OPEN_SECONDS)) as session:
        _check_port(call, host, ports.find(session, request.container_id, request.ifname))
    ipam.check(call)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    node = load_node()
    with call.sessions(call.seconds(OPEN_SECONDS)) as session:
        name = call.conf.raw.get("bridge") or (node.bridges[0].name if node.bridges else "")
        if name not in ports.bridges(session):
            raise PodnetError(f"bridge {name or 'none'} is not there", "run the role podnet.ovs.node", UNAVAILABLE)
        try:
            session.transact([], call.seconds(OPEN_SECONDS))
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
    with call.sessions(call.seconds(OPEN_SECONDS)) as session:
        gone = [
            item
            for item in ports.attachments(session)
            if item.mark.network == call.conf.name and (item.mark.container_id, item.mark.ifname) not in keep
        ]
        for item in gone:
            _attempt(failed, partial(pod.remove_link, item.port))
        _attempt(failed, lambda: ports.detach(session, [item.port for item in gone], call.seconds(PORT_SECONDS)))
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


def _prepare(call: Call, wish: Wish, host: str, session: Session) -> list[str]:
    """Checks the bridge, clears what a dead call of the same attachment left, and names the ports to remove."""
    there = ports.bridges(session, call.seconds(OPEN_SECONDS))
    if wish.bridge not in there:
        raise ConfigError("bridge", f"there is no bridge {wish.bridge}", f"this node has: {', '.join(there) or 'none'}")
    # Its interface is not in the container, so whatever carries the attachment's name is of an ADD that was cut off.
    pod.remove_link(host)
    mine = {item.port for item in ports.find(session, call.request.container_id, call.request.ifname)}
    broken = {item.port for item in ports.attachments(session) if item.error and not pod.exists(item.port)}
    return sorted(mine | broken)


def _mark(call: Call, given: Result, wish: Wish) -> Mark:
    args = call.request.args
    return Mark(
        OWNER_OVS, call.request.container_id, call.request.ifname, call.conf.name, call.request.pod_namespace,
        args.get("K8S_POD_NAME", ""), args.get("K8S_POD_UID", ""), tuple(item.address for item in given.addresses),
        wish.mtu,
    )  # fmt: skip


def _configure(ifname: str, given: Result, userspace: bool) -> int:
    if userspace:
        compute_checksums(ifname)
    pod.configure(ifname, [item.address for item in given.addresses], [_route(item, given) for item in given.routes])
    seen = pod.observe(ifname)
    return seen.mtu if seen else 0


def _route(route: Route, given: Result) -> pod.PodRoute:
    """A route without a gateway goes by the gateway of the first address of its family that has one."""
    gateway = route.gateway or next(
        (item.gateway for item in given.addresses if item.family == route.family and item.gateway), ""
    )
    return pod.PodRoute(route.destination, gateway, **route.extra)


def _wait_for_port(session: Session, host: str, timeout: float) -> None:
    try:
        session.ports_ready([host], timeout)
    except DeadlineExceeded as error:
        raise DeadlineExceeded(f"ovs-vswitchd did not take up port {host} in time", error.hint) from error


def _result(call: Call, given: Result, host: str, mac: str, mtu: int) -> Result:
    container = Interface(call.request.ifname, mac, call.request.netns, mtu)
    ends = (Interface(host, _host_mac(host), "", mtu), container)
    before = parse_result(call.conf.prev_result, "prevResult") if call.conf.prev_result else Result()
    index = len(before.interfaces) + 1
    mine = tuple(replace(item, interface=index) for item in given.addresses)
    return Result(
        (*before.interfaces, *ends), (*before.addresses, *mine), (*before.routes, *given.routes),
        {**before.dns, **(given.dns or call.conf.dns)},
    )  # fmt: skip


def _host_mac(host: str) -> str:
    try:
        with open(f"/sys/class/net/{host}/address", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        seen = pod.observe(host)
        return seen.mac if seen else ""


def _detach(call: Call, host: str) -> None:
    with call.sessions(call.seconds(OPEN_SECONDS)) as session:
        found = ports.find(session, call.request.container_id, call.request.ifname)
        ports.detach(session, {host, *(item.port for item in found)} if found else [], call.seconds(OPEN_SECONDS))


def _attempt(failed: list[PodnetError], step: Callable[[], object]) -> None:
    try:
        step()
    except PodnetError as error:
        failed.append(error)


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


def _check_port(call: Call, host: str, found: list[ports.Attachment]) -> None:
    if not found:
        raise _differs(f"port {host} is not in the Open vSwitch database")
    port = found[0]
    bridge, vlan = call.conf.raw.get("bridge"), call.conf.raw.get("vlan")
    if bridge and port.bridge != bridge:
        raise _differs(f"port {port.port} is on bridge {port.bridge}, not {bridge}")
    if (port.tag or 0, port.vlan_mode) != (vlan or 0, ports.ACCESS):
        raise _differs(f"port {port.port} has tag {port.tag} and mode {port.vlan_mode or 'none'}, not VLAN {vlan or 0}")
    if port.error:
        raise OvsdbError(f"ovs-vswitchd cannot use {port.port}: {port.error}")


def announce_once(netns_fd: int, name: str, mac: str, addresses: list[str]) -> None:
    """One round of announcements."""
    if addresses:
        raw = inside(netns_fd, lambda: announce.open_socket(name))
        try:
            announce.announce(raw, mac, addresses)
        finally:
            raw.close()
