# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the Open vSwitch database says of pods' ports, kept up to date by a connection that follows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..model.ownership import KEY_CONTAINER_ID, KEY_IFNAME, KEY_OWNER, KEY_SPOOF_CHECK, KEY_SUBINTERFACES, OWNER_OVS
from .jsonrpc import Updates
from .podport import EMPTY, carries

_COLUMNS = {"Interface": ["name", "ofport", "error", "external_ids"], "Port": ["name", "external_ids", "qos"]}
"""All that a condition names is among them. ovsdb-server 3.1.0 keeps one monitor for all that follow the same columns,
and dies of a condition on another one that comes later: an agent's beside that of a plugin on its own.
"""


@dataclass(frozen=True)
class Port:
    """A port of ours. `limited`: it has a shaper. `subinterfaces`: its pod has VLAN interfaces on it."""

    uuid: str
    container_id: str
    ifname: str
    limited: bool
    spoof_check: bool = False
    subinterfaces: bool = False


@dataclass(frozen=True)
class Link:
    """An interface of ours: `ofport` None until ovs-vswitchd has looked at it, -1 if it cannot use it."""

    ofport: int | None
    error: str

    @property
    def unusable(self) -> bool:
        """An error beside a number is an old one."""
        return bool(self.error) and (self.ofport or -1) < 0


class Replica:
    """Ports of ours by name, and interfaces."""

    def __init__(self, name: str = "") -> None:
        """Of one name, or of all pods."""
        self._name = name
        self._rows: dict[str, dict[str, dict[str, Any]]] = {table: {} for table in _COLUMNS}
        self.ports: dict[str, Port] = {}
        self.links: dict[str, Link] = {}

    def tables(self) -> Mapping[str, Any]:
        """What to follow, as `monitor_cond` takes it."""
        where = ["name", "==", self._name] if self._name else carries({KEY_OWNER: OWNER_OVS})
        return {table: [{"columns": columns, "where": [where]}] for table, columns in _COLUMNS.items()}

    def update(self, updates: Updates) -> None:
        """Takes in what the server says."""
        for table, rows in updates.items():
            known = self._rows[table]
            for uuid, change in rows.items():  # first: another row may have the name by now
                if "delete" in change:
                    self._forget(table, known.pop(uuid, {}))
            for uuid, change in rows.items():
                for kind, columns in change.items():
                    if kind == "delete":
                        continue
                    row = known.setdefault(uuid, {})
                    if kind == "modify" and "external_ids" in columns:
                        # A difference; what is read of it stays.
                        row.update({**columns, "external_ids": row.get("external_ids", EMPTY)})
                        self._keep(table, uuid, row)
                    else:
                        row.update(columns)
                        self._keep(table, uuid, row)

    def _keep(self, table: str, uuid: str, row: Mapping[str, Any]) -> None:
        name = row["name"]
        if table == "Interface":
            ofport, error = row.get("ofport", EMPTY), row.get("error", EMPTY)
            self.links[name] = Link(None if ofport == EMPTY else ofport, "" if error == EMPTY else error)
        else:
            ids = dict(row.get("external_ids", EMPTY)[1])
            if ids.get(KEY_OWNER) != OWNER_OVS:
                return  # somebody else's, of the name that one of ours would have
            limited = row.get("qos", EMPTY) != EMPTY
            self.ports[name] = Port(
                uuid, ids.get(KEY_CONTAINER_ID, ""), ids.get(KEY_IFNAME, ""), limited, KEY_SPOOF_CHECK in ids,
                KEY_SUBINTERFACES in ids,
            )  # fmt: skip

    def _forget(self, table: str, row: Mapping[str, Any]) -> None:
        name = row.get("name", "")
        if table == "Interface":
            self.links.pop(name, None)
        else:
            self.ports.pop(name, None)
