# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `subinterfaces` of `podnet-ovs`: what it may say, which VLANs a port passes tagged, what a port records."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach import subinterfaces
from ansible_collections.podnet.ovs.plugins.module_utils.attach.call import Call, Means, Steps
from ansible_collections.podnet.ovs.plugins.module_utils.attach.subinterface_wish import (
    parse_subinterfaces,
    refuse_unfit,
)
from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import parse_wish
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import parse_netconf, valid_attachments
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import Request
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import KEY_SUBINTERFACES, OWNER_OVS, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.port import parse_port
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet

IPAM = {"type": "host-local"}


def nothing(*_words: object) -> Any:
    """What these calls do not use."""
    raise AssertionError


def call(raw: dict[str, Any], ifname: str = "eth0") -> Call:
    whole = {"cniVersion": "1.1.0", "name": "net", "type": "podnet-ovs", **raw}
    request = Request("GC", "c1", "", ifname)
    return Call(
        request, parse_netconf(whole, b""), {}, None, time.monotonic() + 60, Means(nothing, nothing), Steps()
    )  # fmt: skip


def test_what_is_asked_for() -> None:
    raw = {"subinterfaces": [{"vlan": "100-101,300", "ipam": IPAM}, {"vlan": 7, "mtu": 1400, "protocol": "802.1ad"}]}
    found = parse_subinterfaces(raw, "eth0")
    assert [(item.name, item.vlan, item.protocol, dict(item.ipam), item.mtu) for item in found] == [
        ("eth0.100", 100, 0x8100, IPAM, None), ("eth0.101", 101, 0x8100, IPAM, None),
        ("eth0.300", 300, 0x8100, IPAM, None), ("eth0.7", 7, 0x88A8, {}, 1400),
    ]  # fmt: skip
    assert parse_subinterfaces({}, "eth0") == () == parse_subinterfaces({"subinterfaces": []}, "eth0")


@pytest.mark.parametrize(
    ("value", "code", "path", "hint"),
    [
        ("100", 7, "subinterfaces", ""),
        ([100], 7, "subinterfaces[0]: an object", '"vlan"'),
        ([{}], 7, "subinterfaces[0].vlan", ""),
        ([{"vlan": []}], 7, "subinterfaces[0].vlan: the set is empty", "100-199"),
        ([{"vlan": 0}], 7, "subinterfaces[0].vlan", "1 to 4094"),
        ([{"vlan": "1-4095"}], 7, "subinterfaces[0].vlan", "1 to 4094"),
        ([{"vlan": 100}, {"vlan": "90-110"}], 7, "subinterfaces[1].vlan: VLAN 100 is there", "once"),
        ([{"vlan": 100, "mtu": "1500"}], 7, "subinterfaces[0].mtu", "bytes"),
        ([{"vlan": 100, "protocol": "qinq"}], 7, "subinterfaces[0].protocol", "802.1ad"),
        ([{"vlan": 100, "ipam": {"type": "podnet-ovs"}}], 7, "subinterfaces[0].ipam.type", "host-local"),
        ([{"vlan": 100, "vlna": 1}], 2, "subinterfaces[0].vlna", "vlan"),
    ],
)
def test_bad_input_names_the_key_and_the_way_out(value: Any, code: int, path: str, hint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_subinterfaces({"type": "podnet-ovs", "subinterfaces": value}, "eth0")
    assert caught.value.code == code and caught.value.message.startswith(path) and hint in caught.value.hint


def test_a_name_that_does_not_fit_is_not_cut() -> None:
    with pytest.raises(ConfigError, match=r"podnet-trunk\.1000"):
        parse_subinterfaces({"subinterfaces": [{"vlan": "98,1000"}]}, "podnet-trunk")


@pytest.mark.parametrize(
    ("port", "tagged"),
    [
        ({"vlan": 10}, ""),
        ({"untagged": True}, ""),
        ({"trunk": "10-12", "untagged": True}, "10-12"),
        ({"vlan": 11, "trunk": "10-12", "vlan_mode": "native-tagged"}, "10-12"),
        ({"vlan": 13, "trunk": "10-12", "vlan_mode": "native-tagged"}, "10-13"),
        ({"vlan": 11, "trunk": "10-12", "vlan_mode": "native-untagged"}, "10,12"),
        ({"vlan": 13, "trunk": "10-12", "vlan_mode": "native-untagged"}, "10-12"),
        ({"vlan": 10, "vlan_mode": "dot1q-tunnel"}, "1-4094"),
        ({"vlan": 10, "vlan_mode": "dot1q-tunnel", "cvlans": "5-6", "untagged": True}, "5-6"),
    ],
)
def test_which_vlans_a_port_passes_tagged(port: dict[str, Any], tagged: str) -> None:
    made = parse_port(port)
    assert str(made.tagged) == tagged
    for number in (1, 5, 10, 11, 12, 13):
        wanted = parse_subinterfaces({"subinterfaces": [{"vlan": number}]}, "eth0")
        if number in VlanSet.parse(tagged):
            refuse_unfit(wanted, made, 1500)
        else:
            with pytest.raises(ConfigError, match=f"VLAN {number} does not pass tagged by"):
                refuse_unfit(wanted, made, 1500)


def test_one_that_is_larger_than_the_trunk() -> None:
    wanted = parse_subinterfaces({"subinterfaces": [{"vlan": 10, "mtu": 1501}]}, "eth0")
    with pytest.raises(ConfigError, match="1501 bytes are more than the 1500"):
        refuse_unfit(wanted, parse_port({"trunk": "10"}), 1500)
    refuse_unfit(wanted, parse_port({"trunk": "10"}), 1501)


def test_add_refuses_what_check_passes_over() -> None:
    node = Node.parse({"bridges": [{"name": "br-pod"}], "policy": [{"bridge": "br-pod", "vlans": "1-4094"}]})
    raw = {"type": "podnet-ovs", "name": "net", "trunk": "10-12", "subinterfaces": [{"vlan": 13}]}
    conf, request = parse_netconf(raw, b""), Request("ADD", "c1", "", "eth0")
    with pytest.raises(PodnetError, match="VLAN 13"):
        parse_wish(conf, request, node)
    assert [item.vlan for item in parse_wish(conf, request, node, strict=False).subinterfaces] == [13]


def test_a_port_records_them() -> None:
    mark = Mark(OWNER_OVS, "c1", "eth0", subinterfaces=VlanSet.parse("100-199,300"))
    ids = mark.to_external_ids()
    assert ids[KEY_SUBINTERFACES] == "100-199,300" and Mark.parse(ids) == mark
    assert KEY_SUBINTERFACES not in Mark(OWNER_OVS, "c1", "eth0").to_external_ids()
    broken = Mark.parse({**ids, KEY_SUBINTERFACES: "many"})
    assert broken is not None and not broken.subinterfaces


def test_gc_lists_configured_and_recorded_names() -> None:
    raw = {
        "subinterfaces": [{"vlan": 100, "ipam": IPAM}],
        "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "net1"}],
    }
    full = subinterfaces.expanded_call(call(raw), {("c2", "net1"): VlanSet.parse("7"), ("c3", "eth0"): VlanSet.of([9])})
    assert valid_attachments(full.conf.raw) == frozenset({
        ("c1", "eth0"), ("c1", "eth0.100"), ("c2", "net1"), ("c2", "net1.100"), ("c2", "net1.7"),
    })  # fmt: skip
    assert b'"eth0.100"' in full.conf.stdin, "that is what an IPAM plugin hears"


def test_a_lost_attachment_is_released_by_what_it_recorded_too() -> None:
    two = {"subinterfaces": [{"vlan": 100, "ipam": IPAM}, {"vlan": 101, "ipam": {"type": "static"}}, {"vlan": 102}]}
    lost = subinterfaces.lost_leases(call(two), VlanSet.parse("7,100,102"))
    assert [(item.request.ifname, item.env["CNI_IFNAME"], item.conf.ipam_type) for item in lost] == [
        ("eth0.100", "eth0.100", "host-local"), ("eth0.101", "eth0.101", "static"),
        ("eth0.7", "eth0.7", "host-local"), ("eth0.7", "eth0.7", "static"),
    ]  # fmt: skip


def test_a_configuration_that_no_add_can_have_used_has_none() -> None:
    assert subinterfaces.of_call(call({"subinterfaces": [{"vlan": 5000}]})) == ()
    assert subinterfaces.of_call(call({"subinterfaces": 7})) == ()
