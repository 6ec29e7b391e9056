# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bridge that carries the node is there, with the NIC in it: at boot, after Open vSwitch was away, or lost its
database. What is there is left as it is; what is missing comes from node.json, or else from the record of the move.
"""

from __future__ import annotations

from dataclasses import replace

from ..errors import PodnetError, RefusedError
from ..kernel import sysctls
from ..kernel.files import read_text
from ..kernel.l3 import missing, quiet, stage, swap
from ..kernel.links import set_mtu, set_up, wait_for_links
from ..model.l3 import L3
from ..model.move import Request
from ..model.node import Bridge, Node
from ..model.paths import NODE_JSON
from ..model.plan import DATABASE_KINDS, plan_between
from ..model.state import State
from ..vswitch.bridges import NETDEV, change_switch, check_switch
from ..vswitch.session import Session
from .crossing import bridge_made, confirmed, nic_attached, port_name
from .journal import open_moves
from .let_go import let_go
from .marks import is_rescued
from .observe import observe
from .record import Record, load
from .units import unescaped

_DATABASE_SECONDS = 20.0
_NIC_SECONDS = 10.0
_SWITCH_SECONDS = 15.0


def ensure(instance: str) -> str:
    """Makes the bridge and the NIC's port in it, if they are missing, in one transaction, and waits for the switch.

    Gives what was done in words. Nothing is done while a move is under way: that one knows better. After a rescue the
    switch only lets go of the NIC. Raises PodnetError within a minute if it cannot be done.
    """
    bridge = unescaped(instance)
    record = load(bridge)
    if record is None:
        return f"no move brought this node to {bridge}"
    if any(journal.this_boot for journal in open_moves()):
        return "a move is under way"
    if is_rescued(bridge):
        let_go(record)  # the database's file could not be changed then, perhaps: the switch would have it again now
        return f"{record.nic} carries the node since it was rescued from {bridge}: run the playbook podnet.ovs.site"
    wait_for_links([record.nic], _NIC_SECONDS)
    l3 = L3.from_dict(record.l3)
    request = _request(record)
    with Session.await_server(request.ovsdb, _DATABASE_SECONDS) as session:
        done = _make(session, request, record, l3)
        session.ports_ready([record.nic, bridge], _SWITCH_SECONDS)
    wait_for_links([bridge], _SWITCH_SECONDS)
    sysctls.copy(l3.sysctls, bridge)
    if record.manager == "none":
        _carry(l3, record)
    return done


def _make(session: Session, request: Request, record: Record, l3: L3) -> str:
    state = _bare(observe(session), record, l3)
    if port_name(state, request):
        wanted = confirmed(state, request)
    else:
        wanted = confirmed(nic_attached(bridge_made(state, request, record.id), request, record.id), request)
    operations = [step for step in plan_between(state, wanted).operations if step.kind in DATABASE_KINDS]
    if request.bridge.datapath_type == NETDEV:
        quiet(record.nic)
    set_up(record.nic)
    if not operations:
        return f"{request.bridge.name} is there, with {record.nic}"
    change_switch(session, operations, _SWITCH_SECONDS)
    check_switch(session, operations, _SWITCH_SECONDS)
    return ", ".join(f"{step.kind} {step.name} {step.action}" for step in operations)


def _bare(state: State, record: Record, l3: L3) -> State:
    """The node with the NIC as it was when it moved: at boot it may not have its MTU back yet.

    Raises RefusedError if the NIC carries addresses: they would be lost under the bridge.
    """
    link = state.links[record.nic]
    carried = sorted({*link.addresses, *link.dynamic})
    if carried and not port_name(state, Request.parse(record.request)):
        raise RefusedError(f"{record.nic} carries {', '.join(carried)}: under {record.bridge} they would be lost")
    if l3.mtu and link.mtu != l3.mtu:
        set_mtu(record.nic, l3.mtu)
    bare = replace(link, addresses=frozenset(), dynamic=(), routes=(), children=(), master=None, mac=l3.mac, mtu=l3.mtu)
    return state.with_link(bare)


def _carry(l3: L3, record: Record) -> None:
    """Where no network manager does, the record gives the bridge its addresses and routes."""
    if missing(l3, record.bridge):
        stage(l3, record.bridge)
        swap(l3, record.nic, record.bridge)


def _request(record: Record) -> Request:
    """As node.json declares the bridge now, if it does; the record is from the day of the move."""
    request = Request.parse(record.request)
    declared = _declared(record)
    return replace(request, bridge=declared) if declared else request


def _declared(record: Record) -> Bridge | None:
    try:
        text = read_text(NODE_JSON)
        bridge = Node.from_json(text).bridge(record.bridge) if text else None
    except PodnetError:
        return None
    uplinks = tuple(item for item in bridge.uplinks if item.nics == (record.nic,)) if bridge else ()
    if bridge is None or len(uplinks) != 1:
        return None
    own = tuple(item for item in bridge.interfaces if item.name == bridge.name)
    return replace(bridge, uplinks=uplinks, interfaces=own)
