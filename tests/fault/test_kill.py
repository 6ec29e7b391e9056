# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""SIGKILL at each point of a move and of the way back, before and after the confirmation, and while it is undone.

Whatever the point: the node is on its addresses again soon after the deadline, by itself; nothing is left of the move;
and the same move then succeeds. PODNET_SEED chooses the sample that runs without --full.
"""

from __future__ import annotations

import itertools
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from subprocess import SubprocessError
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import (
    APPLIED,
    COMMITTED,
    MOVE,
    PLANNED,
    ROLLED_BACK,
    UNBRIDGE,
)
from ansible_collections.podnet.ovs.plugins.module_utils.uplink import points
from ansible_collections.podnet.ovs.tests.fault.harness import GRACE, Move, Subject, Watch, other
from ansible_collections.podnet.ovs.tests.fault.listing import Listing, difference, listing
from ansible_collections.podnet.ovs.tests.fault.subjects import (
    BEFORE,
    make_full,
    make_lan,
    make_light,
    references,
    remove_bridge,
)
from ansible_collections.podnet.ovs.tests.lab import LabError, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan

SEED = int(os.environ.get("PODNET_SEED") or 1)
PHASES = {"begin": points.BEGIN, "forward": points.FORWARD, "commit": points.COMMIT, "back": points.BACK}
PROMISE = "SIGKILL at every named point × {move, un-bridge} × {before, after confirm}: reachable, clean re-run"
GIVE_UP = 5
"""After so many failures a node plays no more rows."""
IN_MACHINE = (
    ("forward", "half-crossed"),
    ("back", "back-half-crossed"),
    ("commit", "files-written"),
    ("forward", "half-crossed"),
    ("back", "back-half-crossed"),
)
"""The five that are shown on the kernel datapath too."""


@dataclass(frozen=True)
class Row:
    """One kill. `times`: of how many times that the point is reached. `whole`: with all of the service or session."""

    direction: str
    phase: str
    point: str
    times: tuple[int, ...] = (1,)
    whole: bool = False
    by_deadline: bool = False
    """Of a move that is undone: because nobody confirmed it, and not because it was asked for."""

    def __str__(self) -> str:
        more = " again" * (len(self.times) > 1) + " whole" * self.whole + " by deadline" * self.by_deadline
        return f"{self.direction} {self.phase} {self.point}{more}"


def rows() -> list[Row]:
    """Every point in both directions; after the confirmation and on the way back also killed again in the repair."""
    found = []
    for direction, (phase, names) in itertools.product((MOVE, UNBRIDGE), PHASES.items()):
        repeated = [(1,), (1, 2)] if phase in ("commit", "back") else [(1,)]
        for number, (point, times) in enumerate(itertools.product(names, repeated)):
            late = phase == "back" and number % 4 < 2
            found += [Row(direction, phase, point, times, whole, late) for whole in (False, True)]
    return found


def sample(count: int) -> list[Row]:
    """So many rows, as many of each direction, by the seed."""
    chance = random.Random(SEED)
    half = [[row for row in rows() if row.direction == direction] for direction in (MOVE, UNBRIDGE)]
    return [row for some in half for row in chance.sample(some, count // 2)]


class Worker:
    """A node that plays rows one after the other, moves and ways back in turn; after a row that failed a new one."""

    def __init__(self, make: Callable[[str], Subject], name: str) -> None:
        self._make = make
        self._names = (f"{name}-{number}" for number in itertools.count(1))
        self._subject: Subject | None = None
        self._at_rest: Mapping[str, Listing] = {}
        self._last = UNBRIDGE
        self.failures: list[str] = []
        self.stopped = False

    def play(self, todo: Sequence[Row]) -> None:
        """Plays all rows; what went wrong is in `failures`."""
        left = {direction: [row for row in todo if row.direction == direction] for direction in (MOVE, UNBRIDGE)}
        while any(left.values()) and len(self.failures) < GIVE_UP and not self.stopped:
            wanted = other(self._last)
            row = left[wanted].pop(0) if left[wanted] else None
            began = time.monotonic()
            try:
                subject = self._ready()
                if row is None:
                    subject.run_whole(wanted)
                else:
                    if wanted == MOVE:
                        remove_bridge(subject)
                    print(f"{row}: {disturb(subject, row, self._at_rest)}", flush=True)
                self._last = wanted
            except (AssertionError, LabError, OSError, LookupError, ValueError, SubprocessError) as error:
                self.failures.append(f"--- {row or wanted} (after {time.monotonic() - began:.0f} s)\n{error}")
                print(self.failures[-1], flush=True)
                self._drop()

    def _ready(self) -> Subject:
        if self._subject is None:
            self._subject = self._make(next(self._names))
            self._subject.tell()
            self._at_rest = references(self._subject)
            self._last = UNBRIDGE
        return self._subject

    def _drop(self) -> None:
        if self._subject is not None and not os.environ.get("PODNET_KEEP"):
            self._subject.node.down()
        self._subject, self._last = None, UNBRIDGE


def disturb(subject: Subject, row: Row, at_rest: Mapping[str, Listing]) -> str:
    """Plays one row, and says how it went. Raises AssertionError or LabError where the promise does not hold."""
    with Watch(subject) as watch:
        move = killed_move(subject, row, subject.deadline())
        end = move.deadline + GRACE
        ends = ("", PLANNED) if row.phase == "begin" else ()  # nothing runs on of what was only planned
        until(
            lambda: subject.over(move) or subject.state(move) in ends,
            max(end - time.monotonic(), 0) + subject.pace,
            f"an end: {told(subject, move)}",
        )
        settled = time.monotonic()
        until(subject.reachable, max(end - settled, 1), f"the node on its addresses: {told(subject, move)}", 0.1)
        if row.point == "committed":  # the timer of a move that is over fires, and finds nothing to do
            time.sleep(max(move.deadline - time.monotonic(), 0))
        time.sleep(1)
    assert watch.last_lost <= end, f"not on its addresses {watch.last_lost - move.deadline:.1f} s after the deadline"
    assert watch.last_found > watch.last_lost, f"lost again: {told(subject, move)}"
    state = subject.state(move)
    expected = (COMMITTED,) if row.phase == "commit" else (ROLLED_BACK, *ends)
    assert state in expected, f"it ended as {state or 'nothing'}: {told(subject, move)}"
    if state != COMMITTED:
        if state == ROLLED_BACK:
            check_at_rest(subject, at_rest[BEFORE if row.direction == MOVE else MOVE], "after the kill")
        subject.tell()
        subject.run_whole(row.direction)
    check_at_rest(subject, at_rest[row.direction], "after the same move again" if state != COMMITTED else "at the end")
    return f"{state or 'no journal'}, over {settled - move.deadline:+.1f} s from the deadline"


def killed_move(subject: Subject, row: Row, timeout: int) -> Move:
    """Begins a move that is killed as the row says, and waits until that has happened."""
    kill = {"point": row.point, "times": row.times, "whole": row.whole}
    subject.tell(**({"kill": kill} if row.phase in ("begin", "forward") else {}))
    move, begun = subject.begin(row.direction, timeout)
    if row.phase != "begin":
        assert begun.returncode == 0, f"begin: {begun.stdout}{begun.stderr}"
    if row.phase in ("commit", "back"):
        subject.wait_for(move, APPLIED, seconds=timeout)
        subject.tell(kill=kill)
    if row.phase == "commit":
        subject.confirm(move)
    if row.phase == "back" and not row.by_deadline:
        subject.start_rollback(move)
    seconds = max(move.deadline - time.monotonic(), 0) + GRACE
    until(lambda: len(subject.killed()) >= 1, seconds, f"a kill at {row.point}: {told(subject, move)}", 0.1)
    return move


def check_at_rest(subject: Subject, expected: Listing, when: str) -> None:
    """Compares with what an undisturbed run leaves. What still ends is given a moment."""
    diff = ""
    end = time.monotonic() + 5 + 2 * subject.pace
    while time.monotonic() < end:
        diff = difference(expected, listing(subject))
        if not diff:
            return
        time.sleep(0.3)
    raise AssertionError(f"left over {when}:\n{diff}")


def told(subject: Subject, move: Move) -> str:
    """What the node says of a move, for a message."""
    return f"{subject.podnet('status', move.id, '--json').stdout} reached {subject.reached()}"


def play(make: Callable[[str], Subject], todo: Sequence[Row], nodes: int, name: str) -> None:
    """Spreads the rows over nodes that work side by side; most of the time is waiting for deadlines."""
    workers = [Worker(make, f"{name}{number}") for number in range(1, nodes + 1)]
    with ThreadPoolExecutor(nodes) as pool:
        try:
            list(pool.map(lambda item: item[1].play(todo[item[0] :: nodes]), enumerate(workers)))
        finally:
            for worker in workers:
                worker.stopped = True
    failures = [text for worker in workers for text in worker.failures]
    assert not failures, f"{len(failures)} of {len(todo)} rows:\n" + "\n".join(failures)


@pytest.fixture(scope="module")
def lan(lab: Lab) -> Lan:
    """The LAN of all nodes."""
    return make_lan(lab)


@pytest.fixture(scope="module")
def full(request: pytest.FixtureRequest) -> bool:
    """Whether every row is to be shown, and not a sample."""
    return bool(request.config.getoption("--full"))


def test_every_point_is_reached(lab: Lab, lan: Lan, datapath: str) -> None:
    """A matrix over points that no run reaches would show nothing."""
    subject = make_light(lab, lan, "points", datapath)
    missing = {}
    for direction in (MOVE, UNBRIDGE):
        subject.tell()
        move, begun = subject.begin(direction, 60)
        assert begun.returncode == 0, begun.stdout + begun.stderr
        subject.wait_for(move, APPLIED, seconds=60)
        subject.rollback(move)
        subject.wait_for(move, ROLLED_BACK, seconds=60)
        subject.run_whole(direction)
        time.sleep(1)
        reached = set(subject.reached())
        missing[direction] = [name for names in PHASES.values() for name in names if name not in reached]
    assert missing == {MOVE: [], UNBRIDGE: []}


@pytest.mark.holds(
    "SIGKILL at every named point × {move, un-bridge} × {before, after confirm, in roll back}: light nodes"
)
def test_a_kill_on_light_nodes(lab: Lab, lan: Lan, datapath: str, full: bool) -> None:
    todo = rows() if full else sample(6)
    play(lambda name: make_light(lab, lan, name, datapath), todo, 8 if full else 3, "light")


@pytest.mark.holds(
    "SIGKILL at every named point × {move, un-bridge} × {before, after confirm, in roll back}: full nodes"
)
def test_a_kill_on_full_nodes(lab: Lab, lan: Lan, datapath: str, full: bool) -> None:
    if datapath != "netdev":
        pytest.skip("full nodes have no kernel datapath")
    todo = rows() if full else sample(2)
    play(lambda name: make_full(lab, lan, name), todo, 4 if full else 2, "full")


@pytest.mark.holds("five kills on the kernel datapath")
def test_five_kills(lab: Lab, lan: Lan, datapath: str, request: pytest.FixtureRequest) -> None:
    """Meant for the machine, see test_machine."""
    if datapath != "system":
        pytest.skip("the others show it on the userspace datapath")
    directions = itertools.cycle((MOVE, UNBRIDGE))
    todo = [Row(direction, phase, point) for direction, (phase, point) in zip(directions, IN_MACHINE)]
    play(lambda name: make_light(lab, lan, name, datapath), todo, 1, "kernel")
