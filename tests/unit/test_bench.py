# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The bench: that its figures are those of what ran, and that each promise is held against the right ones."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.tests.bench import driver
from ansible_collections.podnet.ovs.tests.bench.measure import burst_row, turns
from ansible_collections.podnet.ovs.tests.bench.place import Answer, Done, Peer
from ansible_collections.podnet.ovs.tests.bench.promises import promises
from ansible_collections.podnet.ovs.tests.bench.report import (
    AGENT,
    BARE,
    BRIDGE,
    CLIENT_BARE,
    CLIENT_CALL,
    CLIENT_VERSION,
    EMPTY,
    IN_PROCESS,
    META,
    SINGLE,
    STANDING,
    bound,
    spread,
    text,
)


def shell(script: str, stdin: str = "") -> dict[str, Any]:
    return {"argv": ["/bin/sh", "-c", script], "env": {"PATH": os.defpath}, "stdin": stdin}


def run(*lanes: list[dict[str, Any]]) -> dict[str, Any]:
    """What the driver answers, as a process of its own."""
    request = json.dumps({"lanes": lanes}) + "\n"
    words = [sys.executable, "-I", str(Path(driver.__file__))]
    done = subprocess.run(words, input=request, capture_output=True, text=True, check=True, timeout=30)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_call_gets_its_input_and_gives_what_it_said() -> None:
    answer = run([shell("cat; echo no >&2; exit 3", "word")])
    ((call,),) = answer["calls"]
    assert (call["out"], call["err"], call["code"]) == ("word", "no\n", 3)
    assert call["ms"] <= answer["seconds"] * 1000


def test_a_killed_call_has_failed() -> None:
    assert run([shell("kill -9 $$")])["calls"][0][0]["code"] == -9


def test_lanes_go_side_by_side_and_the_calls_of_a_lane_one_after_the_other() -> None:
    answer = run(*([shell("sleep 0.4"), shell("sleep 0.4")] for _lane in range(8)))
    calls = [call for lane in answer["calls"] for call in lane]
    assert len(calls) == 16 and all(call["ms"] >= 400 for call in calls)
    assert 0.8 <= answer["seconds"] < 3.0


def test_a_call_that_ends_early_is_timed_early() -> None:
    slow, quick = run([shell("sleep 0.5")], [shell("true")])["calls"]
    assert quick[0]["ms"] < 400 < slow[0]["ms"]


def test_a_process_that_outlives_its_plugin_is_not_waited_for() -> None:
    began = time.monotonic()
    assert run([shell("sleep 5 & echo done")])["calls"][0][0]["out"] == "done\n"
    assert time.monotonic() - began < 4


def test_processor_time_is_that_of_the_plugin_and_its_children() -> None:
    burn = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"
    (idle, busy, child) = (
        run([shell(script)])["calls"][0][0]["cpu"] for script in ("sleep 0.3", burn, f"sh -c '{burn}'; true")
    )
    assert idle < 0.05 < min(busy, child)


def test_a_percentile_needs_enough_calls() -> None:
    assert spread([])["median"] is None
    assert spread([1.0, 3.0, 2.0]) == {"calls": 3, "median": 2.0, "p95": None}
    assert spread([float(number) for number in range(100)])["p95"] == 94.0


def single(ports: int, verb: str, plugin: str, median: float, p95: float | None = None) -> dict[str, Any]:
    return {"ports": ports, "verb": verb, "plugin": plugin, "calls": 60, "median": median, "p95": p95, "failures": 0,
            "said": ""}  # fmt: skip


def burst(at_once: int, verb: str, per_second: float) -> dict[str, Any]:
    cpu = {"clients": 8.0, "agent": 4.0, "ovs-vswitchd": 5.0, "ovsdb-server": 3.0, "delegates": 5.0, "driver": 0.5}
    return {"at_once": at_once, "verb": verb, "plugin": AGENT, "calls": 64, "median": 90.0, "p95": 120.0,
            "worst": 1900.0, "failures": 0, "said": "", "per_second": per_second, "busy": 1.9, "others": 0.1,
            "cores": 2, "cpu_ms": cpu}  # fmt: skip


KEPT: dict[str, Any] = {
    "singly": [
        single(0, "ADD", AGENT, 23.9, 38.9), single(0, "ADD", IN_PROCESS, 89.0), single(0, "ADD", BRIDGE, 20.0, 30.0),
        single(0, "DEL", AGENT, 20.9), single(0, "DEL", BRIDGE, 30.0),
        single(100, "DEL", AGENT, 20.9), single(100, "DEL", BRIDGE, 30.0),
        single(500, "ADD", AGENT, 81.0), single(500, "ADD", EMPTY, 23.9), single(500, "insert", BARE, 50.0),
    ],
    "networks": [
        {"networks": 4, "verb": "ADD", "plugin": META, **spread([43.0])},
        {"networks": 4, "verb": "ADD", "plugin": SINGLE, **spread([40.0])},
    ],
    "at_once": [burst(1, "ADD", 1.0), burst(16, "ADD", 80.5), burst(16, "DEL", 1.0), burst(64, "ADD", 80.5)],
    "startup": [
        {"start": CLIENT_BARE, **spread([10.0])}, {"start": CLIENT_VERSION, **spread([9.0])},
        {"start": CLIENT_CALL, **spread([11.9])},
    ],
    "standing": [{**single(500, STANDING, AGENT, 50.0), "seconds": 5.0}],
    "memory": [], "machine": [], "stopped": "",
    "soak": {"pairs": 4000, "ports": 500, "seconds": 9.0, "failures": 0, "said": "",
             "samples": [{"pairs": n, "rss_mib": 40.0 + n / 1000, "descriptors": 7} for n in range(500, 4001, 500)]},
}  # fmt: skip


def test_all_that_is_kept_holds() -> None:
    rows = promises(KEPT)
    assert [row["promise"] for row in rows if not row["holds"]] == []
    assert len(rows) == 22
    assert text({**KEPT, "promises": rows}).count("holds") == 22


BROKEN = [
    ("singly", 0, {"median": 24.1}, "ADD at 0 ports, median"),
    ("singly", 0, {"p95": 39.1}, "ADD at 0 ports, p95"),
    ("singly", 1, {"median": 90.1}, "ADD in-process"),
    ("singly", 1, {"failures": 1}, "single calls of podnet-ovs that failed"),
    ("singly", 3, {"median": 21.1}, "DEL at 0 ports"),
    ("singly", 5, {"median": 21.1}, "DEL at 100 ports"),
    ("singly", 7, {"median": 81.4}, "ADD at 500 ports"),
    ("at_once", 1, {"per_second": 79.9}, "16 ADDs at once, per second"),
    ("at_once", 1, {"worst": 2001.0}, "16 ADDs at once, slowest"),
    ("at_once", 2, {"failures": 1}, "16 DELs at once, failed"),
    ("at_once", 3, {"per_second": 79.9}, "64 ADDs at once, per second"),
    ("at_once", 3, {"failures": 1}, "64 ADDs at once, failed"),
    ("networks", 0, {"median": 44.1}, "ADD of 4 networks by podnet-meta"),
    ("standing", 0, {"failures": 1}, "ADDs of what stands"),
    ("startup", 1, {"median": 12.1}, "client, VERSION"),
    ("startup", 2, {"median": 12.1}, "client, call"),
]


@pytest.mark.parametrize(("part", "number", "figures", "promise"), BROKEN, ids=[row[-1] for row in BROKEN])
def test_what_is_not_kept_does_not_hold(part: str, number: int, figures: dict[str, Any], promise: str) -> None:
    document = copy.deepcopy(KEPT)
    document[part][number].update(figures)
    (row,) = (row for row in promises(document) if not row["holds"])
    assert row["promise"].startswith(promise)
    assert "DOES NOT HOLD" in text({**document, "promises": [row]})


@pytest.mark.parametrize(
    ("figures", "promise"),
    [({"rss_mib": 45.1}, "MiB at most"), ({"rss_mib": 44.6}, "MiB grown"), ({"descriptors": 8}, "descriptors grown")],
)
def test_an_agent_that_grows_does_not_hold(figures: dict[str, Any], promise: str) -> None:
    document = copy.deepcopy(KEPT)
    samples = document["soak"]["samples"]
    if "at most" in promise:
        samples[0].update(figures)
    else:
        for sample in samples[-2:]:
            sample.update(figures)
    (row,) = (row for row in promises(document) if not row["holds"])
    assert promise in row["promise"]


def test_what_was_not_measured_is_not_judged() -> None:
    nothing = {key: [] if isinstance(value, list) else value for key, value in KEPT.items()} | {"soak": None}
    assert promises(nothing) == []
    assert text({**nothing, "promises": []}) == ""
    assert "no room" in text({**nothing, "promises": [], "stopped": "no room"})


def test_a_burst_tells_apart_who_had_the_processors() -> None:
    calls = [
        Done(ms=90.0, code=0, cpu=0.01, rss=0, out="", err=""),
        Done(ms=95.0, code=1, cpu=0.03, rss=0, out="no", err=""),
    ]
    used = {"agent": 0.04, "ovs-vswitchd": 0.02, "machine": 0.15}
    row = burst_row(2, "ADD", AGENT, [(Answer(0.1, 0.0, [[call] for call in calls]), used)])
    assert (row["per_second"], row["failures"], row["said"], row["worst"]) == (10.0, 1, "no", 95.0)
    assert row["cpu_ms"] == pytest.approx({"clients": 20.0, "driver": 0.0, "agent": 20.0, "ovs-vswitchd": 10.0})
    assert (row["busy"], row["others"]) == pytest.approx((1.5, 0.5))
    row = burst_row(2, "ADD", AGENT, [(Answer(0.05, 0.0, [[call] for call in calls]), used)] * 2)
    assert (row["busy"], row["others"]) == (None, None), "too short"


def test_each_subject_has_the_first_turn_as_often() -> None:
    order = turns(["a", "b", "c"], 5)
    assert [subject for number, subject in order][::3] == ["a", "b", "c", "a", "b", "c"]
    assert sorted(order) == [(number, subject) for number in range(6) for subject in "abc"]


def test_the_delegate_counts_only_where_it_is_said() -> None:
    row = burst(16, "ADD", 1.0)
    assert (bound(row), bound(row, delegates=True)) == (100.0, 80.0)


def test_a_peer_is_a_name_an_executable_and_keys() -> None:
    assert Peer.parse("shell=/bin/sh") == Peer("shell", Path("/bin/sh"), {})
    assert Peer.parse('a=/bin/sh:{"socket_file": "unix:/x"}').keys == {"socket_file": "unix:/x"}
    for wrong in ("/bin/sh", "=/bin/sh", "a=/nowhere", "a=/bin/sh:[]", "a=/bin/sh:{"):
        with pytest.raises(ValueError):
            Peer.parse(wrong)
