# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A confirmation that comes when the time is over: exactly one of confirm and timer wins, and the node obeys it."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import (
    APPLIED,
    COMMITTED,
    COMMITTING,
    MOVE,
    ROLLED_BACK,
    ROLLING_BACK,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import UPLINK
from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, GRACE, NIC, Subject, other
from ansible_collections.podnet.ovs.tests.fault.subjects import make_full, make_lan, make_light
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan

SEED = int(os.environ.get("PODNET_SEED") or 1)
OFFSET = 0.05
"""Seconds by which the two are apart at most."""
LEAD = 0.02


class Racer:
    """A process in a node that does what it is told at the moment it is told."""

    def __init__(self, subject: Subject) -> None:
        lib = "/opt/podnet/current/lib"
        words = ["/usr/bin/python3", "-IS", "/opt/racer.py", lib]
        self._process = subprocess.Popen(
            [*subject.node.enter(), *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def tell(self, verb: str, name: str, moment: float = 0) -> None:
        """Gives it something to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{verb} {name} {moment}\n")
        self._process.stdin.flush()

    def answer(self) -> str:
        """What became of the last."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()[0]

    def close(self) -> None:
        """Ends it."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(timeout=10)


@pytest.fixture(scope="module")
def lan(lab: Lab) -> Lan:
    """The LAN of all nodes."""
    return make_lan(lab)


@pytest.fixture(scope="module")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every row is to be shown, and not a sample."""
    return bool(request.config.getoption("--full"))


@pytest.mark.holds("confirm against timer: two processes on the real journal, ± 50 ms: exactly one wins")
def test_of_two_processes_exactly_one_wins(lab: Lab, lan: Lan, datapath: str, full: bool) -> None:
    rounds = 1000 if full else 100
    subject = make_light(lab, lan, "journal", datapath)
    subject.node.write("/opt/request.json", json.dumps(subject.request(MOVE, 60)))
    chance = random.Random(SEED)
    subject.node.write("/opt/racer.py", Path(__file__).with_name("racer.py").read_bytes())
    first, second = Racer(subject), Racer(subject)
    ends: Counter[str] = Counter()
    for number in range(rounds):
        name = f"race-{number}"
        first.tell("make", name)
        assert first.answer() == APPLIED
        moment = time.monotonic() + OFFSET + LEAD
        first.tell("confirm", name, moment)
        second.tell("expire", name, moment + chance.uniform(-OFFSET, OFFSET))
        answers = {first.answer(), second.answer()}
        assert answers in ({COMMITTING, f"lost:{COMMITTING}"}, {ROLLING_BACK, f"lost:{ROLLING_BACK}"}), answers
        winner = next(answer for answer in answers if not answer.startswith("lost"))
        journal = subject.path(f"{UPLINK}/{name}/journal.json")
        assert json.loads(journal.read_text(encoding="utf-8"))["state"] == winner
        ends[winner] += 1
        shutil.rmtree(journal.parent)
    first.close()
    second.close()
    print(f"{rounds} rounds: {dict(ends)}")
    assert min(ends[COMMITTING], ends[ROLLING_BACK]) > rounds / 10, f"no race: {ends}"


@pytest.mark.holds("confirm against the real timer: the node is as the winner says")
def test_a_confirmation_when_the_timer_fires(lab: Lab, lan: Lan, datapath: str, full: bool) -> None:
    """The confirmation is sent so that the product decides on it when the deadline comes, more or less."""
    if datapath != "netdev":
        pytest.skip("full nodes have no kernel datapath")
    subjects = [make_full(lab, lan, f"timer{number}") for number in range(2 if full else 1)]
    rounds = 20 if full else 1
    with ThreadPoolExecutor(len(subjects)) as pool:
        parts = [(subject, rounds // len(subjects), number) for number, subject in enumerate(subjects)]
        ends = [end for some in pool.map(lambda part: against_timer(*part), parts) for end in some]
    print(f"{rounds} rounds with the timer: {dict(Counter(ends))}")


def against_timer(subject: Subject, rounds: int, number: int) -> list[str]:
    """Plays rounds on one node, and gives how each ended. Raises AssertionError where the node is not as it says."""
    chance = random.Random(f"{SEED} {number}")
    subject.run_whole(MOVE)
    began = time.monotonic()
    subject.podnet("status", "--json")
    latency = time.monotonic() - began
    direction, ends = other(MOVE), []
    for _round in range(rounds):
        move, begun = subject.begin(direction, subject.deadline())
        assert begun.returncode == 0, begun.stdout + begun.stderr
        subject.wait_for(move, APPLIED, seconds=60)
        journal = json.loads(subject.path(f"{UPLINK}/{move.id}/journal.json").read_text(encoding="utf-8"))
        left = journal["deadline"] - time.clock_gettime(time.CLOCK_BOOTTIME)
        time.sleep(max(left - latency + chance.uniform(-OFFSET, OFFSET), 0))
        confirmed = subject.confirm(move)
        state = subject.wait_for(move, COMMITTED, ROLLED_BACK, seconds=GRACE + subject.pace)
        answer = json.loads(confirmed.stdout)
        if confirmed.returncode == 0:
            assert state == COMMITTED, f"confirmed with {answer}, and yet {state}"
        else:
            assert state == ROLLED_BACK and answer["kind"] == "lost", f"{answer} and {state}"
        until(subject.reachable, 5, "the node on its addresses")
        on_bridge = (direction == MOVE) == (state == COMMITTED)
        assert subject.bridges() == ([BRIDGE] if on_bridge else [])
        until(partial(subject.carries, BRIDGE if on_bridge else NIC), 5, "addresses where the winner says")
        ends.append(state)
        direction = other(direction) if state == COMMITTED else direction
    return ends
