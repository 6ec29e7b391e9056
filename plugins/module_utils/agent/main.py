# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resident process: takes calls from clients on a unix socket, each in a thread of its own.

Calls of one attachment take turns (attach/turns.py), others are served side by side. Nothing is kept between calls, so
that one that goes wrong, or a database that restarts, is no matter for the next. Only root is served. The protocol is
in client.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import sys
import threading
import time

from ..attach.serve import serve
from ..client import GREETING, MAX_STDIN
from ..cni.reply import Reply, failure
from ..errors import UNAVAILABLE, DecodeError, PodnetError
from ..kernel.announce import PAUSES, announce

MAX_CALLS = 64
"""Calls served side by side; the next ones wait in the socket's backlog."""
BACKLOG = 256
RECEIVE_SECONDS = 10.0
STOP_SECONDS = 25.0
LOG_CHARS = 1000
_MAX_LINE = 256
_MAX_ENV = 1 << 20
_UCRED = struct.Struct("3i")


class Agent:
    """Serves calls from a listening socket until `stop`."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self._free = threading.BoundedSemaphore(MAX_CALLS)
        self._stopping = threading.Event()

    def run(self) -> None:
        """Serves; returns when stopped and the calls in work have ended, at the latest after STOP_SECONDS."""
        self._listener.settimeout(1.0)
        while not self._stopping.is_set():
            if not self._free.acquire(timeout=1.0):
                continue
            try:
                pipe, _address = self._listener.accept()
            except (TimeoutError, socket.timeout):
                self._free.release()
                continue
            except OSError as error:
                self._free.release()
                _log(f"cannot take a call: {error}")
                time.sleep(0.1)
                continue
            threading.Thread(target=self._handle, args=(pipe,), name="call", daemon=True).start()
        deadline = time.monotonic() + STOP_SECONDS
        for _call in range(MAX_CALLS):
            self._free.acquire(timeout=max(deadline - time.monotonic(), 0))

    def stop(self) -> None:
        """Takes no further calls."""
        self._stopping.set()

    def _handle(self, pipe: socket.socket) -> None:
        fds: list[int] = []
        try:
            pipe.settimeout(RECEIVE_SECONDS)
            reply = self._answer(pipe, fds)
            head = b"%s %d %d %d\n" % (GREETING, reply.code, len(reply.stdout), len(reply.stderr))
            pipe.sendall(head + reply.stdout + reply.stderr)
            _log(_one_line(reply.stderr))
        except OSError as error:
            _log(f"a client broke off: {error}")
        finally:
            pipe.close()
            for fd in fds:
                os.close(fd)
            self._free.release()

    def _answer(self, pipe: socket.socket, fds: list[int]) -> Reply:
        if not _is_root(pipe):
            return failure(PodnetError("only root may call the agent", "", UNAVAILABLE))
        try:
            plugin, env, stdin = receive(pipe, fds)
            reply = serve(plugin, env, stdin, fds[0] if fds else None, _announce)
        except PodnetError as error:
            return failure(error)
        return reply


def receive(pipe: socket.socket, fds: list[int]) -> tuple[str, dict[str, str], bytes]:
    """Plugin, environment and standard input of a call; its descriptors are appended to `fds`.

    Raises DecodeError for another protocol, OSError if the client breaks off.
    """
    data = b""
    while b"\n" not in data:
        more, received, _flags, _address = socket.recv_fds(pipe, 65536, 1)
        fds += received
        if not more or (len(data) > _MAX_LINE and b"\n" not in data):
            raise DecodeError("the call has no greeting")
        data += more
    line, _newline, body = data.partition(b"\n")
    words = line.split()
    if len(words) != 4 or words[0] != GREETING or not words[2].isdigit() or not words[3].isdigit():
        raise DecodeError(f"another protocol: {line[:64]!r}", "the client is of another release than the agent")
    env_bytes, stdin_bytes = int(words[2]), int(words[3])
    if env_bytes > _MAX_ENV or stdin_bytes > MAX_STDIN:
        raise DecodeError("the call is too long")
    while len(body) < env_bytes + stdin_bytes:
        more = pipe.recv(65536)
        if not more:
            raise OSError("the call was cut off")
        body += more
    pairs = (os.fsdecode(part).partition("=") for part in body[:env_bytes].split(b"\0") if part)
    return words[1].decode(errors="replace"), {key: value for key, _equals, value in pairs}, body[env_bytes:]


def _announce(raw: socket.socket, mac: str, addresses: list[str]) -> None:
    """All rounds in a thread of their own: the reply does not wait for them."""

    def rounds() -> None:
        with raw:
            for pause in PAUSES:
                time.sleep(pause)
                announce(raw, mac, addresses)

    threading.Thread(target=rounds, name="announce", daemon=True).start()


def _is_root(pipe: socket.socket) -> bool:
    _pid, uid, _gid = _UCRED.unpack(pipe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return uid == 0


def _one_line(text: bytes) -> str:
    """A call's line and, if it failed, its message behind it; a caller's input is in there, so nothing but text."""
    line = " ".join(text.decode(errors="replace").split())[:LOG_CHARS]
    return "".join(sign if sign.isprintable() else "?" for sign in line)


def _log(line: str) -> None:
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def listener_of_systemd() -> socket.socket | None:
    """The socket that systemd passed (sd_listen_fds(3)), None if it passed none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    listener = socket.socket(fileno=3)
    listener.set_inheritable(False)
    return listener


def listener_at(path: str) -> socket.socket:
    """A socket of our own, for root only."""
    os.makedirs(os.path.dirname(path), mode=0o755, exist_ok=True)
    _remove(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listener.bind(path)
    finally:
        os.umask(mask)
    listener.listen(BACKLOG)
    return listener


def _remove(path: str) -> None:
    """A socket of our own goes with us: clients then serve themselves."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)


def main(argv: list[str] | None = None) -> int:
    """`podnet-agent [--socket PATH]`; without it the socket is systemd's."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) == 2 and words[0] == "--socket":
        listener: socket.socket | None = listener_at(words[1])
    else:
        listener = listener_of_systemd()
    if listener is None or (words and words[0] != "--socket"):
        _log("usage: podnet-agent --socket PATH, or started by podnet-agent.socket")
        return 2
    agent = Agent(listener)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_args: agent.stop())
    try:
        agent.run()
    finally:
        if words:
            _remove(words[1])
    return 0
