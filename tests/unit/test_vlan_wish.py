# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `podnet-vlan` reads from a configuration, the parents and names that follow, the policy for the node's links."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach.vlan_parent import parent_of, planned
from ansible_collections.podnet.ovs.plugins.module_utils.attach.vlan_wish import (
    VlanWish,
    mark_of,
    names_of,
    parse_vlan_wish,
    refuse_closed_master,
)
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import (
    VALID_ATTACHMENTS,
    NetConf,
    expanded,
    parse_netconf,
    valid_attachments,
)
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import Request
from ansible_collections.podnet.ovs.plugins.module_utils.cni.result import Interface, Result
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.vlanlinks import Link, NewVlan
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node

NETNS = "/run/netns/p1"
HOST_LOCAL = {"type": "host-local", "ranges": []}
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}
ETH0 = Link(2, "eth0", "veth", mtu=1500, mac="02:00:00:00:00:01", up=True, elsewhere=True)
VETH = Interface("veth1234", "02:00:00:00:00:aa")
"""The node's end, which a result has before the pod's."""


def lease_names(made: VlanWish) -> list[str]:
    """The names by which IPAM plugins know them."""
    return [item.key for item in made.vlans]


def request(ifname: str = "eth0", namespace: str = "default") -> Request:
    return Request("ADD", "c1", NETNS, ifname, {"K8S_POD_NAMESPACE": namespace}, ("/opt/cni/bin",))


def wish(ifname: str = "eth0", strict: bool = True, **keys: Any) -> VlanWish:
    """Reads a configuration that follows another plugin; a key that is None is left out."""
    raw = {"cniVersion": "1.0.0", "name": "net", "type": "podnet-vlan", "prevResult": PREVIOUS, **keys}
    raw = {key: value for key, value in raw.items() if value is not None}
    return parse_vlan_wish(parse_netconf(raw, b""), request(ifname), strict)


def refused(**keys: Any) -> PodnetError:
    with pytest.raises(PodnetError) as caught:
        wish(**keys)
    return caught.value


def vlan(index: int, name: str, parent: int, number: int, protocol: int = 0x8100, alias: str = "") -> Link:
    return Link(index, name, "vlan", parent, number, protocol, 1500, "02:00:00:00:00:01", True, alias)


def result(*names: str) -> Result:
    return Result((VETH, *(Interface(name, "", NETNS) for name in names)))


def plan(made: VlanWish, previous: Result, *links: Link, ifname: str = "eth0") -> list[NewVlan]:
    asked = request(ifname)
    return planned(made, asked, "net", previous, links, parent_of(made, asked, previous, links), False)


def test_one_vlan() -> None:
    made = wish(vlanId=3, ipam=HOST_LOCAL, mtu=1400, protocol="802.1ad")
    (only,) = made.vlans
    assert (only.vlan, only.protocol, only.name, only.key, only.mtu) == (3, 0x88A8, "", "eth0.3", 1400)
    assert only.ipam == HOST_LOCAL and (made.nested, made.master, made.on_host) == (False, "", False)


def test_a_list_of_vlans() -> None:
    entries = [
        {"id": 3, "ipam": HOST_LOCAL}, {"id": 4, "name": "storage", "mtu": 1000},
        {"id": 3, "protocol": "802.1ad", "name": "outer"},
    ]  # fmt: skip
    made = wish(vlans=entries)
    assert [(item.vlan, item.protocol, item.key, item.mtu) for item in made.vlans] == [
        (3, 0x8100, "eth0.3", None), (4, 0x8100, "storage", 1000), (3, 0x88A8, "outer", None),
    ]  # fmt: skip
    assert [item.ipam for item in made.vlans] == [HOST_LOCAL, {}, {}]


def test_a_configuration_of_the_reference_plugin_is_taken_as_it_is() -> None:
    keys: dict[str, Any] = {
        "master": "eth0",
        "vlanId": 5,
        "mtu": 1500,
        "linkInContainer": True,
        "ipam": HOST_LOCAL,
        "dns": {},
    }
    within = wish("net1", prevResult=None, **keys)
    assert (within.master, within.on_host, within.vlans[0].mtu) == ("eth0", False, 1500)
    assert wish("net1", prevResult=None, **{**keys, "linkInContainer": False}).on_host
    assert wish("net1", prevResult=None, **{**keys, "mtu": 0}).vlans[0].mtu is None


@pytest.mark.parametrize(
    ("keys", "code", "path", "hint"),
    [
        ({}, 7, "vlanId: neither", "vlans"),
        ({"vlanId": 0}, 7, "vlanId: 0 gives frames a priority", "1 to 4094"),
        ({"vlanId": 4095}, 7, "vlanId", "1 to 4094"),
        ({"vlanId": "3"}, 7, "vlanId", "without quotes"),
        ({"vlanId": True}, 7, "vlanId", "without quotes"),
        ({"vlanId": False}, 7, "vlanId", "without quotes"),
        ({"vlanId": 3, "vlans": [{"id": 4}]}, 7, "vlanId: both", "in vlans"),
        ({"vlans": []}, 7, "vlans: the list is empty", "at least one"),
        ({"vlans": [3]}, 7, "vlans[0]", '"id"'),
        ({"vlans": [{"id": 3}, {"id": 0}]}, 7, "vlans[1].id", "1 to 4094"),
        ({"vlans": [{"id": 3, "vlanId": 3}]}, 2, "vlans[0].vlanId", "known here"),
        ({"vlans": [{"id": 3, "mut": 1400}]}, 2, "vlans[0].mut", "mtu"),
        ({"vlans": [{"id": 3}, {"id": 3}]}, 7, "vlans[1].id: VLAN 3 is there already: vlans[0].id", "once"),
        ({"vlans": [{"id": 3}, {"id": 3, "protocol": "802.1ad"}]}, 7, "vlans[1].id: vlans[0].id has the name", "own"),
        ({"vlans": [{"id": 3, "name": "a"}, {"id": 4, "name": "a"}]}, 7, "vlans[1].id: vlans[0].id has the name a", ""),
        ({"vlans": [{"id": 3}], "ipam": HOST_LOCAL}, 7, "ipam: it is given beside vlans", "its own"),
        ({"vlans": [{"id": 3}], "mtu": 1400}, 7, "mtu: it is given beside vlans", "its own"),
        ({"vlans": [{"id": 3, "ipam": {"type": "podnet-vlan"}}]}, 7, "vlans[0].ipam.type", "host-local"),
        ({"vlans": [{"id": 3, "ipam": {"type": "../x"}}]}, 7, "vlans[0].ipam.type", "CNI_PATH"),
        ({"vlans": [{"id": 3, "name": "a/b"}]}, 7, "vlans[0].name", "no space"),
        ({"vlanId": 3, "parent": "bottom"}, 7, "parent", "base, previous"),
        ({"vlanId": 3, "protocol": "QinQ"}, 7, "protocol", "802.1ad"),
        ({"vlanId": 3, "mtu": 20}, 7, "mtu", "68"),
        ({"vlanId": 3, "mtu": False}, 7, "mtu", "68"),
        ({"vlanId": 3, "linkInContainer": "yes"}, 7, "linkInContainer", "without quotes"),
        ({"vlanId": 3, "master": 7}, 7, "master", "eth0"),
        ({"vlanId": 3, "prevResult": None}, 7, "master: it is not given", "podnet-adopt"),
        ({"vlanid": 3}, 2, "vlanid", "vlanId"),
        ({"vlanId": 3, "runtimeConfig": {"bandwidth": {"ingressRate": 1}}}, 7, "runtimeConfig.bandwidth", "mac"),
        ({"vlanId": 3, "runtimeConfig": {"ips": ["10.0.0.1/24"]}}, 7, "runtimeConfig.ips", "ipam"),
        ({"vlans": [{"id": 3}, {"id": 4}], "runtimeConfig": {"mac": "02:00:00:00:00:09"}}, 7, "runtimeConfig.mac", ""),
    ],
)  # fmt: skip
def test_bad_input_names_the_key_and_the_way_out(keys: dict[str, Any], code: int, path: str, hint: str) -> None:
    error = refused(**keys)
    assert error.code == code and error.message.startswith(path) and hint in error.hint, error


def test_addresses_and_a_mac_that_the_runtime_asks_for() -> None:
    runtime = {"mac": "02:00:00:00:00:09", "ips": ["10.0.0.1/24"]}
    assert wish(vlanId=3, ipam=HOST_LOCAL, runtimeConfig=runtime).mac == "02:00:00:00:00:09"
    assert wish(vlans=[{"id": 3, "ipam": HOST_LOCAL}], runtimeConfig=runtime).mac == "02:00:00:00:00:09"


def test_several_vlans_do_not_share_one_ipam_key() -> None:
    assert lease_names(wish(vlans=[{"id": 3}, {"id": 4}])) == ["eth0.3", "eth0.4"]
    assert lease_names(wish(vlans=[{"id": 3}, {"id": 3}, {"id": 4}], parent="previous")) == [
        "eth0.p3", "eth0.p3.3", "eth0.p3.3.4",
    ]  # fmt: skip
    assert lease_names(wish(vlanId=3, parent="previous")) == ["eth0.p3"]
    assert lease_names(wish("net1", vlanId=3)) == ["net1.3"]


def test_a_key_for_ipam_that_is_too_long_is_refused_and_needs_no_release() -> None:
    keys: dict[str, Any] = {"ifname": "podnet-storage", "vlanId": 4094, "ipam": HOST_LOCAL}
    error = refused(**keys)
    assert error.code == 7 and "podnet-storage.4094" in error.message and '"name"' in error.hint
    assert wish(strict=False, **keys).vlans[0].ipam == {}
    assert wish(**{**keys, "ipam": None}).vlans[0].key == "podnet-storage.4094", "nobody hears of it"


@given(
    st.lists(st.tuples(st.integers(1, 4094), st.sampled_from(["802.1q", "802.1ad"])), min_size=1, max_size=6),
    st.booleans(),
)
def test_no_two_vlans_of_a_configuration_have_one_key_or_one_mark(ids: list[tuple[int, str]], nested: bool) -> None:
    try:
        made = wish(vlans=[{"id": i, "protocol": p} for i, p in ids], parent="previous" if nested else "base")
    except ConfigError:
        assert not nested and len({i for i, _p in ids}) < len(ids)
        return
    keys = lease_names(made)
    assert len(set(keys)) == len(ids) == len({mark_of("net", "eth0", key) for key in keys})


def test_what_add_refuses_another_verb_passes_over() -> None:
    made = wish(strict=False, vlans=[{"id": 3, "mut": 1}, {"id": 4}], vlna=1, prevResult=None)
    assert lease_names(made) == ["eth0.3", "eth0.4"]


# Parents and names


def test_the_parent_is_the_interface_that_the_runtime_named() -> None:
    links = [ETH0, Link(3, "net1", up=True, mtu=1500)]
    assert parent_of(wish(vlanId=3), request(), result("net1", "eth0"), links) == ETH0
    assert parent_of(wish("other", vlanId=3), request("other"), result("eth0"), links) == ETH0, "the only one"
    assert parent_of(wish(vlanId=3, master="net1"), request(), result("eth0"), links).name == "net1"


def test_vlans_stand_side_by_side_by_default_and_nested_when_told() -> None:
    links = [ETH0, vlan(3, "eth0.3", 2, 3)]
    previous = result("eth0", "eth0.3")
    assert parent_of(wish(vlanId=4), request(), previous, links).name == "eth0"
    assert parent_of(wish(vlanId=4, parent="previous"), request(), previous, links).name == "eth0.3"


def test_behind_an_adopted_interface_the_second_vlan_is_beside_the_first() -> None:
    links = [ETH0, vlan(3, "net1", 2, 3)]
    made = wish("net1", vlanId=4)
    (new,) = plan(made, result("eth0", "net1"), *links, ifname="net1")
    assert (new.name, new.parent) == ("eth0.4", 2)


def test_a_vlan_that_was_there_before_the_list_is_a_parent_like_any_other() -> None:
    """An adopted VLAN interface, whose own parent is none of this list's."""
    links = [ETH0, vlan(3, "eth0.3", 2, 3)]
    assert parent_of(wish("net1", vlanId=4), request("net1"), result("eth0.3"), links).name == "eth0.3"


@pytest.mark.parametrize(
    ("keys", "previous", "words"),
    [
        ({"master": "eth7"}, result("eth0"), ["master: eth7", "eth0"]),
        ({}, Result((VETH,)), ["master: it is not given", "eth0"]),
        ({}, result("a", "b"), ["master: it is not given", "a, b", "eth0"]),
        ({}, result("eth9"), ["master: eth9", "prevResult"]),
    ],
)
def test_a_missing_master_is_named(keys: dict[str, Any], previous: Result, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        parent_of(wish(vlanId=3, **keys), request(), previous, [ETH0])
    assert caught.value.code == 7
    for word in words:
        assert word in str(caught.value)


def test_names_of_links() -> None:
    assert [item.name for item in plan(wish(vlanId=3), result("eth0"), ETH0)] == ["eth0.3"]
    main = wish("net1", vlanId=3)
    assert [item.name for item in plan(main, result("eth0"), ETH0, ifname="net1")] == ["net1"], "none is called so"
    several = wish("net1", vlans=[{"id": 3}, {"id": 4, "name": "x"}])
    assert [item.name for item in plan(several, result("eth0"), ETH0, ifname="net1")] == ["eth0.3", "x"]
    nested = wish(vlans=[{"id": 3, "protocol": "802.1ad"}, {"id": 4}], parent="previous")
    assert [(i.name, i.parent, i.protocol) for i in plan(nested, result("eth0"), ETH0)] == [
        ("eth0.3", 2, 0x88A8), ("eth0.3.4", "eth0.3", 0x8100),
    ]  # fmt: skip


def test_a_name_that_does_not_fit_is_not_cut() -> None:
    long = Link(2, "podnet-storage", mtu=1500, up=True)
    with pytest.raises(ConfigError, match=r"podnet-storage\.100") as caught:
        plan(wish("podnet-storage", vlanId=100), result("podnet-storage"), long, ifname="podnet-storage")
    assert '"name"' in caught.value.hint


def test_a_name_that_is_taken() -> None:
    with pytest.raises(PodnetError, match=r"eth0\.3 already"):
        plan(wish(vlanId=3), result("eth0"), ETH0, Link(9, "eth0.3"))


@pytest.mark.parametrize("name", ["eth0.3", "whatever"])
def test_the_same_vlan_on_one_parent_says_so(name: str) -> None:
    there = vlan(3, name, 2, 3)
    with pytest.raises(PodnetError) as caught:
        plan(wish(vlans=[{"id": 3, "name": "mine"}]), result("eth0"), ETH0, there)
    assert f"eth0 has VLAN 3 already, as {name}" in caught.value.message and caught.value.code == 7
    (made,) = plan(wish(vlans=[{"id": 3, "name": "mine", "protocol": "802.1ad"}]), result("eth0"), ETH0, there)
    assert made.protocol == 0x88A8, "of another protocol it is another VLAN"


def test_two_plugins_of_one_list_with_one_key() -> None:
    """Without a name of its own the second's link and lease could not be told from the first's."""
    first = vlan(3, "eth0.3", 2, 3, 0x88A8, mark_of("net", "eth0", "eth0.3"))
    with pytest.raises(PodnetError, match=r"eth0\.3 already") as caught:
        plan(wish(vlanId=3), result("eth0"), ETH0, first)
    assert "name" in caught.value.hint


def test_an_mtu_above_the_parents_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^mtu: 1501 bytes are more than the 1500 of the parent eth0"):
        plan(wish(vlanId=3, mtu=1501), result("eth0"), ETH0)
    entries = [{"id": 3, "mtu": 1400}, {"id": 4, "mtu": 1450}]
    with pytest.raises(ConfigError, match=r"^vlans\[1\].mtu: 1450 bytes are more than the 1400 of the parent eth0.3"):
        plan(wish(vlans=entries, parent="previous"), result("eth0"), ETH0)
    assert [item.mtu for item in plan(wish(vlans=entries), result("eth0"), ETH0)] == [1400, 1450]
    assert [item.mtu for item in plan(wish(vlanId=3), result("eth0"), ETH0)] == [1500]


# The node's own interfaces


def host_wish(*ids: int, **keys: Any) -> VlanWish:
    return wish(prevResult=None, master="eth1", vlans=[{"id": number} for number in ids], **keys)


def node(*policy: dict[str, Any]) -> Node:
    return Node.parse({"bridges": [{"name": "br-pod"}], "policy": list(policy)})


def test_an_interface_of_the_node_is_closed_until_a_rule_opens_it() -> None:
    with pytest.raises(PodnetError) as caught:
        refuse_closed_master(host_wish(3), request(), node({"bridge": "br-pod", "vlans": "1-4094", "untagged": True}))
    assert caught.value.code == 7 and "VLAN 3" in caught.value.message and "eth1" in caught.value.message
    assert "podnet_policy" in caught.value.hint and "interface: eth1" in caught.value.hint
    refuse_closed_master(host_wish(3), request(), node({"interface": "eth1", "vlans": "3"}))


@pytest.mark.parametrize(
    "rule",
    [
        {"interface": "eth1", "vlans": "4"},
        {"interface": "eth2", "vlans": "3"},
        {"interface": "eth1", "vlans": "3", "namespaces": ["shop"]},
        {"interface": "eth1"},
    ],
)
def test_a_rule_for_another_interface_vlan_or_namespace_opens_nothing(rule: dict[str, Any]) -> None:
    with pytest.raises(PodnetError, match="VLAN 3"):
        refuse_closed_master(host_wish(3), request(), node(rule))


def test_all_vlans_beside_each_other_are_asked_for_and_of_nested_ones_the_outer() -> None:
    open_3 = node({"interface": "eth1", "vlans": "3"})
    with pytest.raises(PodnetError, match="VLAN 4 "):
        refuse_closed_master(host_wish(3, 4), request(), open_3)
    refuse_closed_master(host_wish(3, 4, parent="previous"), request(), open_3)


def test_a_rule_is_for_a_bridge_or_an_interface() -> None:
    for rule, key in (
        ({"interface": "eth1", "bridge": "br-pod"}, "policy[0].bridge"),
        ({"interface": "eth1", "untagged": True}, "policy[0].untagged"),
        ({"interface": "eth1", "spoof_check": True}, "policy[0].spoof_check"),
        ({"vlans": "3"}, "policy[0].bridge"),
        ({"interface": "eth 1"}, "policy[0].interface"),
    ):
        with pytest.raises(ConfigError) as caught:
            node(rule)
        assert caught.value.path == key
    with pytest.raises(ConfigError, match="neither bridge nor interface"):
        node({"routed": True})
    kept = node({"interface": "eth1", "vlans": "3-5"}, {"bridge": "br-pod", "vlans": "7"})
    assert Node.from_json(kept.to_json()) == kept
    assert not kept.open_vlans("eth1", "default"), "an interface is no bridge"


# GC


def names_with(conf: NetConf, _container: str, ifname: str) -> list[str]:
    return names_of(conf, Request("GC"), ifname)


def test_gc_lists_every_name_of_a_live_attachment() -> None:
    pairs = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "net1"}]
    for key in VALID_ATTACHMENTS:
        raw = {"name": "net", "type": "podnet-vlan", "vlans": [{"id": 3}, {"id": 4, "name": "st"}], key: pairs}
        conf = parse_netconf(raw, b"")
        full = expanded(raw, partial(names_with, conf))
        assert valid_attachments(full) == frozenset({
            ("c1", "eth0"), ("c1", "eth0.3"), ("c1", "st"), ("c2", "net1"), ("c2", "net1.3"), ("c2", "st"),
        })  # fmt: skip
        assert {**full, key: pairs} == raw, "the rest stays as it is"


def test_gc_without_a_list_stays_without_one_and_an_empty_one_stays_empty() -> None:
    assert expanded({"name": "net"}, lambda cid, name: [name + ".3"]) == {"name": "net"}
    assert expanded({"cni.dev/attachments": []}, lambda cid, name: ["x"]) == {"cni.dev/attachments": []}
    assert valid_attachments(expanded({"cni.dev/valid-attachments": None}, lambda cid, name: ["x"])) == frozenset()
