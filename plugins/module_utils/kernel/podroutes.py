# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Routes of a pod's interface, by netlink."""

from __future__ import annotations

import errno
import ipaddress
import socket
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from .pod import PodRoute
from .rtnetlink import (
    ANSWER_SECONDS,
    CREATE,
    EXCL,
    GETROUTE,
    NEWROUTE,
    REPLACE,
    ROUTE,
    Request,
    ask,
    attributes,
    family_of,
    outcomes,
    parse,
    refuse,
    talk,
    u32,
)

BEHIND = 2048
"""The metric of a route that another interface of the pod has already, with its index added. IPv6's own is 1024."""

# linux/rtnetlink.h
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_METRICS, _RTA_TABLE = 1, 4, 5, 6, 8, 15
_RTAX_MTU, _RTAX_ADVMSS = 2, 8
_RTN_UNICAST, _RTPROT_STATIC, _RTNH_F_ONLINK = 1, 4, 4
_RT_TABLE_MAIN, _SCOPE_UNIVERSE, _SCOPE_LINK = 254, 0, 253


def add_routes(
    route: socket.socket,
    name: str,
    index: int,
    wanted: Sequence[PodRoute],
    networks: Sequence[ipaddress.IPv4Network | ipaddress.IPv6Network],
) -> None:
    """Adds routes to an interface. `networks` are those of its addresses.

    One to where another interface has a route already, of the same metric, is added behind it: the network that came
    first is not cut off from what it reaches. Raises KernelError that names what failed.
    """
    if not wanted:
        return
    codes = outcomes(route, [_request(name, index, to, networks, EXCL) for to in wanted])
    there = [to for to, code in zip(wanted, codes) if code == errno.EEXIST and not to.priority]
    refuse([
        (code, _what(name, to)) for to, code in zip(wanted, codes) if code and to not in there
    ])  # fmt: skip
    if there:
        own = {destination for destination, _gateway in routes_of(route, index)}
        behind = [to if _whole(to) in own else replace(to, priority=BEHIND + index) for to in there]
        talk(route, [_request(name, index, to, networks, REPLACE) for to in behind])


def _request(
    name: str, index: int, to: PodRoute, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network], flags: int
) -> Request:  # fmt: skip
    return NEWROUTE, CREATE | flags, _message(index, to, networks), _what(name, to)


def _what(name: str, to: PodRoute) -> str:
    by = f" by {to.gateway}" if to.gateway else ""
    return f"{name} does not take the route to {to.destination}{by}"


def _whole(to: PodRoute) -> str:
    return str(ipaddress.ip_network(to.destination, strict=False))


def routes_of(route: socket.socket, index: int | None = None) -> Iterator[tuple[str, str]]:
    """Destination and gateway of each route of an interface, or of all. Raises KernelError."""
    wanted = attributes([(_RTA_OIF, u32(index))]) if index is not None else b""
    for body in ask(route, GETROUTE, ROUTE.pack(*[0] * 9) + wanted, ANSWER_SECONDS, dump=True):
        family, length = ROUTE.unpack_from(body)[:2]
        columns = parse(body[ROUTE.size :])
        if index is not None and columns.get(_RTA_OIF) != u32(index):
            continue
        to = columns.get(_RTA_DST) or bytes(4 if family == socket.AF_INET else 16)
        gateway = columns.get(_RTA_GATEWAY)
        yield f"{socket.inet_ntop(family, to)}/{length}", socket.inet_ntop(family, gateway) if gateway else ""


def _message(index: int, item: PodRoute, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bytes:
    to = ipaddress.ip_network(item.destination, strict=False)
    flags, scope = 0, _SCOPE_UNIVERSE
    pairs = [(_RTA_DST, to.network_address.packed)] if to.prefixlen else []
    pairs.append((_RTA_OIF, u32(index)))
    if item.gateway:
        gateway = ipaddress.ip_address(item.gateway)
        pairs.append((_RTA_GATEWAY, gateway.packed))
        # A gateway outside of the pod's own networks is on the link nevertheless: this is its only one.
        if not (gateway.version == 6 and gateway.is_link_local) and not any(gateway in network for network in networks):
            flags = _RTNH_F_ONLINK
    elif to.version == 4:
        scope = _SCOPE_LINK
    table = item.table or _RT_TABLE_MAIN
    pairs.append((_RTA_TABLE, u32(table)))
    if item.priority:
        pairs.append((_RTA_PRIORITY, u32(item.priority)))
    metrics = [(kind, u32(value)) for kind, value in ((_RTAX_MTU, item.mtu), (_RTAX_ADVMSS, item.advmss)) if value]
    if metrics:
        pairs.append((_RTA_METRICS, attributes(metrics)))
    scope = scope if item.scope is None else item.scope
    head = ROUTE.pack(
        family_of(to.version), to.prefixlen, 0, 0, min(table, 255) if table < 256 else 0, _RTPROT_STATIC,
        scope, _RTN_UNICAST, flags,
    )  # fmt: skip
    return head + attributes(pairs)
