# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entering a network namespace: the one place that does it, and never in the calling thread.

Work of any kind is done by a thread of its own, which enters and ends, so that nothing is ever left in the wrong
namespace, whatever fails. What takes microseconds is done by one that stays.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from ..errors import NetnsError

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000
_known: dict[str, Any] = {}
"""The C library, once it was needed."""


def inside(netns_fd: int, work: Callable[[], T], timeout: float = 20.0) -> T:
    """What `work` returns or raises, run in the network namespace of `netns_fd`.

    Raises NetnsError if that is not a network namespace or the work does not end in `timeout` seconds.
    """
    outcome: list[Any] = []

    def run() -> None:
        try:
            _setns(netns_fd)
            outcome.append((work(), None))
        except BaseException as error:  # carried over to the caller, whatever it is
            outcome.append((None, error))

    thread = threading.Thread(target=run, name="netns", daemon=True)
    thread.start()
    thread.join(timeout)
    if not outcome:
        raise NetnsError(f"work in the network namespace did not end in {timeout:g} s")
    value: T
    value, error = outcome[0]
    if error is not None:
        raise error
    return value


def visit(netns_fd: int, work: Callable[[], T], timeout: float = 10.0) -> T:
    """What `work` returns or raises, run in that namespace by the one thread that does nothing else.

    For what takes microseconds, like opening sockets, which stay in the namespace where they were opened. Raises
    NetnsError if that is not a network namespace, or the thread is kept from it for `timeout` seconds.
    """
    outcome: SimpleQueue[tuple[Any, BaseException | None]] = SimpleQueue()
    _visitor().orders.put((netns_fd, work, outcome))
    try:
        value, error = outcome.get(timeout=timeout)
    except Empty:
        raise NetnsError(f"the network namespace could not be entered in {timeout:g} s", "try again") from None
    if error is not None:
        raise error
    result: T = value
    return result


class _Visitor(threading.Thread):
    """Enters a namespace for each order and comes back, so that none is kept alive. One that cannot come back ends."""

    def __init__(self) -> None:
        super().__init__(name="visitor", daemon=True)
        self.orders: SimpleQueue[tuple[int, Callable[[], Any], SimpleQueue[Any]]] = SimpleQueue()
        self.home = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        self.lost = False

    def run(self) -> None:
        while not self.lost:
            netns_fd, work, outcome = self.orders.get()
            try:
                _setns(netns_fd)
                try:
                    done: tuple[Any, BaseException | None] = work(), None
                finally:
                    self._return()
            except BaseException as error:  # carried over to the caller, whatever it is
                done = None, error
            outcome.put(done)
            del work, outcome, done  # nothing of a call that is over is kept
        os.close(self.home)

    def _return(self) -> None:
        try:
            _setns(self.home)
        except NetnsError:
            self.lost = True


_visiting: _Visitor | None = None
_visiting_lock = threading.Lock()


def _visitor() -> _Visitor:
    global _visiting
    with _visiting_lock:
        if _visiting is None or _visiting.lost or not _visiting.is_alive():
            _visiting = _Visitor()
            _visiting.start()
        return _visiting


def is_own(netns_fd: int) -> bool:
    """Whether that is the network namespace of this process."""
    mine, theirs = os.stat("/proc/self/ns/net"), os.fstat(netns_fd)
    return (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino)


def _setns(netns_fd: int) -> None:
    try:
        if sys.version_info >= (3, 12):
            os.setns(netns_fd, _CLONE_NEWNET)
        else:
            _setns_by_libc(netns_fd)
    except OSError as error:
        raise NetnsError(f"cannot enter the network namespace: {error.strerror}", "is it one?") from error


def _setns_by_libc(netns_fd: int) -> None:
    import ctypes  # only where the interpreter has no setns

    libc = _known.get("libc") or _known.setdefault("libc", ctypes.CDLL(None, use_errno=True))
    if libc.setns(netns_fd, _CLONE_NEWNET) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
