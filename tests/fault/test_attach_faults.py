# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Attachments come and go while what they need is frozen, killed, restarted or away, and their agent too.

Moments and order come from a seeded generator: PODNET_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.plugin import SECONDS
from ansible_collections.podnet.ovs.plugins.module_utils.client import SIGN_SECONDS
from ansible_collections.podnet.ovs.tests.fault.resident import (
    QUIET_FILES,
    QUIET_THREADS,
    Resident,
    codes,
    collect,
    traces,
)
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SEED = int(os.environ.get("PODNET_SEED") or 1)
SIDE_BY_SIDE = 6
POOL = {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/16"}], [{"subnet": "fd00:20::/64"}]]}
PLAIN = cni.configuration(ipam=POOL)
LIMITED = cni.configuration(
    ipam=POOL, runtimeConfig={"bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000}}
)  # fmt: skip
GUARDED = cni.configuration(ipam=POOL, spoof_check=True)
BARE = cni.configuration(ipam=None)
TRY_AGAIN, UNAVAILABLE = 11, 50
DATABASE, SWITCH = "ovsdb-server", "ovs-vswitchd"


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with a bridge and six pods, without an agent."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    made.sh("\n".join(f"ip netns add p{number}" for number in range(SIDE_BY_SIDE)))
    return made


@pytest.fixture
def agent(node: Light) -> Iterator[Resident]:
    """The node's agent, not started."""
    made = Resident(node)
    node.run("rm", "-f", "/run/agent.log")
    yield made
    made.close()


@dataclass
class Story:
    """What the calls of a run answered, and how long they took."""

    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    longest: dict[str, float] = field(default_factory=dict)
    odd: list[str] = field(default_factory=list)
    happens: str = ""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, verb: str, answer: cni.Answer) -> int:
        """Takes down an answer; gives its code."""
        code = codes(answer)
        with self.lock:
            self.counts[verb, code] += 1
            self.longest[verb] = max(self.longest.get(verb, 0.0), answer.seconds)
            if code not in (0, TRY_AGAIN, UNAVAILABLE):
                self.odd.append(f"{verb} while {self.happens}: {answer.stdout.strip()}")
            if answer.seconds > SECONDS[verb] + SIGN_SECONDS:
                self.odd.append(f"{verb} while {self.happens}: {answer.seconds:.1f} s")
        return code


class Troubles:
    """One trouble after the other, at random moments, until `stop`; afterwards all works."""

    def __init__(
        self, node: Light, agent: Resident | None, chance: random.Random, story: Story, most: float
    ) -> None:  # fmt: skip
        self.node, self.agent, self.chance, self.story, self.most = node, agent, chance, story, most
        self.names = [*_OVS, *(_AGENT if agent else ())]
        self.seen: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.error: BaseException | None = None

    def __enter__(self) -> Troubles:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.chance.uniform(0.05, 0.5)):
                if not self.seen.keys() >= set(self.names):
                    name = self.chance.choice([name for name in self.names if name not in self.seen])
                else:
                    name = self.chance.choice(self.names)
                self.seen[name] += 1
                self.story.happens = name
                {**_OVS, **_AGENT}[name](self, self.chance.uniform(0.05, self.most))
                self.story.happens = f"all works after {name}"
        except BaseException as error:  # carried over to the test
            self.error = error

    def frozen(self, daemon: str, seconds: float) -> None:
        self.node.ovs.freeze(daemon)
        time.sleep(seconds)
        self.node.ovs.thaw(daemon)

    def killed(self, daemon: str, seconds: float) -> None:
        self.node.ovs.kill(daemon)
        time.sleep(seconds)
        self.node.ovs.start(daemon)

    def restarted(self, daemon: str, seconds: float) -> None:
        self.node.ovs.stop(daemon)
        time.sleep(seconds)
        self.node.ovs.start(daemon)

    def resident(self) -> Resident:
        assert self.agent is not None
        return self.agent

    def agent_killed(self, seconds: float) -> None:
        self.resident().kill()
        time.sleep(seconds)
        self.resident().start()

    def agent_hung(self, seconds: float) -> None:
        self.resident().freeze()
        time.sleep(2 * seconds)
        self.resident().thaw()

    def agent_upgraded(self, _seconds: float) -> None:
        assert self.resident().end() == 0
        self.resident().start()


_Trouble = Callable[[Troubles, float], None]


def _of(daemon: str, way: Callable[[Troubles, str, float], None], most: float) -> _Trouble:
    return lambda troubles, seconds: way(troubles, daemon, min(seconds, most))


_OVS: dict[str, _Trouble] = {
    f"{daemon} is {what}": _of(daemon, way, most)
    for daemon in (DATABASE, SWITCH)
    for what, way, most in (
        ("frozen", Troubles.frozen, 9.0), ("killed", Troubles.killed, 0.0), ("away", Troubles.killed, 9.0),
        ("restarted", Troubles.restarted, 0.0),
    )
}  # fmt: skip
_AGENT: dict[str, _Trouble] = {
    "the agent is killed": Troubles.agent_killed,
    "the agent hangs": Troubles.agent_hung,
    "the agent is upgraded": Troubles.agent_upgraded,
}


def attach_and_detach(node: Light, worker: int, total: int, story: Story) -> None:
    """One pod's pairs of ADD and DEL. A DEL that fails is repeated, as a runtime does."""
    chance = random.Random(f"{SEED} {worker}")
    for number in range(worker, total, SIDE_BY_SIDE):
        conf = chance.choice([PLAIN, PLAIN, LIMITED, GUARDED, BARE])
        container, pod = f"c{number}", f"p{worker}"
        story.add("ADD", cni.call(node, "ADD", conf, container, pod))
        time.sleep(chance.uniform(0.0, 0.6))
        for _turn in range(30):
            if story.add("DEL", cni.call(node, "DEL", conf, container, pod)) == 0:
                break
            time.sleep(0.5)
        else:
            raise AssertionError(f"seed {SEED}: DEL of {container} fails for ever")


@pytest.fixture(params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def way(request: pytest.FixtureRequest) -> str:
    """By whom calls are served."""
    return str(request.param)


@pytest.mark.holds(
    "ovsdb-server or ovs-vswitchd frozen, killed, restarted, absent; agent killed, hung, upgraded; at a random moment "
    "in 1,000 ADD/DEL: codes 11 or 50 within the deadline; after the runtime's own DEL or the next GC nothing is left"
)
def test_whatever_fails_at_a_random_moment(
    node: Light, agent: Resident, way: str, request: pytest.FixtureRequest, record_property: Any
) -> None:
    full = request.config.getoption("--full")
    total = (1000 if way == "agent" else 200) if full else 42
    story = Story()
    if way == "agent":
        agent.start()
    troubles = Troubles(node, agent if way == "agent" else None, random.Random(SEED), story, 2.5 if full else 0.8)
    with troubles, ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        workers = [pool.submit(attach_and_detach, node, worker, total, story) for worker in range(SIDE_BY_SIDE)]
        for worker in workers:
            worker.result()
    record_property("calls", {f"{verb} {code}": number for (verb, code), number in sorted(story.counts.items())})
    record_property("longest", {verb: round(seconds, 1) for verb, seconds in story.longest.items()})
    record_property("troubles", dict(troubles.seen))
    assert not story.odd, f"seed {SEED}: " + "\n".join(story.odd)
    node.ovs.vsctl("set", "Bridge", cni.BRIDGE, "external_ids:test=over")  # waits until ovs-vswitchd is at work
    record_property("before GC", traces(node))
    collect(node, PLAIN)
    assert traces(node) == {}, f"seed {SEED}"
    if way == "agent":
        assert "Traceback" not in agent.log() and "internal error" not in agent.log()
        until(lambda: agent.held()[1] <= QUIET_THREADS, 10, "the end of all threads of calls")
        assert agent.held()[0] <= QUIET_FILES, agent.held()
