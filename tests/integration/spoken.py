# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Frames that a pod under the spoof check may send, and frames that it may not, byte by byte."""

from __future__ import annotations

import ipaddress
import socket
import struct
from dataclasses import dataclass

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac
from ansible_collections.podnet.ovs.tests.integration.wire import EXPERIMENT, mac_bytes

ADDRESS4, ADDRESS6 = "10.10.0.5", "fd00:10::5"
"""The addresses of the pod."""
MAC = derived_mac("c1", "eth0")
OTHER4, OTHER6 = "10.10.0.99", "fd00:10::99"
OTHER_MAC = "02:00:00:00:00:99"
NOBODY = "::"
ARP, IPV4, IPV6 = 0x0806, 0x0800, 0x86DD


def link_local(mac: str) -> str:
    """The address that a kernel makes of a MAC address (RFC 4291, appendix A)."""
    octets = bytearray(mac_bytes(mac))
    octets[0] ^= 2
    return str(ipaddress.IPv6Address(b"\xfe\x80" + bytes(6) + bytes(octets[:3]) + b"\xff\xfe" + bytes(octets[3:])))


def arp(sender: str, address: str, operation: int = 2) -> tuple[int, bytes]:
    """An ARP message (RFC 826)."""
    head = struct.pack("!HHBBH", 1, IPV4, 6, 4, operation)
    return ARP, head + mac_bytes(sender) + socket.inet_aton(address) + bytes(6) + socket.inet_aton("10.10.0.1")


def ipv4(source: str) -> tuple[int, bytes]:
    """A datagram of UDP."""
    udp = struct.pack("!HHHH", 7, 7, 8, 0)
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), 1, 0, 64, 17, 0)
    return IPV4, head + socket.inet_aton(source) + socket.inet_aton("10.10.0.1") + udp


def ipv6(source: str, header: int = 17, body: bytes = struct.pack("!HHHH", 7, 7, 8, 0)) -> tuple[int, bytes]:
    """A packet to all nodes."""
    head = struct.pack("!IHBB", 6 << 28, len(body), header, 255)
    return IPV6, head + socket.inet_pton(socket.AF_INET6, source) + socket.inet_pton(socket.AF_INET6, "ff02::1") + body


def icmp6(kind: int, source: str, content: bytes = b"") -> tuple[int, bytes]:
    """A message of ICMPv6 without its checksum, which nobody here looks at."""
    return ipv6(source, 58, struct.pack("!BBH", kind, 0, 0) + content)


def advertisement(target: str, mac: str | None, source: str = ADDRESS6) -> tuple[int, bytes]:
    """A neighbour advertisement (RFC 4861, 4.4), with the target's link-layer address if one is given."""
    option = bytes([2, 1]) + mac_bytes(mac) if mac else b""
    return icmp6(136, source, struct.pack("!I", 0x20000000) + socket.inet_pton(socket.AF_INET6, target) + option)


def solicitation(source: str, mac: str | None) -> tuple[int, bytes]:
    """A neighbour solicitation (RFC 4861, 4.3), with the source's link-layer address if one is given."""
    option = bytes([1, 1]) + mac_bytes(mac) if mac else b""
    return icmp6(135, source, bytes(4) + socket.inet_pton(socket.AF_INET6, "fd00:10::1") + option)


@dataclass(frozen=True)
class Spoken:
    """A frame from the pod. `l2`: what a pod without addresses may do; None: the same as one with."""

    packet: tuple[int, bytes]
    passes: bool
    l2: bool | None = None
    source: str = MAC
    tags: str = ""


LOCAL = link_local(MAC)
OWN = {
    "ARP": Spoken(arp(MAC, ADDRESS4), True),
    "ARP probe": Spoken(arp(MAC, "0.0.0.0", 1), True),
    "IPv4": Spoken(ipv4(ADDRESS4), True),
    "IPv6": Spoken(ipv6(ADDRESS6), True),
    "link-local IPv6": Spoken(ipv6(LOCAL), True),
    "advertisement": Spoken(advertisement(ADDRESS6, MAC), True),
    "advertisement without MAC": Spoken(advertisement(ADDRESS6, None), True),
    "link-local advertisement": Spoken(advertisement(LOCAL, MAC, LOCAL), True),
    "solicitation": Spoken(solicitation(ADDRESS6, MAC), True),
    "duplicate address detection": Spoken(solicitation(NOBODY, None), True),
    "multicast listener report": Spoken(icmp6(143, NOBODY, bytes(4)), True),
    "router solicitation": Spoken(icmp6(133, LOCAL, bytes(4)), True),
    "some other protocol": Spoken((EXPERIMENT, b""), True),
}
FALSE = {
    "another MAC": Spoken(ipv4(ADDRESS4), False, source=OTHER_MAC),
    "another MAC, no IP": Spoken((EXPERIMENT, b""), False, source=OTHER_MAC),
    "ARP of another address": Spoken(arp(MAC, OTHER4), False, True),
    "ARP of another MAC": Spoken(arp(OTHER_MAC, ADDRESS4), False),
    "ARP request of another address": Spoken(arp(MAC, OTHER4, 1), False, True),
    "IPv4 of another": Spoken(ipv4(OTHER4), False, True),
    "IPv6 of another": Spoken(ipv6(OTHER6), False, True),
    "IPv6 of another's link": Spoken(ipv6(link_local(OTHER_MAC)), False, True),
    "advertisement of another": Spoken(advertisement(OTHER6, MAC), False, True),
    "advertisement of another without MAC": Spoken(advertisement(OTHER6, None), False, True),
    "advertisement from another": Spoken(advertisement(ADDRESS6, MAC, OTHER6), False, True),
    "advertisement with another MAC": Spoken(advertisement(ADDRESS6, OTHER_MAC), False),
    "solicitation of another": Spoken(solicitation(OTHER6, MAC), False, True),
    "solicitation with another MAC": Spoken(solicitation(ADDRESS6, OTHER_MAC), False),
    "router advertisement": Spoken(icmp6(134, LOCAL, bytes(12)), False),
    "router advertisement of the pod's address": Spoken(icmp6(134, ADDRESS6, bytes(12)), False),
    "in a tag of VLAN 0": Spoken(arp(MAC, OTHER4), False, tags="0"),
    "in two tags of VLAN 0": Spoken(arp(MAC, OTHER4), False, tags="0+0"),
    "another VLAN in a tag of VLAN 0": Spoken(ipv4(ADDRESS4), False, tags="0+300"),
    "another VLAN in two tags of VLAN 0": Spoken(ipv4(ADDRESS4), False, tags="0+0+300"),
    "in 802.1ad": Spoken(arp(MAC, OTHER4), False, tags="s0"),
}
ON_A_TRUNK = {
    **{name: Spoken(one.packet, one.passes, one.l2, one.source, "100") for name, one in (OWN | FALSE).items()
       if not one.tags},
    "another VLAN": Spoken(ipv4(ADDRESS4), False, tags="300"),
    "behind three tags": Spoken(arp(MAC, OTHER4), False, tags="100+0+0"),
}  # fmt: skip
