# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Networks' configurations in a folder, found by the names that they have (NPWG specification 1.3, section 4.1.2)."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from typing import Any

from ..cni.config import MAX_BYTES, decode
from ..errors import ConfigError, PodnetError

_ENDINGS = (".conf", ".conflist", ".json")
MOST_FILES = 1000


def find_network(folder: str, name: str, path: str) -> Mapping[str, Any]:
    """The configuration, or list, whose `name` this is. Of two files the first by name counts, as for a runtime.

    `path` is the key that asks for it. Raises ConfigError: there is none, or its file cannot be used.
    """
    others = []
    for file, document in _documents(folder, path):
        if document.get("name") == name:
            return document
        others.append(str(document.get("name") or file))
    known = ", ".join(others[:20]) or "no network"
    raise ConfigError(path, f"no network {name!r} in {folder}"[:300], f"there: {known}")


def _documents(folder: str, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """What cannot be read or is no configuration is passed over: it is another network's trouble."""
    try:
        files = sorted(file for file in os.listdir(folder) if file.endswith(_ENDINGS))
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(path, f"{folder} cannot be read: {error.strerror}") from error
    for file in files[:MOST_FILES]:
        try:
            yield file, decode(_content(os.path.join(folder, file)))
        except (OSError, PodnetError):
            continue


def _content(path: str) -> bytes:
    """Of a pipe nobody waits for a writer."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        return os.read(fd, MAX_BYTES + 1) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
