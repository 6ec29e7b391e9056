# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The filters: thin, so only that they reach the model, say what is wrong in one line, and render what they should."""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible.errors import AnsibleFilterError

from ansible_collections.podnet.ovs.plugins.filter.merge_layers import merge_layers
from ansible_collections.podnet.ovs.plugins.filter.to_nad import to_nad
from ansible_collections.podnet.ovs.plugins.filter.vlan_compress import vlan_compress
from ansible_collections.podnet.ovs.plugins.filter.vlan_expand import vlan_expand

FLEET: dict[str, Any] = {
    "bridges": [{"name": "br-pod", "uplinks": [{"name": "eth1", "vlans": "100,200"}]}],
    "networks": [{"name": "a", "bridge": "br-pod", "vlan": 100}, {"name": "b", "bridge": "br-pod", "vlan": 200}],
}


def test_a_higher_layer_changes_what_it_names() -> None:
    host = {"bridges": [{"name": "br-pod", "uplinks": [{"name": "eth1", "mtu": 9000}]}]}
    merged = merge_layers([FLEET, {}, host])
    assert merged["bridges"] == [{"name": "br-pod", "uplinks": [{"name": "eth1", "vlans": "100,200", "mtu": 9000}]}]


def test_absent_removes() -> None:
    merged = merge_layers([FLEET, {"networks": [{"name": "b", "state": "absent"}]}])
    assert [network["name"] for network in merged["networks"]] == ["a"]


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        ({"networks": [{"name": "c", "bridge": "br-pd", "vlan": 300}]}, ["networks[2].bridge", "br-pd", "br-pod"]),
        ({"bridges": [{"name": "br-pod", "uplnks": []}]}, ["bridges[0]", "uplnks", "uplinks"]),
        ({"networks": [{"name": "a", "vlan": 4095}]}, ["networks[0].vlan", "4095"]),
    ],
)
def test_a_bad_value_is_named_by_its_path(layer: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(AnsibleFilterError) as caught:
        merge_layers([FLEET, layer])
    assert all(word in str(caught.value) for word in words), str(caught.value)


def test_a_network_becomes_a_manifest_for_each_namespace() -> None:
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.10.0.0/24"}]]}
    network = {
        "name": "tenant-a",
        "bridge": "br-pod",
        "vlan": 100,
        "mtu": 1450,
        "ipam": ipam,
        "namespaces": ["team-b", "team-a"],
        "annotations": {"example.org/owner": "a"},
    }
    nads = to_nad([network])
    assert [nad["metadata"]["namespace"] for nad in nads] == ["team-b", "team-a"]
    nad = nads[0]
    assert (nad["apiVersion"], nad["kind"]) == ("k8s.cni.cncf.io/v1", "NetworkAttachmentDefinition")
    assert nad["metadata"]["annotations"] == {"example.org/owner": "a"}
    assert json.loads(nad["spec"]["config"]) == {
        "cniVersion": "1.0.0",
        "name": "tenant-a",
        "plugins": [{"type": "podnet-ovs", "bridge": "br-pod", "vlan": 100, "mtu": 1450, "ipam": ipam}],
    }


def test_a_network_without_namespaces_is_in_default() -> None:
    (nad,) = to_nad([{"name": "flat", "bridge": "br-pod", "untagged": True}])
    assert nad["metadata"] == {"name": "flat", "namespace": "default"}
    (plugin,) = json.loads(nad["spec"]["config"])["plugins"]
    assert plugin == {"type": "podnet-ovs", "bridge": "br-pod", "untagged": True}


def test_plugins_that_follow_in_the_list() -> None:
    chain = [{"type": "podnet-vlan", "vlanId": 3}, {"type": "tuning", "sysctl": {"net.core.somaxconn": "500"}}]
    (nad,) = to_nad([{"name": "a", "bridge": "br-pod", "trunk": "3", "chain": chain}])
    assert json.loads(nad["spec"]["config"])["plugins"][1:] == chain
    wrong: list[Any] = ["tuning", {"sysctl": {}}, {"type": "/bin/sh"}]
    for bad in wrong:
        with pytest.raises(AnsibleFilterError, match=r"networks\[0\]\.chain\[0\]"):
            to_nad([{"name": "a", "bridge": "br-pod", "vlan": 3, "chain": [bad]}])


def test_vlan_interfaces_in_the_pods_of_a_trunk() -> None:
    entries = [{"vlan": [{"minID": 10, "maxID": 12}]}, {"vlan": 20, "mtu": "1400", "ipam": {"type": "static"}}]
    (nad,) = to_nad([{"name": "a", "bridge": "br-pod", "trunk": "10-20", "subinterfaces": entries}])
    (plugin,) = json.loads(nad["spec"]["config"])["plugins"]
    assert plugin["subinterfaces"] == [
        {"vlan": "10-12"}, {"vlan": "20", "mtu": 1400, "ipam": {"type": "static"}},
    ]  # fmt: skip
    wrong: list[Any] = [
        {"vlan": 30},
        {"vlans": 10},
        {},
        7,
        {"vlan": 10, "protocol": "802.1x"},
        {"vlan": 10, "ipam": {"a": 1}},
    ]
    for bad in wrong:
        with pytest.raises(AnsibleFilterError, match=r"networks\[0\]\.subinterfaces\[0\]"):
            to_nad([{"name": "a", "bridge": "br-pod", "trunk": "10-20", "subinterfaces": [bad]}])
    with pytest.raises(AnsibleFilterError, match="an access port"):
        to_nad([{"name": "a", "bridge": "br-pod", "vlan": 10, "subinterfaces": [{"vlan": 10}]}])


def test_a_manifest_is_the_same_each_time() -> None:
    assert json.dumps(to_nad(FLEET["networks"])) == json.dumps(to_nad(FLEET["networks"][:]))


def test_a_bad_network_is_named_by_its_path() -> None:
    with pytest.raises(AnsibleFilterError, match=r"networks\[0\]\.vlan"):
        to_nad([{"name": "a", "bridge": "br-pod"}])


@pytest.mark.parametrize("form", [[22, 10, 20, 21], "10,20-22", [{"id": 10}, {"minID": 20, "maxID": 22}]])
def test_vlan_sets(form: Any) -> None:
    assert vlan_expand(form) == [10, 20, 21, 22]
    assert vlan_compress(form) == "10,20-22"


@pytest.mark.parametrize("vlan_filter", [vlan_expand, vlan_compress])
def test_what_is_no_vlan_set(vlan_filter: Any) -> None:
    with pytest.raises(AnsibleFilterError, match="0 is out of range"):
        vlan_filter("0")
