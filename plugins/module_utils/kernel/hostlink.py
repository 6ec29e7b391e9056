# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node's own links as a pod's call needs them, on a plain socket (rtnetlink(7)): uplinks, and what they can do."""

from __future__ import annotations

import ipaddress
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from . import sysctls
from .pod import index_of
from .rtnetlink import ADDRESS, ANSWER_SECONDS, GETADDR, GETLINK, LINK, ask, one_at_a_time, open_route, parse

# linux/if_link.h, linux/if_addr.h
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_MASTER, _IFLA_LINKINFO = 1, 3, 4, 10, 18
_INFO_SLAVE_KIND = 4
_IFF_UP = 1
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
_FORWARDING = {4: ("ipv4/conf/%s/forwarding",), 6: ("ipv6/conf/%s/forwarding",)}


@dataclass(frozen=True)
class HostLink:
    """`up`: switched on, whether or not a cable is in it. `member_of`: the kind of its master, such as `bond`,
    `bridge`, `openvswitch`; empty without one.
    """

    name: str
    index: int
    mac: str
    mtu: int
    up: bool
    member_of: str = ""


def links() -> list[HostLink]:
    """All links of the calling thread's namespace. Raises KernelError."""
    with closing(open_route()) as route:
        return [_link(body) for body in ask(route, GETLINK, LINK.pack(0, 0, 0, 0, 0), ANSWER_SECONDS, dump=True)]


def link(name: str) -> HostLink | None:
    """The link of that name, None if it is not there. Raises KernelError."""
    index = index_of(name)
    if index is None:
        return None
    with closing(open_route()) as route:
        found = ask(route, GETLINK, LINK.pack(0, 0, index, 0, 0), ANSWER_SECONDS)
    return _link(found[0]) if found else None


def networks_on(index: int) -> list[str]:
    """The networks (CIDR) of a link's addresses, less the link-local ones. Raises KernelError."""
    with closing(open_route()) as route:
        bodies = ask(route, GETADDR, ADDRESS.pack(0, 0, 0, 0, index), ANSWER_SECONDS, dump=True)
    return list(_networks(bodies, index))


def forwards(name: str, version: int) -> str:
    """The setting that keeps the kernel from forwarding packets of a family that come in on a link; empty if none does.

    IPv6 asks the node as a whole as well (Documentation/networking/ip-sysctl.rst, "conf/all/forwarding").
    """
    devices = (name,) if version == 4 else ("all", name)
    for device in devices:
        for path in _FORWARDING[version]:
            if sysctls.read(device, path) != "1":
                return "net." + (path % device).replace("/", ".")
    return ""


def answer_for_others(name: str, version: int) -> None:
    """Has the node answer at once for the addresses of proxy entries on a link."""
    family = "ipv4" if version == 4 else "ipv6"
    sysctls.write(name, f"{family}/neigh/%s/proxy_delay", "0")
    if version == 6:
        sysctls.write(name, "ipv6/conf/%s/proxy_ndp", "1")


def face_pod(name: str, with_ipv6: bool) -> None:
    """The host's end of a pod's pair forwards, and takes nothing from the pod but its packets: no router's word, no
    packet from an IPv4 address that leads elsewhere. It has no address.
    """
    with one_at_a_time:
        for path, value in (
            ("ipv4/conf/%s/forwarding", "1"), ("ipv4/conf/%s/accept_redirects", "0"),
            ("ipv4/conf/%s/rp_filter", sysctls.STRICT),
        ):  # fmt: skip
            sysctls.write(name, path, value)
        if not with_ipv6:
            sysctls.write(name, sysctls.DISABLE_IPV6, "1")
            return
        for path, value in (
            (sysctls.DISABLE_IPV6, "0"), (sysctls.ADDR_GEN_MODE, "1"), ("ipv6/conf/%s/forwarding", "1"),
            (sysctls.ACCEPT_RA, "0"), ("ipv6/conf/%s/accept_redirects", "0"),
        ):  # fmt: skip
            sysctls.write(name, path, value)


def _link(body: bytes) -> HostLink:
    columns = parse(body[LINK.size :])
    info = parse(columns.get(_IFLA_LINKINFO, b""))
    master = info.get(_INFO_SLAVE_KIND, b"").rstrip(b"\0").decode(errors="replace")
    return HostLink(
        columns.get(_IFLA_IFNAME, b"").rstrip(b"\0").decode(errors="replace"),
        LINK.unpack_from(body)[2],
        columns.get(_IFLA_ADDRESS, b"").hex(":"),
        int.from_bytes(columns.get(_IFLA_MTU, b""), sys.byteorder),
        bool(LINK.unpack_from(body)[3] & _IFF_UP),
        master or ("another link" if _IFLA_MASTER in columns else ""),
    )


def _networks(bodies: list[bytes], index: int) -> Iterator[str]:
    for body in bodies:
        _family, prefix, _flags, _scope, there = ADDRESS.unpack_from(body)
        columns = parse(body[ADDRESS.size :])
        # Of a peer-to-peer address it is the peer that is on the link.
        packed = columns.get(_IFA_ADDRESS) or columns.get(_IFA_LOCAL)
        if there == index and packed:
            network = ipaddress.ip_network((packed, prefix), strict=False)
            if not network.is_link_local:
                yield str(network)
