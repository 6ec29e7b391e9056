# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bridges of the switch: read as values, and changed by the operations of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from ..errors import OvsdbError
from ..model import plan
from ..model.plan import Operation
from ..model.state import BridgeRow, State
from .ports import columns, port_commands, port_row
from .session import SCHEMA, Session

NETDEV = "netdev"


def observe_switch(session: Session) -> State:
    """All bridges with their ports, and the switch's own settings; without the kernel's side."""
    return session.read(_state)


def change_switch(session: Session, operations: Iterable[Operation], timeout: float, wait: bool = True) -> None:
    """Carries out what a plan has for the database, in one transaction. Raises OvsdbError, DeadlineExceeded."""
    steps = _steps(operations)
    commands = [command for step in steps for command in _COMMANDS[step.kind](session.api, step)]
    session.transact(commands, timeout, wait)


def check_switch(session: Session, operations: Iterable[Operation], timeout: float) -> None:
    """Sees that ovs-vswitchd could do what the operations asked of it.

    Raises OvsdbError with the way out if a datapath or a port cannot be had, DeadlineExceeded.
    """
    steps = _steps(operations)
    session.read(lambda tables: _check_datapaths(tables, steps))
    session.ports_ready(_made(steps), timeout)


def _steps(operations: Iterable[Operation]) -> list[Operation]:
    return [step for step in operations if step.kind in plan.DATABASE_KINDS]


def _state(tables: Mapping[str, Any]) -> State:
    root = next(iter(tables[SCHEMA].rows.values()))
    bridges = (_bridge_row(row) for row in tables["Bridge"].rows.values())
    return State(
        bridges={bridge.name: bridge for bridge in sorted(bridges, key=lambda bridge: bridge.name)},
        switch=dict(root.other_config),
        ovs_version=root.ovs_version[0] if root.ovs_version else "",
    )


def _bridge_row(row: Any) -> BridgeRow:
    ports = sorted((port_row(port) for port in row.ports), key=lambda port: port.name)
    return BridgeRow(
        name=row.name,
        datapath_type=row.datapath_type or "system",
        fail_mode=row.fail_mode[0] if row.fail_mode else "standalone",
        stp_enable=row.stp_enable,
        rstp_enable=row.rstp_enable,
        other_config=dict(row.other_config),
        external_ids=dict(row.external_ids),
        ports={port.name: port for port in ports},
        datapath_id=row.datapath_id[0] if row.datapath_id else "",
    )


def _check_datapaths(tables: Mapping[str, Any], steps: list[Operation]) -> None:
    """ovs-vswitchd says only in its log that it cannot have a datapath; what tells is that the bridge got no id."""
    touched = {step.name for step in steps if step.kind == plan.BRIDGE and step.action != plan.REMOVE}
    touched |= {str(step.detail["bridge"]) for step in steps if "bridge" in step.detail}
    for row in tables["Bridge"].rows.values():
        if row.name in touched and not row.datapath_id:
            raise no_datapath(row.name, row.datapath_type or "system")


def no_datapath(bridge: str, kind: str) -> OvsdbError:
    """The error for a bridge whose datapath ovs-vswitchd could not make, with the way out."""
    hint = f"load the kernel module (modprobe openvswitch), or say datapath_type: {NETDEV} for the userspace datapath"
    return OvsdbError(
        f"bridge {bridge} has no datapath: this node cannot run the type {kind}",
        "see /var/log/openvswitch/ovs-vswitchd.log" if kind == NETDEV else hint,
    )


def _made(steps: list[Operation]) -> list[str]:
    """The interfaces that a plan makes or changes; they all must be usable afterwards."""
    names = [step.name for step in steps if step.kind == plan.BRIDGE and step.action != plan.REMOVE]
    for step in steps:
        names += [name for name, change in step.detail.get("interfaces", {}).items() if change["action"] != plan.REMOVE]
    return sorted(set(names))


def _switch_commands(api: Any, step: Operation) -> Iterator[Any]:
    yield from columns(api, SCHEMA, ".", step.detail["columns"])


def _bridge_commands(api: Any, step: Operation) -> Iterator[Any]:
    if step.action == plan.REMOVE:
        yield api.del_br(step.name)
        return
    wanted = dict(step.detail["columns"])
    if step.action == plan.CREATE:
        yield api.add_br(step.name, may_exist=False, datapath_type=wanted.pop("datapath_type"))
    yield from columns(api, "Bridge", step.name, wanted)
    if step.action == plan.CREATE:
        yield from columns(api, "Port", step.name, step.detail.get("port", {}))
        for name, change in step.detail.get("interfaces", {}).items():
            yield from columns(api, "Interface", name, change["columns"])


_COMMANDS: dict[str, Callable[[Any, Operation], Iterator[Any]]] = {
    plan.SWITCH: _switch_commands,
    plan.BRIDGE: _bridge_commands,
    plan.UPLINK: port_commands,
    plan.INTERFACE: port_commands,
}
