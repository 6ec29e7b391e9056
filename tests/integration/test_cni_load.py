# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Many pods at once, and calls that are killed half-way: no address twice, and nothing left after DEL.

The moments of the kills come from a seeded generator: PODNET_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

AGENT = "/opt/podnet/current/bin/podnet-agent"
SIDE_BY_SIDE = 10
POOL = {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/16"}], [{"subnet": "fd00:20::/64"}]]}
CONF = cni.configuration(ipam=POOL)
SEED = int(os.environ.get("PODNET_SEED") or 1)


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with a bridge, and without an agent."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    return node


@pytest.fixture(scope="module", params=["in-process", "agent"])
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node without its agent, and with it at work. Of calls that are over the agent holds nothing."""
    if request.param == "in-process":
        yield machine
        return
    with cni.agent(machine) as agent:
        usual(machine)  # what the first call makes stays for all
        machine.run("ip", "netns", "delete", "trial")
        files, threads = held(agent)
        yield machine
        # One thread or two wait for the next call.
        until(lambda: held(agent)[0] <= files, 10, f"files of the agent as before: {files}")
        until(lambda: held(agent)[1] <= threads + 1, 10, f"threads of the agent as before: {threads}")


def held(process: subprocess.Popen[bytes]) -> tuple[int, int]:
    """How many open files and threads a process has."""
    return len(os.listdir(f"/proc/{process.pid}/fd")), len(os.listdir(f"/proc/{process.pid}/task"))


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node; afterwards it has no pods, and what was left of them is an error."""
    yield served
    left = cni.leftovers(served)
    served.sh("for pod in $(ip netns list | cut -d' ' -f1); do ip netns delete $pod; done")
    cni.clear(served)
    assert left == cni.NOTHING


@pytest.fixture(scope="module")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every row is to be shown, and not a sample."""
    return bool(request.config.getoption("--full"))


def make_pods(node: Light, count: int) -> list[str]:
    """Namespaces of so many pods."""
    names = [f"p{number}" for number in range(count)]
    node.sh("\n".join(f"ip netns add {name}" for name in names))
    return names


@pytest.mark.holds("100 ADDs, 10 at a time, then 100 DELs: no address twice, nothing left")
def test_many_pods_side_by_side(node: Light, full: bool) -> None:
    agent = os.path.exists(node.host_path(cni.SOCKET))
    pods = make_pods(node, 100 if full or agent else 30)
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        results = list(pool.map(lambda pod: cni.add(node, CONF, f"c-{pod}", pod), pods))
        addresses = [item["address"] for result in results for item in result["ips"]]
        assert len(set(addresses)) == len(addresses) == 2 * len(pods)
        macs = {result["interfaces"][1]["mac"] for result in results}
        assert len(macs) == len(pods)
        ports, links, leases = cni.leftovers(node)
        assert len(ports) == len(links) == len(pods) and len(leases) == 2 * len(pods)
        list(pool.map(lambda pod: cni.delete(node, CONF, f"c-{pod}", pod), pods))
    assert cni.leftovers(node) == cni.NOTHING


@pytest.mark.holds("SIGKILL at a random moment in 50 of 100 ADDs, then DEL: no address twice, nothing left")
def test_adds_that_are_killed_leave_nothing_after_del(node: Light, full: bool) -> None:
    """Half of the calls are killed while others go on beside them; then comes DEL, as from a runtime that gave up."""
    chance = random.Random(SEED)
    pods = make_pods(node, 100 if full else 20)
    seconds = usual(node)
    killed = set(chance.sample(pods, len(pods) // 2))
    moments = {pod: chance.uniform(0, 1.2 * seconds) for pod in sorted(killed)}

    def attach(pod: str) -> list[str]:
        if pod not in killed:
            return [item["address"] for item in cni.add(node, CONF, f"c-{pod}", pod)["ips"]]
        process = cni.start(node, "ADD", CONF, f"c-{pod}", pod)
        assert process.stdout is not None
        with process.stdout:
            time.sleep(moments[pod])
            process.kill()
            process.wait()
        cni.delete(node, CONF, f"c-{pod}", pod)
        return []

    with ThreadPoolExecutor(SIDE_BY_SIDE // 2) as pool:
        addresses = [address for given in pool.map(attach, pods) for address in given]
        assert len(set(addresses)) == len(addresses) == 2 * (len(pods) - len(killed))
        living = sorted(host_name(f"c-{pod}", "eth0") for pod in pods if pod not in killed)
        ports, links, leases = cni.leftovers(node)
        assert (sorted(ports), links) == (living, living), f"seed {SEED}"
        assert set(leases.values()) == {f"c-{pod}" for pod in pods if pod not in killed}, f"seed {SEED}"
        list(pool.map(lambda pod: cni.delete(node, CONF, f"c-{pod}", pod), pods))
    assert cni.leftovers(node) == cni.NOTHING, f"seed {SEED}"
    for pod in pods:
        assert "eth0" not in node.run("ip", "-n", pod, "-br", "link").stdout, pod


def usual(node: Light) -> float:
    """Seconds that an ADD takes here, alone."""
    node.run("ip", "netns", "add", "trial")
    times = []
    for _call in range(3):
        began = time.monotonic()
        cni.add(node, CONF, "c-trial", "trial")
        times.append(time.monotonic() - began)
        cni.delete(node, CONF, "c-trial", "trial")
    return statistics.median(times)


@pytest.mark.holds("SIGKILL of the agent at a random moment, then DEL: nothing left")
def test_an_agent_that_is_killed_leaves_nothing_after_del(machine: Light, full: bool) -> None:
    """DEL then comes in the plugin's own process. Calls that were cut off end with an error that says so."""
    chance = random.Random(SEED)
    pods = make_pods(machine, SIDE_BY_SIDE)
    for turn in range(10 if full else 2):
        agent = machine.popen(AGENT, "--socket", cni.SOCKET, stdout=None, stderr=subprocess.DEVNULL)
        wait_for_agent(machine)
        with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
            calls = [pool.submit(cni.call, machine, "ADD", CONF, f"c{turn}-{pod}", pod) for pod in pods]
            time.sleep(chance.uniform(0.02, 0.8))
            agent.send_signal(signal.SIGKILL)
            agent.wait()
            for call in calls:
                answer = call.result()
                assert answer.code == 0 or answer.document["code"] == 11, answer
            list(pool.map(cni.delete, repeat(machine), repeat(CONF), [f"c{turn}-{pod}" for pod in pods], pods))
        assert cni.leftovers(machine) == cni.NOTHING, f"seed {SEED}, turn {turn}"
    machine.run("rm", "-f", cni.SOCKET)
    machine.sh("for pod in $(ip netns list | cut -d' ' -f1); do ip netns delete $pod; done")


def wait_for_agent(node: Light) -> None:
    """Until the agent takes calls; the socket of a killed one is still there, but nobody listens."""
    node.sh(f"for i in $(seq 200); do ss -Hxl src unix:{cni.SOCKET} | grep -q . && exit; sleep 0.05; done; exit 1")
