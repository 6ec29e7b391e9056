# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What answers from where this process stands, without help at the other end. Needs CAP_NET_RAW. Times are seconds.

The other end's kernel answers an echo; it refuses a connection to a closed port, which proves the way there and back
as well as one that is taken.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterable
from contextlib import suppress

ECHO = {4: (8, 0), 6: (128, 129)}
"""Types of echo request and reply: RFC 792, RFC 4443."""
HEADERS = {4: 28, 6: 48}
"""Bytes of the IP header without options and the ICMP header."""
CLOSED_PORT = 9
"""discard, RFC 863"""
IP_MTU_DISCOVER = 10
IPV6_MTU_DISCOVER = 23
PMTUDISC_PROBE = 3
"""linux/in.h, in6.h: never fragment, and do not trust a path MTU learnt before."""

_AGAIN = 0.2


def echo(address: str, timeout: float, size: int | None = None) -> float | None:
    """Asks until an echo comes back: the seconds that it took, or None if none came in time.

    `size`: of the whole IP packet in bytes, which must not be fragmented.
    """
    version = _version(address)
    payload = bytes(56 if size is None else size - HEADERS[version])
    deadline = time.monotonic() + timeout
    with _icmp(version) as sock:
        if size is not None:
            level, option = (socket.IPPROTO_IP, IP_MTU_DISCOVER) if version == 4 else (
                socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER)  # fmt: skip
            sock.setsockopt(level, option, PMTUDISC_PROBE)
        for number in range(1, 65536):
            began = time.monotonic()
            if began >= deadline:
                return None
            with suppress(OSError):  # no route or no neighbour yet, or larger than the link's MTU
                sock.sendto(_request(version, number, payload), (address, 0))
            for source, _number in _replies(sock, version, min(began + _AGAIN, deadline)):
                if source == address:
                    return time.monotonic() - began
    return None


def answering(addresses: Iterable[str], wait: float) -> list[str]:
    """Asks all of them for an echo, twice, and gives those from which one came within `wait` seconds."""
    heard = []
    for version in (4, 6):
        asked = [address for address in addresses if _version(address) == version]
        if not asked:
            continue
        with _icmp(version) as sock:
            for number in (1, 2):
                for address in asked:
                    with suppress(OSError):
                        sock.sendto(_request(version, number, b"podnet"), (address, 0))
                until = time.monotonic() + wait / 2
                heard += [source for source, _number in _replies(sock, version, until) if source in asked]
    return sorted(set(heard))


def refuses(address: str, kind: socket.SocketKind, timeout: float) -> bool:
    """Whether the host at this address answers to TCP (SOCK_STREAM) or UDP (SOCK_DGRAM) on a port that is closed."""
    family = socket.AF_INET if _version(address) == 4 else socket.AF_INET6
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        with socket.socket(family, kind) as sock:
            sock.settimeout(min(1.0, timeout))
            try:
                sock.connect((address, CLOSED_PORT))
                if kind == socket.SOCK_STREAM:
                    return True
                sock.send(b"podnet")
                sock.recv(16)
            except ConnectionRefusedError:
                return True
            except socket.timeout:
                continue
            except OSError as error:
                if error.errno not in (errno.EHOSTUNREACH, errno.ENETUNREACH):
                    raise
                time.sleep(_AGAIN)
    return False


def _version(address: str) -> int:
    return 6 if ":" in address else 4


def _icmp(version: int) -> socket.socket:
    if version == 4:
        return socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
    return socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6)


def _ident() -> int:
    return os.getpid() & 0xFFFF


def _request(version: int, number: int, payload: bytes) -> bytes:
    kind = ECHO[version][0]
    # the kernel fills in ICMPv6's checksum, for it covers addresses that only the kernel knows (RFC 4443, 2.3)
    total = 0 if version == 6 else _checksum(struct.pack("!BBHHH", kind, 0, 0, _ident(), number) + payload)
    return struct.pack("!BBHHH", kind, 0, total, _ident(), number) + payload


def _checksum(data: bytes) -> int:
    """RFC 1071."""
    words = struct.unpack(f"!{(len(data) + 1) // 2}H", data + b"\0" * (len(data) % 2))
    total = sum(words)
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def _replies(sock: socket.socket, version: int, until: float) -> Iterable[tuple[str, int]]:
    """Source and sequence number of each reply to this process."""
    while True:
        left = until - time.monotonic()
        if left <= 0 or not select.select([sock], [], [], left)[0]:
            return
        data, source = sock.recvfrom(65535)
        if version == 4:
            data = data[(data[0] & 0xF) * 4 :]
        if len(data) >= 8:
            kind, _code, _total, ident, number = struct.unpack("!BBHHH", data[:8])
            if kind == ECHO[version][1] and ident == _ident():
                yield source[0], number
