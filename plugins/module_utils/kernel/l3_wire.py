# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rtnetlink messages as bytes: attributes taken apart and put together, dumps, and many changes in one sendmsg.

pyroute2 decodes a message into what it knows; here a message goes back to the kernel with every attribute it came with.
"""

from __future__ import annotations

import errno
import os
import select
import socket
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

from ..errors import KernelError

Attributes = list[tuple[int, bytes]]

# linux/netlink.h, linux/rtnetlink.h
REQUEST, ACK, DUMP = 0x1, 0x4, 0x300
REPLACE, EXCL, CREATE, APPEND = 0x100, 0x200, 0x400, 0x800
NEWLINK, GETLINK = 16, 18
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, DELROUTE, GETROUTE = 24, 25, 26
NEWNEIGH, DELNEIGH, GETNEIGH = 28, 29, 30
NEWRULE, DELRULE, GETRULE = 32, 33, 34
NEWNEXTHOP, GETNEXTHOP = 104, 106
GROUP_LINK = 1
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6}
VERSIONS = {int(family): version for version, family in FAMILIES.items()}

_ERROR, _DONE = 2, 3
_DUMP_INTERRUPTED = 0x10
_CAPPED, _EXTENDED = 0x100, 0x200
_HEADER = struct.Struct("=IHHII")
_SOL_NETLINK, _CAP_ACK, _EXT_ACK = 270, 10, 11
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_BUFFER = 8 << 20
_SECONDS = 10.0
"""How long the kernel may take: its lock may be held by others."""
_AT_ONCE = 1000
"""Messages of one sendmsg: their answers have to fit the receive buffer."""


@dataclass(frozen=True)
class Change:
    """One message to the kernel; `text` names it in an error, `fine` are the errors that mean it is done already."""

    kind: int
    flags: int
    body: bytes
    text: str
    fine: tuple[int, ...] = ()


@dataclass(frozen=True)
class Failure:
    """A change that the kernel refused, and why."""

    change: Change
    code: int
    why: str

    def __str__(self) -> str:
        return f"{self.change.text}: {self.why or os.strerror(self.code)}"


def attributes(data: bytes, start: int = 0) -> Attributes:
    """The attributes that begin at `start`: type without its flags, and value."""
    found = []
    while start + 4 <= len(data):
        length, kind = struct.unpack_from("=HH", data, start)
        if length < 4:
            break
        found.append((kind & 0x3FFF, data[start + 4 : start + length]))
        start += (length + 3) & ~3
    return found


def pack(attrs: Iterable[tuple[int, bytes]]) -> bytes:
    """The other way round."""
    return b"".join(
        struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4) for kind, value in attrs
    )


def number(value: bytes | None, default: int = 0) -> int:
    """An attribute of 1, 2, 4 or 8 bytes as a number."""
    return default if value is None else int.from_bytes(value, "little" if _LITTLE else "big")


def u32(value: int) -> bytes:
    """A number as an attribute of four bytes."""
    return struct.pack("=I", value)


def name_of(value: bytes | None) -> str:
    """A name that the kernel ends with a zero byte."""
    return "" if value is None else os.fsdecode(value.split(b"\0")[0])


class Rtnetlink:
    """A socket to the kernel's links, addresses and routes in the network namespace of the calling thread.

    For one thread. Close it, or use it as a context manager. `groups`: multicast groups to hear.
    """

    def __init__(self, groups: int = 0) -> None:
        self._sequence = 0
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
            self._socket.bind((0, groups))
        except OSError as error:
            raise KernelError(f"no netlink socket: {error.strerror}") from error
        for option in (_SO_SNDBUFFORCE, _SO_RCVBUFFORCE):
            with suppress(OSError):  # without the right to, the default size serves a node with few routes
                self._socket.setsockopt(socket.SOL_SOCKET, option, _BUFFER)
        for option in (_CAP_ACK, _EXT_ACK):
            with suppress(OSError):
                self._socket.setsockopt(_SOL_NETLINK, option, 1)

    def __enter__(self) -> Rtnetlink:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def dump(self, kind: int, body: bytes) -> list[bytes]:
        """The bodies of all messages of a dump, read again if it changed meanwhile. Raises KernelError."""
        for _attempt in range(5):
            found, whole = self._dump_once(kind, body)
            if whole:
                return found
        return found

    def supports(self, kind: int, body: bytes) -> bool:
        """Whether this kernel has such a dump."""
        try:
            self._dump_once(kind, body)
        except KernelError:
            return False
        return True

    def change(self, changes: Sequence[Change]) -> list[Failure]:
        """Sends all changes in one sendmsg (a thousand at a time); the kernel does them in order and goes on after one
        that fails. Gives those. Raises KernelError if the kernel does not answer.
        """
        failures: list[Failure] = []
        for begin in range(0, len(changes), _AT_ONCE):
            part = changes[begin : begin + _AT_ONCE]
            first = self._sequence + 1
            self._sequence += len(part)
            data = b"".join(
                _message(item.kind, REQUEST | ACK | item.flags, first + place, item.body)
                for place, item in enumerate(part)
            )
            self._send(data)
            answers = self._answers(first, len(part))
            failures += [
                Failure(item, code, why) for item, (code, why) in zip(part, answers) if code and code not in item.fine
            ]
        return failures

    def heard(self, timeout: float) -> bool:
        """Whether an event of the groups came within so many seconds; what it says is for a dump to tell."""
        if not select.select([self._socket], [], [], max(0.0, timeout))[0]:
            return False
        with suppress(OSError):  # ENOBUFS: more of them than fit, which is an event too
            self._socket.recv(1 << 16)
        return True

    def _dump_once(self, kind: int, body: bytes) -> tuple[list[bytes], bool]:
        self._sequence += 1
        self._send(_message(kind, REQUEST | DUMP, self._sequence, body))
        found: list[bytes] = []
        whole = True
        deadline = time.monotonic() + _SECONDS
        while True:
            for answer, flags, sequence, part in self._receive(deadline):
                if sequence != self._sequence:
                    continue
                whole = whole and not flags & _DUMP_INTERRUPTED
                if answer == _DONE:
                    code = -struct.unpack_from("=i", part)[0] if len(part) >= 4 else 0
                    if code > 0:
                        raise KernelError(f"the kernel refused a dump: {os.strerror(code)}")
                    return found, whole
                if answer == _ERROR:
                    code = -struct.unpack_from("=i", part)[0]
                    raise KernelError(f"the kernel refused a dump: {os.strerror(code)}")
                found.append(part)

    def _send(self, data: bytes) -> None:
        try:
            self._socket.send(data)
        except OSError as error:
            raise KernelError(f"the kernel took no message: {error.strerror}") from error

    def _answers(self, first: int, count: int) -> list[tuple[int, str]]:
        answers: dict[int, tuple[int, str]] = {}
        deadline = time.monotonic() + _SECONDS
        while len(answers) < count:
            for kind, flags, sequence, part in self._receive(deadline):
                if kind == _ERROR and first <= sequence < first + count:
                    code = -struct.unpack_from("=i", part)[0]
                    answers[sequence] = (code, _reason(flags, part))
        return [answers[first + place] for place in range(count)]

    def _receive(self, deadline: float) -> Iterator[tuple[int, int, int, bytes]]:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([self._socket], [], [], left)[0]:
            raise KernelError("the kernel does not answer")
        try:
            data = self._socket.recv(1 << 18)
        except OSError as error:
            raise KernelError(f"the kernel's answer is lost: {os.strerror(error.errno or errno.EIO)}") from error
        start = 0
        while start + _HEADER.size <= len(data):
            length, kind, flags, sequence, _port = _HEADER.unpack_from(data, start)
            yield kind, flags, sequence, data[start + _HEADER.size : start + length]
            start += (length + 3) & ~3


def _message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    data = _HEADER.pack(_HEADER.size + len(body), kind, flags, sequence, 0) + body
    return data + b"\0" * (-len(data) % 4)


def _reason(flags: int, part: bytes) -> str:
    """The kernel's own words, after the error code and the message that it echoes (only its header when capped)."""
    if not flags & _EXTENDED:
        return ""
    echoed = _HEADER.size if flags & _CAPPED else struct.unpack_from("=I", part, 4)[0]
    return name_of(dict(attributes(part, 4 + echoed)).get(1))


_LITTLE = struct.pack("=H", 1) == b"\x01\x00"
