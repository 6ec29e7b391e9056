# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tells the neighbours of a new address: gratuitous ARP (RFC 5227, section 2.3) and unsolicited neighbour
advertisement (RFC 4861, section 7.2.6), on a packet socket of the pod's namespace.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence

from ..errors import NetnsError
from .netns import visit

_BROADCAST = b"\xff" * 6
_ETH_ARP, _ETH_IPV6 = 0x0806, 0x86DD
_ALL_NODES = ipaddress.IPv6Address("ff02::1").packed
_ALL_NODES_MAC = b"\x33\x33\x00\x00\x00\x01"
_ICMPV6 = 58
_NEIGHBOUR_ADVERTISEMENT = 136
_OVERRIDE = 0x20000000
PAUSES = (0.01, 0.1, 0.4)
"""Seconds before each round, the first behind the reply. A single one is lost if a switch does not forward yet."""


News = tuple[str, str, Sequence[str]]
"""An interface, its MAC address (empty: the link's own), and its addresses with prefix length."""


def announce(news: Sequence[News], netns_fd: int = -1) -> None:
    """Announces each address of the interfaces, in as many rounds as PAUSES has.

    `netns_fd`: of the namespace that they are in, -1 for the caller's. A link that is gone or down is no error. Not for
    who has no time: the end of a packet socket alone takes 10 ms, as the kernel waits until no processor looks at it.
    """
    if not any(addresses for _name, _mac, addresses in news):
        return
    time.sleep(PAUSES[0])
    with contextlib.suppress(OSError, NetnsError), _open() if netns_fd < 0 else visit(netns_fd, _open) as raw:
        for pause in (0.0, *PAUSES[1:]):
            time.sleep(pause)
            for item in news:
                with contextlib.suppress(OSError):
                    _send(raw, *item)


def _send(raw: socket.socket, name: str, mac: str, addresses: Sequence[str]) -> None:
    raw.bind((name, 0))
    for frame in frames(mac or raw.getsockname()[4].hex(":"), addresses):
        raw.send(frame)


def _open() -> socket.socket:
    return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)


def frames(mac: str, addresses: Iterable[str]) -> Iterator[bytes]:
    """The Ethernet frames that announce the addresses."""
    source = bytes.fromhex(mac.replace(":", ""))
    for text in addresses:
        address = ipaddress.ip_interface(text).ip
        yield _arp(source, address.packed) if address.version == 4 else _advertisement(source, address.packed)


def _arp(mac: bytes, address: bytes) -> bytes:
    header = _BROADCAST + mac + struct.pack("!H", _ETH_ARP)
    return header + struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1) + mac + address + b"\0" * 6 + address


def _advertisement(mac: bytes, address: bytes) -> bytes:
    body = struct.pack("!BBHI", _NEIGHBOUR_ADVERTISEMENT, 0, 0, _OVERRIDE) + address + b"\x02\x01" + mac
    pseudo = address + _ALL_NODES + struct.pack("!II", len(body), _ICMPV6)
    body = body[:2] + struct.pack("!H", _checksum(pseudo + body)) + body[4:]
    header = struct.pack("!IHBB", 6 << 28, len(body), _ICMPV6, 255) + address + _ALL_NODES
    return _ALL_NODES_MAC + mac + struct.pack("!H", _ETH_IPV6) + header + body


def _checksum(data: bytes) -> int:
    """RFC 1071. An even number of bytes."""
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
