# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that survive a crash: whole and old, or whole and new. And turns: one process after the other."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ..errors import DeadlineExceeded, PodnetError

_RANDOM = 8
"""How many letters tempfile puts at the end of a name."""


def read_text(path: str) -> str | None:
    """The text of a file; None if there is none, or an empty one. Raises PodnetError if it cannot be read.

    What is not UTF-8 comes back with marks in its place: a broken file is for its parser to judge.
    """
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read() or None
    except FileNotFoundError:
        return None
    except OSError as error:
        raise PodnetError(f"cannot read {path}: {error}", _hint(error)) from error


def read_exact(path: str) -> str | None:
    """The text of a file so that `write_text` gives back each byte; None if there is none. Raises PodnetError."""
    try:
        with open(path, encoding="utf-8", errors="surrogateescape", newline="") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PodnetError(f"cannot read {path}: {error}", _hint(error)) from error


def mode_of(path: str) -> int | None:
    """The permissions of a file; None if there is none. Raises PodnetError."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise PodnetError(f"cannot read {path}: {error}", _hint(error)) from error


def write_text(path: str, text: str, mode: int = 0o644) -> None:
    """Replaces a file by renaming a complete new one over it; makes its folder. Raises PodnetError."""
    write_bytes(path, text.encode("utf-8", "surrogateescape"), mode)


def write_bytes(path: str, data: bytes, mode: int = 0o644) -> None:
    """As `write_text`. What it wrote is on the disk when it returns, under its name."""
    folder = os.path.dirname(path)
    make_folder(folder)
    try:
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise PodnetError(f"cannot write {path}: {error}", _hint(error)) from error


def make_folder(path: str, mode: int = 0o755) -> None:
    """Makes a folder and those above it, so that a power cut does not take them away. Raises PodnetError."""
    if not path or os.path.isdir(path):
        return
    above = os.path.dirname(path)
    make_folder(above)
    try:
        with suppress(FileExistsError):
            os.mkdir(path, mode)
        _sync_folder(above)
    except OSError as error:
        raise PodnetError(f"cannot make the folder {path}: {error}", _hint(error)) from error


def link(path: str, target: str) -> None:
    """Makes a symbolic link in the place of what has this name; for good when it returns. Raises PodnetError."""
    folder = os.path.dirname(path)
    make_folder(folder)
    try:
        temporary = f"{folder}/.{os.path.basename(path)}.{os.getpid()}"
        os.symlink(target, temporary)
        try:
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise PodnetError(f"cannot make the link {path}: {error}", _hint(error)) from error


def remove(path: str) -> None:
    """Removes a file, for good when it returns; one that is not there is fine. Raises PodnetError."""
    try:
        os.unlink(path)
        _sync_folder(os.path.dirname(path))
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise PodnetError(f"cannot remove {path}: {error}", _hint(error)) from error


def sweep(path: str) -> None:
    """Removes what a power cut or a kill in the middle of `write_text` left beside a file. Not while another writes it.

    What cannot be removed stays: it is in nobody's way.
    """
    folder, start = os.path.dirname(path), f".{os.path.basename(path)}."
    with suppress(OSError):
        for name in os.listdir(folder):
            if name.startswith(start) and len(name) == len(start) + _RANDOM:
                os.unlink(os.path.join(folder, name))


def remove_folder(path: str) -> None:
    """Removes a folder with the files in it; one that is not there is fine. Raises PodnetError."""
    try:
        for name in os.listdir(path):
            remove(os.path.join(path, name))
        os.rmdir(path)
        _sync_folder(os.path.dirname(path))
    except FileNotFoundError:
        return
    except OSError as error:
        raise PodnetError(f"cannot remove {path}: {error}", _hint(error)) from error


@contextmanager
def locked(path: str, seconds: float) -> Iterator[None]:
    """Holds a file's lock, which ends with the process, for the time of the block; makes the file and its folder.

    Raises DeadlineExceeded if another process keeps it for so long, PodnetError if it cannot be had at all.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise PodnetError(f"cannot open {path}: {error}", _hint(error)) from error
    try:
        deadline = time.monotonic() + seconds
        while not _take(descriptor):
            if time.monotonic() >= deadline:
                raise DeadlineExceeded(
                    f"another run has been changing this node for {seconds:.0f} seconds", "run it again"
                )
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def _hint(error: OSError) -> str:
    hints = {errno.ENOSPC: "make room on that disk", errno.EROFS: "mount it for writing"}
    denied = error.errno in (errno.EACCES, errno.EPERM)
    return "run as root (become: true)" if denied else hints.get(error.errno or 0, "")


def _take(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
