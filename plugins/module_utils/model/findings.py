# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong with a node, in sentences for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import PodnetError
from .moves import Terms, after_moves, moves_between
from .node import Node
from .ownership import OWNER_NODE, Mark
from .plan import plan_between
from .safety import check_safe
from .state import INTERNAL, BridgeRow, PortRow, State
from .target import Options, node_state, warnings_of


def findings_of(state: State, node: Node | None = None) -> tuple[str, ...]:
    """All findings about the switch and the kernel, and how the node differs from what is declared."""
    found: list[str] = []
    for bridge in state.bridges.values():
        found += _of_bridge(bridge)
        for port in bridge.ports.values():
            found += _of_port(state, bridge, port)
    found += [
        f"{item.nic} has the node's addresses back, for {item.bridge} did not carry them: {item.rescued}; the playbook "
        "podnet.ovs.site moves it again"
        for item in state.moved
        if item.rescued
    ]
    if node is not None:
        found += [*warnings_of(node), *_differences(state, node)]
    return tuple(found)


def _of_bridge(bridge: BridgeRow) -> Iterator[str]:
    if not bridge.datapath_id:
        yield f"bridge {bridge.name} has no datapath: this node cannot run the type {bridge.datapath_type}"


def _of_port(state: State, bridge: BridgeRow, port: PortRow) -> Iterator[str]:
    mark = Mark.parse(port.external_ids)
    for row in port.interfaces:
        if row.error:
            yield f"ovs-vswitchd cannot use {row.name} on bridge {bridge.name}: {row.error}"
        if mark is None or mark.owner != OWNER_NODE:
            continue
        link = state.links.get(row.name)
        if link is None:
            yield f"{row.name}, which bridge {bridge.name} should have, is not there"
            continue
        if not link.up:
            yield f"{row.name} on bridge {bridge.name} is down"
        for address in sorted(frozenset(mark.addresses) - link.addresses):
            yield f"{row.name} lacks its address {address}"
        for address in link.duplicate:
            yield f"another host on the link of {row.name} has {address}"
        if row.type != INTERNAL and link.addresses and not any(m.rescued for m in state.moved if m.nic == row.name):
            yield f"the uplink {row.name} carries addresses that cannot work there: {', '.join(sorted(link.addresses))}"


def _differences(state: State, node: Node) -> Iterator[str]:
    try:
        moves = moves_between(state, node.bridges, Terms())
        yield from (f"node.json asks for moving {move.nic} to {move.bridge.name}" for move in moves)
        state = after_moves(state, moves)
        wanted = node_state(state, node, node, Options(purge=True))
        check_safe(state, wanted)
    except PodnetError as error:
        yield f"node.json cannot come true: {error}"
        return
    for step in plan_between(state, wanted).operations:
        yield f"node.json asks for {step.kind} {step.name}: {step.action}"
