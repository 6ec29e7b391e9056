# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NICs must move so that a wish can come true, what a node is after each move, and how that looks. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import RefusedError
from .move import MOVE, TIMEOUT, UNBRIDGE, MovePlan, Request
from .node import Bridge, Interface, Node, Uplink
from .paths import OVSDB
from .plan import FILE, REMOVE, WRITE, Operation, Plan, plan_between
from .state import Link, Moved, State
from .target import OVS_LINK_KINDS, declaration_of_bridge, declaration_of_uplink, put_bridge, put_uplink

MOVE_KIND = "move"


@dataclass(frozen=True)
class Terms:
    """How the moves of one run are carried out: the fields of `Request` that all of them share."""

    ovsdb: str = OVSDB
    manager: str = "auto"
    confirm: str = "controller"
    timeout: int = TIMEOUT
    probes: tuple[str, ...] = ()


def moves_between(before: State, wanted: Iterable[Bridge], terms: Terms) -> tuple[Request, ...]:
    """The moves that the declared bridges ask for: NICs that carry the node, wished under a bridge with consent.

    A NIC that was rescued from its bridge is moved again. Raises RefusedError for what cannot be moved.
    """
    found: list[Request] = []
    for bridge in wanted:
        for uplink in bridge.uplinks:
            nics = [nic for nic in uplink.nics if _must_move(before, bridge.name, nic)] if uplink.move else []
            if not nics:
                continue
            _check_one(before, bridge, uplink, nics, found)
            found.append(_request(MOVE, nics[0], _part(bridge, uplink), terms))
    return tuple(found)


def ways_back(before: State, gone: Iterable[str], terms: Terms) -> tuple[Request, ...]:
    """The moves that take NICs out of their bridges again, of those that a move brought there."""
    names = set(gone)
    return tuple(
        _request(UNBRIDGE, item.nic, declaration(before, item.bridge, item.nic), terms)
        for item in before.moved
        if item.nic in names
    )


def gone(before: State, node: Node) -> tuple[str, ...]:
    """The NICs that were moved under bridges where the node's declaration does not have them."""
    wanted = {(bridge.name, nic) for bridge in node.bridges for uplink in bridge.uplinks for nic in uplink.nics}
    return tuple(item.nic for item in before.moved if (item.bridge, item.nic) not in wanted)


def declaration(state: State, name: str, nic: str) -> Bridge:
    """A bridge as it is, in the words of a declaration, with this one uplink and its own interface."""
    row = state.bridges.get(name)
    if row is None:
        return Bridge(name, uplinks=(Uplink(nic, (nic,), move=True),))
    port = row.ports.get(nic)
    uplink = {"name": nic, "move": True, **(declaration_of_uplink(port) if port else {})}
    bridge = {"name": name, **declaration_of_bridge(row), "uplinks": [uplink]}
    local = row.ports.get(name)
    parsed = Bridge.parse(bridge, f"bridge {name}")
    return replace(parsed, interfaces=(Interface(name, local.tag),)) if local and local.tag else parsed


def own_vlan(bridge: Bridge) -> int | None:
    """The VLAN of the bridge's own interface, which carries the node after a move; None: untagged frames.

    `bridge` has one uplink. Unless the interface is declared on a VLAN it is the one that the uplink sends untagged.
    """
    own = bridge.interface(bridge.name)
    return own.vlan if own and own.vlan is not None else bridge.uplinks[0].native_vlan


def with_bridge_of(state: State, request: Request) -> State:
    """With the bridge of a move as it must be before the NIC becomes its port; links are left alone."""
    nic = state.links.get(request.nic) or Link(request.nic)
    bridge = request.bridge
    state = put_bridge(state, replace(bridge, mtu=nic.mtu or None, mac=nic.mac or None))
    vlan = own_vlan(bridge)
    local = state.bridges[bridge.name].ports[bridge.name]
    if (local.tag or None) != vlan:
        local = replace(local, tag=vlan, vlan_mode=None if vlan is None else "access")
    return state.with_port(bridge.name, local)


def with_uplink_of(state: State, request: Request) -> State:
    """With the NIC as a port of the bridge too, as the move makes it. Its MTU is no matter of the move's."""
    moved = Moved(request.nic, request.bridge.name)
    others = tuple(item for item in state.moved if request.nic != item.nic and item.bridge != moved.bridge)
    (uplink,) = request.bridge.uplinks
    return put_uplink(replace(state, moved=(*others, moved)), moved.bridge, replace(uplink, mtu=None))


def after_move(state: State, request: Request) -> State:
    """What the node is after a move, or after the way back."""
    if request.direction == MOVE:
        return _carried(with_uplink_of(with_bridge_of(state, request), request), request)
    owner = state.port_of(request.nic)
    state = _carried(state, request)
    state = replace(state, moved=tuple(item for item in state.moved if item.nic != request.nic))
    return state.without_port(owner[0].name, owner[1].name) if owner else state


def after_moves(state: State, requests: Iterable[Request]) -> State:
    """What the node is after all of them."""
    for request in requests:
        state = after_move(state, request)
    return state


def plan_of_moves(before: State, plans: Sequence[MovePlan]) -> Plan:
    """The plan of the moves alone, which are pending in it."""
    after = after_moves(before, (plan.request for plan in plans))
    operations = tuple(step for plan in plans for step in _operations(plan))
    return _shown(plan_between(before, after), before, after, plans, operations)


def plan_with_moves(before: State, wanted: State, plans: Sequence[MovePlan]) -> Plan:
    """The plan of the moves, and of what is to do after them until the node is as wanted."""
    rest = plan_between(after_moves(before, (plan.request for plan in plans)), wanted)
    operations = (*(step for plan in plans for step in _operations(plan)), *rest.operations)
    return _shown(plan_between(before, wanted), before, wanted, plans, operations)


def _must_move(state: State, bridge: str, nic: str) -> bool:
    link = state.links.get(nic)
    if link is None or not (link.addresses or link.dynamic or link.routes):
        return False
    rescued = any((item.nic, item.bridge) == (nic, bridge) and item.rescued for item in state.moved)
    return rescued or state.port_of(nic) is None


def _check_one(before: State, bridge: Bridge, uplink: Uplink, nics: list[str], found: list[Request]) -> None:
    if uplink.nics != (nics[0],):
        raise RefusedError(
            f"{nics[0]} of bond {uplink.name} carries the node's addresses: one NIC is moved at a time, no bond",
            "let the operating system make the bond, and name that one",
        )
    here = before.moved_to(bridge.name)
    others = [request.nic for request in found if request.bridge.name == bridge.name] + ([here.nic] if here else [])
    if others:
        raise RefusedError(
            f"{bridge.name} takes over the addresses of {others[0]}, and cannot take those of {nics[0]} too",
            "give each of them a bridge of its own",
        )


def _part(bridge: Bridge, uplink: Uplink) -> Bridge:
    own = tuple(interface for interface in bridge.interfaces if interface.name == bridge.name)
    return replace(bridge, uplinks=(uplink,), interfaces=own)


def _request(direction: str, nic: str, bridge: Bridge, terms: Terms) -> Request:
    return Request(
        direction, nic, bridge, terms.ovsdb, terms.manager, terms.confirm, terms.timeout, tuple(terms.probes)
    )


def _carried(state: State, request: Request) -> State:
    """With the addresses and routes on the target."""
    source = state.links.get(request.source) or Link(request.source)
    target = state.links.get(request.target) or Link(request.target, kind=OVS_LINK_KINDS[0])
    to_bridge = request.direction == MOVE
    target = replace(
        target,
        up=True,
        addresses=target.addresses | source.addresses,
        dynamic=tuple(dict.fromkeys((*target.dynamic, *source.dynamic))),
        routes=tuple(dict.fromkeys((*target.routes, *source.routes))),
        mtu=source.mtu if to_bridge else target.mtu,
        mac=source.mac if to_bridge else target.mac,
    )
    source = replace(source, up=True, addresses=frozenset(), dynamic=(), routes=())
    return state.with_link(source).with_link(target)


def _operations(plan: MovePlan) -> Iterable[Operation]:
    request = plan.request
    detail = {"bridge": request.bridge.name, **plan.effects}
    yield Operation(MOVE_KIND, request.nic, request.direction, detail)
    for change in plan.files:
        text, previous = change.text, plan.before.get(change.path)
        if text != previous:
            shown = {"text": text or "", "previous": previous or ""}
            yield Operation(FILE, change.path, REMOVE if text is None else WRITE, shown)


def _shown(
    whole: Plan, before: State, after: State, plans: Sequence[MovePlan], operations: tuple[Operation, ...]
) -> Plan:
    names = [name for plan in plans for name in (plan.request.source, plan.request.target)]
    return Plan(
        operations,
        {**whole.before, "links": _links(before, names)},
        {**whole.after, "links": _links(after, names)},
        tuple(text for plan in plans for text in plan.warnings),
        tuple(plan.request for plan in plans),
    )


def _links(state: State, names: Iterable[str]) -> Mapping[str, Any]:
    shown: dict[str, Any] = {}
    for name in names:
        link = state.links.get(name)
        addresses = sorted({*link.addresses, *link.dynamic}) if link else []
        routes = sorted(link.routes) if link else []
        found = {key: value for key, value in (("addresses", addresses), ("routes", routes)) if value}
        if found:
            shown[name] = found
    return shown
