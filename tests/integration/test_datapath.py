# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What passes between pods, and what does not: two nodes whose uplinks lead to one switch.

Pods of both VLANs have addresses of the same networks, so that nothing but the VLAN keeps them apart. Runs on the
userspace datapath, whose uplinks and host ends the node's kernel does not listen to (tests/lab), and with
`--datapath=system` on a stock kernel (test_vm.py).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet, static
from ansible_collections.podnet.ovs.tests.integration.traffic import Stream, capture, mac_bytes, pings, stream
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

FAMILIES = {"IPv4": ("10.10.0.{}", 24), "IPv6": ("fd00:10::{}", 64)}
HOST = {"n1": 101, "n2": 102}
"""The last part of the address of each node's own interface on VLAN 100."""
PODS = {"red1": ("n1", 100, 1), "red2": ("n2", 100, 2), "blue1": ("n1", 200, 3), "blue2": ("n2", 200, 4)}
"""Node, VLAN and last part of the addresses."""
CUT_SECONDS = 2.0
"""How long a pulled cable of a bond may cut a pod off, in all."""
EVERYBODY = {"IPv4": ["-b", "10.10.0.255"], "IPv6": ["-I", "eth0", "ff02::1"]}
"""For ping: all that are on the link."""
HEADERS = {"IPv4": 28, "IPv6": 48}
"""Bytes of the IP and ICMP headers of an echo request."""


def address(family: str, number: int, prefix: bool = False) -> str:
    """An address of the networks that all here share."""
    form, length = FAMILIES[family]
    return form.format(number) + (f"/{length}" if prefix else "")


def both(number: int) -> list[str]:
    """The addresses of both families, with prefix length."""
    return [address(family, number, prefix=True) for family in FAMILIES]


def node_document(name: str, datapath: str) -> dict[str, Any]:
    """n1 has one NIC as its uplink, n2 a bond of two."""
    bond = {"name": "bond0", "nics": ["eth1", "eth2"], "bond_mode": "active-backup", "vlans": "100,200"}
    uplink = {"name": "eth1", "vlans": "100,200"} if name == "n1" else bond
    interface = {"name": "node100", "vlan": 100, "addresses": both(HOST[name])}
    return {
        "schema": 1,
        "bridges": [{"name": "br-pod", "datapath_type": datapath, "uplinks": [uplink], "interfaces": [interface]}],
        "networks": [{"name": f"net{vlan}", "bridge": "br-pod", "vlan": vlan} for vlan in (100, 200)],
    }


@dataclass(frozen=True)
class Bench:
    """Two nodes and their four pods."""

    nodes: dict[str, Light]
    callers: dict[str, Caller]
    pods: dict[str, Pod]
    macs: dict[str, str]


@pytest.fixture(scope="module")
def bench(lab: Lab, datapath: str) -> Iterator[Bench]:
    """Pods on VLAN 100 (red) and on VLAN 200 (blue), one of each on each node."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    trunk = lab.lan("trunk")
    nics = {"n1": [Nic("eth1", trunk)], "n2": [Nic("eth1", trunk), Nic("eth2", trunk)]}
    nodes = {name: lab.light(name, nics=nics[name], datapath=datapath) for name in nics}
    with ThreadPoolExecutor() as pool, ExitStack() as stack:
        list(pool.map(lambda name: cni.prepare(nodes[name], node_document(name, datapath)), nodes))
        for node in nodes.values():
            stack.enter_context(cni.agent(node))
        callers = {name: Caller(node) for name, node in nodes.items()}
        pods = {name: nodes[place].netns(name) for name, (place, _vlan, _number) in PODS.items()}

        def attach(name: str) -> str:
            place, vlan, number = PODS[name]
            network = conflist(podnet(vlan, ipam=static(*both(number))), name=f"net{vlan}")
            return str(callers[place].add(network, At(f"c-{name}", name))["interfaces"][1]["mac"])

        macs = dict(zip(PODS, pool.map(attach, PODS)))
        yield Bench(nodes, callers, pods, macs)


@pytest.mark.holds("pod to pod across nodes on one VLAN: ICMP, full-size packets with DF")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(("one", "other"), [("red1", "red2"), ("blue1", "blue2")])
def test_pods_of_one_vlan_reach_each_other(bench: Bench, one: str, other: str, family: str) -> None:
    to = address(family, PODS[other][2])
    size = 1500 - HEADERS[family]
    assert pings(bench.pods[one], to)
    assert pings(bench.pods[one], to, "-M", "do", "-s", str(size))
    assert not pings(bench.pods[one], to, "-M", "do", "-s", str(size + 1), wait=1), "one byte more than the MTU passed"


SERVE = """
import socket, sys, threading
def answer(one):
    with one:
        while True:
            data = one.recv(65536)
            if not data:
                return
            one.sendall(data)
def take():
    while True:
        threading.Thread(target=answer, args=(tcp.accept()[0],), daemon=True).start()
tcp = socket.create_server(("::", 7007), family=socket.AF_INET6, dualstack_ipv6=True)
udp = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
udp.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
udp.bind(("::", 7007))
threading.Thread(target=take, daemon=True).start()
print("ready", flush=True)
while True:
    data, peer = udp.recvfrom(65536)
    udp.sendto(data, peer)
"""
SPEAK = """
import random, socket, sys, threading
there = (sys.argv[1], 7007)
data = random.Random(1).randbytes(1 << 20)
with socket.create_connection(there, timeout=20) as tcp:
    threading.Thread(target=tcp.sendall, args=(data,), daemon=True).start()
    back = b""
    while len(back) < len(data):
        more = tcp.recv(65536)
        assert more, "closed"
        back += more
assert back == data, "TCP brought back something else"
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
for size in (1, 1400, 8000):
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.settimeout(5)
        udp.sendto(data[:size], there)
        assert udp.recv(65536) == data[:size], "UDP brought back something else"
"""


@pytest.mark.holds("pod to pod across nodes on one VLAN: TCP, UDP")
def test_tcp_and_udp_bring_back_what_was_sent(bench: Bench) -> None:
    """A megabyte over TCP; datagrams of one byte, of one packet and of several."""
    for server, client in (("red2", "red1"), ("blue1", "blue2")):
        process = bench.pods[server].popen("/usr/bin/python3", "-IS", "-c", SERVE)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"ready\n"
            for family in FAMILIES:
                bench.pods[client].run("/usr/bin/python3", "-c", SPEAK, address(family, PODS[server][2]))
        finally:
            process.kill()
            process.communicate()


@pytest.mark.holds("across VLANs nothing passes")
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_passes_between_vlans(bench: Bench, family: str) -> None:
    """Neither an answer to who has an address, nor a single frame: not on the same node, not on the other one."""
    red = bench.pods["red1"]
    others = ["blue1", "blue2"]
    with (
        capture(bench.pods["blue1"]) as here,
        capture(bench.pods["blue2"]) as there,
        capture(bench.pods["red2"]) as own,
    ):
        for other in others:
            assert not pings(red, address(family, PODS[other][2]), wait=1), f"red1 reaches {other}"
        red.run("ping", "-c1", "-W1", *EVERYBODY[family], check=False)
    source = mac_bytes(bench.macs["red1"])
    assert [frame for frame in own if frame[6:12] == source], "the capture on the same VLAN saw nothing"
    assert not [frame.hex() for frame in (*here, *there) if frame[6:12] == source]
    for other in others:
        entries = json.loads(red.run("ip", "-j", "neigh", "show", "to", address(family, PODS[other][2])).stdout)
        assert all({"FAILED", "INCOMPLETE"} & set(entry["state"]) for entry in entries), entries


@pytest.mark.parametrize("family", FAMILIES)
def test_a_nodes_own_interface_is_on_its_vlan_only(bench: Bench, family: str) -> None:
    for name, number in HOST.items():
        assert pings(bench.pods["red1"], address(family, number)), f"node {name} from VLAN 100"
        assert not pings(bench.pods["blue1"], address(family, number), wait=1), f"node {name} from VLAN 200"
    done = bench.nodes["n1"].run("ping", "-n", "-q", "-c1", "-W2", "-I", "node100", address(family, PODS["red2"][2]))
    assert "duplicates" not in done.stdout


@pytest.mark.holds("a VLAN outside the policy is refused")
def test_a_vlan_outside_the_policy_is_refused(bench: Bench) -> None:
    bench.nodes["n1"].netns("stranger")
    answer = bench.callers["n1"].ask("ADD", conflist(podnet(400), name="net400"), At("c-stranger", "stranger"))
    error = answer.document
    assert (answer.code, error["code"]) == (1, 7)
    assert "VLAN 400" in error["msg"] and "br-pod" in error["msg"]
    assert "100,200" in error["details"] and "podnet_policy" in error["details"]


def members(node: Light) -> tuple[str, str]:
    """The bond's active NIC and the other one."""
    text = node.run("ovs-appctl", "--timeout=10", "bond/show", "bond0").stdout
    active = next((line for line in text.splitlines() if line.startswith("active member mac")), "")
    names = ("eth1", "eth2")
    first = next((name for name in names if f"({name})" in active), "")
    assert first, text
    return first, names[1 - names.index(first)]


@pytest.mark.holds("bond uplink: a pulled cable does not cut pods off")
def test_traffic_of_a_bond_goes_on_when_a_cable_is_pulled(bench: Bench) -> None:
    node = bench.nodes["n2"]
    active, other = members(node)
    every = 0.02
    seen: Stream
    with stream(bench.pods["red1"], address("IPv4", PODS["red2"][2]), every) as seen:
        node.carrier(active, False)
        try:
            until(lambda: members(node)[0] == other, 10, "the other member of the bond")
            back = address("IPv6", PODS["red1"][2])
            until(
                lambda: pings(bench.pods["red2"], back, "-i0.1", count=5), 10, "answers by the other member of the bond"
            )
        finally:
            node.carrier(active, True)
    assert seen.lost * every < CUT_SECONDS, f"{seen.lost} of {seen.sent} lost"
    assert pings(bench.pods["red1"], address("IPv4", PODS["red2"][2]), count=3)
