# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Messages of addresses, rules, neighbours and links: what they say, and the same for another device. Pure."""

from __future__ import annotations

import ipaddress
import os
import struct
from dataclasses import dataclass

from . import l3_route as route
from .l3_wire import FAMILIES, VERSIONS, attributes, name_of, number, pack, u32

IFADDRMSG = struct.Struct("=BBBBI")
"""family, prefix length, flags, scope, device"""
IFA_ADDRESS, IFA_LOCAL, IFA_LABEL, IFA_CACHEINFO, IFA_FLAGS, IFA_RT_PRIORITY = 1, 2, 3, 6, 8, 9
SECONDARY, NODAD, DADFAILED, DEPRECATED, TENTATIVE, PERMANENT = 0x01, 0x02, 0x08, 0x20, 0x40, 0x80
MANAGETEMPADDR, NOPREFIXROUTE = 0x100, 0x200
FOREVER = 0xFFFFFFFF
_ADDRESS_PARTS = (1, 2, 4, 5, 9, 11)
"""address, local, broadcast, anycast, metric of its route, protocol"""
_SETTABLE = {4: 0x200 | 0x400, 6: 0x02 | 0x10 | 0x100 | 0x200 | 0x400}
"""noprefixroute and autojoin; nodad, home, mngtmpaddr: what the kernel takes from a user"""

_IPV6_METRIC = 256
"""IP6_RT_PRIO_ADDRCONF: of the connected route that an IPv6 address brings along"""

FIB_RULE = struct.Struct("=BBBBBxxBI")
"""family, dst_len, src_len, tos, table, action, flags"""
FRA_DST, FRA_SRC, FRA_IIFNAME, FRA_PRIORITY, FRA_TABLE, FRA_OIFNAME = 1, 2, 3, 6, 15, 17
_INVERT = 0x2

NDMSG = struct.Struct("=BxxxiHBB")
"""family, device, state, flags, type"""
NDA_DST, NDA_LLADDR = 1, 2
_NEIGHBOUR_PARTS = (1, 2, 12, 15)
"""address, link-layer address, protocol, extended flags"""
NUD_STALE, NUD_NOARP, NUD_PERMANENT, NUD_LEARNT = 0x04, 0x40, 0x80, 0x02 | 0x04 | 0x08 | 0x10
NTF_PROXY = 0x08

IFINFOMSG = struct.Struct("=BxHiII")
"""family, type, index, flags, mask of flags"""
IFF_UP = 0x1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINK, _IFLA_MASTER, _IFLA_LINKINFO = 1, 3, 4, 5, 10, 18
_IFLA_AF_SPEC = 26
_INFO_KIND, _INFO_DATA = 1, 2
_INET6, _INET6_TOKEN = 10, 7
_VXLAN_ID, _VXLAN_LINK = 1, 3
FAMILY_IPV4 = FAMILIES[4]


@dataclass(frozen=True)
class LinkSeen:
    """A link. `lower`: the device below a VXLAN link, 0 for none and for other links."""

    name: str
    index: int
    up: bool
    mac: str
    mtu: int
    master: int
    token: str
    lower: int
    vni: int


def link_of(body: bytes) -> LinkSeen:
    """What a message of RTM_NEWLINK says."""
    _family, _type, index, flags, _mask = IFINFOMSG.unpack_from(body)
    attrs = dict(attributes(body, IFINFOMSG.size))
    info = dict(attributes(attrs.get(_IFLA_LINKINFO, b"")))
    data = dict(attributes(info.get(_INFO_DATA, b""))) if name_of(info.get(_INFO_KIND)) == "vxlan" else {}
    inet6 = dict(attributes(dict(attributes(attrs.get(_IFLA_AF_SPEC, b""))).get(_INET6, b"")))
    token = inet6.get(_INET6_TOKEN, b"")
    return LinkSeen(
        name=name_of(attrs.get(_IFLA_IFNAME)),
        index=index,
        up=bool(flags & IFF_UP),
        mac=_mac(attrs.get(_IFLA_ADDRESS, b"")),
        mtu=number(attrs.get(_IFLA_MTU)),
        master=number(attrs.get(_IFLA_MASTER)),
        token=str(ipaddress.IPv6Address(token)) if any(token) else "",
        lower=number(data.get(_VXLAN_LINK)),
        vni=number(data.get(_VXLAN_ID)),
    )


def up_message(index: int) -> bytes:
    """Puts a link up."""
    return IFINFOMSG.pack(0, 0, index, IFF_UP, IFF_UP)


def token_message(index: int, token: str) -> bytes:
    """Sets the interface identifier (draft-chown-6man-tokenised-ipv6-identifiers) of a link's autoconfiguration."""
    value = ipaddress.IPv6Address(token or "::").packed
    inner = pack([(_INET6, pack([(_INET6_TOKEN, value)]))])
    return IFINFOMSG.pack(0, 0, index, 0, 0) + pack([(_IFLA_AF_SPEC, inner)])


def lower_message(index: int, lower: int) -> bytes:
    """Puts a VXLAN link on another device."""
    info = pack([(_INFO_KIND, b"vxlan"), (_INFO_DATA, pack([(_VXLAN_LINK, u32(lower))]))])
    return IFINFOMSG.pack(0, 0, index, 0, 0) + pack([(_IFLA_LINKINFO, info)])


def address_device(body: bytes) -> int:
    """The device of an address."""
    return int(IFADDRMSG.unpack_from(body)[4])


def address_flags(body: bytes) -> int:
    """An address's flags, all 32 bits."""
    return number(dict(attributes(body, IFADDRMSG.size)).get(IFA_FLAGS), body[2])


def address_key(body: bytes) -> tuple[int, int, bytes, bytes]:
    """Family, prefix length, own address, and what the prefix is of: what the kernel tells addresses apart by."""
    attrs = dict(attributes(body, IFADDRMSG.size))
    far = attrs.get(IFA_ADDRESS, b"")
    return body[0], body[1], attrs.get(IFA_LOCAL, far), far


def address_lifetimes(body: bytes) -> tuple[int | None, int | None]:
    """Seconds that an address is valid and preferred; None: forever (struct ifa_cacheinfo)."""
    info = dict(attributes(body, IFADDRMSG.size)).get(IFA_CACHEINFO)
    if info is None:
        return None, None
    preferred, valid = struct.unpack_from("=II", info)
    return (None if valid == FOREVER else int(valid)), (None if preferred == FOREVER else int(preferred))


def address_message(
    body: bytes, index: int, label: str, valid: int | None, preferred: int | None, more: int = 0, less: int = 0
) -> bytes:
    """An address as a message to give it to a device; `more` and `less` are flags to set and to take away."""
    family, length, _flags, scope, _index = IFADDRMSG.unpack_from(body)
    flags = (address_flags(body) & _SETTABLE[VERSIONS[family]] | more) & ~less
    attrs = [(kind, value) for kind, value in attributes(body, IFADDRMSG.size) if kind in _ADDRESS_PARTS]
    if label:
        attrs.append((IFA_LABEL, os.fsencode(label) + b"\0"))
    lifetimes = struct.pack(
        "=IIII", FOREVER if preferred is None else preferred, FOREVER if valid is None else valid, 0, 0
    )
    attrs += [(IFA_FLAGS, u32(flags)), (IFA_CACHEINFO, lifetimes)]
    return IFADDRMSG.pack(family, length, flags & 0xFF, scope, index) + pack(attrs)


def address_removal(body: bytes, index: int) -> bytes:
    """A message to take an address off a device."""
    family, length, _flags, scope, _index = IFADDRMSG.unpack_from(body)
    attrs = [(kind, value) for kind, value in attributes(body, IFADDRMSG.size) if kind in (IFA_ADDRESS, IFA_LOCAL)]
    return IFADDRMSG.pack(family, length, 0, scope, index) + pack(attrs)


def brings_route(body: bytes) -> bool:
    """Whether the kernel gives a connected route along with an IPv4 address (net/ipv4/fib_frontend.c, fib_add_ifaddr).

    It does not for the later addresses of a network, and not for a single host.
    """
    _family, length, own, far = address_key(body)
    return not address_flags(body) & (SECONDARY | NOPREFIXROUTE) and (length < 32 or own != far)


def connected_route(body: bytes, index: int) -> bytes:
    """The route that the kernel gives along with an address on a device."""
    family, length, own, far = address_key(body)
    network = ipaddress.ip_network((far, length), strict=False)
    metric = number(dict(attributes(body, IFADDRMSG.size)).get(IFA_RT_PRIORITY))
    ipv4 = family == FAMILY_IPV4
    attrs = [(route.TABLE, u32(route.TABLE_MAIN)), (route.DST, network.network_address.packed)]
    if metric or not ipv4:
        attrs.append((route.PRIORITY, u32(metric or _IPV6_METRIC)))
    attrs.append((route.OIF, u32(index)))
    if ipv4:
        attrs.append((route.PREFSRC, own))
    scope = route.LINK_SCOPE if ipv4 else 0
    head = (family, length, 0, 0, route.TABLE_MAIN, route.PROTO_KERNEL, scope, route.UNICAST, 0)
    return route.HEADER.pack(*head) + pack(attrs)


def moved_label(label: str, source: str, target: str) -> str:
    """The label of an address on its new device: `eth0:1` becomes `br-x:1` if that is no longer than a name may be."""
    moved = target + label[len(source) :] if label.startswith(source) else label
    return moved if len(os.fsencode(moved)) <= 15 else target


def rule_names(body: bytes) -> set[str]:
    """The devices that a rule names."""
    attrs = attributes(body, FIB_RULE.size)
    return {name_of(value) for kind, value in attrs if kind in (FRA_IIFNAME, FRA_OIFNAME)}


def rule_message(body: bytes, source: str, target: str) -> bytes:
    """A rule as a message to make it, with one device's name in place of another's."""
    family, dst, src, tos, table, action, flags = FIB_RULE.unpack_from(body)
    attrs = [
        (kind, os.fsencode(target) + b"\0")
        if kind in (FRA_IIFNAME, FRA_OIFNAME) and name_of(value) == source
        else (kind, value)
        for kind, value in attributes(body, FIB_RULE.size)
    ]
    return FIB_RULE.pack(family, dst, src, tos, table, action, flags & _INVERT) + pack(attrs)


def rule_identity(body: bytes) -> tuple[object, ...]:
    """Equal for equal rules."""
    plain = rule_message(body, "", "")
    return plain[: FIB_RULE.size], tuple(sorted(attributes(plain, FIB_RULE.size)))


def rule_text(body: bytes) -> str:
    """A rule in short."""
    attrs = dict(attributes(body, FIB_RULE.size))
    words = [f"{number(attrs.get(FRA_PRIORITY))}:"]
    for word, kind, length in (("from", FRA_SRC, body[2]), ("to", FRA_DST, body[1])):
        if kind in attrs:
            words += [word, f"{ipaddress.ip_address(attrs[kind])}/{length}"]
    for word, kind in (("iif", FRA_IIFNAME), ("oif", FRA_OIFNAME)):
        if kind in attrs:
            words += [word, name_of(attrs[kind])]
    return " ".join([*words, "lookup", str(number(attrs.get(FRA_TABLE), body[4]))])


def neighbour_key(body: bytes) -> tuple[int, bytes, int, bool]:
    """Family, address, device, and whether it is answered for."""
    family, index, _state, flags, _type = NDMSG.unpack_from(body)
    address = dict(attributes(body, NDMSG.size)).get(NDA_DST, b"")
    return family, address, index, bool(flags & NTF_PROXY)


def neighbour_state(body: bytes) -> tuple[int, int]:
    """State and flags."""
    _family, _index, state, flags, _type = NDMSG.unpack_from(body)
    return state, flags


def neighbour_message(body: bytes, index: int) -> bytes:
    """A neighbour as a message to make it on a device: permanent as it was, or stale, which is asked when next used."""
    family, _index, state, flags, _type = NDMSG.unpack_from(body)
    state = NUD_PERMANENT if state & NUD_PERMANENT else NUD_STALE
    attrs = [(kind, value) for kind, value in attributes(body, NDMSG.size) if kind in _NEIGHBOUR_PARTS]
    return NDMSG.pack(family, index, 0 if flags & NTF_PROXY else state, flags, 0) + pack(attrs)


def _mac(value: bytes) -> str:
    return value.hex(":") if any(value) else ""
