# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Power cuts. The file layer of moves is recorded on a real node; each disk that a power cut could have left is put on
another one, and the boot guard run on it: its files are all of before or all of after, and the database agrees.

Then real ones: a node whose power goes at a random moment. PODNET_SEED chooses the samples and the moments.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import (
    APPLIED,
    COMMITTED,
    MOVE,
    ROLLED_BACK,
    UNBRIDGE,
)
from ansible_collections.podnet.ovs.tests.fault.crashes import Crash, Trace, crashes, played
from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, FAULT, NIC, Subject, other
from ansible_collections.podnet.ovs.tests.fault.scratch import (
    FOLDERS,
    RECORDED_DATABASE,
    Aftermath,
    Scratch,
    of_managers,
)
from ansible_collections.podnet.ovs.tests.fault.subjects import make_full, make_lan, make_machine
from ansible_collections.podnet.ovs.tests.lab import Nic, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan

SEED = int(os.environ.get("PODNET_SEED") or 1)
HERE = Path(__file__).parent
CARELESS = "open(path, 'w').write('new')"
HALF = "open(path + '.new', 'w').write('new'); os.replace(path + '.new', path)"
CAREFUL = (
    "from ansible_collections.podnet.ovs.plugins.module_utils.kernel.files import write_text; write_text(path, 'new')"
)


@dataclass(frozen=True)
class Recorded:
    """The trace of one move, with the files of network managers that are right before and after it."""

    direction: str
    end: str
    trace: Trace

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.direction}, {self.end}"

    def judge(self, found: Aftermath) -> bool:
        """Whether the node stands on its bridge. Raises AssertionError where the disk is neither before nor after."""
        assert not found.broken, f"the database is broken: {found.broken}"
        assert not found.open, f"moves that are not over: {found.open}"
        files = of_managers(found.files)
        first = of_managers(played(self.trace, 0, lambda _number, _part: True))
        last = of_managers(played(self.trace, len(self.trace.events), lambda _number, _part: True))
        assert files in (first, last), f"files of neither: {changed(files, first)}; {changed(files, last)}"
        bridged = (files == first) == (self.direction == UNBRIDGE) if first != last else self.direction == UNBRIDGE
        if bridged:
            assert found.records, "the node's files want the bridge, and no record says how to make it"
        else:
            assert not found.records, f"the node's files want the NIC, and there is a record of {found.records}"
            assert NIC not in found.ports, "the node's files want the NIC, and it is a port in the database"
            undone = self.direction == MOVE  # after a way back the bridge stays, for who asked for it to remove
            assert not undone or BRIDGE not in found.bridges, "the bridge is left in the database"
        return bridged


def changed(found: dict[str, tuple[str, str, int]], wanted: dict[str, tuple[str, str, int]]) -> list[str]:
    """The paths that differ."""
    return sorted(path for path in {*found, *wanted} if found.get(path) != wanted.get(path))


@pytest.fixture(scope="module")
def lan(lab: Lab) -> Lan:
    """The LAN of all nodes."""
    return make_lan(lab)


@pytest.fixture(scope="module")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every row is to be shown, and not a sample."""
    return bool(request.config.getoption("--full"))


@pytest.mark.parametrize(
    ("script", "lost"),
    [(CARELESS, {"", "old", "new"}), (HALF, {"", "old", "new"}), (CAREFUL, {"old", "new"})],
    ids=["written in place", "renamed without fsync", "kernel.files"],
)
def test_the_model_of_a_power_cut(tmp_path: Path, script: str, lost: set[str]) -> None:
    """The harness itself: it must find what a careless writer loses, and that a careful one loses nothing."""
    folder, trace = tmp_path / "etc", tmp_path / "trace"
    folder.mkdir()
    (folder / "file").write_text("old", encoding="utf-8")
    program = (
        "import contextlib, os, pathlib, recorded\n"
        f"what = {{'folders': [{str(folder)!r}], 'files': []}}\n"
        f"recorder = recorded.Recorder(pathlib.Path({str(trace)!r}), contextlib.nullcontext, what)\n"
        f"recorder.start(); path = {str(folder / 'file')!r}\n{script}\nrecorder.mark('end')\n"
    )
    path = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60, env={**os.environ, "PYTHONPATH": path})
    read = Trace.read(trace, [str(folder)], "")
    found = {crash.entries.get(str(folder / "file")) for crash in crashes(read)}
    assert {read.content(entry).decode() if entry else "gone" for entry in found} == lost


@pytest.fixture(scope="module")
def traces(lab: Lab, lan: Lan) -> list[Recorded]:
    """Moves and ways back on a node with systemd-networkd, recorded: undone, and confirmed."""
    subject = make_full(lab, lan, "recorded")
    found = []
    for direction in (MOVE, UNBRIDGE):
        for end in (ROLLED_BACK, COMMITTED):
            subject.node.sh(f"rm -rf {FAULT}/trace")
            subject.tell(record={"folders": FOLDERS, "files": [RECORDED_DATABASE]})
            run_to(subject, direction, end)
            subject.tell()
            found.append(
                Recorded(direction, end, Trace.read(subject.path(f"{FAULT}/trace"), FOLDERS, RECORDED_DATABASE))
            )
    subject.node.down()
    return found


def run_to(subject: Subject, direction: str, end: str) -> None:
    """A whole move that is confirmed, or undone."""
    if end == COMMITTED:
        subject.run_whole(direction)
        time.sleep(1)  # `cleaned` follows
        return
    move, begun = subject.begin(direction, 60)
    assert begun.returncode == 0, begun.stdout + begun.stderr
    subject.wait_for(move, APPLIED, seconds=60)
    subject.rollback(move)
    subject.wait_for(move, ROLLED_BACK, seconds=60)
    time.sleep(1)


@pytest.fixture(scope="module")
def scratches(lab: Lab) -> list[Scratch]:
    """Nodes for disks."""
    trunk = lab.lan("nowhere")
    found = []
    for number in (1, 2):
        node = lab.light(f"scratch{number}", nics=[Nic(NIC, trunk)])
        node.ovs.stop()
        node.install_runtime()
        found.append(Scratch(node))
    return found


@pytest.mark.holds("power cut: every prefix of the recorded file layer through the guard offline")
def test_every_disk_that_a_power_cut_leaves(traces: list[Recorded], scratches: list[Scratch], full: bool) -> None:
    chance = random.Random(SEED)
    todo = []
    for recorded in traces:
        found = list(crashes(recorded.trace, SEED))
        print(f"{recorded.name}: {len(recorded.trace.events)} events, {len(found)} disks")
        chosen = found if full else chance.sample(found, min(len(found), 5))
        todo += [(recorded, crash) for crash in chosen]
    with ThreadPoolExecutor(len(scratches)) as pool:
        parts = [(scratch, todo[number :: len(scratches)], full) for number, scratch in enumerate(scratches)]
        failures = [failure for some in pool.map(lambda part: guarded(*part), parts) for failure in some]
    assert not failures, f"{len(failures)} of {len(todo)} disks:\n" + "\n".join(failures[:40])


def guarded(scratch: Scratch, todo: Sequence[tuple[Recorded, Crash]], full: bool) -> list[str]:
    """Boots each disk through the guard, and says what went wrong. Some that stand on the bridge boot further."""
    failures, further = [], 0
    for recorded, crash in todo:
        try:
            scratch.put(recorded.trace, crash)
            scratch.guard()
            bridged = recorded.judge(scratch.aftermath())
            scratch.guard()  # the power may go again
            assert recorded.judge(scratch.aftermath()) == bridged, "a second guard changed its mind"
            if bridged and further < (30 if full else 1):
                further += 1
                scratch.ensure()
        except (AssertionError, json.JSONDecodeError) as error:
            failures.append(f"--- {recorded.name}: {crash}\n{error}")
            print(failures[-1], flush=True)
    return failures


@pytest.mark.holds("power cut of a full node at random moments: reachable after boot, clean re-run")
def test_a_node_loses_its_power(lab: Lab, lan: Lan, full: bool) -> None:
    lose_power(make_full(lab, lan, "power"), 10 if full else 1, 120)


@pytest.mark.vm
@pytest.mark.full
@pytest.mark.holds("10 real power cuts of a machine with a disk: reachable after boot, consistent, clean re-run")
def test_a_machine_loses_its_power(lab: Lab, lan: Lan) -> None:
    lose_power(make_machine(lab, lan, "machine"), 10, 400)  # it is emulated


def lose_power(subject: Subject, cuts: int, timeout: int) -> None:
    """Moves and ways back in turn, each cut at a random moment of the time that an undisturbed one takes, and a little.

    The confirmation comes as soon as it can, so that the moments lie before, in and after the commit. `timeout`:
    seconds for a whole move.
    """
    chance = random.Random(SEED)
    began = time.monotonic()
    subject.run_whole(MOVE, timeout)
    longest = 1.2 * (time.monotonic() - began)
    subject.run_whole(UNBRIDGE, timeout)
    direction = MOVE
    for _cut in range(cuts):
        moment = chance.uniform(0.2, longest)
        move, begun = subject.begin(direction, timeout)
        assert begun.returncode == 0, begun.stdout + begun.stderr
        while time.monotonic() < move.began + moment:
            if subject.state(move) == APPLIED:
                subject.confirm(move)
            time.sleep(0.05)
        state = subject.state(move)
        subject.full.power_cycle(timeout=240)
        what = f"{direction} cut after {moment:.1f} s in {state or 'nothing'}"
        until(subject.reachable, 60, f"{what}: the node on its addresses")
        found = subject.state(move)
        print(f"{what}: {found or 'nothing'}", flush=True)
        assert found in (COMMITTED, ROLLED_BACK, ""), f"{what}: it is {found}"
        if found != COMMITTED:
            subject.run_whole(direction, timeout)
        assert subject.full.ssh("true").returncode == 0
        assert bool(subject.bridges()) == (direction == MOVE), what
        direction = other(direction)
