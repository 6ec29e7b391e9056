# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process that stays for years needs to know of a few links: rtnetlink(7) on a plain socket.

It loads nothing but the standard library: pyroute2 would cost each node some 20 MB for as long as it runs.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from ..errors import KernelError

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h
_NETLINK_ROUTE = 0
_RTMGRP_LINK, _RTMGRP_IPV4_IFADDR, _RTMGRP_IPV6_IFADDR = 0x1, 0x10, 0x100
_ERROR, _DONE, _NEWLINK, _GETLINK, _NEWADDR, _GETADDR = 2, 3, 16, 18, 20, 22
_REQUEST, _ACK, _DUMP = 0x1, 0x4, 0x300
_IFF_UP = 1
_IFLA_MASTER = 10
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_TENTATIVE, _IFA_F_DADFAILED = 0x40, 0x08
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_ADDRESS = struct.Struct("=BBBBI")
_SOL_NETLINK, _GET_STRICT_CHK = 270, 12
_SECONDS = 5.0


@dataclass(frozen=True)
class Seen:
    """A link as it is: what it belongs to (""), and its usable addresses with prefix length, link-local ones too."""

    up: bool
    master: str
    addresses: frozenset[str]


class News:
    """Waits for changes of links and addresses of this network namespace. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        self._socket = _open(_RTMGRP_LINK | _RTMGRP_IPV4_IFADDR | _RTMGRP_IPV6_IFADDR)
        self._socket.setblocking(False)

    def __enter__(self) -> News:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def wait(self, seconds: float) -> bool:
        """Returns after that time, or as soon as something has changed; gives whether it has."""
        if not select.select([self._socket], [], [], max(seconds, 0.0))[0]:
            return False
        while True:
            try:
                self._socket.recv(1 << 16)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # some were lost: that is news, too
                    raise KernelError(f"netlink: {error.strerror}") from error


def look(name: str) -> Seen | None:
    """The link of that name, None if there is none. Raises KernelError."""
    try:
        index = socket.if_nametoindex(name)
    except OSError:
        return None
    with closing(_open(0)) as route:
        found = list(_ask(route, _GETLINK, _NEWLINK, _LINK.pack(0, 0, index, 0, 0)))
        if not found:
            return None
        flags = _LINK.unpack_from(found[0])[3]
        master = _attributes(found[0][_LINK.size :]).get(_IFLA_MASTER)
        return Seen(bool(flags & _IFF_UP), _name(master) if master else "", frozenset(_addresses(route, index)))


def _name(index: bytes) -> str:
    number = struct.unpack("=I", index)[0]
    try:
        return socket.if_indextoname(number)
    except OSError:
        return str(number)


def _addresses(route: socket.socket, wanted: int) -> Iterator[str]:
    for body in _ask(route, _GETADDR, _NEWADDR, _ADDRESS.pack(0, 0, 0, 0, wanted), _DUMP):
        family, prefix, flags, _scope, index = _ADDRESS.unpack_from(body)
        if index != wanted:
            continue
        values = _attributes(body[_ADDRESS.size :])
        if _IFA_FLAGS in values:
            flags = struct.unpack("=I", values[_IFA_FLAGS])[0]
        address = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
        if address and not flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED):
            yield f"{socket.inet_ntop(family, address)}/{prefix}"


def _ask(route: socket.socket, request: int, answer: int, body: bytes, flags: int = _ACK) -> Iterator[bytes]:
    """The bodies of all messages of the answer; none if there is no such link."""
    route.send(_HEADER.pack(_HEADER.size + len(body), request, _REQUEST | flags, 1, 0) + body)
    deadline = time.monotonic() + _SECONDS
    while True:
        if not select.select([route], [], [], max(deadline - time.monotonic(), 0.0))[0]:
            raise KernelError("the kernel did not answer in time")
        data = route.recv(1 << 17)
        while len(data) >= _HEADER.size:
            length, kind, _flags, _number, _port = _HEADER.unpack_from(data)
            if kind == _DONE:
                return
            if kind == _ERROR:
                code = -struct.unpack_from("=i", data, _HEADER.size)[0]
                if code in (0, errno.ENODEV):
                    return
                raise KernelError(f"the kernel refused: {os.strerror(code)}")
            if kind == answer:
                yield data[_HEADER.size : length]
            data = data[_align(length) :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & 0x3FFF] = data[4:length]
        data = data[_align(length) :]
    return found


def _align(length: int) -> int:
    return length + 3 & ~3


def _open(groups: int) -> socket.socket:
    try:
        route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
        with suppress(OSError):  # an older kernel sends the addresses of all links
            route.setsockopt(_SOL_NETLINK, _GET_STRICT_CHK, 1)
        route.bind((0, groups))
    except OSError as error:
        raise KernelError(f"netlink: {error.strerror}") from error
    return route
