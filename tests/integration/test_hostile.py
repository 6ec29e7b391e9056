# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile input: an error of CNI that names what is wrong, soon; nothing is left, nothing else touched; DEL succeeds.

By the agent, and by plugins in their own processes: of those a sample that PODNET_SEED chooses, with --full all.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni, hostile
from ansible_collections.podnet.ovs.tests.integration.hostile import CASES, SAMPLE, Case, environment

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SOON = 1.0
TURNS = 5
"""A machine that does other things as well may be late: of so many calls one has to be soon."""
CHARS = 5000
"""More than any error has to say, whatever it was about."""
ROWS = [
    pytest.param(way, case, marks=[] if way == "agent" or case in SAMPLE else pytest.mark.full)
    for way in ("agent", "in-process")
    for case in CASES
]
holds = pytest.mark.holds("hostile input: CNI error JSON naming the key, under 1 s; nothing left; DEL succeeds")


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node that lets configurations name some files."""
    return hostile.make_node(lab, datapath)


@pytest.fixture(scope="module")
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, or without one."""
    with cni.serving(machine, request.param):
        yield machine


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node with a pod; nothing of another is there afterwards."""
    with cni.tidy(served, "p1"):
        yield served
    assert served.run("ip", "-n", "p1", "link", "show", "eth0", check=False).returncode == 1


def ask(node: Light, verb: str, case: Case) -> cni.Answer:
    """A call, the soonest of some if it was late."""
    answers = []
    for _turn in range(TURNS):
        began = time.monotonic()
        done = node.run(cni.PLUGIN, input=case.stdin, env=environment(verb, case), check=False, timeout=30)
        answers.append(cni.Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began))
        if answers[-1].seconds < SOON:
            break
    return min(answers, key=lambda answer: answer.seconds)


def refusal(answer: cni.Answer) -> cni.Json:
    """The error's JSON, which is one of the specification's, short, and no accident."""
    assert answer.code == 1, answer
    assert len(answer.stdout) < CHARS and len(answer.stderr) < CHARS, "what it was about is not repeated at length"
    error = answer.document
    assert {"cniVersion", "code", "msg"} <= set(error) <= {"cniVersion", "code", "msg", "details"}
    assert "Traceback" not in answer.stdout + answer.stderr and "internal error" not in error["msg"], answer
    return error


@holds
@pytest.mark.parametrize(("served", "case"), ROWS, indirect=["served"], scope="module")
def test_it_is_refused_soon_and_del_succeeds(node: Light, case: str) -> None:
    row = CASES[case]
    answer = ask(node, "ADD", row)
    error = refusal(answer)
    assert error["code"] == row.code and row.word in error["msg"], answer
    assert answer.seconds < SOON
    gone = ask(node, "DEL", row)
    assert gone.seconds < SOON
    if row.del_code:
        assert refusal(gone)["code"] == row.del_code and row.word in gone.document["msg"], gone
    else:
        assert (gone.code, gone.stdout) == (0, ""), gone


NEEDED = {
    "ADD": {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"},
    "DEL": {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_IFNAME"},
    "CHECK": {"CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"},
    "STATUS": {"CNI_COMMAND"},
    "GC": {"CNI_COMMAND", "CNI_PATH"},
    "VERSION": {"CNI_COMMAND"},
}
"""Specification 1.1.0, section "CNI operations": what each verb cannot do without."""


@pytest.mark.parametrize(
    "served", ["agent", pytest.param("in-process", marks=pytest.mark.full)], indirect=True, scope="module"
)
@pytest.mark.parametrize("verb", NEEDED)
def test_variables_that_are_missing_are_named_one_by_one(node: Light, verb: str) -> None:
    for name in sorted(NEEDED["ADD"] | {"CNI_ARGS"}):
        conf = cni.configuration(cniVersion="1.1.0", ipam=None)
        case = Case(name, text=json.dumps(conf).encode(), env={name: None})
        done = node.run(cni.PLUGIN, input=case.stdin, env=environment(verb, case), check=False)
        if name in NEEDED[verb]:
            error = refusal(cni.Answer(done.returncode, done.stdout, done.stderr, 0))
            assert error["code"] == 4 and name in error["msg"]
        elif done.returncode:
            assert json.loads(done.stdout)["code"] != 4, f"{verb} without {name}: {done.stdout}"
        else:
            cni.delete(node, conf)
