# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan engine: from what is to what should be. An interpreter of operations stands in for switch and kernel."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings

from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError, RefusedError
from ansible_collections.podnet.ovs.plugins.module_utils.model import plan as steps
from ansible_collections.podnet.ovs.plugins.module_utils.model.findings import findings_of
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Bridge, Interface, Node, Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_NODE, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.plan import Operation, plan_between
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import (
    INTERNAL,
    BridgeRow,
    InterfaceRow,
    Link,
    PortRow,
    State,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import (
    Options,
    check_nic,
    drop_bridge,
    merge_vlans,
    node_state,
    put_bridge,
    put_interface,
    put_uplink,
    restored,
    warnings_of,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet
from ansible_collections.podnet.ovs.tests.unit.strategies import NICS, fresh_states, nodes, vlan_sets

PURGE = Options(purge=True, force=True)


# what stands in for the switch and the kernel


def applied(state: State, operations: tuple[Operation, ...]) -> State:
    """The state after the operations, by nothing but what they say."""
    for step in operations:
        state = _APPLY[step.kind](state, json.loads(json.dumps(step.detail)), step)
    return state


def _switch(state: State, detail: Any, _step: Operation) -> State:
    return replace(state, switch=_value(state.switch, detail["columns"]["other_config"]))


def _bridge(state: State, detail: Any, step: Operation) -> State:
    if step.action == steps.REMOVE:
        return state.without_bridge(step.name)
    if step.action == steps.CREATE:
        assert step.name not in state.bridges
        state = state.with_bridge(_set(BridgeRow(step.name), detail["columns"]))
        local = PortRow(step.name, (InterfaceRow(step.name, INTERNAL),))
        state = state.with_port(step.name, _port(local, detail))
        return state.with_link(state.links.get(step.name) or Link(step.name))
    return state.with_bridge(_set(state.bridges[step.name], detail["columns"]))


def _ports(state: State, detail: Any, step: Operation) -> State:
    bridge = detail["bridge"]
    if step.action == steps.REMOVE:
        return state.without_port(bridge, step.name)
    there = state.bridges[bridge].ports.get(step.name)
    assert (there is None) == (step.action == steps.CREATE)
    port = _port(there or PortRow(step.name), detail)
    state = state.with_port(bridge, port)
    for row in port.interfaces:
        if row.name not in state.links:
            assert row.type == INTERNAL
            state = state.with_link(Link(row.name))
    return state


def _port(port: PortRow, detail: Any) -> PortRow:
    rows = {row.name: row for row in port.interfaces}
    for name, change in detail.get("interfaces", {}).items():
        if change["action"] == steps.REMOVE:
            del rows[name]
        else:
            assert (change["action"] == steps.CREATE) == (name not in rows)
            rows[name] = _set(rows.get(name) or InterfaceRow(name, change["type"]), change["columns"])
    return replace(_set(port, detail.get("port", {})), interfaces=tuple(rows[name] for name in sorted(rows)))


def _set(row: Any, columns: Mapping[str, Any]) -> Any:
    return replace(row, **{name: _value(getattr(row, name), change) for name, change in columns.items()})


def _value(old: Any, change: Any) -> Any:
    if not isinstance(change, dict):
        return change
    if "add" in change:
        assert not set(change["add"]) & old and set(change["remove"]) <= old, "more than the difference"
        return (old | set(change["add"])) - set(change["remove"])
    assert set(change["remove"]) <= set(old)
    return {**{key: value for key, value in old.items() if key not in change["remove"]}, **change["set"]}


def _link(state: State, _detail: Any, step: Operation) -> State:
    return state.with_link(replace(state.links[step.name], up=step.action == steps.UP))


def _address(state: State, detail: Any, step: Operation) -> State:
    link, address = state.links[step.name], {detail["address"]}
    assert (step.action == steps.ADD) != (address <= link.addresses)
    changed = link.addresses | address if step.action == steps.ADD else link.addresses - address
    return state.with_link(replace(link, addresses=changed))


def _file(state: State, detail: Any, _step: Operation) -> State:
    return replace(state, node_json=detail["text"])


_APPLY = {
    steps.SWITCH: _switch,
    steps.BRIDGE: _bridge,
    steps.UPLINK: _ports,
    steps.INTERFACE: _ports,
    steps.LINK: _link,
    steps.ADDRESS: _address,
    steps.FILE: _file,
}


def reached(state: State, wanted: State) -> State:
    """Carries the plan out, and sees that it led where it should. Links that come with bridges count as wanted."""
    plan = plan_between(state, wanted)
    after = applied(state, plan.operations)
    assert after.bridges == wanted.bridges and after.switch == wanted.switch and after.node_json == wanted.node_json
    assert {name: after.links[name] for name in wanted.links} == wanted.links
    return after


# properties


@settings(max_examples=300)
@given(fresh_states(), nodes())
def test_a_plan_leads_there_and_then_there_is_nothing_to_do(state: State, node: Node) -> None:
    after = reached(state, node_state(state, node, None, PURGE))
    again = plan_between(after, node_state(after, node, node, PURGE))
    assert again.operations == () and not again.changed and again.before == again.after == {}
    assert restored(after) == after, "a boot unit would change a node that is right"


@settings(max_examples=300)
@given(fresh_states(), nodes(), nodes())
def test_from_any_node_to_any_other(state: State, first: Node, second: Node) -> None:
    there = reached(state, node_state(state, first, None, PURGE))
    after = reached(there, node_state(there, second, first, PURGE))
    assert plan_between(after, node_state(after, second, second, PURGE)).operations == ()


@settings(max_examples=200, deadline=None)
@given(fresh_states(), nodes())
def test_what_others_made_is_never_touched(state: State, node: Node) -> None:
    after = reached(state, node_state(state, node, None, PURGE))
    after = reached(after, node_state(after, Node(), node, Options(purge=True)) if _removable(after) else after)
    named = {bridge.name for bridge in node.bridges}
    for name, bridge in state.bridges.items():
        if name in named:
            continue
        assert after.bridges[name] == bridge
    for name, link in state.links.items():
        if name.startswith(("eth0", "vm-")):
            assert after.links[name] == link


def _removable(state: State) -> bool:
    try:
        node_state(state, Node(), None, Options(purge=True))
    except RefusedError:
        return False
    return True


@settings(max_examples=100, deadline=None)
@given(fresh_states(), nodes())
def test_operations_and_both_sides_are_plain_json(state: State, node: Node) -> None:
    plan = plan_between(state, node_state(state, node, None, PURGE))
    for thing in ([step.to_dict() for step in plan.operations], plan.before, plan.after):
        assert json.loads(json.dumps(thing)) == thing
    assert bool(plan.operations) == plan.changed


@settings(max_examples=100, deadline=None)
@given(fresh_states(), nodes())
def test_after_a_boot_the_marks_are_enough(state: State, node: Node) -> None:
    there = reached(state, node_state(state, node, None, PURGE))
    down = {name: replace(link, up=False, addresses=frozenset()) for name, link in there.links.items()}
    booted = replace(there, links=down)
    back = restored(booted)
    for bridge in node.bridges:
        for uplink in bridge.uplinks:
            assert all(back.links[nic].up for nic in uplink.nics)
        for interface in bridge.interfaces:
            assert back.links[interface.name].up
            assert back.links[interface.name].addresses >= frozenset(interface.addresses or ())
    assert not back.links["eth0"].up and back.bridges == booted.bridges


@given(vlan_sets, vlan_sets)
def test_merging_vlans(present: list[int], given_: list[int]) -> None:
    port, vlans = PortRow("eth1", trunks=frozenset(present)), VlanSet.of(given_)
    assert set(merge_vlans(port, vlans, "merged") or ()) == set(present) | set(given_)
    assert set(merge_vlans(port, vlans, "replaced") or ()) == set(given_)
    if set(present) <= set(given_):
        with pytest.raises(RefusedError, match="all of them"):
            merge_vlans(port, vlans, "deleted")
    else:
        assert set(merge_vlans(port, vlans, "deleted") or ()) == set(present) - set(given_)


def test_merging_into_all_vlans() -> None:
    bare, one = PortRow("eth1"), VlanSet.of([5])
    assert merge_vlans(None, one, "merged") == one
    assert merge_vlans(bare, one, "merged") is None and merge_vlans(bare, one, "replaced") == one
    assert str(merge_vlans(bare, one, "deleted")) == "1-4,6-4094"


# examples


def machine(**links: Link) -> State:
    """A node with a bridge and free NICs."""
    state = State(links={name: Link(name) for name in NICS} | links)
    return put_bridge(state, Bridge("br"))


def test_trunks_are_a_difference_and_the_detail_says_only_it() -> None:
    state = put_uplink(machine(), "br", Uplink("eth1", ("eth1",), vlans=VlanSet.parse("1-3")))
    wanted = put_uplink(state, "br", Uplink("eth1", ("eth1",), vlans=VlanSet.parse("2-4")))
    (step,) = plan_between(state, wanted).operations
    assert step.to_dict() == {
        "kind": "uplink",
        "name": "eth1",
        "action": "change",
        "detail": {"bridge": "br", "port": {"trunks": {"add": [4], "remove": [1]}}},
    }


def test_both_sides_show_vlans_as_people_write_them() -> None:
    state = machine()
    plan = plan_between(state, put_uplink(state, "br", Uplink("eth1", ("eth1",), vlans=VlanSet.parse("10,20-30"))))
    assert plan.after["bridges"]["br"]["uplinks"]["eth1"]["vlans"] == "10,20-30"
    assert "uplinks" not in plan.before["bridges"]["br"]


def test_an_untagged_interface_is_an_access_port() -> None:
    port = put_interface(machine(), "br", Interface("if1")).bridges["br"].ports["if1"]
    assert port.tag == 0 and port.vlan_mode == "access"


def test_an_uplink_without_vlans_is_a_trunk_of_all_and_a_native_vlan_travels_untagged() -> None:
    bare = put_uplink(machine(), "br", Uplink("eth1", ("eth1",))).bridges["br"].ports["eth1"]
    assert (bare.tag, bare.trunks, bare.vlan_mode) == (None, frozenset(), None)
    wish = Uplink("eth1", ("eth1",), vlans=VlanSet.of([5]), native_vlan=7)
    native = put_uplink(machine(), "br", wish).bridges["br"].ports["eth1"]
    assert (native.tag, native.trunks, native.vlan_mode) == (7, frozenset({5}), "native-untagged")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        (Link("nic", addresses=frozenset({"192.0.2.1/24"})), "192.0.2.1/24"),
        (Link("nic", dynamic=("192.0.2.2/24",)), "192.0.2.2/24"),
        (Link("nic", addresses=frozenset({"2001:db8::1/64"})), "2001:db8::1/64"),
        (Link("nic", routes=("default via 192.0.2.254",)), "default via 192.0.2.254"),
        (Link("nic", master="bond0"), "bond0"),
        (Link("nic", children=("nic.5", "nic.6")), "nic.5, nic.6"),
    ],
)
def test_a_nic_in_use_is_refused_alone_and_in_a_bond(link: Link, words: str) -> None:
    state = machine(nic=link)
    for uplink in (Uplink("nic", ("nic",)), Uplink("b0", ("eth1", "nic")), Uplink("nic", ("nic",), move=True)):
        with pytest.raises(RefusedError) as caught:
            put_uplink(state, "br", uplink)
        assert words in caught.value.message


def test_moving_the_nodes_own_nic_is_pointed_elsewhere() -> None:
    with pytest.raises(RefusedError, match="another NIC"):
        check_nic(machine(eth0=Link("eth0", addresses=frozenset({"192.0.2.1/24"}))), "eth0")


@pytest.mark.parametrize(
    ("first", "second", "more", "loop"),
    [
        ("1-10", "10-20", {}, "VLANs 10"),
        (None, "5", {}, "VLANs 5"),
        ("1-9", "10-20", {}, ""),
        ("1-10", "10-20", {"rstp": True}, ""),
    ],
)
def test_two_ways_to_one_switch_are_warned_of(first: str | None, second: str, more: dict[str, Any], loop: str) -> None:
    uplinks = [{"name": "eth1", "vlans": first}, {"name": "eth2", "vlans": second}]
    said = warnings_of(Node.parse({"bridges": [{"name": "b", "uplinks": uplinks, **more}]}))
    assert [loop in text and "frames circle" in text for text in said] == ([True] if loop else [])


def test_a_nic_that_is_not_there_or_elsewhere() -> None:
    state = put_uplink(put_bridge(machine(), Bridge("other")), "other", Uplink("eth2", ("eth2",)))
    with pytest.raises(ConfigError, match="this node has: eth1, eth2, eth3"):
        check_nic(state, "eth9")
    for uplink in (Uplink("eth2", ("eth2",)), Uplink("b0", ("eth1", "eth2"))):
        with pytest.raises(RefusedError, match="other"):
            put_uplink(state, "br", uplink)
    with pytest.raises(ConfigError, match="this node has: br, other"):
        put_uplink(state, "none", Uplink("eth1", ("eth1",)))


def test_a_bridge_with_strangers_goes_only_by_force() -> None:
    pod = PortRow("pn1", (InterfaceRow("pn1"),), external_ids=Mark("podnet-ovs", container_id="c").to_external_ids())
    state = machine().with_port("br", pod).with_port("br", PortRow("vm1", (InterfaceRow("vm1"),)))
    with pytest.raises(RefusedError, match="pn1, vm1"):
        drop_bridge(state, "br")
    with pytest.raises(RefusedError, match="pn1, vm1"):
        node_state(state, Node(), None, Options(purge=True))
    assert not drop_bridge(state, "br", force=True).bridges
    assert drop_bridge(state, "none") is state
    assert not drop_bridge(put_uplink(machine(), "br", Uplink("eth1", ("eth1",))), "br").bridges


def test_a_row_of_a_newer_release_is_left_alone() -> None:
    ids = {"podnet_owner": OWNER_NODE, "podnet_schema": "2"}
    state = State(bridges={"br": BridgeRow("br", external_ids=ids)})
    with pytest.raises(PodnetError, match="newer release"):
        put_bridge(state, Bridge("br"))


def test_given_up_keys_go_and_the_keys_of_others_stay() -> None:
    old = Bridge("br", other_config={"a": "1", "b": "1"}, mac="02:00:00:00:00:01", mtu=1400, external_ids={"x": "1"})
    state = put_bridge(State(), old)
    row = state.bridges["br"]
    state = state.with_bridge(replace(row, other_config={**row.other_config, "theirs": "1"}))
    row = put_bridge(state, Bridge("br", other_config={"b": "2"}), old).bridges["br"]
    assert row.other_config == {"b": "2", "theirs": "1"} and "x" not in row.external_ids
    assert row.ports["br"].interfaces[0].mtu_request is None
    kept = put_bridge(state, Bridge("br", other_config={"b": "2"})).bridges["br"]
    assert kept.other_config == {"a": "1", "b": "2", "hwaddr": "02:00:00:00:00:01", "theirs": "1"}
    assert kept.ports["br"].interfaces[0].mtu_request == 1400


def test_findings() -> None:
    node = Node.parse(
        {
            "bridges": [{"name": "br", "uplinks": [{"name": "eth1", "vlans": 5}]}],
            "networks": [{"name": "n", "bridge": "br", "vlan": 6}],
        }
    )
    state = node_state(State(links={"eth1": Link("eth1")}), node)
    healthy = state.with_bridge(replace(state.bridges["br"], datapath_id="1")).with_link(Link("br"))
    assert findings_of(healthy, node) == ("network n is on VLAN 6 of br, which none of its uplinks carries",)
    assert findings_of(healthy) == ()
    port = healthy.bridges["br"].ports["eth1"]
    broken = healthy.with_port("br", replace(port, interfaces=(replace(port.interfaces[0], error="no such device"),)))
    broken = broken.with_link(Link("eth1", addresses=frozenset({"10.0.0.1/24"})))
    found = "\n".join(findings_of(broken.with_bridge(replace(broken.bridges["br"], datapath_id="")), node))
    for words in ("no datapath", "no such device", "br is down", "carries addresses", "asks for link eth1"):
        assert words in found
