# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Isolated ports, bandwidth as it is measured, OpenFlow numbers, and what CHECK finds of all these.

Runs on the userspace datapath, which cannot limit what a pod sends, and with `--datapath=system` on a stock kernel
(test_vm.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import static
from ansible_collections.podnet.ovs.tests.integration.traffic import pings
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

RATE, BURST = 2_000_000, 200_000
"""Bits per second, and bits."""
OFFERED = 5
"""How many times the limit is sent."""
LIMITS = {"ingressRate": RATE, "ingressBurst": BURST}
OUT_LIMITS = {"egressRate": RATE, "egressBurst": BURST}
HOST = host_name("c1", "eth0")


@pytest.fixture(scope="module")
def nodes(lab: Lab, datapath: str) -> Iterator[dict[str, Light]]:
    """Two nodes at one switch, n1 with its agent, which looks at two VLAN headers."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    trunk = lab.lan("trunk")
    made = {name: lab.light(name, nics=[Nic("eth1", trunk)], datapath=datapath) for name in ("n1", "n2")}
    for each in made.values():
        document = cni.node_document(datapath, vlan_limit=2)
        document["policy"] = [{"bridge": cni.BRIDGE, "vlans": "1-4094", "untagged": True}]
        cni.prepare(each, document)
    with cni.agent(made["n1"]), cni.agent(made["n2"]):
        yield made


@pytest.fixture
def node(nodes: dict[str, Light]) -> Iterator[Light]:
    """n1 with pods p1 to p3. Each test takes away what it makes, every row too."""
    here = nodes["n1"]
    with cni.tidy(here, "p1", "p2", "p3"):
        yield here
    assert limits(here) == [[], []]


def limits(node: Light) -> list[list[Any]]:
    """The rows of QoS and Queue."""
    return [json.loads(node.ovs.vsctl("--format=json", "list", table).stdout)["data"] for table in ("QoS", "Queue")]


def with_address(number: int, **keys: Any) -> cni.Json:
    """A configuration with addresses of both families."""
    return cni.configuration(ipam=static(f"10.10.0.{number}/16", f"fd00:10::{number}/64"), **keys)


@pytest.mark.holds("port isolation: two isolated pods do not reach each other, each reaches others and the uplink")
def test_isolated_pods_reach_all_but_each_other(nodes: dict[str, Light], node: Light) -> None:
    nodes["n2"].netns("far")
    places = {
        "p1": (node, True), "p2": (node, True), "p3": (node, False), "far": (nodes["n2"], True),
    }  # fmt: skip
    confs = {
        name: with_address(number, **({"port_isolation": True} if isolated else {}))
        for number, (name, (_place, isolated)) in enumerate(places.items(), 1)
    }
    for name, (place, _isolated) in places.items():
        cni.add(place, confs[name], f"c-{name}", name)
    reached = {
        f"{one} {other} {form.format(number)}"
        for one in places
        for number, other in enumerate(places, 1)
        for form in ("10.10.0.{}", "fd00:10::{}")
        if one != other and pings(Pod(places[one][0], one), form.format(number), wait=1)
    }
    apart = {
        "p1 p2 10.10.0.2", "p1 p2 fd00:10::2", "p2 p1 10.10.0.1", "p2 p1 fd00:10::1",
    }  # fmt: skip
    wanted = {
        f"{one} {other} {form.format(number)}"
        for one in places
        for number, other in enumerate(places, 1)
        for form in ("10.10.0.{}", "fd00:10::{}")
        if one != other
    } - apart
    assert reached == wanted
    for name, (place, _isolated) in places.items():
        cni.delete(place, confs[name], f"c-{name}", name)


# Bandwidth


COUNT = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
udp.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
udp.bind(("", 7007))
udp.settimeout(20)
print("ready", flush=True)
udp.recv(2000)
began, total, now = time.monotonic() + 1, 0, 0.0
while (now := time.monotonic()) < began + 2:
    size = len(udp.recv(2000))
    total += size if now > began else 0
print(8 * total / 2)
"""
FLOOD = """
import socket, sys, time
udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
rate, data, began, sent = float(sys.argv[2]), bytes(1400), time.monotonic(), 0
while (now := time.monotonic()) < began + 4:
    while sent < (now - began) * rate / 8:
        sent += udp.sendto(data, (sys.argv[1], 7007))
    time.sleep(0.002)
"""


def measured(node: Light, sender: str, receiver: str, address: str) -> float:
    """Bits per second that come out of it when a pod sends another one several times the limit."""
    counter = Pod(node, receiver).popen("/usr/bin/python3", "-IS", "-c", COUNT)
    assert counter.stdout is not None and counter.stdout.readline() == b"ready\n"
    Pod(node, sender).run("/usr/bin/python3", "-IS", "-c", FLOOD, address, str(OFFERED * RATE))
    printed, _none = counter.communicate(timeout=60)
    return float(printed)


def limited(datapath: str) -> dict[str, int]:
    """Both ways where both can be had."""
    return LIMITS | OUT_LIMITS if datapath == "system" else LIMITS


@pytest.mark.holds("bandwidth: measured both ways; rows and disciplines gone after DEL and after GC")
def test_bandwidth_is_what_is_asked_for(node: Light, datapath: str) -> None:
    mine = with_address(1, bandwidth=limited(datapath), cniVersion="1.1.0")
    free = with_address(2)
    cni.add(node, mine)
    cni.add(node, free, "c2", "p2")
    assert 0.6 * RATE < measured(node, "p2", "p1", "10.10.0.1") < 1.4 * RATE
    from_pod = measured(node, "p1", "p2", "10.10.0.2")
    if datapath == "system":
        assert 0.6 * RATE < from_pod < 1.4 * RATE
        asked = node.ovs.vsctl("get", "Interface", HOST, "ingress_policing_rate", "ingress_policing_burst").stdout
        assert asked.split() == [str(RATE // 1000), str(BURST // 1000)]
    else:
        assert from_pod > 2.5 * RATE, "that way there is no limit"
    assert [len(rows) for rows in limits(node)] == [1, 1]
    assert "htb" in node.run("tc", "qdisc", "show", "dev", HOST).stdout
    cni.delete(node, mine)
    assert limits(node) == [[], []]
    cni.add(node, with_address(1))
    assert measured(node, "p2", "p1", "10.10.0.1") > 2.5 * RATE, "without a limit it is far more"
    cni.delete(node, mine)
    cni.delete(node, free, "c2", "p2")


def test_gc_takes_limits_with_their_pods(node: Light, datapath: str) -> None:
    conf = with_address(1, bandwidth=limited(datapath), cniVersion="1.1.0")
    cni.add(node, conf)
    cni.add(node, conf, "c2", "p2")
    assert [len(rows) for rows in limits(node)] == [2, 2]
    keep = {"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}
    assert cni.call(node, "GC", {**conf, **keep}, "", "", env={"CNI_IFNAME": ""}).code == 0
    assert [len(rows) for rows in limits(node)] == [1, 1]
    cni.add(node, conf, "c1", "p1")
    node.ovs.vsctl("del-port", HOST)
    assert [len(rows) for rows in limits(node)] == [2, 2], "a hand takes the port alone"
    keep = {"cni.dev/valid-attachments": []}
    assert cni.call(node, "GC", {**conf, **keep}, "", "", env={"CNI_IFNAME": ""}).code == 0
    assert (cni.ports(node), limits(node)) == ([], [[], []])
    cni.delete(node, conf)


@pytest.mark.holds("bandwidth: a limit that the kernel or the datapath has not got is an error")
def test_a_limit_that_cannot_be_had_is_an_error_and_leaves_nothing(node: Light, datapath: str) -> None:
    """On the userspace datapath by what the node declares; and by what the kernel has got, if that is not so."""
    if datapath == "system":
        pytest.skip("a stock kernel has all of it")
    conf = with_address(1, bandwidth=OUT_LIMITS)
    error = cni.call(node, "ADD", conf).document
    assert error["code"] == 7 and "egressRate" in error["msg"] and "userspace" in error["msg"]
    declared = node.run("cat", "/etc/podnet/node.json").stdout
    node.write("/etc/podnet/node.json", declared.replace('"netdev"', '"system"'))
    try:
        error = cni.call(node, "ADD", conf).document
    finally:
        node.write("/etc/podnet/node.json", declared)
    assert error["code"] != 0 and HOST in error["msg"] and "police" in error["msg"], error
    assert cni.leftovers(node) == cni.NOTHING


# OpenFlow numbers


@pytest.mark.holds("ofport_request: granted, or an error if another port has the number")
def test_an_openflow_number_is_the_one_asked_for_or_none(node: Light) -> None:
    conf = with_address(1, ofport_request=40001)
    cni.add(node, conf)
    assert node.ovs.vsctl("get", "Interface", HOST, "ofport").stdout.strip() == "40001"
    uplink = int(node.ovs.vsctl("get", "Interface", "eth1", "ofport").stdout)
    for number, holder in ((40001, HOST), (uplink, "eth1")):
        error = cni.call(node, "ADD", with_address(2, ofport_request=number), "c2", "p2").document
        assert error["code"] == 7 and f"port {number}" in error["msg"] and holder in error["msg"]
    assert int(node.ovs.vsctl("get", "Interface", "eth1", "ofport").stdout) == uplink
    assert (cni.ports(node), cni.links(node)) == ([HOST], [HOST])
    node.ovs.restart()
    until(lambda: node.ovs.vsctl("get", "Interface", HOST, "ofport").stdout.strip() == "40001", 10, "the same number")
    cni.delete(node, conf)
    cni.add(node, with_address(2, ofport_request=40001), "c2", "p2")
    cni.delete(node, conf, "c2", "p2")


# CHECK


NATIVE = {"trunk": "10-12", "vlan_mode": "native-untagged"}
DAMAGE: dict[str, tuple[dict[str, Any], str, str]] = {
    "mode": (NATIVE, "set port {} vlan_mode=native-tagged", "vlan_mode"),
    "native VLAN": (NATIVE, "set port {} tag=10", "tag"),
    "one VLAN more": (NATIVE, "add port {} trunks 13", "trunks"),
    "one VLAN less": (NATIVE, "remove port {} trunks 11", "trunks"),
    "all VLANs": (NATIVE, "clear port {} trunks", "trunks"),
    "inner VLANs": ({"vlan_mode": "dot1q-tunnel", "cvlans": "5-7"}, "clear port {} cvlans", "cvlans"),
    "outer tag": ({"vlan_mode": "dot1q-tunnel", "qinq_ethertype": "802.1q"}, "clear port {} other_config", "qinq"),
    "isolated": ({"port_isolation": True}, "set port {} protected=false", "isolated"),
    "not isolated": ({}, "set port {} protected=true", "isolated"),
    "no limit": ({"bandwidth": LIMITS}, "clear port {} qos", "ingressRate"),
    "a limit": ({}, "set interface {} ingress_policing_rate=1000 ingress_policing_burst=100", "egressRate"),
}


@pytest.mark.holds("CHECK finds wrong modes, trunks, inner VLANs, isolation and limits")
@pytest.mark.parametrize("what", DAMAGE)
def test_check_finds(node: Light, what: str) -> None:
    keys, damage, word = DAMAGE[what]
    conf = with_address(1, cniVersion="1.1.0", **keys)
    conf["prevResult"] = cni.add(node, conf)
    assert cni.call(node, "CHECK", conf).code == 0
    node.ovs.vsctl(*damage.format(HOST).split())
    answer = cni.call(node, "CHECK", conf)
    assert answer.code == 1 and word in answer.document["msg"], answer
    cni.delete(node, conf)
    nothing: cni.Json = {"cni.dev/valid-attachments": [], "prevResult": None}
    assert cni.call(node, "GC", {**conf, **nothing}, "", "", env={"CNI_IFNAME": ""}).code == 0, "for what a hand left"


def test_check_finds_a_limit_that_the_kernel_has_lost(node: Light) -> None:
    conf = with_address(1, cniVersion="1.1.0", bandwidth=LIMITS)
    conf["prevResult"] = cni.add(node, conf)
    node.run("tc", "qdisc", "delete", "dev", HOST, "root")
    answer = cni.call(node, "CHECK", conf)
    assert answer.code == 1 and "ingressRate" in answer.document["msg"] and HOST in answer.document["msg"]
    cni.delete(node, conf)
