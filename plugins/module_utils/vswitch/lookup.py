# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods' ports as the Open vSwitch database has them: what to ask, and what the answer means (RFC 7047, 5.1)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..model.ownership import KEY_OWNER, OWNER_OVS, Mark
from .attachments import Attachment
from .podport import EMPTY, carries


def select(table: str, where: list[Any], columns: list[str]) -> dict[str, Any]:
    """The operation that reads columns of rows."""
    return {"op": "select", "table": table, "where": where, "columns": columns}


def questions(where: list[Any]) -> list[Mapping[str, Any]]:
    """Ports, their interfaces, and all bridges: what `answer` puts together."""
    return [
        select("Port", where, [
            "_uuid", "name", "tag", "vlan_mode", "trunks", "cvlans", "protected", "qos", "external_ids", "other_config",
        ]),
        select("Interface", where, ["name", "ofport", "error", "ingress_policing_rate"]),
        select("Bridge", [], ["name", "ports"]),
        select("QoS", [carries({KEY_OWNER: OWNER_OVS})], ["_uuid", "other_config"]),
    ]  # fmt: skip


def answer(
    ports: Mapping[str, Any], interfaces: Mapping[str, Any], bridges: Mapping[str, Any], shapers: Mapping[str, Any]
) -> list[Attachment]:  # fmt: skip
    """What the server has answered to `questions`, put together."""
    links = {row["name"]: row for row in interfaces["rows"]}
    homes = {uuid: row["name"] for row in bridges["rows"] for _kind, uuid in many(row["ports"])}
    rates = {row["_uuid"][1]: int(dict(row["other_config"][1]).get("max-rate", 0)) for row in shapers["rows"]}
    found = []
    for row in ports["rows"]:
        mark = Mark.parse(dict(row["external_ids"][1]))
        if mark is None:
            continue
        link = links.get(row["name"], {})
        ofport = one(link.get("ofport", EMPTY))
        found.append(Attachment(
            port=row["name"],
            bridge=homes.get(row["_uuid"][1], ""),
            mark=mark,
            tag=one(row["tag"]),
            vlan_mode=one(row["vlan_mode"]) or "",
            ofport=ofport,
            error="" if ofport is not None and ofport > 0 else one(link.get("error", EMPTY)) or "",
            uuid=row["_uuid"][1],
            trunks=tuple(many(row["trunks"])),
            cvlans=tuple(many(row["cvlans"])),
            protected=bool(row["protected"]),
            ingress_rate=0 if row["qos"] == EMPTY else rates.get(row["qos"][1], 0),
            egress_rate=int(link.get("ingress_policing_rate", 0)) * 1000,
            ethertype=dict(row["other_config"][1]).get("qinq-ethtype", ""),
        ))  # fmt: skip
    return found


def many(value: Any) -> list[Any]:
    """A set's members: a set of one is written as that one (RFC 7047, 5.1 "set")."""
    return list(value[1]) if isinstance(value, list) and value[0] == "set" else [value]


def one(value: Any) -> Any:
    """The member of a set of at most one, None without."""
    return None if value == EMPTY else value
