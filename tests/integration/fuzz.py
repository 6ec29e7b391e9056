# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes spoilt calls of CNI plugins, one after another, in one process of a node, and looks at each answer and at what
is left.

    python3 -IS -c 'import sys; sys.path[:0] = ["/opt/podnet/current/lib", TREE]
    from ansible_collections.podnet.ovs.tests.integration.fuzz import main; main()' --seed 1 --count 5000

`--only N` repeats one call. Prints a line of JSON for each call that went wrong, and one of figures at the end.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ansible_collections.podnet.ovs.tests.integration.fuzz_cases import (
    FINE,
    Answer,
    Case,
    environment,
    make_case,
    sound_cases,
    spoil,
)
from ansible_collections.podnet.ovs.tests.integration.fuzz_node import Rig, Wrong, judge
from ansible_collections.podnet.ovs.tests.integration.fuzz_words import HANG, HARMLESS

EVERY = 50
"""Calls between two looks into the database, which takes longer than a call."""
MOST_FAILURES = 10


class Run:
    """Calls in order, with what is counted of them."""

    def __init__(self, rig: Rig, seed: str) -> None:
        self.rig = rig
        self.seed = seed
        self.outcomes: Counter[str] = Counter()
        self.failures: list[dict[str, Any]] = []

    def one(self, case: Case, look: bool = False) -> bool:
        """A call, what follows it, and a look at what is left; gives whether all was right."""
        told: list[str] = []
        try:
            self._do(case, told)
            left = self.rig.left() + (self.rig.left_ports() if look else [])
            if left:
                raise Wrong(f"it leaves {', '.join(left)}")
            return True
        except Exception as error:
            why = str(error) if isinstance(error, Wrong) else repr(error)
            self._tell(case, why, told)
            self.rig.clear()
            return False

    def stretch(self, numbers: range) -> None:
        """Calls of these numbers, and a look into the database; what left something there is found one by one."""
        for number in numbers:
            self.one(make_case(self.seed, number, self.rig.plugins))
        left = self.rig.left_ports()
        if left:
            self.rig.clear()
            again = [self.one(make_case(self.seed, number, self.rig.plugins), look=True) for number in numbers]
            if all(again):
                self.failures.append({"why": f"one of {numbers} leaves {left}", "seed": self.seed})

    def _do(self, case: Case, told: list[str]) -> None:
        rng = random.Random(case.number)
        env = dict(case.env)
        answer = self._ask(case, env, case.stdin, case.ipam, told)
        added = case.verb == "ADD" and answer.get("code") is None
        self.outcomes[f"{case.plugin} {case.verb or '-'} {'ok' if answer.get('code') is None else answer['code']}"] += 1
        if added:
            for verb in case.again:
                self._follow(rng, case, verb, answer, told)
        if case.number < 0 and not added and case.plugin not in self.rig.lacks:
            raise Wrong("a configuration that is right is refused")
        if case.verb == "ADD" and not added:
            self._look(case)
            if case.number % 4 < 2 and not self.rig.left():
                return  # what it may have left in the database is not to be taken away by a DEL
        if "CNI_CONTAINERID" in env and "CNI_IFNAME" in env:
            self._delete(case, told)

    def _look(self, case: Case) -> None:
        """An ADD that failed leaves nothing, but what an IPAM plugin that is not well does not take back."""
        well = case.ipam["DEL"] == FINE["DEL"] and all(answer.end != HANG for answer in case.ipam.values())
        left = [what for what in self.rig.left() if well or what.startswith("link ")]
        if left:
            raise Wrong(f"an ADD that failed leaves {', '.join(left)}")

    def _follow(self, rng: random.Random, case: Case, verb: str, result: dict[str, Any], told: list[str]) -> None:
        """Another verb for an attachment that is there. Only DEL ends it."""
        conf = {**json.loads(case.stdin), "prevResult": result}
        kept = {"containerID": case.env["CNI_CONTAINERID"], "ifname": case.env["CNI_IFNAME"]}
        sound = rng.random() < 0.5 or case.number < 0
        if verb == "GC":
            conf["cni.dev/valid-attachments"] = [kept]
        elif not sound:
            conf["prevResult"] = spoil(rng, result, 2)
        ipam = FINE if sound else case.ipam
        answer = self._ask(case, {**case.env, "CNI_COMMAND": verb}, json.dumps(conf).encode(), ipam, told)
        if verb == "CHECK" and sound and result["cniVersion"] >= "0.4.0" and answer:
            raise Wrong(f"what ADD has made does not stand CHECK: {answer}")
        if verb == "ADD" and "code" not in answer and case.plugin not in HARMLESS:
            raise Wrong("the same interface is made twice")

    def _delete(self, case: Case, told: list[str]) -> None:
        """DEL with the same input; and as a runtime repeats it, once the IPAM plugin is well again."""
        env = {**case.env, "CNI_COMMAND": "DEL"}
        answer = self._ask(case, env, case.stdin, case.ipam, told)
        well = case.ipam["DEL"] == FINE["DEL"] and case.ipam["ADD"].end != HANG
        if answer and well and answer["code"] != 4:
            raise Wrong(f"DEL of the same input fails: {answer}")
        for stdin in (case.stdin, case.base):
            if answer or self.rig.left():
                plain = environment("DEL", case.number)
                env = {**plain, **{key: env[key] for key in ("CNI_CONTAINERID", "CNI_IFNAME")}}
                answer = self._ask(case, env, stdin, FINE, told)
        if answer and answer["code"] != 4:
            raise Wrong(f"DEL that is repeated fails: {answer}")

    def _ask(
        self, case: Case, env: Mapping[str, str], stdin: bytes, ipam: Mapping[str, Answer], told: list[str]
    ) -> dict[str, Any]:  # fmt: skip
        served = self.rig.serve(case.plugin, env, stdin, ipam, own=case.number % 2 == 0)
        told.append(f"{env.get('CNI_COMMAND')}: {served.reply.stdout.decode(errors='replace')[:600]}")
        return judge(replace(case, ipam=ipam), env, stdin, served)

    def _tell(self, case: Case, why: str, told: list[str]) -> None:
        self.failures.append({
            "why": why, "seed": self.seed, "only": case.number, "plugin": case.plugin, "env": dict(case.env),
            "stdin": case.stdin.decode(errors="backslashreplace")[:3000], "answers": told,
            "ipam": {verb: str(answer)[:1000] for verb, answer in case.ipam.items() if answer != FINE[verb]},
        })  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", default="1")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--only", type=int)
    given = parser.parse_args()
    began = time.monotonic()
    rig = Rig()
    run = Run(rig, given.seed)
    sound = [case for plugin in rig.plugins for case in sound_cases(plugin)]
    sound = [replace(case, number=-1 - index) for index, case in enumerate(sound)]
    if given.only is not None:
        cases = [*sound, make_case(given.seed, given.only, rig.plugins)]
        run.one(next(case for case in cases if case.number == given.only), look=True)
    else:
        for case in sound:
            run.one(case, look=True)
        last = given.first + given.count
        for first in range(given.first, last, EVERY):
            if len(run.failures) < MOST_FAILURES:
                run.stretch(range(first, min(first + EVERY, last)))
    for failure in run.failures:
        print(json.dumps(failure))
    figures = {
        "outcomes": dict(sorted(run.outcomes.items())), "lacks": sorted(rig.lacks),
        "files": len(os.listdir("/proc/self/fd")),
        "seconds": round(time.monotonic() - began, 1), "cpu": round(sum(os.times()[:4]), 1),
    }  # fmt: skip
    print(json.dumps(figures))
    sys.exit(1 if run.failures else 0)
