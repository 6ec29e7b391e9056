# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan: the steps from what a node is to what it should be, and how both look to a person. Pure.

`detail` of an operation is plain JSON and all that is needed to carry it out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from .move import Request
from .paths import NODE_JSON
from .state import INTERNAL, BridgeRow, InterfaceRow, Link, PortRow, State
from .vlan import collapse

CREATE, CHANGE, REMOVE = "create", "change", "remove"
UP, DOWN, ADD, WRITE = "up", "down", "add", "write"
SWITCH, BRIDGE, UPLINK, INTERFACE, LINK, ADDRESS, FILE = (
    "switch", "bridge", "uplink", "interface", "link", "address", "file",
)  # fmt: skip
DATABASE_KINDS = (SWITCH, BRIDGE, UPLINK, INTERFACE)
"""Kinds that one transaction carries out."""

_NESTED = ("name", "ports", "interfaces", "type")


@dataclass(frozen=True)
class Operation:
    """One step. `kind` and `name` say what it touches, `action` is create, change, remove, up, down, add or write."""

    kind: str
    name: str
    action: str
    detail: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """For a module's result. The text of a file is left out: the diff has it."""
        detail = {} if self.kind == FILE else dict(self.detail)
        return {"kind": self.kind, "name": self.name, "action": self.action, "detail": detail}


@dataclass(frozen=True)
class Plan:
    """The steps in their order, and the touched things before and after them.

    `pending`: moves that must be carried out first, by others than who carries out the plan.
    """

    operations: tuple[Operation, ...] = ()
    before: Mapping[str, Any] = field(default_factory=dict)
    after: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    pending: tuple[Request, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.operations)


def plan_between(before: State, after: State, warnings: tuple[str, ...] = ()) -> Plan:
    """The plan that leads from one state to the other. What both have alike is not touched."""
    operations = (
        *_switch_steps(before, after),
        *_removals(before, after),
        *_bridge_steps(before, after),
        *_port_steps(before, after),
        *_link_steps(before, after),
        *_file_steps(before, after),
    )
    shown = {(step.detail.get("bridge") or step.name) for step in operations if step.kind in DATABASE_KINDS[1:]}
    links = {step.name for step in operations if step.kind in (LINK, ADDRESS)}
    shown |= {_bridge_of(state, name) for state in (before, after) for name in links}
    names = {step.name for step in operations}
    for name in before.bridges.keys() ^ after.bridges.keys():
        names |= set((before.bridges.get(name) or after.bridges[name]).ports)
    return Plan(operations, _render(before, shown, names), _render(after, shown, names), warnings)


def _switch_steps(before: State, after: State) -> Iterator[Operation]:
    changed = _map_change(before.switch, after.switch)
    if changed:
        yield Operation(SWITCH, "Open_vSwitch", CHANGE, {"columns": {"other_config": changed}})


def _removals(before: State, after: State) -> Iterator[Operation]:
    for name, bridge in before.bridges.items():
        kept = after.bridges.get(name)
        if kept is None:
            yield Operation(BRIDGE, name, REMOVE)
            continue
        for port in bridge.ports.values():
            if port.name not in kept.ports:
                yield Operation(_kind(port), port.name, REMOVE, {"bridge": name})


def _bridge_steps(before: State, after: State) -> Iterator[Operation]:
    for name, wanted in after.bridges.items():
        present = before.bridges.get(name)
        columns = _changes(present or BridgeRow(name, datapath_type="", fail_mode=""), wanted)
        local = wanted.ports.get(name)
        if present is None:
            detail = {"columns": columns}
            if local is not None:
                detail |= _port_detail(_bare_local(name), local)
            yield Operation(BRIDGE, name, CREATE, detail)
        elif columns:
            yield Operation(BRIDGE, name, CHANGE, {"columns": columns})


def _port_steps(before: State, after: State) -> Iterator[Operation]:
    for bridge_name, bridge in after.bridges.items():
        was = before.bridges.get(bridge_name)
        for name, wanted in bridge.ports.items():
            present = was.ports.get(name) if was else None
            if present is None and name == bridge_name:
                continue  # made with its bridge
            detail = _port_detail(present or PortRow(name), wanted)
            if present is None:
                yield Operation(_kind(wanted), name, CREATE, {"bridge": bridge_name, **detail})
            elif detail:
                yield Operation(_kind(wanted), name, CHANGE, {"bridge": bridge_name, **detail})


def _link_steps(before: State, after: State) -> Iterator[Operation]:
    anew = _made_anew(before, after)
    present = {name: Link(name) if name in anew else before.links.get(name) or Link(name) for name in after.links}
    for name, wanted in after.links.items():
        for address in sorted(present[name].addresses - wanted.addresses):
            yield Operation(ADDRESS, name, REMOVE, {"address": address})
    for name, wanted in after.links.items():
        if wanted.up != present[name].up:
            detail = {"accept_ra": False} if wanted.up and _is_host_interface(after, name) else {}
            yield Operation(LINK, name, UP if wanted.up else DOWN, detail)
        for address in sorted(wanted.addresses - present[name].addresses):
            yield Operation(ADDRESS, name, ADD, {"address": address})


def _is_host_interface(state: State, name: str) -> bool:
    """An interface that we make for the node's own use on a VLAN. A bridge's own interface may be of others."""
    owner = state.port_of(name)
    return owner is not None and owner[0].name != name and _kind(owner[1]) == INTERFACE


def _made_anew(before: State, after: State) -> set[str]:
    """Internal interfaces that come to a bridge: the switch makes their devices, even if they leave another bridge."""
    found = set()
    for name, bridge in after.bridges.items():
        there = before.bridges[name].ports if name in before.bridges else {}
        new = [port for port in bridge.ports.values() if port.name not in there]
        found |= {row.name for port in new for row in port.interfaces if row.type == INTERNAL}
    return found


def _file_steps(before: State, after: State) -> Iterator[Operation]:
    if after.node_json is not None and after.node_json != before.node_json:
        yield Operation(FILE, NODE_JSON, WRITE, {"text": after.node_json, "previous": before.node_json or ""})


def _bare_local(name: str) -> PortRow:
    return PortRow(name, (InterfaceRow(name, INTERNAL),))


def _kind(port: PortRow) -> str:
    return INTERFACE if any(row.type == INTERNAL for row in port.interfaces) else UPLINK


def _port_detail(present: PortRow, wanted: PortRow) -> dict[str, Any]:
    detail: dict[str, Any] = {}
    columns = _changes(present, wanted)
    if columns:
        detail["port"] = columns
    interfaces = {}
    for row in wanted.interfaces:
        old = present.interface(row.name)
        changed = _changes(old or InterfaceRow(row.name), row)
        if old is None:
            interfaces[row.name] = {"action": CREATE, "type": row.type, "columns": changed}
        elif changed:
            interfaces[row.name] = {"action": CHANGE, "columns": changed}
    for row in present.interfaces:
        if wanted.interface(row.name) is None:
            interfaces[row.name] = {"action": REMOVE}
    if interfaces:
        detail["interfaces"] = interfaces
    return detail


def _changes(present: Any, wanted: Any) -> dict[str, Any]:
    """Column to new value; `{set, remove}` for maps, `{add, remove}` for sets, so that nothing else in them moves."""
    found: dict[str, Any] = {}
    for column in fields(wanted):
        if not column.compare or column.name in _NESTED:
            continue
        old, new = getattr(present, column.name), getattr(wanted, column.name)
        if isinstance(new, Mapping):
            changed = _map_change(old, new)
            if changed:
                found[column.name] = changed
        elif isinstance(new, frozenset):
            if old != new:
                found[column.name] = {"add": sorted(new - old), "remove": sorted(old - new)}
        elif old != new:
            found[column.name] = new
    return found


def _map_change(old: Mapping[str, str], new: Mapping[str, str]) -> dict[str, Any]:
    change = {
        "set": {key: value for key, value in sorted(new.items()) if old.get(key) != value},
        "remove": sorted(key for key in old if key not in new),
    }
    return change if change["set"] or change["remove"] else {}


def _bridge_of(state: State, interface: str) -> str:
    found = state.port_of(interface)
    return found[0].name if found else ""


def _render(state: State, bridges: set[str], names: set[str]) -> dict[str, Any]:
    """The touched bridges whole, with those of their ports that are touched, in the operator's words."""
    shown: dict[str, Any] = {}
    found = {name: _render_bridge(row, state, names) for name, row in state.bridges.items() if name in bridges}
    if found:
        shown["bridges"] = found
    if "Open_vSwitch" in names:
        shown["switch"] = dict(sorted(state.switch.items()))
    return shown


def _render_bridge(bridge: BridgeRow, state: State, names: set[str]) -> dict[str, Any]:
    ports = [port for port in bridge.ports.values() if port.name != bridge.name]
    touched = [port for port in ports if port.name in names or any(row.name in names for row in port.interfaces)]
    local = bridge.ports.get(bridge.name)
    shown: dict[str, Any] = {
        "datapath_type": bridge.datapath_type,
        "fail_mode": bridge.fail_mode,
        "stp": bridge.stp_enable,
        "rstp": bridge.rstp_enable,
        "mtu": local.interfaces[0].mtu_request if local and local.interfaces else None,
        "other_config": dict(sorted(bridge.other_config.items())),
        "external_ids": dict(sorted(bridge.external_ids.items())),
        "uplinks": {port.name: _render_uplink(port, state) for port in touched if _kind(port) == UPLINK},
        "interfaces": {port.name: _render_interface(port, state) for port in touched if _kind(port) == INTERFACE},
    }
    if local and (bridge.name in state.links or local.tag is not None):
        shown["interfaces"][bridge.name] = _render_interface(local, state)
    return {key: value for key, value in shown.items() if value not in (None, {})}


def _render_uplink(port: PortRow, state: State) -> dict[str, Any]:
    mtus = {row.mtu_request for row in port.interfaces}
    shown = {
        "nics": {row.name: _up(state, row.name) for row in port.interfaces},
        "vlans": collapse(port.trunks) if port.trunks else "all",
        "native_vlan": port.tag,
        "vlan_mode": port.vlan_mode,
        "bond_mode": port.bond_mode,
        "lacp": port.lacp,
        "mtu": next(iter(mtus)) if len(mtus) == 1 else None,
        "other_config": dict(port.other_config),
        "external_ids": dict(sorted(port.external_ids.items())),
    }
    return {key: value for key, value in shown.items() if value not in (None, {})}


def _render_interface(port: PortRow, state: State) -> dict[str, Any]:
    link = state.links.get(port.name)
    row = port.interfaces[0]
    shown = {
        "vlan": port.tag,
        "link": _up(state, port.name),
        "addresses": sorted(link.addresses) if link else [],
        "mtu": row.mtu_request,
        "mac": row.mac,
        "external_ids": dict(sorted(port.external_ids.items())),
    }
    return {key: value for key, value in shown.items() if value not in (None, {}, [])}


def _up(state: State, name: str) -> str:
    link = state.links.get(name)
    return "absent" if link is None else UP if link.up else DOWN
