# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podnet-routed, alone and as one of three networks of podnet-meta, when calls end in their middle: SIGKILL of the
client, of a plugin that serves itself, of the agent, at a moment of ADD or DEL that a seeded generator chooses.

Whatever the moment, the runtime's DEL or a GC takes away all that there is. PODNET_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.fault.resident import TURNS, Resident
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.routing import PATH, Bench, configuration
from ansible_collections.podnet.ovs.tests.lab import LabError, until

if TYPE_CHECKING:
    from subprocess import Popen

    from ansible_collections.podnet.ovs.tests.lab import Lab

SEED = int(os.environ.get("PODNET_SEED") or 1)
FEW, MANY = 4, 40
KEPT = "/var/lib/podnet/meta /run/podnet/meta /run/podnet/owed /run/podnet/routed"
POOL = {
    "type": "host-local",
    "ranges": [
        [{"subnet": "10.2.0.0/24", "rangeStart": "10.2.0.100", "gateway": "10.2.0.1"}],
        [{"subnet": "fd00:2::/64", "rangeStart": "fd00:2::100", "gateway": "fd00:2::1"}],
    ],
    "routes": [{"dst": "198.51.100.0/24"}, {"dst": "2001:db8:99::/64"}],
}
ROUTED = configuration("b", ipam=POOL)
META = {
    "cniVersion": "1.1.0",
    "name": "multi",
    "type": "podnet-meta",
    "result": "merged",
    "delegates": [
        {key: value for key, value in cni.configuration().items() if key != "cniVersion"},
        {key: value for key, value in ROUTED.items() if key != "cniVersion"},
        {"name": "bridged", "type": "bridge", "bridge": "cni0", "ipam": cni.ipam("10.10.8.0", "fd00:10::8:0")},
    ],
}
CONFIGURATIONS = {"routed": ROUTED, "meta": META}
SAMPLE = (("routed", "in-process"), ("meta", "client"), ("meta", "agent"))
"""What runs without --full."""


@pytest.fixture(scope="module")
def made(lab: Lab, datapath: str) -> Bench:
    """The node, with the bridge that Debian's plugin makes at its first call."""
    bench = Bench(lab, datapath)
    bench.node.sh("for pod in p1 p2 p3 p4; do ip netns add $pod; done")
    bench.add(META)
    bench.delete(META)
    return bench


@pytest.fixture
def bench(made: Bench) -> Iterator[Bench]:
    """The node. Afterwards it is as before."""
    before = left(made)
    yield made
    check_left(made, before, "the test")


def left(bench: Bench) -> dict[str, Any]:
    """Whatever a call may leave on the node."""
    node = bench.node
    veths = json.loads(node.run("ip", "-j", "link", "show", "type", "veth").stdout)
    return {
        **bench.state(),
        "files": node.run("sh", "-c", f"find {KEPT} -type f 2> /dev/null; true").stdout.split(),
        "veths": sorted(link["ifname"] for link in veths if link and not link["ifname"].startswith("eth")),
        "turns": node.sh(TURNS).stdout.split(),
    }


def check_left(bench: Bench, before: Mapping[str, Any], when: str) -> None:
    """Nothing may be there that was not; what the kernel still ends is given a moment."""
    try:
        until(lambda: left(bench) == before, 5, "the end of all that the calls made")
    except LabError:
        now = left(bench)
        found = {key: (before[key], now[key]) for key in before if now[key] != before[key]}
        assert not found, f"seed {SEED}, after {when}: {found}"


def begin(bench: Bench, verb: str, conf: Mapping[str, Any]) -> Popen[bytes]:
    """Begins a call and does not wait for it. The process is the plugin."""
    env = {**cni.environment(verb, "c1", "p1"), **PATH}
    process = bench.node.popen(f"/opt/cni/bin/{conf['type']}", env=env, stdin=PIPE, stderr=DEVNULL)
    assert process.stdin is not None
    process.stdin.write(json.dumps(conf).encode())
    process.stdin.close()
    process.stdin = None
    return process


def take_away(bench: Bench, conf: Mapping[str, Any], pod: str) -> None:
    """DEL, as a runtime repeats it."""
    for _turn in range(30):
        answer = bench.call("DEL", conf, "c1", pod)
        assert "Traceback" not in answer.stderr, answer
        if answer.code == 0:
            return
        time.sleep(0.3)
    raise AssertionError(f"seed {SEED}: DEL fails for ever: {answer}")


def times(bench: Bench, conf: Mapping[str, Any]) -> dict[str, float]:
    """How long a call takes that nobody disturbs; the first ones of an agent take longer."""
    found: dict[str, float] = {}
    for _turn in range(3):
        for verb in ("ADD", "DEL"):
            answer = bench.call(verb, conf)
            assert answer.code == 0, answer
            found[verb] = answer.seconds
    return found


@pytest.mark.holds(
    "SIGKILL of client, in-process plugin and agent at random moments of ADD and DEL of podnet-routed and podnet-meta"
)
@pytest.mark.parametrize(
    ("name", "victim"),
    [
        pytest.param(name, victim, marks=[pytest.mark.full] if (name, victim) not in SAMPLE else [])
        for name in CONFIGURATIONS
        for victim in ("in-process", "client", "agent")
    ],
)
def test_a_kill_at_any_moment(bench: Bench, name: str, victim: str, request: pytest.FixtureRequest) -> None:
    conf, chance = CONFIGURATIONS[name], random.Random(f"{SEED} {victim} {name}")
    agent = Resident(bench.node) if victim != "in-process" else None
    if agent is not None:
        agent.start()
    try:
        took, before = times(bench, conf), left(bench)
        for _kill in range(MANY if request.config.getoption("--full") else FEW):
            kill(bench, conf, victim, agent, chance, took)
            check_left(bench, before, f"a kill of {victim}")
    finally:
        if agent is not None:
            agent.close()


def kill(
    bench: Bench, conf: Mapping[str, Any], victim: str, agent: Resident | None, chance: random.Random,
    took: Mapping[str, float],
) -> None:  # fmt: skip
    """One kill, and what a runtime does then: with the pod's namespace or without, with the agent back or not yet."""
    verb, is_gone = chance.choice(["ADD", "ADD", "DEL"]), chance.random() < 0.25
    if verb == "DEL":
        bench.add(conf)
    process = begin(bench, verb, conf)
    time.sleep(chance.uniform(0.01, took[verb]))
    if victim == "agent":
        assert agent is not None
        agent.kill()
        if chance.random() < 0.5:
            agent.start()
        process.wait(60)
    else:
        process.kill()
        process.wait()
    if is_gone:
        bench.node.run("ip", "netns", "delete", "p1")
    if chance.random() < 0.3:
        bench.collect(conf)
    take_away(bench, conf, "" if is_gone else "p1")
    if is_gone:
        bench.node.netns("p1")
    if agent is not None and agent.process is not None and agent.process.poll() is not None:
        agent.start()


@pytest.mark.parametrize("way", ["agent", "in-process"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_two_adds_at_once_give_one_attachment(bench: Bench, name: str, way: str) -> None:
    conf = CONFIGURATIONS[name]
    with cni.serving(bench.node, way):
        for _turn in range(3):
            with ThreadPoolExecutor(2) as pool:
                answers = sorted(pool.map(lambda _number: bench.call("ADD", conf), range(2)), key=lambda it: it.code)
            assert [answer.code for answer in answers] == [0, 1], answers
            assert answers[1].document["code"] in (7, 11), answers
            checked = bench.call("CHECK", {**conf, "prevResult": answers[0].document})
            assert checked.code == 0, checked
            bench.delete(conf)


@pytest.mark.parametrize("way", ["agent", "in-process"])
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_dels_beside_an_add(bench: Bench, name: str, way: str) -> None:
    conf = CONFIGURATIONS[name]
    with cni.serving(bench.node, way), ThreadPoolExecutor(3) as pool:
        before = left(bench)
        for turn in range(5):
            added = pool.submit(bench.call, "ADD", conf)
            time.sleep(0.02 * turn)
            removed = [pool.submit(bench.call, "DEL", conf) for _number in range(2)]
            assert added.result().code == 0
            assert [item.result().code for item in removed] == [0, 0]
            take_away(bench, conf, "p1")
            check_left(bench, before, "DELs beside an ADD")


@pytest.mark.parametrize("how", ["DEL", "GC"])
def test_a_del_that_was_killed_after_its_uplink_was_gone(bench: Bench, how: str) -> None:
    """Its rules are gone already, and with the link all but the end of its tables."""
    bench.add(ROUTED)
    bench.make_eth2_anew()
    bench.lay_eth2()
    bench.node.sh("for f in -4 -6; do ip $f rule delete pref 2010; ip $f rule delete pref 2110; done")
    assert len(bench.table_lines("unreachable default")) == 2
    if how == "GC":
        bench.node.run("rm", "-r", "/run/podnet/routed")
        bench.collect(ROUTED)
        assert bench.table_lines("unreachable default") == []
    take_away(bench, ROUTED, "p1")
    assert bench.table_lines("unreachable default") == []
