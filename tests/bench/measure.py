# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Single calls in turn, and calls at once.

In each round every kind has its turn, and the first of one round is the last of the next, so that what else the
machine does falls on all alike. The first round warms caches and is dropped.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from .bare import Bare
from .place import Answer, Kind
from .report import BARE, Row, spread

VERBS = ("ADD", "CHECK", "DEL")
BURSTS = {1: 16, 16: 4, 64: 2}
"""How many at once, and how often."""
SHORTEST = 0.1
"""Seconds of a burst for which the machine's processor time, which comes in ticks of 10 ms, says something."""
T = TypeVar("T")


def turns(subjects: Sequence[T], rounds: int) -> list[tuple[int, T]]:
    """Subjects in the order of their turns, with the round's number; round 0 is to be dropped."""
    order = []
    for number in range(rounds + 1):
        first = number % max(len(subjects), 1)
        order += [(number, subject) for subject in [*subjects[first:], *subjects[:first]]]
    return order


def singly(
    kinds: Sequence[Kind], bare: Bare | None, ports: int, rounds: int, rest: Callable[[], None]
) -> list[Row]:  # fmt: skip
    """Rows of single calls with so many ports standing, in turn with bare insertions."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    failed: dict[tuple[str, str], list[str]] = defaultdict(list)
    subjects: list[Kind | Bare] = [*kinds, *([bare] if bare else [])]
    for number, subject in turns(subjects, rounds):
        if isinstance(subject, Bare):
            took = subject.insert(rest)
            if number:
                times[BARE, "insert"].append(took)
            continue
        result = ""
        for verb in VERBS:
            rest()
            call = subject.call(verb, f"{ports}-{number}", "p0", result if verb == "CHECK" else "")
            (done,) = subject.driver.run([[call]]).calls
            if verb == "ADD":
                result = done.out if done.code == 0 else ""
            if done.code:
                failed[subject.name, verb].append((done.out + done.err).strip())
            elif number:
                times[subject.name, verb].append(done.ms)
    wanted = [(kind.name, verb) for verb in VERBS for kind in kinds] + ([(BARE, "insert")] if bare else [])
    return [
        {"ports": ports, "verb": key[1], "plugin": key[0], **spread(times[key]), "failures": len(failed[key]),
         "said": failed[key][0] if failed[key] else ""}
        for key in wanted
    ]  # fmt: skip


def at_once(kinds: Sequence[Kind], rest: Callable[[], None], bursts: dict[int, int]) -> list[Row]:
    """Rows of bursts of ADDs, each followed by one of DELs, beside the ports that stand."""
    rows = []
    for size, times in bursts.items():
        found: dict[tuple[str, str], list[tuple[Answer, dict[str, float]]]] = defaultdict(list)
        for number, kind in turns(kinds, times):
            for verb in ("ADD", "DEL"):
                lanes = [[kind.call(verb, f"b{size}-{number}-{pod}", f"p{pod}")] for pod in range(size)]
                rest()
                before = kind.watched.read()
                answer = kind.driver.run(lanes)
                after = kind.watched.read()
                if number:
                    found[kind.name, verb].append((answer, {name: after[name] - before[name] for name in after}))
        rows += [burst_row(size, verb, kind.name, found[kind.name, verb]) for verb in ("ADD", "DEL") for kind in kinds]
    return rows


def burst_row(size: int, verb: str, plugin: str, bursts: Sequence[tuple[Answer, dict[str, float]]]) -> Row:
    """One row from the answers of equal bursts and the processor seconds by name that each took.

    `cpu_ms` is per call; `busy`: how many processors the whole machine kept busy meanwhile, `others`: how many of them
    with something else, which is the kernel's own work and whatever runs beside the bench; None for bursts too short
    for the machine's clock.
    """
    dones = [done for answer, _used in bursts for done in answer.calls]
    failures = [done for done in dones if done.code]
    seconds = sum(answer.seconds for answer, _used in bursts)
    used: dict[str, float] = {"clients": sum(done.cpu for done in dones), "driver": sum(a.cpu for a, _used in bursts)}
    for name in bursts[0][1]:
        used[name] = sum(part[name] for _answer, part in bursts)
    machine = used.pop("machine")
    long_enough = seconds >= SHORTEST * len(bursts)
    busy = machine / seconds if long_enough else None
    others = max(machine - sum(used.values()), 0.0) / seconds if long_enough else None
    row: dict[str, Any] = {"at_once": size, "verb": verb, "plugin": plugin, "bursts": len(bursts)}
    row |= {**spread([done.ms for done in dones if not done.code]), "worst": max(done.ms for done in dones)}
    row |= {"failures": len(failures), "said": (failures[0].out + failures[0].err).strip() if failures else ""}
    row |= {"per_second": (len(dones) - len(failures)) / seconds, "cores": os.cpu_count()}
    row |= {"busy": busy, "others": others}
    row["cpu_ms"] = {name: total * 1000 / len(dones) for name, total in used.items()}
    return row
