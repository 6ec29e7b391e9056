# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods' ports on bridges: found by the owner mark, made and removed in one transaction each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..model.ownership import (
    KEY_CONTAINER_ID,
    KEY_IFNAME,
    KEY_OWNER,
    OWNER_OVS,
    Mark,
)
from .session import Session

ACCESS = "access"


@dataclass(frozen=True)
class Attachment:
    """A port of ours. `error` is ovs-vswitchd's word on its interface, empty when all is well."""

    port: str
    bridge: str
    mark: Mark
    tag: int | None = None
    vlan_mode: str = ""
    ofport: int | None = None
    error: str = ""


def bridges(session: Session, timeout: float | None = None) -> list[str]:
    """The names of all bridges."""
    return session.read(lambda tables: sorted(row.name for row in tables["Bridge"].rows.values()), timeout)


def attachments(session: Session, timeout: float | None = None) -> list[Attachment]:
    """All ports of pods, whichever bridge they are on."""
    return session.read(_attachments, timeout)


def find(session: Session, container_id: str, ifname: str, timeout: float | None = None) -> list[Attachment]:
    """The ports of one attachment: none, one, or more if something went wrong."""

    def matching(tables: Mapping[str, Any]) -> list[Attachment]:
        return _attachments(tables, {KEY_CONTAINER_ID: container_id, KEY_IFNAME: ifname})

    return session.read(matching, timeout)


def attach(
    session: Session, bridge: str, port: str, vlan: int | None, mark: Mark, stale: Iterable[str] = (),
    timeout: float | None = None,
) -> None:  # fmt: skip
    """One transaction: an access port (`vlan` None: for untagged frames) with its mark, and without the `stale` ports.

    Returns when the database has it; ovs-vswitchd then goes to work: `session.ports_ready`. Raises OvsdbError.
    """
    api = session.api
    # Tag 0 is an access port for untagged frames; a port without a tag would be a trunk of everything.
    marks = ("external_ids", mark.to_external_ids())
    commands = [api.del_port(name, if_exists=True) for name in stale]
    commands += [
        api.add_port(bridge, port, may_exist=False),
        api.db_set("Port", port, ("tag", vlan or 0), ("vlan_mode", ACCESS), marks),
        api.db_set("Interface", port, marks),
    ]
    session.transact(commands, timeout, wait=False)


def detach(session: Session, ports: Iterable[str], timeout: float | None = None) -> None:
    """One transaction that removes the ports, those that are gone already excepted. Raises OvsdbError."""
    commands = [session.api.del_port(name, if_exists=True) for name in ports]
    if commands:
        session.transact(commands, timeout, wait=False)


def _attachments(tables: Mapping[str, Any], wanted: Mapping[str, str] | None = None) -> list[Attachment]:
    wanted = {KEY_OWNER: OWNER_OVS, **(wanted or {})}
    found = []
    for bridge in tables["Bridge"].rows.values():
        for port in bridge.ports:
            ids = port.external_ids
            if any(ids.get(key) != value for key, value in wanted.items()):
                continue
            mark = Mark.parse(ids)
            if mark is not None:
                found.append(_attachment(bridge.name, port, mark))
    return found


def _attachment(bridge: str, port: Any, mark: Mark) -> Attachment:
    interface = port.interfaces[0] if port.interfaces else None
    return Attachment(
        port=port.name,
        bridge=bridge,
        mark=mark,
        tag=port.tag[0] if port.tag else None,
        vlan_mode=port.vlan_mode[0] if port.vlan_mode else "",
        ofport=interface.ofport[0] if interface and interface.ofport else None,
        error=interface.error[0] if interface and interface.error else "",
    )
