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
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import COMMITTED, MOVE, OPEN, UNBRIDGE
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import UPLINK
from ansible_collections.podnet.ovs.tests.fault.harness import GRACE, Move, Subject, Watch
from ansible_collections.podnet.ovs.tests.fault.subjects import make_full, make_lan
from ansible_collections.podnet.ovs.tests.integration.controller import Controller as Ansible, end_all, environment
from ansible_collections.podnet.ovs.tests.lab import Full, LabError, until

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


# The same with Ansible

ANSIBLE_TIMEOUT = 30
"""On a busy machine Ansible needs seconds for each of its connections."""
PLAY_SECONDS = 180.0
"""When a playbook counts as hung."""


@dataclass
class Playing:
    """A playbook that runs, who plays it, and the bridge that it wants."""

    name: str
    bridge: str
    process: subprocess.Popen[bytes]
    output: Path
    killed: bool = False

    @classmethod
    def start(cls, ansible: Ansible, subject: Subject, name: str, bridge: str) -> Playing:
        """Starts `site` for one node, as this user, over a shared ssh connection of its own."""
        declared = {"name": bridge, "datapath_type": "netdev", "uplinks": [{"name": "eth0", "move": True}]}
        output = ansible.folder / f"{subject.node.name}-{name}"
        variables = {
            "podnet_bridges": [declared],
            "podnet_move_timeout": ANSIBLE_TIMEOUT,
            "ansible_control_path_dir": f"{output}.ssh",
        }
        words = ansible.words("site", "--tags", "node", "--limit", subject.node.name, "-e", json.dumps(variables))
        with open(output, "wb") as file:
            process = subprocess.Popen(
                words,
                cwd=ansible.folder,
                env={**environment(ansible.folder), "LOGNAME": name},
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
            )
        return cls(name, bridge, process, output)

    def kill(self) -> None:
        """Ends it as if its machine were gone, if it still runs."""
        self.killed = self.process.poll() is None
        end_all(self.process)

    def said(self) -> str:
        """What it printed."""
        return self.output.read_text(encoding="utf-8", errors="replace")


@pytest.mark.full
@pytest.mark.holds("two controllers at the same second with different bridge names, one killed at random")
def test_two_ansible_controllers(lab: Lab, lan: Lan, tmp_path: Path) -> None:
    rounds, count = 20, 2
    nodes = [node for node in lab.nodes.values() if isinstance(node, Full)][:count]
    subjects = [Subject(node, lan, "networkd") for node in nodes]
    subjects += [make_full(lab, lan, f"node{number}") for number in range(len(nodes), count)]
    names: dict[str, dict[str, str]] = {subject.node.name: {} for subject in subjects}
    ansible = Ansible.make(tmp_path, lab.inventory(), {}, names)
    began = time.monotonic()
    stop = threading.Event()
    with ThreadPoolExecutor(count) as pool:
        parts = [(ansible, subject, len(range(number, rounds, count)), stop) for number, subject in enumerate(subjects)]
        try:
            ends = [end for some in pool.map(lambda part: play_ansible(*part), parts) for end in some]
        finally:
            stop.set()
    seconds = time.monotonic() - began
    print(f"{len(ends)} rounds in {seconds:.0f} s on {count} nodes: {dict(Counter(ends))}")
    assert len(ends) == rounds


def play_ansible(ansible: Ansible, subject: Subject, rounds: int, stop: threading.Event) -> list[str]:
    """Plays rounds on one node until told to stop, and gives how each ended.

    One playbook that nothing disturbs says how long it takes.
    """
    chance = random.Random(f"{SEED} {subject.node.name}")
    forget(subject)
    began = time.monotonic()
    alone = Playing.start(ansible, subject, "alone", "br-a")
    try:
        assert alone.process.wait(PLAY_SECONDS) == 0, alone.said()
    finally:
        end_all(alone.process)
    pace = time.monotonic() - began
    print(f"{subject.node.name}: one playbook alone takes {pace:.1f} s")
    clear(subject, "br-a")
    ends: list[str] = []
    try:
        while len(ends) < rounds and not stop.is_set():
            ends.append(ansible_round(ansible, subject, chance, pace))
    except BaseException:
        stop.set()
        raise
    return ends


def ansible_round(ansible: Ansible, subject: Subject, chance: random.Random, pace: float) -> str:
    """Two playbooks begin, one is killed, the node comes to rest: on one bridge, or on its NIC as before."""
    wanted = [("control-a", "br-a"), ("control-b", "br-b")]
    chance.shuffle(wanted)
    known = set(journals(subject))
    with Watch(subject) as watch:
        both = [Playing.start(ansible, subject, *words) for words in wanted]
        try:
            time.sleep(chance.uniform(0, pace))
            chance.choice([one for one in both if one.process.poll() is None] or both).kill()
            until(
                lambda: all(playing.process.poll() is not None for playing in both),
                PLAY_SECONDS,
                f"the end of both playbooks: {[playing.output for playing in both]}",
                0.2,
            )
        except LabError as error:
            shown = subject.podnet("status", "--json").stdout
            raise LabError(f"{error}\n{[playing.said() for playing in both]}\n{shown}") from error
        finally:
            for playing in both:
                end_all(playing.process)
        said = {playing.name: playing.said() for playing in both}
        until(
            lambda: not any(item["state"] in OPEN for item in journals(subject).values()),
            ANSIBLE_TIMEOUT + GRACE + PACE,
            f"the end of the moves: {said}",
        )
        time.sleep(1)
    moves = [item for name, item in journals(subject).items() if name not in known]
    # deadlines are of the clock that goes on while a machine sleeps
    behind = time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic()
    end = max((item["deadline"] - behind for item in moves), default=watch.last_found) + GRACE
    assert watch.last_lost <= end and watch.last_found > watch.last_lost, f"not on its addresses: {said}"
    winners = [item["request"]["bridge"]["name"] for item in moves if item["state"] == COMMITTED]
    assert subject.bridges() == winners and len(winners) <= 1, f"{moves} and the NIC is on {subject.bridges()}"
    ends = []
    for playing in both:
        other = next(one for one in both if one is not playing)
        text = said[playing.name]
        if playing.killed:
            ends.append("killed")
        elif playing.process.returncode == 0:
            assert winners == [playing.bridge], f"{winners}: {text}"
            ends.append("committed")
        elif '"result": "rolled_back"' in text:
            ends.append("rolled back")
        else:
            busy = f"begun by {other.name}" in text
            assert busy or (winners == [other.bridge] and other.bridge in text), f"who holds it is not named: {text}"
            ends.append("busy" if busy else "late")
    for bridge in winners:
        clear(subject, bridge)
    end_of_round = f"{'one' if winners else 'none'} holds it, {sorted(ends)}"
    print(f"{subject.node.name}: {end_of_round}", flush=True)
    return end_of_round


def journals(subject: Subject) -> dict[str, dict[str, Any]]:
    """The journals of the moves that the node knows, by id."""
    found = subject.path(UPLINK).glob("*/journal.json")
    return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in found}


def clear(subject: Subject, bridge: str) -> None:
    """The NIC out of a bridge again, and nothing left of what a playbook has declared."""
    subject.run_whole(UNBRIDGE, bridge=bridge)
    forget(subject)


def forget(subject: Subject) -> None:
    """No bridge and no declaration is left of what was there before."""
    subject.node.sh(
        "ovs-vsctl --timeout=20 -- --if-exists del-br br-a -- --if-exists del-br br-b; rm -f /etc/podnet/node.json"
    )
