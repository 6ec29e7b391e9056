# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two controllers that move the NIC of one node to different bridges at the same time, one of them killed."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import COMMITTED, MOVE, UNBRIDGE
from ansible_collections.podnet.ovs.tests.fault.harness import GRACE, Move, Subject, Watch
from ansible_collections.podnet.ovs.tests.fault.subjects import make_full, make_lan
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan

SEED = int(os.environ.get("PODNET_SEED") or 1)
TIMEOUT = 15


@dataclass
class Controller:
    """A running controller: its move, the bridge that it wants, and its name, which the node keeps as the holder."""

    name: str
    bridge: str
    move: Move
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, subject: Subject, name: str, bridge: str) -> Controller:
        """Starts it in a session of its own: with it die its ssh clients."""
        move = Move(MOVE, TIMEOUT)
        document = subject.begin_document(move, bridge, holder=name)
        process = subprocess.Popen(
            [sys.executable, "-I", str(Path(__file__).with_name("controller.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stdin is not None
        json.dump({"ssh": subject.full.ssh_words(), "begin": document, "nonce": move.nonce}, process.stdin)
        process.stdin.close()
        return cls(name, bridge, move, process)

    def kill(self) -> None:
        """Ends it at once, wherever it is."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def result(self) -> dict[str, Any]:
        """What it said; nothing if it was killed."""
        assert self.process.stdout is not None
        with self.process.stdout:
            text = self.process.stdout.read()
        self.process.wait(timeout=60)
        found: dict[str, Any] = json.loads(text) if text else {"result": "killed", "answer": {}}
        return found


@pytest.fixture(scope="module")
def lan(lab: Lab) -> Lan:
    """The LAN of all nodes."""
    return make_lan(lab)


@pytest.mark.holds("two controllers at the same second with different bridge names, one killed at random")
def test_two_controllers(lab: Lab, lan: Lan, request: pytest.FixtureRequest) -> None:
    full = bool(request.config.getoption("--full"))
    rounds, count = (50, 3) if full else (2, 1)
    subjects = [make_full(lab, lan, f"node{number}") for number in range(count)]
    with ThreadPoolExecutor(count) as pool:
        parts = [(subject, len(range(number, rounds, count)), number) for number, subject in enumerate(subjects)]
        ends = [end for some in pool.map(lambda part: play(*part), parts) for end in some]
    print(f"{len(ends)} rounds: {dict(Counter(ends))}")


def play(subject: Subject, rounds: int, number: int) -> list[str]:
    """Plays rounds on one node, and gives how each ended."""
    chance = random.Random(f"{SEED} {number}")
    return [one_round(subject, chance) for _round in range(rounds)]


PACE = 60.0
"""Seconds that a confirmed move may take for its files on a busy machine. The node is reached all the while."""


def one_round(subject: Subject, chance: random.Random) -> str:
    """Two begin, one is killed, the node comes to rest: on one bridge, or on its NIC as before."""
    wanted = [("control-a", "br-a"), ("control-b", "br-b")]
    chance.shuffle(wanted)
    with Watch(subject) as watch:
        controllers = [Controller.start(subject, *words) for words in wanted]
        victim = chance.choice(controllers)
        time.sleep(chance.uniform(0, 6))
        victim.kill()
        results = {controller.name: controller.result() for controller in controllers}
        end = max(controller.move.deadline for controller in controllers) + GRACE
        until(
            lambda: all(subject.over(controller.move) for controller in controllers),
            max(end - time.monotonic(), 0.1) + PACE,
            f"the end of both moves: {results}",
        )
        time.sleep(1)
    assert watch.last_lost <= end and watch.last_found > watch.last_lost, f"not on its addresses: {results}"
    states = {controller.bridge: subject.state(controller.move) for controller in controllers}
    winners = [bridge for bridge, state in states.items() if state == COMMITTED]
    assert subject.bridges() == winners and len(winners) <= 1, f"{states} and the NIC is on {subject.bridges()}"
    for controller in controllers:
        said = results[controller.name]
        if said["result"] in ("busy", "refused"):
            other_name = next(name for name, _bridge in wanted if name != controller.name)
            assert other_name in json.dumps(said["answer"]), f"the holder is not named: {said}"
        if said["result"] not in ("killed", "busy", "refused", "unreachable"):  # the last one claims nothing
            assert said["result"] == states[controller.bridge], f"{said} and {states}"
    if winners:
        subject.run_whole(UNBRIDGE, bridge=winners[0])
    return f"{'one' if winners else 'none'} holds it, {sorted(said['result'] for said in results.values())}"
