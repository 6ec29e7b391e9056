# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Entering a network namespace: the one place that does it.

Work of any kind is done by a thread of its own, which enters and ends, so that nothing is ever left in the wrong
namespace, whatever fails. Only what takes microseconds is done on a visit of the calling thread.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from ..errors import NetnsError

T = TypeVar("T")

_CLONE_NEWNET = 0x40000000


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


def visit(netns_fd: int, work: Callable[[], T]) -> T:
    """What `work` returns or raises, run by the calling thread, which comes back at once. `work` must not wait.

    Raises NetnsError if that is not a network namespace. A thread that cannot come back ends the process.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _setns(netns_fd)
        try:
            return work()
        finally:
            try:
                _setns(home)
            except NetnsError:
                os.abort()
    finally:
        os.close(home)


def is_own(netns_fd: int) -> bool:
    """Whether that is the network namespace of this process."""
    mine, theirs = os.stat("/proc/self/ns/net"), os.fstat(netns_fd)
    return (mine.st_dev, mine.st_ino) == (theirs.st_dev, theirs.st_ino)


def _setns(netns_fd: int) -> None:
    try:
        if sys.version_info >= (3, 12):
            os.setns(netns_fd, _CLONE_NEWNET)
            return
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(netns_fd, _CLONE_NEWNET) != 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
    except OSError as error:
        raise NetnsError(f"cannot enter the network namespace: {error.strerror}", "is it one?") from error
