# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the node knows of its layer-3 attachments: a file for each, named by the host's end of its pair.

When a pod's namespace is gone, so are its links, and nothing in the kernel says any more which rules were whose. A file
is there before the first rule is, and goes after the last one. A reboot ends both.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from typing import Any

from ..errors import PodnetError
from ..model.paths import ROUTED
from ..model.routing import Way, host_prefix
from .turns import turn_of
from .wish import host_name

FOLDER = ROUTED
SCHEMA = 1
_WAY = ("address", "uplink", "gateway", "named")


@dataclass(frozen=True)
class Record:
    """An attachment of a network, and by which uplink each of its addresses leaves."""

    container_id: str
    ifname: str
    network: str
    ways: tuple[Way, ...]

    @property
    def host(self) -> str:
        """The host's end of its pair."""
        return host_name(self.container_id, self.ifname)

    @property
    def addresses(self) -> frozenset[str]:
        """Without prefix length."""
        return frozenset(way.address for way in self.ways)


def turn(seconds: float) -> AbstractContextManager[None]:
    """Whoever changes records, or the routes and rules that are by them, holds this turn.

    Raises PodnetError with code 11 if it is not free within `seconds`.
    """
    return turn_of("routed", seconds)


def any_there() -> bool:
    """Whether there is a layer-3 attachment. Costs next to nothing."""
    try:
        with os.scandir(FOLDER) as entries:
            return any(not entry.name.startswith(".") for entry in entries)
    except OSError:
        return False


def stamp() -> int:
    """Another number whenever attachments have come or gone, 0 without any."""
    try:
        return os.stat(FOLDER).st_mtime_ns if any_there() else 0
    except OSError:
        return 0


def load(host: str) -> Record | None:
    """The record of that host's end; None if there is none that can be read."""
    try:
        with open(f"{FOLDER}/{host}", encoding="utf-8") as file:
            return _parse(json.load(file))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def load_all() -> list[Record]:
    """All that can be read."""
    with contextlib.suppress(OSError):
        names = sorted(name for name in os.listdir(FOLDER) if not name.startswith("."))
        return [record for record in map(load, names) if record is not None]
    return []


def write(record: Record) -> None:
    """Writes it, whole or not at all. Raises PodnetError."""
    path, new = f"{FOLDER}/{record.host}", f"{FOLDER}/.{record.host}"
    table = {"schema": SCHEMA, **asdict(record)}
    try:
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        with open(new, "w", encoding="utf-8") as file:
            json.dump(table, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        raise PodnetError(f"cannot write {path}: {error.strerror}", "make room there") from error


def forget(host: str) -> None:
    """Removes it; one that is not there is done."""
    for name in (f"{FOLDER}/{host}", f"{FOLDER}/.{host}"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)


def _parse(table: Mapping[str, Any]) -> Record:
    """Raises ValueError, KeyError, TypeError for what none of ours wrote, or a newer release."""
    if table["schema"] != SCHEMA:
        raise ValueError(table["schema"])
    ways = tuple(Way(*(str(item[key]) for key in _WAY)) for item in table["ways"])
    for way in ways:
        host_prefix(way.address)
    return Record(str(table["container_id"]), str(table["ifname"]), str(table["network"]), ways)
