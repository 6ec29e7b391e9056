# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The model: VLAN sets, names, nodes, layers."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.errors import (
    ConfigError,
    DecodeError,
    OvsdbError,
    UnsupportedField,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.layers import merge_layers
from ansible_collections.podnet.ovs.plugins.module_utils.model.names import (
    nearest,
    parse_address,
    parse_ifname,
    parse_mac,
    refuse_unknown_keys,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node, Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_OVS, Mark, foreign
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet, collapse, parse_vlan_id
from ansible_collections.podnet.ovs.tests.unit.strategies import nodes, vlan_ids

# VLAN sets


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (100, "100"),
        ("100", "100"),
        ("10,20-30", "10,20-30"),
        (" 10 , 20 - 30 ", "10,20-30"),
        ("30,10-12,11-20", "10-20,30"),
        ([100, "20-30", {"id": 5}, {"minID": 1, "maxID": 3}], "1-3,5,20-30,100"),
        ([], ""),
        ("", ""),
        ([[1], [2, [4]]], "1-2,4"),
        ("1-4094", "1-4094"),
        ({"id": 7}, "7"),
    ],
)
def test_vlan_forms(value: object, text: str) -> None:
    assert str(VlanSet.parse(value)) == text


@pytest.mark.parametrize(
    ("value", "place", "words"),
    [
        (0, "vlans", "out of range"),
        (4095, "vlans", "out of range"),
        ("4095", "vlans", "out of range"),
        (-1, "vlans", "out of range"),
        ("-1", "vlans", "neither"),
        (True, "vlans", "whole number"),
        (1.0, "vlans", "whole number"),
        (None, "vlans", "whole number"),
        ("all", "vlans", "neither"),
        ("1,,2", "vlans", "neither"),
        ("30-20", "vlans", "backwards"),
        ("1-2-3", "vlans", "neither"),
        ("١", "vlans", "neither"),
        ([1, "x"], "vlans[1]", "neither"),
        ([{"id": "5"}], "vlans[0].id", "whole number"),
        ([{"minID": 5, "maxID": 3}], "vlans[0]", "backwards"),
        ([{"minID": 5}], "vlans[0]", "minID and maxID"),
        ([{"id": 5, "maxID": 3}], "vlans[0]", "minID and maxID"),
    ],
)
def test_vlan_bad_forms(value: object, place: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        VlanSet.parse(value)
    assert caught.value.path == place and caught.value.code == 7


@pytest.mark.parametrize("value", ["100", True, 100.0, None, 0, 4095])
def test_a_json_vlan_id_is_strict(value: object) -> None:
    with pytest.raises(ConfigError):
        parse_vlan_id(value, "vlan")


@given(st.sets(vlan_ids), st.sets(vlan_ids))
def test_a_vlan_set_is_a_set(left: set[int], right: set[int]) -> None:
    a, b = VlanSet.of(left), VlanSet.of(right)
    assert list(a) == sorted(left) and len(a) == len(left)
    assert set(a | b) == left | right and set(a - b) == left - right and set(a & b) == left & right
    assert (a <= b) == (left <= right)
    assert (a == b) == (left == right) and (hash(a) == hash(b) or left != right)
    assert VlanSet.parse(str(a)) == a == VlanSet.parse(a.to_trunk()) == VlanSet.parse(list(a))
    assert all((number in a) == (number in left) for number in left | right)
    assert collapse(left) == str(a)


# names


@pytest.mark.parametrize("name", ["eth0", "a" * 15, "bond0.100", "ö"])
def test_ifname(name: str) -> None:
    assert parse_ifname(name, "p") == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "a" * 16,
        "ö" * 8,
        ".",
        "..",
        "a b",
        "a/b",
        "a:b",
        "a\n",
        None,
        5,
        "a\x00",
        "a%d",
        "all",
        "default",
        "ovs-system",
    ],
)
def test_bad_ifname(name: object) -> None:
    with pytest.raises(ConfigError):
        parse_ifname(name, "p")


def test_mac() -> None:
    assert parse_mac("02-00-5E-10-00-01", "p") == "02:00:5e:10:00:01"
    for bad in ("01:00:5e:00:00:01", "00:00:00:00:00:00", "02:00:5e:10:00", "0200.5e10.0001", 5, "02:00:5e:10:00:0g"):
        with pytest.raises(ConfigError):
            parse_mac(bad, "p")


def test_address() -> None:
    assert str(parse_address("10.0.0.1/24", "p")) == "10.0.0.1/24"
    assert str(parse_address("FD00::0001/64", "p")) == "fd00::1/64"
    for bad in ("10.0.0.1", "10.0.0.256/24", "10.0.0.1/33", "224.0.0.1/24", "::/0", "ff02::1/64", 5, "0.0.0.0/0"):
        with pytest.raises(ConfigError):
            parse_address(bad, "p")


def test_an_unknown_key_names_the_nearest() -> None:
    with pytest.raises(UnsupportedField, match="did you mean vlan") as caught:
        refuse_unknown_keys({"vlna": 1}, ["vlan", "bridge"], "network")
    assert caught.value.path == "network.vlna" and caught.value.code == 2
    with pytest.raises(UnsupportedField, match="known here: bridge, vlan"):
        refuse_unknown_keys({"xyz": 1}, ["vlan", "bridge"], "")
    assert nearest("Trunks", ["trunk", "vlan"]) == "trunk" and nearest("qq", ["trunk"]) is None


# the owner mark


@given(st.builds(Mark, owner=st.just(OWNER_OVS), container_id=st.text("abc"), ifname=st.just("net1"), mtu=st.none()))
def test_a_mark_reads_back(mark: Mark) -> None:
    ids = mark.to_external_ids()
    assert Mark.parse({**ids, "theirs": "1"}) == mark
    assert foreign({**ids, "theirs": "1"}) == {"theirs": "1"}


def test_marks_of_others_and_of_newer_releases() -> None:
    assert Mark.parse({"iface-id": "x"}) is None
    with pytest.raises(OvsdbError, match="newer release"):
        Mark.parse({"podnet_owner": "node", "podnet_schema": "2"})


# nodes

FULL: dict[str, Any] = {
    "bridges": [
        {
            "name": "br-pod",
            "uplinks": [
                {"name": "eth1", "vlans": "100,200,300"},
                {"name": "bond0", "nics": ["eth2", "eth3"], "bond_mode": "balance-tcp", "lacp": "active"},
            ],
            "interfaces": [{"name": "pods300", "vlan": 300, "addresses": ["10.30.0.11/24", "fd00:30::11/64"]}],
        }
    ],
    "networks": [
        {"name": "tenant-a", "bridge": "br-pod", "vlan": 100, "ipam": {"type": "host-local", "x": [{"y": 1}]}},
        {"name": "tenant-b", "bridge": "br-pod", "vlan": 200, "namespaces": ["team-b"]},
    ],
    "policy": [{"bridge": "br-pod", "vlans": "300-310", "namespaces": ["ops"], "untagged": True}],
}


@given(nodes())
def test_node_json_reads_back(node: Node) -> None:
    assert Node.from_json(node.to_json()) == node
    assert Node.from_json(node.to_json()).to_json() == node.to_json()


def test_a_node_as_declared() -> None:
    node = Node.parse(FULL)
    assert node.bridges[0].uplinks[0] == Uplink("eth1", ("eth1",), vlans=VlanSet.parse("100,200,300"))
    assert node.bridges[0].datapath_type == "system" and node.bridges[0].fail_mode == "standalone"
    assert json.loads(node.to_json())["schema"] == 1


def test_policy_opens_what_is_declared_and_nothing_else() -> None:
    node = Node.parse(FULL)
    one = VlanSet.parse
    assert node.permits("br-pod", "any", one(100)) and node.permits("br-pod", "team-b", one("100,200"))
    assert not node.permits("br-pod", "any", one(200)) and not node.permits("br-pod", "any", one("100,300"))
    assert not node.permits("br-pod", "any", one(100), untagged=True) and not node.permits("br-x", "any", one(100))
    assert node.permits("br-pod", "ops", one("100,300-310"), untagged=True)
    assert str(node.open_vlans("br-pod", "ops")) == "100,300-310" and not node.open_vlans("br-x", "ops")


def change(path: str, value: Any) -> dict[str, Any]:
    """FULL with one value set: `bridges.0.name`."""
    copy: Any = json.loads(json.dumps(FULL))
    *parents, last = (int(word) if word.isdigit() else word for word in path.split("."))
    place = copy
    for step in parents:
        place = place[step]
    place[last] = value
    return dict(copy)


@pytest.mark.parametrize(
    ("path", "value", "place", "words"),
    [
        ("bridges.0.uplnks", [], "bridges[0].uplnks", "did you mean uplinks"),
        ("bridges.0.name", "a-name-of-16-byt", "bridges[0].name", "at most 15"),
        ("bridges.0.uplinks.0.vlans", "", "bridges[0].uplinks[0].vlans", "leave the key away"),
        ("bridges.0.uplinks.0.vlans", [5, "7-x"], "bridges[0].uplinks[0].vlans[1]", "neither"),
        ("bridges.0.uplinks.0.lacp", "active", "bridges[0].uplinks[0].lacp", "only a bond"),
        ("bridges.0.uplinks.0.nics", ["eth9"], "bridges[0].uplinks[0].nics", "no bond"),
        ("bridges.0.uplinks.1.nics", ["eth2", "bond0"], "bridges[0].uplinks[1].name", "its own name"),
        ("bridges.0.uplinks.1.nics", ["eth2", "eth2"], "bridges[0].uplinks[1].nics", "twice"),
        ("bridges.0.uplinks.1.nics", ["eth1", "eth2"], "bridges[0].uplinks[1]", "there already"),
        ("bridges.0.uplinks.1.lacp", "off", "bridges[0].uplinks[1].lacp", "lacp: active"),
        ("bridges.0.uplinks.1.bond_mode", "lacp", "bridges[0].uplinks[1].bond_mode", "one of active-backup"),
        ("bridges.0.interfaces.0.addresses", ["10.0.0.1"], "bridges[0].interfaces[0].addresses[0]", "prefix length"),
        ("bridges.0.interfaces.0.addresses", ["fd00::1/64"] * 2, "bridges[0].interfaces[0].addresses", "twice"),
        ("bridges.0.interfaces.0.name", "eth1", "bridges[0].interfaces[0]", "there already"),
        ("bridges.0.interfaces.0.vlan", 0, "bridges[0].interfaces[0].vlan", "out of range"),
        ("bridges.0.interfaces.0.mtu", 9, "bridges[0].interfaces[0].mtu", "not an MTU"),
        ("bridges.0.vlan_limit", 3, "bridges[0].vlan_limit", "not a limit"),
        ("bridges.0.stp", "yes", "bridges[0].stp", "true or false"),
        ("bridges.0.other_config", {"a": [1]}, "bridges[0].other_config.a", "string"),
        ("bridges.0.external_ids", {"podnet_owner": "x"}, "bridges[0].external_ids.podnet_owner", "owner mark"),
        ("bridges", {"name": "x"}, "bridges", "a list"),
        ("bridges.0", "br-pod", "bridges[0]", "a map"),
        ("networks.0.bridge", "br-x", "networks[0].bridge", "declared are: br-pod"),
        ("policy.0.bridge", "br-x", "policy[0].bridge", "declared are: br-pod"),
        ("policy.0.namespaces", [], "policy[0].namespaces", "leave the key away"),
        ("networks.0.vlan", None, "networks[0].vlan", "untagged"),
        ("networks.0.untagged", True, "networks[0].vlan", "untagged"),
        ("networks.0.name", "Tenant_A", "networks[0].name", "RFC 1123"),
        ("networks.1.name", "tenant-a", "networks[1].name", "twice"),
        ("networks.0.namespaces", ["a.b"], "networks[0].namespaces[0]", "RFC 1123"),
        ("networks.0.ipam", {"ranges": []}, "networks[0].ipam.type", "host-local"),
        ("networks.0.cni_version", "2.0.0", "networks[0].cni_version", "one of"),
        ("ovsdb", "tcp:1.2.3.4:6640", "ovsdb", "unix socket"),
    ],
)
def test_bad_values_are_named_by_their_place(path: str, value: Any, place: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        Node.parse(change(path, value))
    assert caught.value.path == place and words in str(caught.value), caught.value


def test_a_limit_of_the_whole_switch_is_said_once() -> None:
    with pytest.raises(ConfigError, match="whole switch"):
        Node.parse({"bridges": [{"name": "a", "vlan_limit": 1}, {"name": "b", "vlan_limit": 2}]})


@pytest.mark.parametrize(
    "text",
    [
        "", "{", "[]", '{"bridges": []', "5", "[" * 100000, "\ufffd\ufffd",
        "{}", '{"schema": "1"}', '{"schema": true}', '{"schema": 1, "bridges": 5}', '{"schema": 1, "ovsdb": "tcp:x"}',
    ],
)  # fmt: skip
def test_a_file_that_is_no_node_json(text: str) -> None:
    with pytest.raises(DecodeError, match="run the role"):
        Node.from_json(text)


def test_keys_of_a_later_release_with_this_schema_are_passed_over() -> None:
    uplink = {"name": "eth1", "color": "red"}
    later = {"schema": 1, "zone": "a", "bridges": [{"name": "b", "speed": 1, "uplinks": [uplink]}]}
    assert Node.from_json(json.dumps(later)) == Node.parse({"bridges": [{"name": "b", "uplinks": [{"name": "eth1"}]}]})


@pytest.mark.parametrize("text", ['{"schema": 0}', '{"schema": 2}', '{"schema": 2, "bridges": 5}'])
def test_node_json_of_another_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="schema"):
        Node.from_json(text)


# layers


def test_three_layers() -> None:
    fleet = {
        "bridges": [{"name": "br-pod", "fail_mode": "secure", "uplinks": [{"name": "eth1", "vlans": "100,200"}]}],
        "networks": [{"name": "a", "bridge": "br-pod", "vlan": 100}, {"name": "b", "bridge": "br-pod", "vlan": 200}],
    }
    site = {"bridges": [{"name": "br-pod", "uplinks": [{"name": "eth1", "vlans": [300]}], "stp": True}]}
    host = {
        "bridges": [
            {"name": "br-pod", "fail_mode": None, "uplinks": [{"name": "eth1", "state": "absent"}, {"name": "eth5"}]},
            {"name": "br-two", "other_config": {"x": "1"}},
        ],
        "networks": [{"name": "b", "state": "absent"}, {"name": "a", "namespaces": ["n"]}],
    }
    merged = merge_layers(fleet, site, host)
    assert merged == {
        "bridges": [
            {"name": "br-pod", "fail_mode": "secure", "uplinks": [{"name": "eth5"}], "stp": True},
            {"name": "br-two", "other_config": {"x": "1"}},
        ],
        "networks": [{"name": "a", "bridge": "br-pod", "vlan": 100, "namespaces": ["n"]}],
    }


def test_a_removed_thing_begins_afresh_above() -> None:
    low = {"bridges": [{"name": "b", "stp": True}]}
    gone = {"bridges": [{"name": "b", "state": "absent"}]}
    assert merge_layers(low, gone) == {"bridges": []}
    assert merge_layers(low, gone, {"bridges": [{"name": "b", "rstp": True}]}) == {
        "bridges": [{"name": "b", "rstp": True}]
    }


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([{"bridges": [{"name": "b", "uplnks": []}]}], "bridges[0].uplnks"),
        ([{"bridges": []}, {"networks": [{"name": "n", "bridge": "b", "vlan": 1}]}], "networks[0].bridge"),
        ([{"bridges": [{"name": "b"}, {"name": "b"}]}], "twice in one layer"),
        ([{"bridges": [{"name": "b", "state": "gone"}]}], "state"),
        ([[]], "a layer is a map"),
        ([{"bridgse": []}], "did you mean bridges"),
        ([{"bridges": [{"name": ["b"]}]}, {"bridges": []}], "bridges[0].name"),
        ([{"bridges": {"name": "b"}}, {"bridges": []}], "bridges: a list"),
        ([{"networks": ["n"]}, {"networks": []}], "networks[0]: a map"),
        ([{"bridges": [{"nmae": "b"}]}, {"bridges": []}], "bridges[0].name"),
        (
            [{"bridges": [{"name": "b", "uplinks": "eth1"}]}, {"bridges": [{"name": "b", "uplinks": []}]}],
            "uplinks: a list",
        ),
        ([{"bridges": [{"name": "b"}]}, {"bridges": [{"name": {}}]}], "bridges[0].name"),
    ],
)
def test_bad_layers(layers: list[Any], words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        merge_layers(*layers)
    assert words in str(caught.value)


@given(nodes())
def test_merging_is_idempotent_and_empty_layers_change_nothing(node: Node) -> None:
    layer = json.loads(node.to_json())
    del layer["schema"]
    once = merge_layers(layer)
    assert Node.parse(once) == node
    assert merge_layers(once) == once == merge_layers(layer, layer) == merge_layers({}, layer, {}, {"bridges": []})
