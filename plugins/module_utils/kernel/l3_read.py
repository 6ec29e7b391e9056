# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel has: all links, addresses, routes, rules and neighbours at one look, and a device's as a snapshot."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass

from ..errors import KernelError
from ..model.l3 import L3, Address, Moment, Neighbour, Nexthop, Route, Rule, Vxlan
from . import l3_item as item, l3_route as route, sysctls
from .l3_wire import (
    FAMILIES,
    GETADDR,
    GETLINK,
    GETNEIGH,
    GETNEXTHOP,
    GETROUTE,
    GETRULE,
    VERSIONS,
    Rtnetlink,
    number,
    pack,
    u32,
)

_IFLA_EXT_MASK = 29
_WITHOUT_STATISTICS = 8
"""RTEXT_FILTER_SKIP_STATS"""
_RTF_DEFAULT, _RTF_ADDRCONF = 0x10000, 0x40000
_KERNEL_RA = 2
"""IFAPROT_KERNEL_RA, of kernels since 5.18"""
_IFA_PROTO = 11


@dataclass(frozen=True)
class Seen:
    """All of this network namespace, as the kernel's messages, in the kernel's order."""

    links: dict[str, item.LinkSeen]
    addresses: list[bytes]
    routes: list[bytes]
    rules: list[bytes]
    neighbours: list[bytes]
    nexthops: list[bytes]

    def index(self, name: str) -> int:
        """A link's index, 0 for none."""
        return self.links[name].index if name in self.links else 0

    def addresses_of(self, index: int) -> list[bytes]:
        """A device's addresses, in order."""
        return [body for body in self.addresses if item.address_device(body) == index]

    def routes_of(self, index: int) -> list[bytes]:
        """The configured routes that lead to a device, be it with one of their hops."""
        return [body for body in self.routes if index in route.devices(body) and route.is_configured(body)]


def look(wire: Rtnetlink) -> Seen:
    """Reads all. Raises KernelError."""
    nexthop = route.NH_HEADER.pack(0, 0, 0, 0, 0)
    # the neighbours that are answered for are a dump of their own (rtnetlink(7), ndm_flags)
    neighbours = [
        item.NDMSG.pack(family, 0, 0, flags, 0) for family in FAMILIES.values() for flags in (0, item.NTF_PROXY)
    ]
    families = _families()
    return Seen(
        links=links(wire),
        addresses=[body for family in families for body in wire.dump(GETADDR, item.IFADDRMSG.pack(family, 0, 0, 0, 0))],
        routes=[
            body
            for family in families
            for body in wire.dump(GETROUTE, route.HEADER.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))
            if body[0] == family
        ],
        rules=[
            body
            for family in families
            for body in wire.dump(GETRULE, item.FIB_RULE.pack(family, 0, 0, 0, 0, 0, 0))
            if body[0] == family
        ],
        neighbours=[body for asked in neighbours for body in wire.dump(GETNEIGH, asked)],
        nexthops=wire.dump(GETNEXTHOP, nexthop) if wire.supports(GETNEXTHOP, nexthop) else [],
    )


def links(wire: Rtnetlink) -> dict[str, item.LinkSeen]:
    """All links by name. Raises KernelError."""
    asked = item.IFINFOMSG.pack(0, 0, 0, 0, 0) + pack([(_IFLA_EXT_MASK, u32(_WITHOUT_STATISTICS))])
    found = [item.link_of(body) for body in wire.dump(GETLINK, asked)]
    return {link.name: link for link in found}


def now() -> Moment:
    """This moment."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        boot_id = file.read().strip()
    return Moment(boot_id, time.clock_gettime(time.CLOCK_BOOTTIME), time.time())


def taken_from(seen: Seen, device: str) -> L3:
    """All layer-3 state of a device out of what was seen. Raises KernelError if it is not there."""
    link = seen.links.get(device)
    if link is None:
        raise KernelError(f"the kernel has no link {device}")
    by_router = router_routes(device)
    return L3(
        device=device,
        index=link.index,
        mac=link.mac,
        mtu=link.mtu,
        up=link.up,
        token=link.token,
        taken=now(),
        addresses=tuple(_address(body) for body in seen.addresses_of(link.index)),
        routes=tuple(_route(body, by_router) for body in seen.routes_of(link.index)),
        rules=tuple(
            Rule(body.hex(), VERSIONS[body[0]], item.rule_text(body))
            for body in seen.rules
            if device in item.rule_names(body)
        ),
        neighbours=tuple(neighbours_of(seen, link.index)),
        nexthops=tuple(_nexthops(seen, link.index)),
        vxlan=tuple(
            Vxlan(child.name, child.index, child.vni)
            for child in seen.links.values()
            if child.vni and child.lower == link.index
        ),
        sysctls=sysctls.read_all(device),
        others=_others(seen, link.index),
    )


def neighbours_of(seen: Seen, index: int) -> Iterator[Neighbour]:
    """A device's neighbours whose link-layer address is known, and those that are answered for."""
    for body in seen.neighbours:
        family, address, device, proxy = item.neighbour_key(body)
        state, _flags = item.neighbour_state(body)
        permanent = bool(state & item.NUD_PERMANENT)
        if device == index and (proxy or permanent or state & item.NUD_LEARNT):
            text = str(ipaddress.ip_address(address))
            yield Neighbour(body.hex(), VERSIONS[family], text, permanent, proxy)


def router_routes(device: str) -> set[tuple[str, str, int]]:
    """Destination, gateway and metric of the default routes that the kernel itself made from router advertisements.

    Only /proc/net/ipv6_route says which these are: a network manager's own bear the same protocol.
    """
    found = set()
    try:
        with open("/proc/thread-self/net/ipv6_route", encoding="ascii") as file:
            for line in file:
                dst, _len, _src, _src_len, via, metric, _refs, _uses, flags, name = line.split()
                wanted = _RTF_DEFAULT | _RTF_ADDRCONF
                if name == device and int(flags, 16) & wanted == wanted:
                    found.add((dst, via, int(metric, 16)))
    except OSError:
        return set()  # a kernel without IPv6
    return found


def by_router_advertisement(body: bytes) -> bool:
    """Whether the kernel made an address from a router advertisement, by what it says itself or by its flags."""
    protocol = number(dict(item.attributes(body, item.IFADDRMSG.size)).get(_IFA_PROTO))
    return protocol == _KERNEL_RA or bool(item.address_flags(body) & item.MANAGETEMPADDR)


def _families() -> list[int]:
    if socket.has_ipv6:
        try:
            socket.socket(socket.AF_INET6, socket.SOCK_DGRAM).close()
        except OSError:
            return [FAMILIES[4]]
    return list(FAMILIES.values())


def _address(body: bytes) -> Address:
    family, length, own, far = item.address_key(body)
    valid, preferred = item.address_lifetimes(body)
    flags = item.address_flags(body)
    host = ipaddress.ip_address(own)
    attrs = dict(item.attributes(body, item.IFADDRMSG.size))
    return Address(
        message=body.hex(),
        cidr=f"{host}/{length}",
        family=VERSIONS[family],
        dynamic=not flags & item.PERMANENT,
        valid=valid,
        preferred=preferred,
        link_local=host.is_link_local and host.version == 6,
        temporary=VERSIONS[family] == 6 and bool(flags & item.SECONDARY),
        flags=flags,
        label=item.name_of(attrs.get(item.IFA_LABEL)),
        peer=str(ipaddress.ip_address(far)) if far != own else "",
    )


def _route(body: bytes, by_router: set[tuple[str, str, int]]) -> Route:
    attrs = dict(item.attributes(body, route.HEADER.size))
    return Route(
        message=body.hex(),
        family=VERSIONS[body[0]],
        text=route.text(body),
        gateway=route.gateway(body),
        table=route.table(body),
        metric=number(attrs.get(route.PRIORITY)),
        rank=route.rank(body),
        expires=route.expires(body),
        nexthop=route.nexthop_number(body),
        router=VERSIONS[body[0]] == 6 and route.router_row(body) in by_router,
    )


def _others(seen: Seen, index: int) -> dict[str, str]:
    names = {link.index: link.name for link in seen.links.values()}
    found = {other for body in seen.routes_of(index) for other in route.devices(body)} - {index}
    return {str(other): names[other] for other in sorted(found) if other in names}


def _nexthops(seen: Seen, index: int) -> Iterator[Nexthop]:
    """The nexthop objects on a device, and the groups that have one of them: they lose it with the device."""
    own = set()
    for body in seen.nexthops:
        attrs = route.nexthop_attributes(body)
        if number(attrs.get(route.NHA_OIF)) == index:
            own.add(number(attrs.get(route.NHA_ID)))
            far = attrs.get(route.NHA_GATEWAY)
            text = f"nexthop {number(attrs.get(route.NHA_ID))}" + (f" via {ipaddress.ip_address(far)}" if far else "")
            yield Nexthop(body.hex(), number(attrs.get(route.NHA_ID)), text, 1 if far else 0)
    for body in seen.nexthops:
        name = number(route.nexthop_attributes(body).get(route.NHA_ID))
        if own & set(route.members(body)):
            yield Nexthop(body.hex(), name, f"nexthop group {name}", 2)
