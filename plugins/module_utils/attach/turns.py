# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Turns: one call at a time for an attachment, across the agent, plugins in processes of their own, and what they run.

A turn is a lock on a file. A delegate inherits it, so a DEL that follows a killed ADD waits until the dead call's
IPAM plugin has ended, and does not miss the address that this one takes meanwhile.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager

from ..errors import TRY_AGAIN, PodnetError
from ..model.paths import RUN

FOLDER = RUN + "/turns"


@contextlib.contextmanager
def turn(container_id: str, ifname: str, seconds: float, scope: str = "") -> Iterator[tuple[int, bool]]:
    """Holds the attachment's turn, and gives the descriptor that does, and whether it had to be waited for.

    Turns of another `scope` are others.

    There are 4096 files at most of a scope, so two attachments may share one; they then only wait for each other.
    Raises PodnetError with code 11 if it is not free within `seconds`.
    """
    fd = _open(_name(container_id, ifname, scope))
    with _held(fd, seconds, f"another call for {ifname} of container {container_id[:13]} is still at work") as waits:
        yield fd, waits


@contextlib.contextmanager
def turn_of(what: str, seconds: float) -> Iterator[None]:
    """Holds the turn of what all attachments share, by a word of four letters or more; see `turn`."""
    with _held(_open(what), seconds, f"another call is still at work on {what}"):
        yield


@contextlib.contextmanager
def _held(fd: int, seconds: float, busy: str) -> Iterator[bool]:
    waits = not _taken(fd)
    if waits and not _waited(fd, seconds):
        raise PodnetError(busy, "try again", TRY_AGAIN)
    try:
        yield waits
    finally:
        os.close(fd)


def try_turn(container_id: str, ifname: str, scope: str = "") -> AbstractContextManager[bool]:
    """Holds the attachment's turn if no call is at work on it; gives whether it does."""
    return _tried(_open(_name(container_id, ifname, scope)))


def _name(container_id: str, ifname: str, scope: str) -> str:
    return scope + hashlib.sha256(f"{container_id}/{ifname}".encode()).hexdigest()[:3]


@contextlib.contextmanager
def _tried(fd: int) -> Iterator[bool]:
    try:
        yield _taken(fd)
    finally:
        os.close(fd)


def _waited(fd: int, seconds: float) -> bool:
    """Whether the turn came in time. If not, `fd` is closed as soon as it comes."""
    decided = threading.Lock()
    came, given_up = threading.Event(), threading.Event()

    def wait() -> None:
        with contextlib.suppress(OSError):
            fcntl.flock(fd, fcntl.LOCK_EX)
        with decided:
            came.set()
            late = given_up.is_set()
        if late:
            os.close(fd)

    threading.Thread(target=wait, name="turn", daemon=True).start()
    came.wait(seconds)
    with decided:
        if not came.is_set():
            given_up.set()
        return came.is_set()


def _open(name: str) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    path = f"{FOLDER}/{name}"
    try:
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(FOLDER, mode=0o700, exist_ok=True)
            return os.open(path, flags, 0o600)
    except OSError as error:
        hint = "make room there" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "the plugin runs as root"
        raise PodnetError(f"cannot open {path}: {error.strerror}", hint, TRY_AGAIN) from error


def _taken(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
