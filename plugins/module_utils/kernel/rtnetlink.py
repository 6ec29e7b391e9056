# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rtnetlink(7) on a plain socket: what the ways share that cannot wait for a library, or keep one for years."""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from ..errors import DeadlineExceeded, KernelError

# linux/netlink.h, linux/rtnetlink.h
ERROR, DONE = 2, 3
NEWLINK, DELLINK, GETLINK, NEWADDR, GETADDR, NEWROUTE, DELROUTE, GETROUTE = 16, 17, 18, 20, 22, 24, 25, 26
NEWNEIGH, DELNEIGH, GETNEIGH, NEWRULE, DELRULE, GETRULE = 28, 29, 30, 32, 33, 34
REQUEST, ACK, REPLACE, EXCL, DUMP, CREATE = 0x1, 0x4, 0x100, 0x200, 0x300, 0x400
GROUP_LINK, GROUP_IPV4_ADDRESS, GROUP_IPV6_ADDRESS = 0x1, 0x10, 0x100
LINK = struct.Struct("=BxHiII")
"""struct ifinfomsg: family, type, index, flags, mask of flags."""
ADDRESS = struct.Struct("=BBBBI")
"""struct ifaddrmsg: family, prefix length, flags, scope, index."""
ROUTE = struct.Struct("=BBBBBBBBI")
"""struct rtmsg; struct fib_rule_hdr is as long: family, two prefix lengths, tos, table, two spare, action, flags."""
NEIGHBOUR = struct.Struct("=BxxxiHBB")
"""struct ndmsg: family, index, state, flags, type."""

ANSWER_SECONDS = 10.0
"""How long the kernel may take: its lock may be held by others."""

Request = tuple[int, int, bytes, str]
"""Kind, flags, content, and what it means if the kernel refuses it."""

_NETLINK_ROUTE = 0
_IFLA_IFNAME, _IFLA_EXT_MASK, _SKIP_STATISTICS = 3, 29, 1 << 3
_IFNAME_BYTES = 15
_SOL_NETLINK, _CAP_ACK, _EXT_ACK, _GET_STRICT_CHK = 270, 10, 11, 12
_SO_RCVBUFFORCE = 33
_TYPE_MASK = 0x3FFF
_HEADER = struct.Struct("=IHHII")
_MOST = 1 << 17
_PACKET_BYTES = 1 << 15
"""Of requests that are sent at once: well below what a socket takes, and their errors fit into `_RECEIVE_BYTES`."""
_RECEIVE_BYTES = 1 << 20
_ERROR_BYTES = 20
"""An error's number and the header of the request that it is about; the kernel's words come behind."""
_ERROR_WORDS = 1
"""linux/netlink.h, NLMSGERR_ATTR_MSG"""


one_at_a_time = threading.Lock()
"""The kernel changes links one after the other. Who waits for that in the kernel, or tries again and again as a write
to a sysctl does, keeps a processor busy; here it sleeps.
"""


class LinkExists(KernelError):
    """One of the two names is taken."""


class NoIpv6(KernelError):
    """The interface takes no address of this family: it is turned off there."""


_REFUSALS: dict[int, type[KernelError]] = {errno.EEXIST: LinkExists, errno.EACCES: NoIpv6}


def open_route(groups: int = 0) -> socket.socket:
    """A socket in the calling thread's namespace, which hears of changes in the groups. Raises KernelError."""
    try:
        route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
        with suppress(OSError):  # an older kernel sends the addresses of all links
            route.setsockopt(_SOL_NETLINK, _GET_STRICT_CHK, 1)
        route.bind((0, groups))
    except OSError as error:
        raise KernelError(f"netlink: {error.strerror}") from error
    return route


def message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    """A request."""
    return _padded(_HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, number, 0) + body)


def attributes(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    """Types and values as the kernel takes them."""
    return b"".join(_padded(struct.pack("=HH", 4 + len(value), kind) + value) for kind, value in pairs)


def parse(data: bytes) -> dict[int, bytes]:
    """Values by type."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            break
        found[kind & _TYPE_MASK] = data[4:length]
        data = data[_align(length) :]
    return found


def answers(route: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Kind, number and content of each message until the deadline, of time.monotonic()."""
    poll = select.poll()  # select takes no descriptor above 1023, and an agent with many calls may have those
    poll.register(route, select.POLLIN)
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return
        try:
            data = route.recv(_MOST)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise KernelError(f"netlink: {error.strerror}") from error
            yield 0, 0, b""  # news was lost: the reader looks for itself
            continue
        while len(data) >= _HEADER.size:
            length, kind, _flags, number, _port = _HEADER.unpack_from(data)
            yield kind, number, data[_HEADER.size : length]
            data = data[_align(length) :]


def ask(route: socket.socket, request: int, body: bytes, seconds: float, dump: bool = False) -> list[bytes]:
    """The bodies of all messages of the answer, none if there is no such thing.

    Raises KernelError, DeadlineExceeded.
    """
    route.send(message(request, DUMP if dump else ACK, 1, body))
    found = []
    for kind, _number, content in answers(route, time.monotonic() + seconds):
        if kind == request - 2:  # RTM_NEW… is what answers RTM_GET…
            found.append(content)
        elif kind == DONE:
            return found
        elif kind == ERROR:
            code = error_of(content)
            if code in (0, errno.ENODEV):
                return found
            raise KernelError(f"the kernel refused: {os.strerror(code)}")
    raise DeadlineExceeded("the kernel did not answer in time", "try again")


def talk(route: socket.socket, requests: Sequence[Request]) -> None:
    """Sends all at once; the kernel does one after the other. Raises KernelError for the first that it refuses."""
    codes = outcomes(route, requests)
    refuse([(code, what) for code, (_kind, _flags, _body, what) in zip(codes, requests)])


def refuse(results: Iterable[tuple[int, str]]) -> None:
    """Raises KernelError for the first errno that is not 0, with the words beside it."""
    for code, what in results:
        if code:
            raise _REFUSALS.get(code, KernelError)(f"{what}: {os.strerror(code)}")


def outcomes(route: socket.socket, requests: Sequence[Request]) -> list[int]:
    """Sends all at once, and gives what the kernel says to each: 0, or an errno. Raises DeadlineExceeded."""
    if not requests:
        return []
    messages = [
        message(kind, ACK | flags, number, body) for number, (kind, flags, body, _what) in enumerate(requests, 1)
    ]
    with one_at_a_time:
        route.send(b"".join(messages))
    codes: dict[int, int] = {}
    for kind, number, body in answers(route, time.monotonic() + ANSWER_SECONDS):
        if kind == ERROR:
            codes[number] = error_of(body)
        if len(codes) == len(requests):
            break
    else:
        raise DeadlineExceeded("the kernel did not answer in time", "try again")
    return [codes[number] for number in range(1, len(requests) + 1)]


def talk_in_bulk(route: socket.socket, requests: Sequence[Request]) -> dict[int, tuple[int, str]]:
    """Sends many in few packets. Gives those that the kernel refused by their place: errno and its own words.

    Only the last one of each packet is acknowledged; the kernel tells of errors anyway, and does the others
    nevertheless. Raises DeadlineExceeded.
    """
    with suppress(OSError):  # who may not have it that large has the usual
        route.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _RECEIVE_BYTES)
    for option in (_CAP_ACK, _EXT_ACK):
        with suppress(OSError):  # an older kernel repeats the request, and has no words
            route.setsockopt(_SOL_NETLINK, option, 1)
    refused: dict[int, tuple[int, str]] = {}
    for packet in _packets(requests):
        last = packet[-1][0]
        data = b"".join(
            message(kind, flags | (ACK if number == last else 0), number + 1, body)
            for number, (kind, flags, body, _what) in packet
        )
        with one_at_a_time:
            route.send(data)
        for kind, number, content in answers(route, time.monotonic() + ANSWER_SECONDS):
            code = error_of(content) if kind == ERROR else 0
            if code:
                words = parse(content[_ERROR_BYTES:]).get(_ERROR_WORDS, b"").rstrip(b"\0")
                refused[number - 1] = code, words.decode(errors="replace")
            if kind == ERROR and number == last + 1:
                break
        else:
            raise DeadlineExceeded("the kernel did not answer in time", "try again")
    return refused


def _packets(requests: Sequence[Request]) -> Iterator[list[tuple[int, Request]]]:
    """The requests with their places, as many together as fit."""
    packet: list[tuple[int, Request]] = []
    size = 0
    for number, request in enumerate(requests):
        length = _HEADER.size + len(request[2])
        if packet and size + length > _PACKET_BYTES:
            yield packet
            packet, size = [], 0
        packet.append((number, request))
        size += _align(length)
    if packet:
        yield packet


def index_of(route: socket.socket, name: str) -> int | None:
    """The index of the link of that name, None if it is not there. Raises KernelError, DeadlineExceeded.

    By a message, not by SIOCGIFINDEX or what is made of it: there the kernel takes a name that it does not know for
    that of a module, and starts modprobe, twice (net/core/dev_ioctl.c, dev_load).
    """
    if len(os.fsencode(name)) > _IFNAME_BYTES:
        return None
    pairs = [(_IFLA_IFNAME, os.fsencode(name) + b"\0"), (_IFLA_EXT_MASK, u32(_SKIP_STATISTICS))]
    found = ask(route, GETLINK, LINK.pack(0, 0, 0, 0, 0) + attributes(pairs), ANSWER_SECONDS)
    return int(LINK.unpack_from(found[0])[2]) if found else None


def error_of(content: bytes) -> int:
    """The errno of a message of kind ERROR, 0 for an acknowledgement."""
    return -int(struct.unpack_from("=i", content)[0])


def family_of(version: int) -> int:
    """The address family of IP version 4 or 6."""
    return int(socket.AF_INET if version == 4 else socket.AF_INET6)


def u32(value: int) -> bytes:
    """A number as an attribute has it."""
    return struct.pack("=I", value)


def _padded(data: bytes) -> bytes:
    return data.ljust(_align(len(data)), b"\0")


def _align(length: int) -> int:
    return length + 3 & ~3
