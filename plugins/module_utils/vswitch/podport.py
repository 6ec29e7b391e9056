# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's port as it is written into the Open vSwitch database: rows as operations of RFC 7047, section 5.2."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..model.ownership import KEY_CONTAINER_ID, KEY_IFNAME, KEY_OWNER, OWNER_OVS, Mark
from ..model.port import Bandwidth

SCHEMA = "Open_vSwitch"
EMPTY: list[Any] = ["set", []]
WAKE: Mapping[str, Any] = {"op": "mutate", "table": SCHEMA, "where": [], "mutations": [["next_cfg", "+=", 1]]}
"""Some columns do not wake ovs-vswitchd by themselves; and `cur_cfg` then says how far it has come."""
_KILO = 1000
_BRIDGES: list[Any] = []
"""A port may be on any bridge, whichever its mark says: one that does not hold it is not changed."""


def _uuid() -> str:
    """A random one (RFC 4122, section 4.4)."""
    octets = bytearray(os.urandom(16))
    octets[6] = octets[6] & 0x0F | 0x40
    octets[8] = octets[8] & 0x3F | 0x80
    text = octets.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@dataclass(frozen=True)
class PodPort:
    """A new port with its interface. `vlans` are the columns of its VLAN mode.

    The rows' UUIDs are chosen here (ovsdb-server(7), 4.1.5 "insert", since Open vSwitch 2.13), so that a port can be
    taken away again before the server has answered.
    """

    name: str
    bridge: str
    vlans: Mapping[str, Any]
    mark: Mark
    ofport_request: int | None = None
    protected: bool = False
    limits: Bandwidth = field(default_factory=Bandwidth)
    uuid: str = field(default_factory=_uuid)
    link_uuid: str = field(default_factory=_uuid)

    def insert(self) -> list[Mapping[str, Any]]:
        """What adds it to its bridge. The first operation fails if there is no such bridge."""
        here: list[Any] = [["name", "==", self.bridge]]
        marks = marked(self.mark)
        link: dict[str, Any] = {"name": self.name, "external_ids": marks}
        port: dict[str, Any] = {
            "name": self.name, "external_ids": marks, "interfaces": ["uuid", self.link_uuid],
            **{column: value(given) for column, given in self.vlans.items()},
        }  # fmt: skip
        if self.ofport_request is not None:
            link["ofport_request"] = self.ofport_request
        if self.protected:
            port["protected"] = True
        link.update(_policing(self.limits))
        quality: list[Mapping[str, Any]] = []
        if self.limits.ingress_rate:
            port["qos"] = ["named-uuid", "quality"]
            quality = _shaping(self.limits, keys(self.mark.container_id, self.mark.ifname))
        return [
            {"op": "wait", "table": "Bridge", "where": here, "columns": ["name"], "until": "==",
             "rows": [{"name": self.bridge}], "timeout": 0},
            *quality,
            {"op": "insert", "table": "Interface", "uuid": self.link_uuid, "row": link},
            {"op": "insert", "table": "Port", "uuid": self.uuid, "row": port},
            {"op": "mutate", "table": "Bridge", "where": here, "mutations": [["ports", "insert", ["uuid", self.uuid]]]},
        ]  # fmt: skip

    def write_mark(self, mark: Mark) -> list[Mapping[str, Any]]:
        """What gives the port another mark. Its interface keeps the first: of a port's external ids ovs-vswitchd hears
        nothing, of an interface's it does, and looks at all ports once more.
        """
        where = [["_uuid", "==", ["uuid", self.uuid]]]
        return [{"op": "update", "table": "Port", "where": where, "row": {"external_ids": marked(mark)}}]

    def forget_error(self) -> list[Mapping[str, Any]]:
        """What takes ovs-vswitchd's word on the interface away."""
        where = [["_uuid", "==", ["uuid", self.link_uuid]]]
        return [{"op": "update", "table": "Interface", "where": where, "row": {"error": EMPTY}}]

    def remove(self) -> list[Mapping[str, Any]]:
        """What takes it away, whether or not `insert` has come to the server."""
        limited = [(self.mark.container_id, self.mark.ifname)] if self.limits.ingress_rate else []
        return removal([self.uuid], limited)


def removal(ports: Iterable[str], limited: Iterable[tuple[str, str]] = ()) -> list[Mapping[str, Any]]:
    """What takes ports away, by their UUIDs; `limited` are the attachments (container id, interface) with a shaper.

    Without its bridge's reference the server drops a port and its interface by itself (RFC 7047, 3.2 "isRoot").
    """
    gone = list(ports)
    operations: list[Mapping[str, Any]] = [
        {"op": "mutate", "table": "Bridge", "where": _BRIDGES,
         "mutations": [["ports", "delete", ["set", [["uuid", uuid] for uuid in gone]]]]}
    ]  # fmt: skip
    shaped = list(limited)
    for uuid in gone if shaped else ():
        # A port that only goes with its last reference still counts as one that needs its shaper.
        where = [["_uuid", "==", ["uuid", uuid]]]
        operations.append({"op": "update", "table": "Port", "where": where, "row": {"qos": EMPTY}})
    for container_id, ifname in shaped:
        where = [carries(keys(container_id, ifname))]
        operations += [{"op": "delete", "table": table, "where": where} for table in ("QoS", "Queue")]
    return operations


def keys(container_id: str, ifname: str) -> dict[str, str]:
    """The part of the mark that names an attachment."""
    return {KEY_OWNER: OWNER_OVS, KEY_CONTAINER_ID: container_id, KEY_IFNAME: ifname}


def carries(pairs: Mapping[str, str]) -> list[Any]:
    """A condition: rows with these external ids."""
    return ["external_ids", "includes", ["map", sorted(pairs.items())]]


def marked(mark: Mark) -> list[Any]:
    """The mark as the column external_ids."""
    return ["map", sorted(mark.to_external_ids().items())]


def value(given: Any) -> Any:
    """A column's value as JSON: a list is a set, a mapping a map, None nothing (RFC 7047, 5.1)."""
    if given is None:
        return EMPTY
    if isinstance(given, Mapping):
        return ["map", sorted(given.items())]
    if isinstance(given, (list, tuple)):
        return ["set", list(given)]
    return given


def _policing(limits: Bandwidth) -> dict[str, int]:
    """What the pod sends is dropped above its rate: kilobits (ovs-vswitchd.conf.db(5), "Ingress Policing")."""
    if not limits.egress_rate:
        return {}
    return {
        "ingress_policing_rate": max(limits.egress_rate // _KILO, 1),
        "ingress_policing_burst": max(limits.egress_burst // _KILO, 1),
    }


def _shaping(limits: Bandwidth, mark: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """What the pod receives waits in a queue (ovs-vswitchd.conf.db(5), "QoS", "Queue")."""
    rate = {"max-rate": str(limits.ingress_rate)}
    ids = ["map", sorted(mark.items())]
    queue = {"other_config": value({**rate, "min-rate": str(limits.ingress_rate), "burst": str(limits.ingress_burst)})}
    quality = {"type": "linux-htb", "other_config": value(rate), "queues": ["map", [[0, ["named-uuid", "queue"]]]]}
    return [
        {"op": "insert", "table": "Queue", "uuid-name": "queue", "row": {**queue, "external_ids": ids}},
        {"op": "insert", "table": "QoS", "uuid-name": "quality", "row": {**quality, "external_ids": ids}},
    ]
