# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pods that talk while Open vSwitch is restarted or reinstalled, and the product's agent and version change.

Beside them stands a pair of namespaces that Open vSwitch's own tools have attached: what it misses is Open vSwitch's.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Union

import pytest

from ansible_collections.podnet.ovs.tests.fault.releases import Releases
from ansible_collections.podnet.ovs.tests.fault.resident import Resident
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    import subprocess

    from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Light

    Node = Union[Full, Light]

EVERY = 0.05
QUIET = 0.25
"""Seconds without an answer that a busy machine may cause to one more than to the other."""
SLACK = 1.0
"""Seconds that a pod may miss more than the pair of Open vSwitch's own: its ports come one after the other."""
BARE_PAIR = """
for number in 1 2; do
    ip netns add bare$number
    ip link add bare$number type veth peer name eth0 netns bare$number
    ip netns exec bare$number ethtool -K eth0 tx off > /dev/null
    ip link set bare$number up
    ip -n bare$number link set eth0 up
    ip -n bare$number addr add 10.99.0.$number/24 dev eth0
    ip -n bare$number addr add fd00:99::$number/64 dev eth0 nodad
    ovs-vsctl add-port br-pod bare$number tag=200
done
"""


@dataclass
class Talk:
    """Echo requests from one namespace to an address: when each answer came."""

    source: str
    address: str
    process: subprocess.Popen[bytes]
    pid: str = ""
    answers: list[float] = field(default_factory=list)

    def longest(self, begin: float, end: float) -> float:
        """The longest time without an answer, beyond the pace, in the time between these two."""
        inside = [when for when in self.answers if begin - 1 <= when <= end]
        pairs = zip([begin - 1, *inside], [*inside, end])
        return max(after - before for before, after in pairs) - EVERY


class Talks:
    """All that talk at once; `phases` are what has happened meanwhile, with its times."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.talks: list[Talk] = []
        self.phases: dict[str, tuple[float, float]] = {}

    def begin(self, source: str, address: str) -> None:
        number = len(self.talks)
        words = f"echo $$ > /run/talk{number}; exec ip netns exec {source} ping -n -D -i {EVERY} -W 1 {address}"
        self.talks.append(Talk(source, address, self.node.popen("sh", "-c", words)))

    @contextmanager
    def phase(self, name: str, settle: float) -> Iterator[None]:
        """Something happens now; its effects have passed after `settle` seconds more."""
        begin = time.time()
        yield
        time.sleep(settle)
        self.phases[name] = begin, time.time()

    def end(self) -> None:
        """Ends all of them, and reads what they have heard."""
        self.node.sh("kill -INT $(cat /run/talk*); rm /run/talk*")
        for talk in self.talks:
            output = talk.process.communicate(timeout=30)[0].decode()
            talk.answers = [float(when) for when in re.findall(r"^\[([\d.]+)\] \d+ bytes from", output, flags=re.M)]

    def gaps(self, name: str) -> tuple[float, float]:
        """The longest time without an answer in a phase: among pods, and of the pair beside them."""
        begin, end = self.phases[name]
        both: list[list[float]] = [[], []]
        for talk in self.talks:
            both[talk.source.startswith("bare")].append(talk.longest(begin, end))
        return max(both[0]), max(both[1])


def attach_pairs(node: Node, pairs: int) -> Talks:
    """Pods in pairs that talk to each other in both families, and the pair beside them."""
    talks = Talks(node)
    node.sh(BARE_PAIR)
    node.sh("\n".join(f"ip netns add p{number}" for number in range(2 * pairs)))
    found: list[list[str]] = []
    for number in range(2 * pairs):
        result = cni.add(node, cni.configuration(), f"c{number}", f"p{number}")
        found.append([item["address"].partition("/")[0] for item in result["ips"]])
    for number in range(pairs):
        for address in found[2 * number + 1]:
            talks.begin(f"p{2 * number}", address)
    for address in ("10.99.0.2", "fd00:99::2"):
        talks.begin("bare1", address)
    time.sleep(2.0)
    return talks


def judge(talks: Talks, free: Sequence[str], record_property: Any) -> None:
    """`free` are the phases in which nothing may be missed."""
    gaps = {name: tuple(round(gap, 2) for gap in talks.gaps(name)) for name in talks.phases}
    record_property("gaps (pods, beside)", gaps)
    for name, (pods, beside) in gaps.items():
        if name in free:
            assert pods < beside + QUIET, gaps
        else:
            assert pods < beside + SLACK, gaps


@pytest.mark.holds("live pods through a restart of Open vSwitch: they keep their traffic but for its own gap")
def test_pods_talk_through_a_restart(lab: Lab, datapath: str, record_property: Any) -> None:
    """And a restart of the agent, or its death, is not noticed at all."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    agent = Resident(node)
    agent.start()
    talks = attach_pairs(node, 2)
    with talks.phase("agent restarted", 0.5):
        agent.end()
        agent.start()
    with talks.phase("agent killed", 0.5):
        agent.kill()
        agent.start()
    with talks.phase("Open vSwitch restarted", 2.0):
        node.ovs.restart()
    for number in range(4):
        cni.delete(node, cni.configuration(), f"c{number}", f"p{number}")
    talks.end()
    judge(talks, ("agent restarted", "agent killed"), record_property)
    assert cni.leftovers(node) == cni.NOTHING
    agent.close()


@pytest.mark.full
@pytest.mark.holds(
    "20 live pods through three restarts of Open vSwitch, a package reinstall, a version switch forward and back"
)
def test_twenty_pods_talk_for_years(lab: Lab, tmp_path: Path, record_property: Any) -> None:
    from ansible_collections.podnet.ovs.tests.lab import Nic

    lan = lab.lan("lan", ipv4="10.7.0.0/24", mirror=True)
    nics = [Nic("eth0", lan, "static"), Nic("eth1", lab.lan("uplink"))]
    node = lab.full("live", nics=nics, packages=["openvswitch-switch"], runtime=True)
    node.run("mkdir", "-p", "/etc/podnet")
    node.write("/etc/podnet/node.json", json.dumps(cni.node_document("netdev")))
    node.run("podnet", "node", "apply")
    node.sh("apt-get -q update; apt-get -q -y install containernetworking-plugins ethtool iputils-ping", timeout=300)
    releases = Releases(node, tmp_path)
    first, second = releases.current(), releases.build_another()
    talks = attach_pairs(node, 10)
    for turn in range(3):
        with talks.phase(f"restart {turn}", 6.0):
            node.run("systemctl", "restart", "openvswitch-switch", timeout=120)
    with talks.phase("reinstall", 6.0):
        node.run("apt-get", "-q", "-y", "install", "--reinstall", "openvswitch-switch", timeout=300)
    with talks.phase("version forward", 1.0):
        releases.switch(second)
    with talks.phase("version back", 1.0):
        releases.switch(first)
    with talks.phase("agent restarted", 1.0):
        node.run("systemctl", "restart", "podnet-agent.service")
    until(lambda: releases.of_agent() == first, 10, "the agent at work")
    node.run("ip", "netns", "add", "late")
    cni.add(node, cni.configuration(), "late", "late")
    cni.delete(node, cni.configuration(), "late", "late")
    for number in range(20):
        cni.delete(node, cni.configuration(), f"c{number}", f"p{number}")
    talks.end()
    judge(talks, ("version forward", "version back", "agent restarted"), record_property)
    assert "pn" not in node.run("ovs-vsctl", "list-ports", cni.BRIDGE).stdout
