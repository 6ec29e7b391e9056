# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-ovs` on the bridge whose uplink the IPAM plugin names (cni #1121, #1137).

No IPAM plugin of Debian's names interfaces of the host: the one here wraps those that it has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.routing import HINTING, PATH, SCRIPTS, hinting

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

OTHER, SHUT = "br-two", "br-shut"
HOST = host_name("c1", "eth0")
NICS = {cni.BRIDGE: "eth1", OTHER: "eth2"}


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with a bridge on a NIC, one on a bond, one that is closed to pods, and a NIC on none."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    document = cni.node_document(datapath)
    bond = {"name": "bond0", "nics": ["eth2", "eth4"], "bond_mode": "active-backup"}
    document["bridges"] += [
        {"name": OTHER, "datapath_type": datapath, "uplinks": [bond], "mtu": 1400},
        {"name": SHUT, "datapath_type": datapath, "uplinks": [{"name": "eth5"}]},
    ]
    document["networks"].append({"name": "violet", "bridge": OTHER, "vlan": cni.GREEN})
    lan = lab.lan("lan")
    node = lab.light("n1", nics=[Nic(f"eth{number}", lan) for number in range(1, 6)], datapath=datapath)
    node.write(f"{SCRIPTS}/hinting", HINTING, "755")
    cni.prepare(node, document)
    return node


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, and without one."""
    with cni.serving(machine, request.param):
        yield machine


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """With a pod. Each test takes away what it makes."""
    with cni.tidy(served, "p1"):
        yield served


def configuration(*interfaces: cni.Json, indices: tuple[int | None, ...] = (), **keys: Any) -> cni.Json:
    """A network whose bridge is that of the uplink that the IPAM plugin names."""
    plugin = hinting(cni.ipam(), *interfaces, indices=indices)
    return cni.configuration(**{"bridge": None, "uplinkFromIPAM": True, "ipam": plugin, "cniVersion": "1.1.0", **keys})


def fails(node: Light, conf: cni.Json) -> tuple[int, str]:
    """An ADD that fails and leaves nothing; gives code and message, with the hint."""
    answer = cni.call(node, "ADD", conf, env=PATH)
    assert answer.code == 1, answer
    assert cni.leftovers(node) == cni.NOTHING
    return answer.document["code"], f"{answer.document['msg']} {answer.document.get('details', '')}"


def bridge_of(node: Light) -> str:
    """The bridge that the pod's port is on."""
    return node.ovs.vsctl("port-to-br", HOST).stdout.strip()


@pytest.mark.parametrize("bridge", [cni.BRIDGE, OTHER])
@pytest.mark.parametrize("how", ["name", "mac", "bridge", "renamed"])
def test_the_bridge_of_the_uplink_by_name_or_mac(node: Light, bridge: str, how: str) -> None:
    nic = NICS[bridge]
    mac = node.ports[nic].mac
    hint = {"name": {"name": nic}, "mac": {"name": "", "mac": mac}, "bridge": {"name": bridge},
            "renamed": {"name": "enp9s0", "mac": mac}}[how]  # fmt: skip
    conf = configuration(hint)
    result = cni.add(node, conf, env=PATH)
    assert bridge_of(node) == bridge
    assert [item["name"] for item in result["interfaces"]] == [HOST, "eth0"], "the hint is no interface of the pod"
    assert [item["interface"] for item in result["ips"]] == [1, 1]
    assert result["interfaces"][1]["mtu"] == (1400 if bridge == OTHER else 1500), "the bridge's own"
    checked = cni.call(node, "CHECK", {**conf, "prevResult": result}, env=PATH)
    assert checked.code == 0, checked
    cni.delete(node, {**conf, "prevResult": result}, env=PATH)


def test_a_bond_by_its_own_name(node: Light) -> None:
    conf = configuration({"name": "bond0"})
    cni.add(node, conf, env=PATH)
    assert bridge_of(node) == OTHER
    cni.delete(node, conf, env=PATH)


def test_the_interface_that_an_address_names(node: Light) -> None:
    pod = {"name": "eth0", "sandbox": "/run/netns/p1"}
    for indices, bridge in (((2, 2), OTHER), ((0, 1), cni.BRIDGE), ((), cni.BRIDGE)):
        conf = configuration(pod, {"name": "eth1"}, {"name": "eth2"}, indices=indices)
        cni.add(node, conf, env=PATH)
        assert bridge_of(node) == bridge
        cni.delete(node, conf, env=PATH)
    code, said = fails(node, configuration({"name": "eth1"}, {"name": "eth2"}, indices=(0, 1)))
    assert code == 7 and "several bridges: br-pod, br-two" in said


def test_a_bridge_that_is_given_as_well_has_to_be_the_same(node: Light) -> None:
    conf = configuration({"name": "eth2"}, bridge=OTHER)
    cni.add(node, conf, env=PATH)
    cni.delete(node, conf, env=PATH)
    code, said = fails(node, configuration({"name": "eth2"}, bridge=cni.BRIDGE))
    assert code == 7 and said.startswith("bridge: br-pod is given, but the uplink eth2 is on br-two")


def test_hints_that_cannot_be_followed(node: Light) -> None:
    for conf, code, words in (
        (configuration(), 7, "uplinkFromIPAM: hinting named no interface of the host"),
        (configuration({"name": "eth0", "sandbox": "/run/netns/p1"}), 7, "named no interface of the host"),
        (configuration(ipam=cni.ipam()), 7, "host-local named no interface of the host"),
        (configuration(ipam=None), 7, "uplinkFromIPAM: there is no IPAM plugin"),
        (configuration({"name": "eth3"}), 7, "eth3 is on no bridge of Open vSwitch"),
        (configuration({"name": "eth9"}), 11, "there is no link eth9"),
        (configuration({"name": "", "mac": "02:00:5e:00:00:99"}), 11, "there is no link 02:00:5e:00:00:99"),
        (configuration({"name": "eth1"}, indices=(7,)), 7, "interface 7, of 1"),
        (configuration({"name": "eth1"}, uplinkFromIPAM="yes"), 7, "uplinkFromIPAM: true or false"),
    ):
        found, said = fails(node, conf)
        assert found == code and words in said, said


def test_two_links_of_one_mac(node: Light) -> None:
    mac = node.ports["eth1"].mac
    node.sh(f"ip link add twin type veth peer name twin2; ip link set twin address {mac}")
    try:
        code, said = fails(node, configuration({"name": "", "mac": mac}))
        assert code == 7 and "several links have the MAC address" in said and "br-pod, twin" in said
    finally:
        node.run("ip", "link", "delete", "twin")


def test_the_policy_is_that_of_the_bridge_that_is_found(node: Light) -> None:
    code, said = fails(node, configuration({"name": "eth5"}))
    assert code == 7 and "VLAN 100 of bridge br-shut is not open" in said
    code, said = fails(node, configuration({"name": "eth2"}, vlan=cni.BLUE))
    assert code == 7 and "VLAN 200 of bridge br-two is not open" in said
    conf = configuration({"name": "eth1"}, vlan=cni.BLUE)
    cni.add(node, conf, env=PATH)
    cni.delete(node, conf, env=PATH)


def test_check_wants_the_port_on_a_bridge_that_is_open(node: Light) -> None:
    conf = configuration({"name": "eth1"})
    result = cni.add(node, conf, env=PATH)
    ids = node.ovs.vsctl("get", "Port", HOST, "external_ids").stdout.strip()
    inner = node.ovs.vsctl("get", "Interface", HOST, "external_ids").stdout.strip()
    words = f"del-port {HOST} -- add-port {SHUT} {HOST} tag={cni.GREEN} vlan_mode=access -- set Port {HOST}".split()
    node.ovs.vsctl(*words, f"external_ids={ids}", "--", "set", "Interface", HOST, f"external_ids={inner}")
    answer = cni.call(node, "CHECK", {**conf, "prevResult": result}, env=PATH)
    assert answer.document["code"] == 7 and "bridge br-shut is not open" in answer.document["msg"]
    cni.delete(node, conf, env=PATH)
    assert cni.leftovers(node) == cni.NOTHING


def test_gc_and_del_need_no_hint(node: Light) -> None:
    conf = configuration({"name": "eth2"})
    cni.add(node, conf, env=PATH)
    broken = {**conf, "ipam": {**conf["ipam"], "interfaces": []}, "cni.dev/valid-attachments": []}
    done = cni.call(node, "GC", broken, "", "", {**PATH, "CNI_IFNAME": ""})
    assert (done.code, done.stdout) == (0, ""), done
    assert cni.leftovers(node) == cni.NOTHING
    assert cni.call(node, "STATUS", conf, "", "", PATH).code == 0


def test_interfaces_of_an_ipam_plugin_change_nothing_unasked(node: Light) -> None:
    plugin = hinting(cni.ipam(), {"name": "eth2"}, {"name": "x", "sandbox": "/y"}, indices=(1, 0))
    for keys in ({}, {"uplinkFromIPAM": False}):
        conf = cni.configuration(ipam=plugin, **keys)
        result = cni.add(node, conf, env=PATH)
        assert bridge_of(node) == cni.BRIDGE
        assert [item["name"] for item in result["interfaces"]] == [HOST, "eth0"]
        assert [item["interface"] for item in result["ips"]] == [1, 1]
        assert cni.call(node, "CHECK", {**conf, "prevResult": result}, env=PATH).code == 0
        cni.delete(node, conf, env=PATH)


def test_what_fails_after_the_hint_is_taken_back(node: Light) -> None:
    """An OpenFlow number that another port has, on the bridge that only the hint names."""
    number = node.ovs.vsctl("get", "Interface", "eth2", "ofport").stdout.strip()
    code, said = fails(node, configuration({"name": "eth2"}, ofport_request=int(number)))
    assert code == 7 and "ofport_request" in said and "br-two" in said
