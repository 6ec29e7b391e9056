# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An agent that stays for years: what it holds after thousands of attachments is what it held after the first ones.

The calls come straight over its socket, as from its client, whose interpreters would take most of the time.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils import client
from ansible_collections.podnet.ovs.tests.fault.resident import QUIET_THREADS, Resident, traces
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SIDE_BY_SIDE = 8
MOST_MIB = 45.0
FLAT_MIB = 1.0
"""Within this two readings are the same: the allocator's own pages come and go."""
BARE = cni.configuration(ipam=None)
STATIC = cni.configuration(
    ipam={"type": "static", "addresses": [{"address": "10.10.9.9/16"}, {"address": "fd00:10::9/64"}]}
)
LEASED = cni.configuration()
REFUSED = cni.configuration(bridge="nobr", ipam=None)
"""Refused late: the port is on its way to the database by then."""


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with a bridge, eight pods that come and go, and one for what stands."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    made.sh("\n".join(f"ip netns add p{number}" for number in range(SIDE_BY_SIDE)))
    made.sh("ip netns add standing")
    return made


@pytest.fixture
def agent(node: Light) -> Iterator[Resident]:
    """The node's agent at work."""
    made = Resident(node)
    node.run("rm", "-f", "/run/agent.log")
    made.start()
    yield made
    made.close()
    failed = [line for line in made.log().splitlines() if "code=1" in line]
    unexpected = [line for line in failed if "nobr" not in line and "already" not in line]
    assert not unexpected, unexpected[:5]


def ask(node: Light, verb: str, conf: dict[str, Any], container: str, pod: str, ifname: str = "eth0") -> int:
    """One call over the agent's socket; gives its CNI code."""
    env = {**cni.environment(verb, container, ""), "CNI_IFNAME": ifname}
    env["CNI_NETNS"] = str(node.host_path(f"/run/netns/{pod}"))
    said = {key.encode(): value.encode() for key, value in env.items()}
    status, stdout, _stderr = client.ask("podnet-ovs", said, json.dumps(conf).encode(), str(node.host_path(cni.SOCKET)))
    return int(json.loads(stdout)["code"]) if status else 0


def stand(node: Light, count: int) -> None:
    """So many attachments that stay."""
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        calls = [pool.submit(ask, node, "ADD", BARE, f"s{number}", "standing", f"n{number}") for number in range(count)]
        assert [call.result() for call in calls] == [0] * count


def come_and_go(node: Light, first: int, last: int) -> None:
    """The attachments of those numbers, eight at a time: each in the mode that its number says."""

    def work(worker: int) -> None:
        for number in range(first + worker, last, SIDE_BY_SIDE):
            conf = LEASED if number % 50 < SIDE_BY_SIDE else STATIC if number % 10 < 2 else BARE
            container, pod = f"c{number}", f"p{worker}"
            if number % 25 == 0:
                assert ask(node, "ADD", REFUSED, container, pod) == 7
            assert ask(node, "ADD", conf, container, pod) == 0
            if number % 25 == 1:
                assert ask(node, "ADD", conf, container, pod) == 7, "it is there already"
            assert ask(node, "DEL", conf, container, pod) == 0

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        list(pool.map(work, range(SIDE_BY_SIDE)))


def at_rest(agent: Resident) -> tuple[int, int]:
    """Descriptors and threads of the agent when no call is at work and none has left a thread."""
    until(lambda: agent.held()[1] <= QUIET_THREADS, 20, "an agent at rest")
    return agent.held()


@pytest.mark.holds("agent after 10,000 ADD/DEL with 500 ports standing: at most 45 MiB, flat over the last 5,000")
def test_what_the_agent_holds_is_flat(
    node: Light, agent: Resident, request: pytest.FixtureRequest, record_property: Any
) -> None:
    full = request.config.getoption("--full")
    standing, rounds = (500, (2500, 5000, 7500, 10_000)) if full else (20, (50, 150))
    come_and_go(node, 0, 2 * SIDE_BY_SIDE)
    readings = {"at first": agent.resident_mib()}
    stand(node, standing)
    readings[f"{standing} ports"] = agent.resident_mib()
    before = at_rest(agent)
    done = 0
    for count in rounds:
        began = time.monotonic()
        come_and_go(node, done, count)
        record_property(f"pairs a second to {count}", round((count - done) / (time.monotonic() - began), 1))
        assert at_rest(agent) == before, count
        readings[f"{count} pairs"] = agent.resident_mib()
        done = count
    record_property("MiB", {when: round(mib, 2) for when, mib in readings.items()})
    assert max(readings.values()) <= MOST_MIB, readings
    half, end = (readings[f"{count} pairs"] for count in ((5000, 10_000) if full else rounds))
    assert end - half <= FLAT_MIB, readings
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        numbers = range(standing)
        calls = [pool.submit(ask, node, "DEL", BARE, f"s{number}", "standing", f"n{number}") for number in numbers]
        assert [call.result() for call in calls] == [0] * standing
    assert traces(node) == {} and "Traceback" not in agent.log()
