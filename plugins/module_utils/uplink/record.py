# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a committed move leaves behind: all that is needed, for years, to bring the node back without anybody's help.

One file for each bridge that carries a node. While it is there, the bridge is kept up at each boot, and the NIC gets
the node's addresses back if the bridge does not come.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConfigError, DecodeError, PodnetError
from ..kernel import files
from ..model.move import FileChange
from ..model.names import parse_ifname
from ..model.paths import BRIDGES

SCHEMA = 1
"""Keys may be added within a major version, a newer major is refused."""


@dataclass(frozen=True)
class Record:
    """A committed move. `request`, `l3` and `managed` are what Request, L3 and the manager's `describe` give as JSON.

    `files` are those that the commit wrote, `originals` what was at any path before the first move:
    `{path: {"text": str or None, "mode": int}}`. `rescue_files` make the network manager run on the bare NIC.
    """

    bridge: str
    nic: str
    id: str
    request: Mapping[str, Any]
    l3: Mapping[str, Any]
    managed: Mapping[str, Any]
    manager: str
    files: tuple[FileChange, ...] = ()
    originals: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rescue_files: tuple[FileChange, ...] = ()
    schema: int = SCHEMA

    @property
    def path(self) -> str:
        """Where it lies on disk."""
        return path_of(self.bridge)

    @property
    def restoring(self) -> tuple[FileChange, ...]:
        """What puts every file back as it was before the first move."""
        return tuple(FileChange(path, old["text"], old["mode"]) for path, old in sorted(self.originals.items()))

    def save(self) -> None:
        """Writes it, so that it survives a loss of power. Raises PodnetError."""
        files.sweep(self.path)
        files.write_text(self.path, json.dumps(self.to_dict(), indent=1, sort_keys=True) + "\n", 0o600)

    def forget(self) -> None:
        """Removes it; one that is gone is fine. Raises PodnetError."""
        files.remove(self.path)

    def to_dict(self) -> dict[str, Any]:
        """What `parse` takes."""
        return {
            "schema": self.schema,
            "bridge": self.bridge,
            "nic": self.nic,
            "id": self.id,
            "request": dict(self.request),
            "l3": dict(self.l3),
            "managed": dict(self.managed),
            "manager": self.manager,
            "files": [change.to_dict() for change in self.files],
            "originals": {path: dict(old) for path, old in self.originals.items()},
            "rescue_files": [change.to_dict() for change in self.rescue_files],
        }

    @classmethod
    def parse(cls, text: str, what: str) -> Record:
        """From the text of its file, which errors call `what`. Raises DecodeError, ConfigError for a newer schema."""
        try:
            table = json.loads(text)
            if table["schema"] != SCHEMA:
                raise ConfigError(
                    "schema", f"{what} has schema {table['schema']!r}, known here is {SCHEMA}", "use that release"
                )
            return cls(
                bridge=parse_ifname(table["bridge"], "bridge"),
                nic=parse_ifname(table["nic"], "nic"),
                id=str(table["id"]),
                request=dict(table["request"]),
                l3=dict(table["l3"]),
                managed=dict(table["managed"]),
                manager=str(table["manager"]),
                files=tuple(FileChange.from_dict(item) for item in table["files"]),
                originals={path: _original(old) for path, old in table["originals"].items()},
                rescue_files=tuple(FileChange.from_dict(item) for item in table["rescue_files"]),
            )
        except ConfigError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise DecodeError(f"{what} is broken: {error!r}", "run the playbook site again") from error


def load(bridge: str) -> Record | None:
    """The record of a bridge; None if no move brought the node there. Raises PodnetError for a broken one."""
    path = path_of(parse_ifname(bridge, "bridge"))
    text = files.read_text(path)
    return None if text is None else Record.parse(text, path)


def load_all() -> tuple[Record, ...]:
    """The records that can be read, by the bridge's name: a broken one does not hide the others."""
    found = []
    for name in names():
        try:
            record = load(name)
        except PodnetError:
            continue
        if record is not None:
            found.append(record)
    return tuple(found)


def names() -> tuple[str, ...]:
    """The bridges for which there is a file, readable or not."""
    try:
        entries = os.listdir(BRIDGES)
    except OSError:
        return ()
    return tuple(sorted(name[:-5] for name in entries if name.endswith(".json") and not name.startswith(".")))


def record_of_nic(nic: str) -> Record | None:
    """The record of the move that took this NIC; None if none did."""
    return next((record for record in load_all() if record.nic == nic), None)


def path_of(bridge: str) -> str:
    """Where the record of a bridge lies."""
    return f"{BRIDGES}/{bridge}.json"


def merged_originals(before: Mapping[str, Mapping[str, Any]], earlier: Record | None) -> dict[str, Mapping[str, Any]]:
    """The originals of a new record: of a path that an earlier move changed, what was there before that one.

    A move after a rescue would otherwise take the first move's files for what the user once had.
    """
    return {**before, **(earlier.originals if earlier else {})}


def _original(old: Mapping[str, Any]) -> dict[str, Any]:
    text = old["text"]
    if text is not None and not isinstance(text, str):
        raise TypeError(f"text is {text!r}")
    return {"text": text, "mode": int(old["mode"])}
