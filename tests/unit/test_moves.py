# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which NICs move for a wish, what the node is afterwards, and that the rest of the wish then goes on as ever."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import RefusedError
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MOVE, UNBRIDGE, FileChange, MovePlan, Request
from ansible_collections.podnet.ovs.plugins.module_utils.model.moves import (
    Terms,
    after_move,
    after_moves,
    gone,
    moves_between,
    plan_of_moves,
    plan_with_moves,
    ways_back,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.plan import plan_between
from ansible_collections.podnet.ovs.plugins.module_utils.model.safety import check_safe
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import Link, Moved, State, Visit
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import Options, declared, node_state, restored

MAC = "52:54:00:00:00:a1"
TERMS = Terms(timeout=30)
PURGE = Options(purge=True)
HOME = Link(
    "eth0",
    True,
    frozenset({"10.99.0.11/24"}),
    mtu=1500,
    mac=MAC,
    dynamic=("fd00:99::b/64",),
    routes=("10.99.0.0/24", "default via 10.99.0.1"),
)


def node(uplink: Mapping[str, Any] | None = None, **bridge: Any) -> Node:
    """One bridge with the NIC that carries the node."""
    eth0 = {"name": "eth0", "move": True, **(uplink or {})}
    return Node.parse({"bridges": [{"name": "br-x", "uplinks": [eth0], **bridge}]})


def fresh() -> State:
    """A node with one NIC, and somebody on it over ssh."""
    return State(links={"lo": Link("lo", True), "eth0": HOME}, visit=Visit("10.99.0.1", "10.99.0.11"))


def moved(wanted: Node) -> State:
    """The same after the site run that moved the NIC."""
    state = after_moves(fresh(), moves_between(fresh(), wanted.bridges, TERMS))
    return node_state(state, wanted, None, PURGE)


def test_consent_opens_the_one_way() -> None:
    wanted = node({"vlans": "100,200"})
    (request,) = moves_between(fresh(), wanted.bridges, TERMS)
    assert (request.direction, request.nic, request.bridge.name, request.timeout) == (MOVE, "eth0", "br-x", 30)
    assert Request.parse(request.to_dict()) == request
    without = node({"move": False})
    assert not moves_between(fresh(), without.bridges, TERMS)
    with pytest.raises(RefusedError, match="move: true on the uplink"):
        node_state(fresh(), without)
    with pytest.raises(RefusedError, match=r"the playbook podnet\.ovs\.site"):
        node_state(fresh(), wanted)


def test_a_nic_without_addresses_is_no_move_and_needs_none() -> None:
    spare = replace(fresh(), links={"eth0": Link("eth0", mac=MAC)})
    wanted = node({"vlans": "100"})
    assert not moves_between(spare, wanted.bridges, TERMS)
    assert node_state(spare, wanted).bridges["br-x"].ports["eth0"].trunks == {100}


def test_the_node_is_on_the_bridge_afterwards_and_a_second_run_has_nothing_to_do() -> None:
    wanted = node({"vlans": "100,200"}, interfaces=[{"name": "pods", "vlan": 100, "addresses": ["10.30.0.1/24"]}])
    state = moved(wanted)
    bridge = state.bridges["br-x"]
    assert bridge.other_config["hwaddr"] == MAC and bridge.ports["br-x"].interfaces[0].mtu_request == 1500
    assert bridge.ports["eth0"].trunks == {0, 100, 200}
    own, nic = state.links["br-x"], state.links["eth0"]
    assert (own.addresses, own.dynamic, own.routes) == (HOME.addresses, HOME.dynamic, HOME.routes)
    assert nic.up and not (nic.addresses or nic.dynamic or nic.routes)
    again = node_state(state, wanted, declared(state), PURGE)
    check_safe(state, again)
    assert not plan_between(state, again).operations and not moves_between(state, wanted.bridges, TERMS)


def test_a_native_vlan_is_that_of_the_bridges_own_interface() -> None:
    wanted = node({"vlans": "100", "native_vlan": 7}, interfaces=[{"name": "br-x", "addresses": ["10.99.0.11/24"]}])
    state = moved(wanted)
    port = state.bridges["br-x"].ports["br-x"]
    assert (port.tag, port.vlan_mode) == (7, "access")
    assert state.bridges["br-x"].ports["eth0"].trunks == {100}
    assert not plan_between(state, node_state(state, wanted, declared(state), PURGE)).operations


def test_the_bridge_goes_on_living() -> None:
    state = moved(node({"vlans": "100"}))
    for wanted in (
        node({"vlans": "100,300"}, interfaces=[{"name": "v300", "vlan": 300}]),
        node({"vlans": "300", "move": False}),
        node({"vlans": "100"}, interfaces=[{"name": "br-x", "addresses": ["10.40.0.1/24"]}]),
        node({}, mtu=1400, other_config={"mac-table-size": 4096}),
    ):
        later = node_state(state, wanted, declared(state), PURGE)
        check_safe(state, later)
        trunks = later.bridges["br-x"].ports["eth0"].trunks
        assert not trunks or 0 in trunks
        assert not plan_between(later, node_state(later, wanted, declared(later), PURGE)).operations


@pytest.mark.parametrize(
    ("uplink", "bridge", "said"),
    [
        ({"native_vlan": 9}, {}, "eth0, its way out, goes on carrying untagged frames"),
        ({}, {"mac": "02:00:00:00:00:09"}, f"mac stays {MAC}"),
        ({}, {"datapath_type": "netdev"}, "datapath_type stays system"),
        ({}, {"interfaces": [{"name": "br-x", "vlan": 100}]}, "vlan stays none"),
    ],
)
def test_what_would_cut_the_moved_node_off_is_refused(uplink: Any, bridge: Any, said: str) -> None:
    state = moved(node({}))
    wanted = node_state(state, node(uplink, **bridge), declared(state), PURGE)
    with pytest.raises(RefusedError, match=said):
        check_safe(state, wanted)


def test_keys_that_are_replaced_leave_the_mac_address() -> None:
    wanted = node({})
    options = replace(PURGE, other_config="replaced")
    assert node_state(moved(wanted), wanted, wanted, options).bridges["br-x"].other_config == {"hwaddr": MAC}


def test_out_again_only_with_consent() -> None:
    state = moved(node({"vlans": "100"}))
    empty = Node()
    with pytest.raises(RefusedError, match="unbridge: true"):
        check_safe(state, node_state(state, empty, declared(state), PURGE))
    assert gone(state, empty) == ("eth0",) and not gone(state, node({}))
    (request,) = ways_back(state, gone(state, empty), TERMS)
    assert (request.direction, request.source, request.target) == (UNBRIDGE, "br-x", "eth0")
    back = after_move(state, request)
    assert back.links["eth0"].addresses == HOME.addresses and back.links["eth0"].routes == HOME.routes
    assert not back.moved and back.port_of("eth0") is None
    last = node_state(back, empty, declared(back), PURGE)
    check_safe(back, last)
    assert not last.bridges and last.links["eth0"].addresses == HOME.addresses


def test_what_others_bridged_is_not_taken_out() -> None:
    state = replace(moved(node({})), moved=())
    assert not ways_back(state, ["eth0"], TERMS)


def test_a_rescued_nic_is_moved_again() -> None:
    wanted = node({"vlans": "100"})
    whole = moved(wanted)
    broken = replace(
        whole,
        links={**whole.links, "eth0": HOME, "br-x": Link("br-x", True)},
        moved=(Moved("eth0", "br-x", rescued="br-x has no datapath"),),
    )
    (request,) = moves_between(broken, wanted.bridges, TERMS)
    repaired = after_move(broken, request)
    assert not plan_between(repaired, node_state(repaired, wanted, declared(repaired), PURGE)).operations
    own = node({}, interfaces=[{"name": "br-x", "addresses": ["10.99.0.11/24"]}])
    state = moved(own)
    assert restored(replace(state, moved=broken.moved)).links["br-x"].addresses == state.links["br-x"].addresses
    bare = replace(state, moved=broken.moved, links={**state.links, "eth0": HOME, "br-x": Link("br-x")})
    assert not restored(bare).links["br-x"].addresses


def test_a_bond_and_a_second_nic_are_refused() -> None:
    bond = {"name": "bond0", "nics": ["eth0", "eth1"], "move": True}
    with pytest.raises(RefusedError, match="one NIC is moved at a time"):
        moves_between(fresh(), Node.parse({"bridges": [{"name": "br-x", "uplinks": [bond]}]}).bridges, TERMS)
    two = replace(fresh(), links={**fresh().links, "eth1": replace(HOME, name="eth1")})
    uplinks = [{"name": name, "move": True} for name in ("eth0", "eth1")]
    with pytest.raises(RefusedError, match="takes over the addresses of eth0"):
        moves_between(two, Node.parse({"bridges": [{"name": "br-x", "uplinks": uplinks}]}).bridges, TERMS)


def test_the_plan_shows_the_move_and_then_the_rest() -> None:
    wanted = node({"vlans": "100"}, interfaces=[{"name": "pods", "vlan": 100}])
    before = fresh()
    (request,) = moves_between(before, wanted.bridges, TERMS)
    path = "/etc/systemd/network/10-eth0.network"
    change = FileChange(path, "[Match]\nName=eth0\n")
    foreseen = MovePlan(request, {"outage": "none"}, (change,), {path: "old\n"}, ("slow",), "h")
    state = node_state(after_move(before, request), wanted)
    plan = plan_with_moves(before, state, [foreseen])
    steps = [(step.kind, step.name, step.action) for step in plan.operations]
    assert steps[:2] == [("move", "eth0", "move"), ("file", path, "write")]
    assert steps[2:] == [
        (step.kind, step.name, step.action) for step in plan_between(after_move(before, request), state).operations
    ]
    assert plan.before["links"] == {
        "eth0": {"addresses": ["10.99.0.11/24", "fd00:99::b/64"], "routes": ["10.99.0.0/24", "default via 10.99.0.1"]}
    }
    assert plan.after["links"] == {"br-x": plan.before["links"]["eth0"]}
    assert set(plan.after["bridges"]["br-x"]["uplinks"]) == {"eth0"} and plan.warnings == ("slow",)
    alone = plan_of_moves(before, [foreseen])
    assert [step.kind for step in alone.operations] == ["move", "file"] and "bridges" in alone.after
