# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resident process: takes calls from clients on a unix socket, each in a thread that serves it alone.

Calls of one attachment take turns (attach/turns.py), others are served side by side, over one connection to the
database. What one call does wrong is no matter for the next. Only root is served. The protocol is in client.py.
"""

from __future__ import annotations

import argparse
import contextlib
import faulthandler
import gc
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Sequence

from ..attach.call import Means
from ..attach.serve import Served, load_all, serve
from ..cni.reply import Reply, failure
from ..errors import UNAVAILABLE, ConfigError, PodnetError
from ..kernel.announce import News, announce
from ..version import running_version
from ..vswitch.shared import SharedSwitch
from .housekeeper import Housekeeper
from .metrics import Metrics
from .questions import Questions
from .systemd import listener_of_systemd, notify
from .wire import Dots, Late, receive, reply_bytes

MAX_CALLS = 64
"""Calls served side by side; the next ones wait in the socket's backlog."""
BACKLOG = 512
IDLE = 2
"""Threads that wait for a call when there are none: one takes it, and none needs to be started before it is served."""
RECEIVE_SECONDS = 10.0
STOP_SECONDS = 35.0
TICK_SECONDS = 0.5
SWITCH_SECONDS = 0.0005
"""How long a thread that computes may keep one waiting that has got its answer: the interpreter's own is 5 ms."""
LOG_CHARS = 1000
_UCRED = struct.Struct("3i")
_TIMEVAL = struct.Struct("@ll")


class Agent:
    """Serves calls from a listening socket until `stop`.

    Threads take calls from the socket themselves, one at a time. There is always one more that waits for the next call,
    up to MAX_CALLS, and no hand-over that a call would pay for.
    """

    def __init__(self, listener: socket.socket, metrics: Metrics, version: str) -> None:
        self._listener = listener
        self._lock = threading.Lock()
        self._threads = self._idle = 0
        self._stopping = threading.Event()
        self._dots = Dots()
        self._next_tick = 0.0
        self._metrics = metrics
        self._switch = SharedSwitch()
        self._means = Means(_announce, self._switch.open)
        self._housekeeper = Housekeeper(self._switch, metrics, log)
        self._questions = Questions(version, metrics, self._dots.count)
        metrics.running(self._dots.count)

    def run(self) -> None:
        """Serves; returns when stopped and the calls in work have ended, at the latest after STOP_SECONDS."""
        # By the kernel's own timer: a connection then wakes one thread, and not all that wait.
        self._listener.setblocking(True)
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _TIMEVAL.pack(0, int(TICK_SECONDS * 1e6)))
        self._housekeeper.start()
        notify("READY=1")
        while not self._stopping.wait(TICK_SECONDS):
            self._spare()
            self._tick()
        notify("STOPPING=1")
        self._housekeeper.stop()
        deadline = time.monotonic() + STOP_SECONDS
        while self._threads and time.monotonic() < deadline:
            time.sleep(0.02)
            self._tick()
        self._switch.close()

    def stop(self) -> None:
        """Takes no further calls."""
        self._stopping.set()

    def _tick(self) -> None:
        if time.monotonic() >= self._next_tick:
            self._next_tick = time.monotonic() + TICK_SECONDS
            self._dots.send()
            notify("WATCHDOG=1")

    def _spare(self) -> None:
        """Sees to it that a thread waits for the next call."""
        with self._lock:
            if self._idle or self._threads >= MAX_CALLS or self._stopping.is_set():
                return
            self._idle += 1
            self._threads += 1
        try:
            threading.Thread(target=self._work, name="call", daemon=True).start()
        except RuntimeError as error:  # no more threads: others take the calls, or clients serve themselves
            with self._lock:
                self._idle -= 1
                self._threads -= 1
            log(f"cannot take more calls at once: {error}")

    def _work(self) -> None:
        """Takes calls one after the other, and ends when enough others wait for the next."""
        try:
            while True:
                pipe = self._accept()
                with self._lock:
                    self._idle -= 1
                if pipe is None:
                    return
                self._spare()
                self._handle(pipe)
                with self._lock:
                    if self._idle >= IDLE or self._stopping.is_set():
                        return
                    self._idle += 1
        finally:
            with self._lock:
                self._threads -= 1

    def _accept(self) -> socket.socket | None:
        """The next call; None when the agent ends."""
        while not self._stopping.is_set():
            try:
                return self._listener.accept()[0]
            except BlockingIOError:
                continue
            except OSError as error:
                log(f"cannot take a call: {error}")
                self._stopping.wait(0.1)
        return None

    def _handle(self, pipe: socket.socket) -> None:
        fds: list[int] = []
        served: Served | None = None
        try:
            pipe.settimeout(RECEIVE_SECONDS)
            with self._dots.of(pipe):
                reply, served = self._answer(pipe, fds)
            pipe.sendall(reply_bytes(reply))
        except Late:
            log("a call came too late to begin with it: its client serves itself")
        except OSError as error:
            log(f"a client broke off: {error}")
        finally:
            pipe.close()
            for fd in fds:
                os.close(fd)
        if served is not None:
            self._over(served)

    def _over(self, served: Served) -> None:
        log(one_line(served.line, served.reply.stderr))
        self._questions.count(served)
        self._metrics.observe(served.verb, served.code, served.seconds, served.steps)
        self._housekeeper.look_soon()

    def _answer(self, pipe: socket.socket, fds: list[int]) -> tuple[Reply, Served | None]:
        if not _is_root(pipe):
            return failure(PodnetError("only root may call the agent", "", UNAVAILABLE)), None
        try:
            plugin, env, stdin = receive(pipe, fds)
            if self._questions.is_one(plugin):
                return self._questions.answer(plugin), None
            served = serve(plugin, env, stdin, fds[0] if fds else None, self._means)
        except PodnetError as error:
            return failure(error), None
        return served.reply, served


def _announce(netns_fd: int, news: Sequence[News]) -> None:
    """In a thread of its own: the reply does not wait for it."""
    mine = os.dup(netns_fd) if netns_fd >= 0 else -1

    def rounds() -> None:
        try:
            announce(news, mine)
        finally:
            if mine >= 0:
                os.close(mine)

    threading.Thread(target=rounds, name="announce", daemon=True).start()


def _is_root(pipe: socket.socket) -> bool:
    _pid, uid, _gid = _UCRED.unpack(pipe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size))
    return uid == 0


def one_line(line: str, error: bytes) -> str:
    """A call's line and, if it failed, its message behind it; a caller's input is in there, so nothing but text."""
    text = " ".join(f"{line} {error.decode(errors='replace')}".split())[:LOG_CHARS]
    return "".join(sign if sign.isprintable() else "?" for sign in text)


def log(line: str) -> None:
    """One line to standard error, which is the journal's."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


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


def main(argv: Sequence[str] | None = None) -> int:
    """Serves until SIGTERM; the exit status is 2 for a wrong command line."""
    parser = argparse.ArgumentParser(prog="podnet-agent", description="Serves the CNI plugins of this node.")
    parser.add_argument("--socket", metavar="PATH", help="where to listen; without it the socket is systemd's")
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve metrics over HTTP there")
    options = parser.parse_args(argv)
    version = running_version()
    metrics = Metrics(version)
    if options.metrics:
        try:
            metrics.serve(options.metrics)
        except ConfigError as error:
            parser.error(str(error))
        except PodnetError as error:  # pods come first
            log(f"no metrics: {error}")
    listener = listener_at(options.socket) if options.socket else listener_of_systemd()
    if listener is None:
        parser.error("podnet-agent.socket starts this, or name a socket")
    agent = Agent(listener, metrics, version)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Not in the handler itself: it may come while the event that it would set is locked by what it interrupts.
        signal.signal(number, lambda *_args: threading.Thread(target=agent.stop, daemon=True).start())
    sys.setswitchinterval(SWITCH_SECONDS)
    load_all()
    gc.freeze()  # what is loaded by now stays for years: no need to look at it again and again
    faulthandler.enable()  # a watchdog's SIGABRT then says where each thread was
    try:
        agent.run()
    finally:
        if options.socket:
            _remove(options.socket)
    return 0
