# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Open vSwitch database before, while and after a NIC moves: from one state of the node to the next. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from typing import Any

from ..model.move import Request
from ..model.moves import with_bridge_of, with_uplink_of
from ..model.ownership import PREFIX
from ..model.state import BridgeRow, InterfaceRow, PortRow, State
from ..model.target import HWADDR

KEY_MOVE = PREFIX + "move"
"""In external_ids of what a move made and nobody has confirmed: its id."""
TRANSIENT = "transient"
"""In Port.other_config: Open vSwitch's own scripts remove such a port at boot, if they are told to (ovs-ctl(8))."""


def bridge_made(state: State, request: Request, move: str) -> State:
    """With the bridge, which has the NIC's MAC address and MTU, and without the NIC."""
    new = request.bridge.name not in state.bridges
    state = with_bridge_of(state, request)
    row = state.bridges[request.bridge.name]
    return state.with_bridge(replace(row, external_ids={**row.external_ids, KEY_MOVE: move})) if new else state


def nic_attached(state: State, request: Request, move: str) -> State:
    """With the NIC's port on the bridge, marked as unconfirmed."""
    wanted = with_uplink_of(state, request)
    name = port_name(wanted, request)
    port = wanted.bridges[request.bridge.name].ports[name] if name else PortRow(request.nic)
    port = replace(
        port,
        other_config={**port.other_config, TRANSIENT: "true"},
        external_ids={**port.external_ids, KEY_MOVE: move},
    )
    return state.with_port(request.bridge.name, port)


def nic_detached(state: State, request: Request) -> State:
    """Without the NIC's port on the bridge; the bridge stays."""
    name = port_name(state, request)
    return state.without_port(request.bridge.name, name) if name else state


def confirmed(state: State, request: Request) -> State:
    """Without the marks of an unconfirmed move."""
    row = state.bridges.get(request.bridge.name)
    if row is None:
        return state
    ports = {name: _unmarked(port) for name, port in row.ports.items()}
    return state.with_bridge(replace(row, external_ids=_without(row.external_ids, KEY_MOVE), ports=ports))


def saved(state: State, request: Request) -> dict[str, Any]:
    """What `put_back` needs, as JSON: the bridge without its ports, its own port and the NIC's."""
    row = state.bridges.get(request.bridge.name)
    if row is None:
        return {"bridge": None, "own": None, "port": None}
    name = port_name(state, request)
    own = row.ports.get(row.name)
    return {
        "bridge": {key: value for key, value in asdict(row).items() if key != "ports"},
        "own": _port_to_dict(own) if own else None,
        "port": _port_to_dict(row.ports[name]) if name else None,
    }


def put_back(state: State, request: Request, before: Mapping[str, Any]) -> State:
    """With the bridge as it was `saved`. One that the move made goes, unless others have put ports on it since."""
    name = request.bridge.name
    row = state.bridges.get(name)
    if before["bridge"] is None:
        if row is None:
            return state
        if set(row.ports) - {name, port_name(state, request) or ""}:
            return confirmed(nic_detached(state, request), request)
        return state.without_bridge(name)
    old = BridgeRow(**before["bridge"])
    if row is None:
        row = old
    row = replace(
        row,
        fail_mode=old.fail_mode,
        stp_enable=old.stp_enable,
        rstp_enable=old.rstp_enable,
        other_config=_restored(row.other_config, old.other_config, HWADDR),
        external_ids=_restored(row.external_ids, old.external_ids, PREFIX),
        ports={**row.ports, **({name: _port_from_dict(before["own"])} if before["own"] else {})},
    )
    state = state.with_bridge(row)
    if before["port"] is not None:
        return state.with_port(name, _port_from_dict(before["port"]))
    return nic_detached(state, request)


def port_name(state: State, request: Request) -> str | None:
    """The name of the port that holds the NIC on the bridge; None if none does."""
    owner = state.port_of(request.nic)
    return owner[1].name if owner and owner[0].name == request.bridge.name else None


def _unmarked(port: PortRow) -> PortRow:
    if KEY_MOVE not in port.external_ids:
        return port
    return replace(
        port,
        other_config=_without(port.other_config, TRANSIENT),
        external_ids=_without(port.external_ids, KEY_MOVE),
    )


def _without(table: Mapping[str, str], key: str) -> dict[str, str]:
    return {name: value for name, value in table.items() if name != key}


def _restored(now: Mapping[str, str], old: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The keys that begin so as they were, the others as they are."""
    return {
        **{key: value for key, value in now.items() if not key.startswith(prefix)},
        **{key: value for key, value in old.items() if key.startswith(prefix)},
    }


def _port_to_dict(port: PortRow) -> dict[str, Any]:
    return {**asdict(port), "trunks": sorted(port.trunks)}


def _port_from_dict(value: Mapping[str, Any]) -> PortRow:
    known = {column.name for column in fields(InterfaceRow)}
    rows = [InterfaceRow(**{key: item[key] for key in item if key in known}) for item in value["interfaces"]]
    return PortRow(**{**value, "interfaces": tuple(rows), "trunks": frozenset(value["trunks"])})
