# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-ovs`: a pod's interface as a port of an Open vSwitch bridge."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from ..cni.config import valid_attachments
from ..cni.reply import Reported
from ..cni.request import Request
from ..cni.result import Interface, Result, Route, parse_result, render
from ..errors import UNAVAILABLE, ConfigError, DeadlineExceeded, KernelError, PodnetError, RefusedError
from ..kernel import fastpath, pod, qdisc
from ..model.node import ONE_HEADER, TWO_HEADERS
from ..model.ownership import OWNER_OVS, Mark
from ..model.port import Bandwidth
from ..vswitch.fastpath import Switch
from ..vswitch.jsonrpc import TimedOut
from ..vswitch.podport import PodPort
from . import lease as ipam, owed, spoof
from .call import ANSWER_SECONDS, Call, Means
from .common import attempt, known_endpoint, open_space, taken
from .wish import Wish, derived_mac, host_mac, host_name, load_node, parse_wish, refuse_closed

TYPE = "podnet-ovs"
PORT_SECONDS = 10.0
"""How long an ovs-vswitchd that is at work may take to open a port. One that does nothing at all is given up sooner."""
LIMIT_SECONDS = 1.0
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
            except Exception as error:
                failed.append(str(error) if isinstance(error, (PodnetError, OSError)) else repr(error))
        return failed


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
        refuse_closed(wish, request, node)
        space = stack.enter_context(open_space(call))
        _refuse_taken(call, space)
        call.steps.done("configuration")
        undo = Undo()
        try:
            return _add(call, wish, lease, node.ovsdb, space, undo, stack)
        except BaseException as error:
            left = undo.run()
            if left and isinstance(error, PodnetError):
                error.hint = "; ".join([*([error.hint] if error.hint else []), "on the way back: " + ", ".join(left)])
            raise


def _add(
    call: Call, wish: Wish, lease: ipam.Lease, endpoint: str, space: fastpath.PodSpace, undo: Undo, stack: ExitStack
) -> dict[str, Any]:  # fmt: skip
    """All that takes its time begins at once: the IPAM plugin, then ovs-vswitchd, then the kernel."""
    request, done = call.request, call.steps.done
    key = (request.container_id, request.ifname)
    host, mac = host_name(*key), wish.mac or derived_mac(*key)
    undo.add(lambda: lease.release(time.monotonic() + UNDO_SECONDS))
    lease.begin()
    switch = stack.enter_context(call.switch(endpoint, host))
    port = _port(call, wish, host)
    guarded: list[str] = []
    # Before it is sent: what arrives late has to go too.
    undo.add(lambda: _abandon(call, endpoint, switch, port, guarded))
    if wish.ofport_request is not None:
        _refuse_number(switch.holder_of(wish.bridge, wish.ofport_request), wish, host)
    if wish.bandwidth:
        # After a port of the same name has gone: seen once, the new link had no limits, as if ovs-vswitchd had taken it
        # for the old one.
        switch.wait_for_switch(call.seconds(PORT_SECONDS))
    switch.begin(port)
    done("database begins")
    try:
        fastpath.make_veth(host, host_mac(*key), request.ifname, mac, wish.mtu, space.netns_fd)
    except fastpath.LinkExists as error:  # made since it was looked for
        raise taken(request.ifname) from error
    undo.add(lambda: fastpath.remove_link(host))
    fastpath.silence(host)
    if wish.userspace:
        space.compute_checksums(request.ifname)
    if not wish.spoof_check:
        space.bring_up(request.ifname)
    done("link")
    _inserted(switch, port)
    if wish.spoof_check:
        spoof.refuse_ruled(switch, wish.bridge)
    if wish.vlans.cvlans and switch.vlan_limit() == 1:
        raise ConfigError("cvlans", ONE_HEADER, TWO_HEADERS)
    done("database")
    given = lease.result()
    switch.mark(port, _mark(call, given, wish, mac))
    result = render(_result(call, given, host, mac, wish.mtu), call.conf.version)
    done("ipam")
    cidrs = [item.address for item in given.addresses]
    routes = [_route(item, given) for item in given.routes]
    if not wish.spoof_check:
        space.configure(request.ifname, cidrs, routes)
    done("addresses")
    ofport = switch.settle(port, call.seconds(PORT_SECONDS))
    done("switch")
    if wish.ofport_request not in (None, ofport):
        _refuse_number("another port", wish, host)
    _refuse_unlimited(wish, host)
    if wish.spoof_check:  # nothing passes before the flows are there
        guarded.append(wish.bridge)
        spoof.guard(wish.bridge, host, ofport, mac, cidrs, call.turn_fd)
        space.bring_up(request.ifname)
        space.configure(request.ifname, cidrs, routes)
        done("flows")
    call.means.announce(space.netns_fd, request.ifname, mac, cidrs)
    return result


def delete(call: Call) -> None:
    """DEL: link, port, lease, each whether or not the one before failed; what is missing is done.

    Needs neither namespace nor database nor prevResult. Raises PodnetError for a link or lease that could not go. An
    attachment of which there is no trace has no lease either: an IPAM plugin that then refuses a configuration, which
    ADD got to hear too, does not keep the runtime from going on.
    """
    host = host_name(call.request.container_id, call.request.ifname)
    refused: list[PodnetError] = []
    releases: list[ipam.Release] = []
    attempt(refused, lambda: releases.append(ipam.Release(call)))
    call.steps.done("ipam starts")
    failed, trace = let_go(call.request, call.means)
    call.steps.done("link and port")
    for release in releases:
        attempt(refused, partial(release.run, call.deadline))
    call.steps.done("ipam")
    if not refused:
        owed.forget(host)
    elif trace or owed.is_owed(host) or not isinstance(refused[0], Reported):
        attempt(failed, lambda: owed.remember(host))
        failed += refused
    if failed:
        raise failed[0]


def let_go(request: Request, means: Means) -> tuple[list[PodnetError], bool]:
    """Link and port of an attachment go. Gives what went wrong with the link, and whether there was or may be either.

    A port that stays because the database is away is marked, and leads nowhere: the next ADD or GC takes it.
    """
    failed: list[PodnetError] = []
    unseen: list[PodnetError] = []
    there: list[object] = []
    host = host_name(request.container_id, request.ifname)
    links: list[fastpath.LinkRemoval] = []
    attempt(failed, lambda: links.append(fastpath.LinkRemoval(host)))
    attempt(unseen, lambda: there.append(_detach(host, means)))
    for link in links:
        attempt(failed, partial(_waited, link, there))
    return failed, bool(failed or unseen or any(there))


def _waited(link: fastpath.LinkRemoval, there: list[object]) -> None:
    there.append(link.wait())


def _detach(host: str, means: Means) -> bool:
    with means.switch(known_endpoint(), ANSWER_SECONDS, host) as switch:
        known = switch.followed(host)
        guarded = switch.attachment(host) if known and known.spoof_check else None
        if guarded is not None:
            # First: a switch that does not take it now keeps its port, which says that there are flows of it.
            spoof.unguard(guarded.bridge, host)
        return switch.detach(host)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    node = load_node()
    name = call.conf.raw.get("bridge") or (node.bridges[0].name if node.bridges else "")
    with call.switch(node.ovsdb) as switch:
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
    with call.switch(known_endpoint()) as switch:
        gone = [
            item
            for item in switch.attachments()
            if item.mark.network == call.conf.name and (item.mark.container_id, item.mark.ifname) not in keep
        ]
        for item in gone:
            attempt(failed, partial(fastpath.remove_link, item.port))
        attempt(failed, lambda: spoof.detach(switch, gone))
        attempt(failed, switch.drop_stray_limits)
    for item in gone:
        # Plugins of before 1.1.0 know no GC: each lost attachment is released by name as well.
        lost = call.of(item.mark.container_id, item.mark.ifname)
        attempt(failed, partial(ipam.release, lost, call.deadline))
    attempt(failed, lambda: ipam.collect(call))
    if failed:
        raise failed[0]


def _refuse_taken(call: Call, space: fastpath.PodSpace) -> None:
    """Raises PodnetError if this attachment is there already."""
    request = call.request
    if space.index(request.ifname) is not None:
        raise taken(request.ifname, call.waited or call.means.doubled)
    if pod.exists(host_name(request.container_id, request.ifname)):
        # It is live in another namespace: this one has no such interface.
        raise RefusedError(
            f"container {request.container_id[:13]} has its interface {request.ifname} already, in another namespace",
            "DEL that attachment first",
        )


def _port(call: Call, wish: Wish, host: str) -> PodPort:
    return PodPort(
        host, wish.bridge, wish.vlans.columns(), _mark(call, Result(), wish, ""), wish.ofport_request, wish.isolated,
        wish.bandwidth or Bandwidth(),
    )  # fmt: skip


def _inserted(switch: Switch, port: PodPort) -> None:
    try:
        switch.inserted(port)
    except TimedOut as error:
        known = ", ".join(switch.bridges()) or "none"
        raise ConfigError("bridge", f"there is no bridge {port.bridge}", f"this node has: {known}") from error


def _refuse_number(holder: str, wish: Wish, host: str) -> None:
    """Raises RefusedError if somebody else has the OpenFlow number that is asked for: ovs-vswitchd would give that one
    another number, behind the back of whoever has flows for it, or this one, without a word.
    """
    if holder and holder != host:
        raise RefusedError(
            f"ofport_request: OpenFlow port {wish.ofport_request} of bridge {wish.bridge} is taken by {holder}",
            "ask for another number, 32768 to 65279 are not given by Open vSwitch itself; or leave the key away",
        )


def _abandon(call: Call, endpoint: str, switch: Switch, port: PodPort, guarded: Sequence[str]) -> None:
    """By the same connection if it lasts, behind what was sent before. The flows go first, on the bridge `guarded`."""
    for bridge in guarded:
        spoof.unguard(bridge, port.name)
    if switch.usable:
        switch.abandon(port)
        return
    with call.means.switch(endpoint, ANSWER_SECONDS, port.name) as another:
        another.abandon(port)


def _refuse_unlimited(wish: Wish, host: str) -> None:
    """Raises KernelError if a limit that was asked for is not in force: ovs-vswitchd only logs that."""
    if not wish.bandwidth:
        return
    for rate, is_limited, what, needs in (
        (wish.bandwidth.ingress_rate, qdisc.is_shaped, "towards", "the queueing discipline htb"),
        (wish.bandwidth.egress_rate, qdisc.is_policed, "from", "the classifier basic with the action police"),
    ):
        if rate and not _soon(partial(is_limited, host)):
            raise KernelError(
                f"bandwidth: what goes {what} the pod is not limited: {host} has not got {needs}",
                "does the kernel have it? ovs-vswitchd's log says more",
            )


def _soon(is_so: Callable[[], bool]) -> bool:
    """Whether it is so, or becomes so within LIMIT_SECONDS: that a port forwards may be said before it is limited."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LIMIT_SECONDS / 50)
    return True


def _mark(call: Call, given: Result, wish: Wish, mac: str) -> Mark:
    args = call.request.args
    return Mark(
        OWNER_OVS, call.request.container_id, call.request.ifname, call.conf.name, call.request.pod_namespace,
        args.get("K8S_POD_NAME", ""), args.get("K8S_POD_UID", ""), tuple(item.address for item in given.addresses),
        wish.mtu, mac if wish.spoof_check else "", wish.spoof_check,
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
