# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of pods that are gone, on whichever bridge: they go by themselves; what is alive or foreign never does."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.fault.resident import FLOWS, Resident, collect, traces
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

OTHER = "br-two"
BARE = cni.configuration(ipam=None)
MOST = 30
PROMISE = "stale ports of ours are purged on any bridge (two observations)"
SWEEP = """
import sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.attach.spoof import restore
from podnet.attach.stale import sweep
from podnet.vswitch.shared import SharedSwitch
shared = SharedSwitch()
print("ready", flush=True)
while True:
    with shared.open("unix:/run/openvswitch/db.sock", 5.0) as switch:
        gone = sweep(switch, switch.attachments(), 0.0)
        put = restore(switch)
    if gone or put:
        print("took", *gone, "put", put, flush=True)
"""

HALF_MADE = """
import sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.attach.turns import turn
from podnet.model.ownership import OWNER_OVS, Mark
from podnet.vswitch.fastpath import open_switch
from podnet.vswitch.podport import PodPort
mark = Mark(OWNER_OVS, "c9", "eth0", "green")
port = PodPort("pnhalfmade", "br-pod", {"tag": 100, "vlan_mode": "access"}, mark)
with turn("c9", "eth0", 5), open_switch("unix:/run/openvswitch/db.sock", 5.0, port.name) as switch:
    switch.begin(port)
    switch.inserted(port)
    print("made", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with two bridges that pods may use, and a foreign port that cannot be opened on each."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    document = cni.node_document(datapath)
    document["bridges"].append({"name": OTHER, "datapath_type": datapath})
    document["networks"].append({"name": "red", "bridge": OTHER, "vlan": cni.GREEN})
    cni.prepare(made, document)
    made.ovs.vsctl("--no-wait", "add-port", cni.BRIDGE, "foreign1", "--", "add-port", OTHER, "foreign2")
    made.sh("ip netns add p1; ip netns add p2")
    return made


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node; afterwards nothing of pods is left on it, and the foreign ports still are."""
    yield machine
    try:
        assert traces(machine) == {} and traces(machine, OTHER) == {}
        for bridge, port in ((cni.BRIDGE, "foreign1"), (OTHER, "foreign2")):
            assert port in machine.ovs.vsctl("list-ports", bridge).stdout.split()
            assert "No such device" in machine.ovs.vsctl("get", "Interface", port, "error").stdout
    finally:
        cni.clear(machine)


def configuration(number: int, **keys: Any) -> dict[str, Any]:
    """A network that is on either bridge, some of it with a shaper or a spoof check."""
    conf = cni.configuration(bridge=OTHER if number % 2 else cni.BRIDGE, ipam=None, **keys)
    if number % 5 == 1:
        conf["spoof_check"] = True
    if number % 5 == 2:
        conf["runtimeConfig"] = {"bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000}}
    return conf


def attach(node: Light, count: int) -> list[str]:
    """So many attachments of one pod, on both bridges; gives their ports."""

    def one(number: int) -> str:
        ifname = f"net{number}"
        cni.add(node, configuration(number), "c1", "p1", {"CNI_IFNAME": ifname})
        return host_name("c1", ifname)

    with ThreadPoolExecutor(4) as pool:
        return sorted(pool.map(one, range(count)))


def lose_power(node: Light, links: list[str]) -> None:
    """A reboot, as Open vSwitch sees it: the links are gone, the database is as it was, and nothing has flows."""
    node.ovs.stop("ovs-vswitchd")
    node.sh("\n".join(f"ip link delete {link}" for link in links))
    node.ovs.start("ovs-vswitchd")


@pytest.mark.holds(PROMISE)
@pytest.mark.parametrize(
    "way", ["agent", *(pytest.param(way, marks=pytest.mark.full) for way in ("GC", "an ADD without agent"))]
)
def test_dead_ports_on_two_bridges_go(node: Light, way: str, request: pytest.FixtureRequest) -> None:
    count = MOST if request.config.getoption("--full") else 12
    cni.add(node, BARE, "alive", "p2")
    ports = attach(node, count)
    assert len(cni.ports(node)) == count + 1
    lose_power(node, ports)
    if way == "GC":
        collect(node, cni.configuration(name="blue", vlan=cni.BLUE, ipam=None))
        assert len(cni.ports(node)) == count + 1, "GC of another network takes none"
        kept = {"containerID": "alive", "ifname": "eth0"}
        conf = {**BARE, "cniVersion": "1.1.0", "cni.dev/valid-attachments": [kept]}
        assert cni.call(node, "GC", conf, "", "").code == 0
    elif way == "agent":
        agent = Resident(node)
        agent.start()
        until(lambda: len(cni.ports(node)) == 1, 5, "the agent's first look, at its start")
        assert f"removed {count} ports" in agent.log()
        agent.close()
    else:
        cni.add(node, BARE)
        cni.delete(node, BARE)
    until(lambda: cni.ports(node) == [host_name("alive", "eth0")], 10, "the end of dead ports only")
    cni.delete(node, BARE, "alive", "p2")


@contextmanager
def sweeping(node: Light) -> Iterator[subprocess.Popen[bytes]]:
    """Somebody looks for dead ports and for lost flows without a pause."""
    process = node.popen("/usr/bin/python3", "-IS", "-c", SWEEP)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    try:
        yield process
        assert process.poll() is None, process.stdout.read()
    finally:
        process.kill()
        process.wait()


@pytest.mark.holds(PROMISE)
@pytest.mark.parametrize("way", ["agent", pytest.param("in-process", marks=pytest.mark.full)])
def test_a_port_that_is_being_made_is_never_taken(node: Light, way: str, request: pytest.FixtureRequest) -> None:
    """Nor are its flows: what looks after them may have seen the bridge before they were there."""
    rounds = 40 if request.config.getoption("--full") else 2
    agent = Resident(node)
    if way == "agent":
        agent.start()
    node.sh("\n".join(f"ip netns add q{worker}" for worker in range(4)))

    def work(worker: int) -> None:
        for number in range(rounds):
            conf = configuration(5 * number + worker, **({"spoof_check": True} if worker == 3 else {}))
            container, pod = f"w{worker}", f"q{worker}"
            cni.add(node, conf, container, pod)
            host = host_name(container, "eth0")
            time.sleep(0.05 * (number % 3))
            assert host in node.ovs.vsctl("list-ports", conf["bridge"]).stdout.split()
            if conf.get("spoof_check"):
                ofport = node.ovs.vsctl("get", "Interface", host, "ofport").stdout.strip()
                flows = node.run("ovs-ofctl", "--no-stats", "dump-flows", conf["bridge"], FLOWS).stdout
                assert f"in_port={ofport}," in flows, "its flows are there"
            cni.delete(node, conf, container, pod)

    try:
        with sweeping(node), ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
    finally:
        agent.close()
        node.sh("\n".join(f"ip netns delete q{worker}" for worker in range(4)))


@pytest.mark.holds(PROMISE)
def test_a_port_without_a_link_stays_as_long_as_its_call_is_at_work(node: Light) -> None:
    """And goes when that has died half-way."""
    call = node.popen("/usr/bin/python3", "-IS", "-c", HALF_MADE, stdin=subprocess.PIPE)
    assert call.stdout is not None and call.stdout.readline() == b"made\n"
    with sweeping(node):
        until(lambda: "No such device" in node.ovs.vsctl("get", "Interface", "pnhalfmade", "error").stdout, 5, "a look")
        time.sleep(1.0)
        assert cni.ports(node) == ["pnhalfmade"]
        call.kill()
        call.wait()
        until(lambda: cni.ports(node) == [], 5, "its end")
