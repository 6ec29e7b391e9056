# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The file of the Open vSwitch database as bytes: is it whole, does the disk keep it; and out of the way with it."""

from __future__ import annotations

import hashlib
import os
import re

from ..errors import OvsdbError

_CLUSTERED = b"OVSDB CLUSTER"
_HEAD = re.compile(rb"OVSDB JSON ([0-9]{1,10}) ([0-9a-f]{40})\n")
"""What stands before each record: ovsdb(5), "File Format", "Standalone Format"."""


def whole_length(db: str) -> int:
    """How many bytes from the start of the file are whole records; 0 if it is no database, or not there.

    Raises OvsdbError.
    """
    length = 0
    try:
        with open(db, "rb") as file:
            while True:
                head = _HEAD.fullmatch(file.readline(100))
                if not head:
                    return length
                data = file.read(int(head[1]))
                if hashlib.sha1(data, usedforsecurity=False).hexdigest().encode() != head[2]:
                    return length
                length = file.tell()
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise OvsdbError(f"cannot read the database {db}: {error.strerror}") from error


def sync_database(db: str) -> None:
    """Has the disk keep what the file holds now, and its name: ovsdb-server leaves that to the kernel's leisure.

    For a file that a server has open too. Raises OvsdbError.
    """
    try:
        for path, flags in ((db, os.O_RDONLY), (os.path.dirname(db) or ".", os.O_RDONLY | os.O_DIRECTORY)):
            descriptor = os.open(path, flags | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
    except OSError as error:
        raise OvsdbError(f"the disk does not keep {db}: {error.strerror}") from error


def set_aside(db: str) -> str | None:
    """Gives a file that is no database another name, and that name; None for one that is sound, or not there.

    Open vSwitch does not start with such a file, and starts with an empty database without one. Not while a server has
    it open. Raises OvsdbError.
    """
    try:
        with open(db, "rb") as file:
            clustered = file.read(len(_CLUSTERED)) == _CLUSTERED
    except OSError:
        return None
    if clustered or whole_length(db):
        return None
    path = os.path.realpath(db)
    try:
        os.replace(path, f"{path}.broken")
    except OSError as error:
        raise OvsdbError(f"cannot rename {path}: {error.strerror}") from error
    sync_database(f"{path}.broken")
    return f"{path}.broken"
