# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's side of the protocol in client.py: calls read, replies written, dots while a call is at work."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator

from ..client import BEGIN_SECONDS, GREETING, LATE, MAX_STDIN
from ..cni.reply import Reply
from ..errors import DecodeError

_MAX_LINE = 256
_MAX_ENV = 1 << 20
LATE_REPLY = b"%s %s\n" % (GREETING, LATE)
"""Of an agent that has not begun with a call and will not: its client serves itself."""
_ONE_FD = socket.CMSG_LEN(4)
_QUIET_SECONDS = 0.4
"""A call that ends sooner gets no dot: each costs its client a wake-up."""


class Late(Exception):
    """The call may not begin any more: its client serves itself, or is about to."""


def receive(pipe: socket.socket, fds: list[int]) -> tuple[str, dict[str, str], bytes]:
    """Plugin, environment and standard input of a call; its descriptors are appended to `fds`.

    Raises DecodeError for another protocol, Late if the call may not begin any more, OSError if the client breaks off.
    """
    data = b""
    while b"\n" not in data:
        # What other calls start, such as an IPAM plugin, does not inherit it: socket.recv_fds leaves this flag out.
        more, rights, _flags, _address = pipe.recvmsg(65536, _ONE_FD, socket.MSG_CMSG_CLOEXEC)
        fds += [int.from_bytes(right[:4], sys.byteorder) for _level, kind, right in rights if kind == socket.SCM_RIGHTS]
        if not more or (len(data) > _MAX_LINE and b"\n" not in data):
            raise DecodeError("the call has no greeting")
        data += more
    line, _newline, body = data.partition(b"\n")
    words = line[:_MAX_LINE].split()
    if len(words) < 5 or words[0] != GREETING or not all(word.isdigit() for word in words[2:5]):
        raise DecodeError(f"another protocol: {line[:64]!r}", "the client is of another release than the agent")
    env_bytes, stdin_bytes, begin_by = (int(word) for word in words[2:5])
    if env_bytes > _MAX_ENV or stdin_bytes > MAX_STDIN:
        raise DecodeError("the call is too long")
    while len(body) < env_bytes + stdin_bytes:
        more = pipe.recv(65536)
        if not more:
            raise OSError("the call was cut off")
        body += more
    left = begin_by / 1000 - time.monotonic()
    if left < 0:
        with contextlib.suppress(OSError):
            pipe.sendall(LATE_REPLY)
        raise Late
    if left < BEGIN_SECONDS - _QUIET_SECONDS:
        pipe.sendall(b".")  # it has waited for a while: it hears that the call begins before it gives up
    pairs = (os.fsdecode(part).partition("=") for part in body[:env_bytes].split(b"\0") if part)
    return words[1].decode(errors="replace"), {key: value for key, _equals, value in pairs}, body[env_bytes:]


def reply_bytes(reply: Reply) -> bytes:
    """A reply as it travels."""
    head = b"%s %d %d %d\n" % (GREETING, reply.code, len(reply.stdout), len(reply.stderr))
    return head + reply.stdout + reply.stderr


class Dots:
    """The calls at work, whose clients are told from time to time that they still are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._began: dict[socket.socket, float] = {}

    def count(self) -> int:
        """How many calls are at work."""
        return len(self._began)

    @contextlib.contextmanager
    def of(self, pipe: socket.socket) -> Iterator[None]:
        """A call at work."""
        with self._lock:
            self._began[pipe] = time.monotonic()
        try:
            yield
        finally:
            with self._lock:
                del self._began[pipe]

    def send(self) -> None:
        """A dot to each client that has waited for a while. Waits for none of them."""
        now = time.monotonic()
        with self._lock:
            for pipe, began in self._began.items():
                if now - began > _QUIET_SECONDS:
                    with contextlib.suppress(OSError):
                        pipe.send(b".", socket.MSG_DONTWAIT)
