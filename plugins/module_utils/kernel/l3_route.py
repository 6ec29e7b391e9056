# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Route messages (rtnetlink(7), struct rtmsg): what they say, whether two say the same, and the same on another device.
Also nexthop objects, which are routes' ends of their own. Pure.
"""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Callable, Mapping

from .l3_wire import FAMILIES, Attributes, attributes, number, pack, u32

HEADER = struct.Struct("=BBBBBBBBI")
"""family, dst_len, src_len, tos, table, protocol, scope, type, flags"""
DST, SRC, OIF, GATEWAY, PRIORITY, PREFSRC, METRICS, MULTIPATH = 1, 2, 4, 5, 6, 7, 8, 9
CACHEINFO, TABLE, VIA, PREF, ENCAP_TYPE, ENCAP, EXPIRES, NH_ID = 12, 15, 18, 20, 21, 22, 23, 30
PROTO_REDIRECT, PROTO_KERNEL = 1, 2
TABLE_MAIN, TABLE_LOCAL = 254, 255
LINK_SCOPE = 253

UNICAST, _MULTICAST = 1, 5
_KERNEL_TYPES = (2, 3, 4, 5)
"""local, broadcast, anycast, multicast: of protocol `kernel` they come with addresses"""
_CLONED = 0x200
_HOP_FLAGS = 2 | 4
"""pervasive and onlink are configuration; dead, linkdown, offload are state"""
_HOP = struct.Struct("=HBBi")
_TICKS = 100
"""USER_HZ, which the kernel counts a route's rest of life in when it shows it"""

NH_HEADER = struct.Struct("=BBBBI")
"""struct nhmsg: family, scope, protocol, reserved, flags"""
NHA_ID, NHA_GROUP, NHA_OIF, NHA_GATEWAY = 1, 2, 5, 6

Move = Callable[[int], int]


def same(index: int) -> int:
    """A `Move` that leaves each device where it is."""
    return index


def devices(body: bytes) -> set[int]:
    """Indexes of the devices that a route leads to."""
    attrs = dict(attributes(body, HEADER.size))
    found = {number(attrs[OIF])} if OIF in attrs else set()
    return found | {hop[2] for hop in _hops(attrs.get(MULTIPATH, b""))}


def is_configured(body: bytes) -> bool:
    """Whether a route is not one that comes and goes with addresses and links, or was learnt by a redirect."""
    _family, _dst, _src, _tos, _table, protocol, _scope, kind, flags = HEADER.unpack_from(body)
    if flags & _CLONED or protocol == PROTO_REDIRECT:
        return False
    if table(body) == TABLE_LOCAL:
        return protocol != PROTO_KERNEL and kind != _MULTICAST
    return not (protocol == PROTO_KERNEL and kind in _KERNEL_TYPES)


def table(body: bytes) -> int:
    """The number of a route's table."""
    return number(dict(attributes(body, HEADER.size)).get(TABLE), body[4])


def key(body: bytes) -> tuple[object, ...]:
    """What the kernel tells routes apart by, besides their ends: replacing one replaces another of the same key."""
    attrs = dict(attributes(body, HEADER.size))
    family, dst_len, src_len, tos = body[0], body[1], body[2], body[3]
    return (family, table(body), attrs.get(DST), dst_len, attrs.get(SRC), src_len, tos, number(attrs.get(PRIORITY)))


def identity(body: bytes) -> tuple[object, ...]:
    """Everything that is configured of a route, in an order of its own: equal for equal routes."""
    _family, _dst, _src, _tos, _table, protocol, scope, kind, flags = HEADER.unpack_from(body)
    attrs = dict(attributes(body, HEADER.size))
    multipath = attrs.pop(MULTIPATH, b"")
    hops = [(flags & _HOP_FLAGS, *rest, tuple(sorted(nested))) for flags, *rest, nested in _hops(multipath)]
    if body[0] != _IPV4:
        hops.sort(key=repr)  # the kernel sorts the hops of IPv6 itself
    if NH_ID in attrs:
        hops, attrs = [], {kind: attrs[kind] for kind in attrs if kind not in _OF_NEXTHOP}
    own = tuple(sorted((kind, value) for kind, value in attrs.items() if kind not in (CACHEINFO, EXPIRES, TABLE)))
    return (*key(body), protocol, scope, kind, 0 if multipath else flags & _HOP_FLAGS, own, tuple(hops))


def members(body: bytes) -> list[int]:
    """The numbers of the nexthop objects in a group of them."""
    value = nexthop_attributes(body).get(NHA_GROUP, b"")
    return [int(entry[0]) for entry in _MEMBER.iter_unpack(value[: len(value) // _MEMBER.size * _MEMBER.size])]


def singles(body: bytes) -> list[bytes]:
    """The hops of an IPv6 multipath route as routes of their own, which is what the kernel keeps; else the route."""
    attrs = attributes(body, HEADER.size)
    hops = _hops(dict(attrs).get(MULTIPATH, b""))
    if body[0] == _IPV4 or not hops or nexthop_number(body):
        return [body]
    rest = [(kind, value) for kind, value in attrs if kind != MULTIPATH]
    return [
        HEADER.pack(*HEADER.unpack_from(body)[:-1], flags) + pack([*rest, (OIF, u32(index)), *nested])
        for flags, _weight, index, nested in hops
    ]


def ends(body: bytes) -> set[tuple[object, ...]]:
    """What has to be there for a route to be there: each hop of an IPv6 route, else the route as a whole.

    The kernel shows IPv6 routes of one key by gateways as one, whoever made them.
    """
    return {identity(single) for single in singles(body)}


def connected_network(body: bytes) -> tuple[object, ...] | None:
    """What the kernel's own connected IPv4 route is about, whatever its metric; None for another route.

    systemd-networkd 252 forgets the metric of an address that it finds, and the route's with it, when it renews that.
    """
    family, dst_len, _src, _tos, _table, protocol, _scope, kind, _flags = HEADER.unpack_from(body)
    attrs = dict(attributes(body, HEADER.size))
    if family != _IPV4 or protocol != PROTO_KERNEL or kind != UNICAST or GATEWAY in attrs:
        return None
    return (table(body), attrs.get(DST), dst_len, attrs.get(OIF), attrs.get(PREFSRC))


def only_new(body: bytes, there: set[tuple[object, ...]]) -> bytes:
    """A route without the hops that are there: with one of them the kernel would refuse all."""
    parts = zip(singles(body), _hops(dict(attributes(body, HEADER.size)).get(MULTIPATH, b"")))
    hops = [hop for single, hop in parts if identity(single) not in there]
    if len(singles(body)) < 2 or not hops:
        return body
    attrs = attributes(body, HEADER.size)
    return body[: HEADER.size] + pack((kind, _pack_hops(hops) if kind == MULTIPATH else value) for kind, value in attrs)


def with_devices(body: bytes, move: Move, expires: int | None = None) -> bytes:
    """A route as a message to make it: its devices moved, state left out, `expires` in seconds."""
    family, dst_len, src_len, tos, _table, protocol, scope, kind, flags = HEADER.unpack_from(body)
    head = HEADER.pack(family, dst_len, src_len, tos, body[4], protocol, scope, kind, flags & _HOP_FLAGS)
    attrs = attributes(body, HEADER.size)
    by_number = any(kind == NH_ID for kind, _value in attrs)
    moved: Attributes = []
    for name, value in attrs:
        if name in (CACHEINFO, EXPIRES) or (by_number and name in _OF_NEXTHOP):
            continue
        if name == MULTIPATH:
            hops = [(flags, weight, move(index), nested) for flags, weight, index, nested in _hops(value)]
            moved.append((name, _pack_hops(hops)))
        else:
            moved.append((name, u32(move(number(value))) if name == OIF else value))
    if expires is not None:
        moved.append((EXPIRES, u32(max(1, expires))))
    return head + pack(moved)


def expires(body: bytes) -> int | None:
    """Seconds until the kernel removes a route; None: never."""
    info = dict(attributes(body, HEADER.size)).get(CACHEINFO)
    if info is None or body[0] == _IPV4:
        return None
    ticks = int(struct.unpack_from("=8xi", info)[0])  # struct rta_cacheinfo: rta_expires
    return None if ticks == 0 else max(0, ticks // _TICKS)


def rank(body: bytes) -> int:
    """0 connected, 1 on the link, 2 by a gateway: in this order each finds what it needs."""
    attrs = dict(attributes(body, HEADER.size))
    ends = [dict(hop[3]) for hop in _hops(attrs.get(MULTIPATH, b""))] or [attrs]
    if NH_ID in attrs or any(GATEWAY in end or VIA in end for end in ends):
        return 2
    return 0 if body[5] == PROTO_KERNEL else 1


def gateway(body: bytes) -> str:
    """The first gateway of a route, "" without one."""
    attrs = dict(attributes(body, HEADER.size))
    for end in (attrs, *(dict(hop[3]) for hop in _hops(attrs.get(MULTIPATH, b"")))):
        if GATEWAY in end:
            return str(ipaddress.ip_address(end[GATEWAY]))
        if VIA in end:
            return str(ipaddress.ip_address(end[VIA][2:]))
    return ""


def text(body: bytes) -> str:
    """A route in the words of ip(8), without its device."""
    attrs = dict(attributes(body, HEADER.size))
    words = [destination(body)]
    if gateway(body):
        words += ["via", gateway(body)]
    if table(body) != TABLE_MAIN:
        words += ["table", str(table(body))]
    if PRIORITY in attrs:
        words += ["metric", str(number(attrs[PRIORITY]))]
    return " ".join(words)


def destination(body: bytes) -> str:
    """A route's destination, such as `10.0.0.0/8` or `default`."""
    value = dict(attributes(body, HEADER.size)).get(DST)
    return f"{ipaddress.ip_address(value)}/{body[1]}" if value and body[1] else "default"


def router_row(body: bytes) -> tuple[str, str, int]:
    """Destination, gateway and metric, by which /proc/net/ipv6_route shows the same route."""
    attrs = dict(attributes(body, HEADER.size))
    zero = b"\0" * 16
    return attrs.get(DST, zero).hex(), attrs.get(GATEWAY, zero).hex(), number(attrs.get(PRIORITY))


def nexthop_number(body: bytes) -> int:
    """The number of the nexthop object that a route names, 0 for none."""
    return number(dict(attributes(body, HEADER.size)).get(NH_ID))


def nexthop_with_devices(body: bytes, move: Move) -> bytes:
    """A nexthop object as a message to make it, its device moved."""
    family, _scope, protocol, _reserved, flags = NH_HEADER.unpack_from(body)
    attrs = [
        (kind, u32(move(number(value))) if kind == NHA_OIF else value)
        for kind, value in attributes(body, NH_HEADER.size)
        if kind in _NEXTHOP_PARTS
    ]
    return NH_HEADER.pack(family, 0, protocol, 0, flags & _HOP_FLAGS) + pack(attrs)


def nexthop_attributes(body: bytes) -> Mapping[int, bytes]:
    """The attributes of a nexthop object."""
    return dict(attributes(body, NH_HEADER.size))


_IPV4 = FAMILIES[4]
_NEXTHOP_PARTS = (1, 2, 3, 4, 5, 6, 7, 8, 11)
"""number, group, kind of group, blackhole, device, gateway, encapsulation, fdb: what is not state"""
_MEMBER = struct.Struct("=IBBH")
"""struct nexthop_grp: number and weight"""
_OF_NEXTHOP = (OIF, GATEWAY, VIA, MULTIPATH, ENCAP, ENCAP_TYPE)


def _hops(value: bytes) -> list[tuple[int, int, int, Attributes]]:
    """Flags, weight, device and attributes of each hop (struct rtnexthop)."""
    found, start = [], 0
    while start + _HOP.size <= len(value):
        length, flags, weight, index = _HOP.unpack_from(value, start)
        if length < _HOP.size:
            break
        found.append((flags, weight, index, attributes(value[start : start + length], _HOP.size)))
        start += (length + 3) & ~3
    return found


def _pack_hops(hops: list[tuple[int, int, int, Attributes]]) -> bytes:
    data = b""
    for flags, weight, index, attrs in hops:
        nested = pack(attrs)
        data += _HOP.pack(_HOP.size + len(nested), flags & _HOP_FLAGS, weight, index) + nested
    return data
