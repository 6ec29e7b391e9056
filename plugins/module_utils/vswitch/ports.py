# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of bridges: read as values, changed by the operations of a plan. One with several interfaces is a bond."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..model import plan
from ..model.plan import Operation
from ..model.state import InterfaceRow, PortRow


def port_row(row: Any) -> PortRow:
    """A row of the table Port, with its interfaces, as a value."""
    return PortRow(
        name=row.name,
        interfaces=tuple(sorted((_interface_row(item) for item in row.interfaces), key=lambda item: item.name)),
        tag=_one(row.tag),
        trunks=frozenset(row.trunks),
        vlan_mode=_one(row.vlan_mode),
        bond_mode=_one(row.bond_mode),
        lacp=_one(row.lacp),
        other_config=dict(row.other_config),
        external_ids=dict(row.external_ids),
    )


def port_commands(api: Any, step: Operation) -> Iterator[Any]:
    """What carries out one operation on an uplink or an interface."""
    if step.action == plan.REMOVE:
        yield api.del_port(step.name, bridge=step.detail["bridge"])
        return
    interfaces = step.detail.get("interfaces", {})
    made = {
        name: _new_interface(api, name, change)
        for name, change in interfaces.items()
        if change["action"] == plan.CREATE
    }
    yield from made.values()
    if step.action == plan.CREATE:
        # A tuple: ovsdbapp would put the rows of the first try into a list, and find them stale in the second.
        port = api.db_create("Port", name=step.name, interfaces=tuple(made.values()))
        yield port
        yield api.db_add("Bridge", step.detail["bridge"], "ports", port)
        made = {}
    if made:
        yield api.db_add("Port", step.name, "interfaces", *made.values())
    for name, change in interfaces.items():
        if change["action"] == plan.REMOVE:
            yield api.db_remove("Port", step.name, "interfaces", api.lookup("Interface", name).uuid)
        elif change["action"] == plan.CHANGE:
            yield from columns(api, "Interface", name, change["columns"])
    yield from columns(api, "Port", step.name, step.detail.get("port", {}))


def columns(api: Any, table: str, record: str, wanted: Mapping[str, Any]) -> Iterator[Any]:
    """Sets columns as a plan writes them: plain values, `{set, remove}` for a map, `{add, remove}` for a set."""
    for column, value in wanted.items():
        if not isinstance(value, Mapping):
            yield api.db_set(table, record, (column, [] if value is None else value), if_exists=False)
            continue
        if value["remove"]:
            yield api.db_remove(table, record, column, *value["remove"])
        if value.get("set"):
            yield api.db_set(table, record, (column, dict(value["set"])), if_exists=False)
        if value.get("add"):
            yield api.db_add(table, record, column, *value["add"])


def _new_interface(api: Any, name: str, change: Mapping[str, Any]) -> Any:
    values = {key: value["set"] if isinstance(value, Mapping) else value for key, value in change["columns"].items()}
    return api.db_create("Interface", name=name, type=change["type"], **values)


def _interface_row(row: Any) -> InterfaceRow:
    return InterfaceRow(
        name=row.name,
        type="" if row.type == "system" else row.type,
        mac=_one(row.mac),
        mtu_request=_one(row.mtu_request),
        external_ids=dict(row.external_ids),
        mtu=_one(row.mtu),
        mac_in_use=_one(row.mac_in_use),
        ofport=_one(row.ofport),
        error=_one(row.error) or "",
    )


def _one(values: list[Any]) -> Any:
    return values[0] if values else None
