# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's state as plain facts, in the operator's words. Pure."""

from __future__ import annotations

from typing import Any

from . import node as node_file, ownership
from .node import Node
from .ownership import OWNER_NODE, Mark
from .state import INTERNAL, BridgeRow, PortRow, State
from .vlan import collapse


def facts_of(state: State, node: Node | None) -> dict[str, Any]:
    """Versions, bridges, uplinks, interfaces, attachments, moved NICs, and the names of what is declared."""
    ports = [
        (bridge, port, Mark.parse(port.external_ids))
        for bridge in state.bridges.values()
        for port in bridge.ports.values()
    ]
    pods = [(bridge, port, mark) for bridge, port, mark in ports if mark and mark.owner != OWNER_NODE]
    others = [(bridge, port) for bridge, port, mark in ports if mark is None or mark.owner == OWNER_NODE]
    return {
        "versions": {
            "openvswitch": state.ovs_version,
            "node_json": node_file.SCHEMA,
            "owner_mark": ownership.SCHEMA,
        },
        "bridges": {bridge.name: _bridge(bridge) for bridge in state.bridges.values()},
        "uplinks": {port.name: _uplink(state, bridge, port) for bridge, port in others if not _is_internal(port)},
        "interfaces": {port.name: _interface(state, bridge, port) for bridge, port in others if _is_internal(port)},
        "attachments": [_attachment(bridge, port, mark) for bridge, port, mark in pods],
        "moved": {item.nic: {"bridge": item.bridge, "rescued": item.rescued} for item in state.moved},
        "declared": {
            "bridges": [bridge.name for bridge in node.bridges] if node else [],
            "networks": [network.name for network in node.networks] if node else [],
        },
    }


def _bridge(bridge: BridgeRow) -> dict[str, Any]:
    return {
        "datapath_type": bridge.datapath_type,
        "fail_mode": bridge.fail_mode,
        "stp": bridge.stp_enable,
        "rstp": bridge.rstp_enable,
        "other_config": dict(bridge.other_config),
        "external_ids": dict(bridge.external_ids),
        "owned": Mark.parse(bridge.external_ids) is not None,
        "ports": sorted(bridge.ports),
    }


def _uplink(state: State, bridge: BridgeRow, port: PortRow) -> dict[str, Any]:
    links = {row.name: state.links.get(row.name) for row in port.interfaces}
    return {
        "bridge": bridge.name,
        "nics": {name: "absent" if link is None else "up" if link.up else "down" for name, link in links.items()},
        "vlans": collapse(port.trunks) if port.trunks else "all",
        "native_vlan": port.tag,
        "bond_mode": port.bond_mode,
        "lacp": port.lacp,
        "owned": _is_ours(port),
    }


def _interface(state: State, bridge: BridgeRow, port: PortRow) -> dict[str, Any]:
    link = state.links.get(port.name)
    return {
        "bridge": bridge.name,
        "vlan": port.tag or None,
        "addresses": sorted(link.addresses) if link else [],
        "mtu": link.mtu if link else None,
        "mac": link.mac if link else None,
        "up": link.up if link else False,
        "owned": _is_ours(port),
    }


def _attachment(bridge: BridgeRow, port: PortRow, mark: Mark) -> dict[str, Any]:
    return {
        "port": port.name,
        "bridge": bridge.name,
        "vlan": port.tag,
        "network": mark.network,
        "container_id": mark.container_id,
        "ifname": mark.ifname,
        "pod": f"{mark.pod_namespace}/{mark.pod_name}" if mark.pod_name else None,
        "addresses": list(mark.addresses),
    }


def _is_internal(port: PortRow) -> bool:
    return any(row.type == INTERNAL for row in port.interfaces)


def _is_ours(port: PortRow) -> bool:
    mark = Mark.parse(port.external_ids)
    return mark is not None and mark.owner == OWNER_NODE
