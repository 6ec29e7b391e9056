# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of a move, as far as it is words: what an answer means, and what a person is told."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.plugin_utils.move import Answer, Driver, Outcome, Silence, answer_of
from ansible_collections.podnet.ovs.plugins.plugin_utils.moving import merged

REQUEST = {"direction": "move", "nic": "eth0", "bridge": {"name": "br-x"}, "timeout": 120, "confirm": "controller"}


def test_an_answer_is_json_whatever_a_shell_says_before_it() -> None:
    assert answer_of(0, 'Welcome!\r\n{"state": "applied"}\r\n', "").data == {"state": "applied"}
    assert answer_of(1, '{"error": "no", "kind": "refused"}', "").code == 1
    assert answer_of(127, "", "sh: 1: podnet: not found").code == 127


@pytest.mark.parametrize(
    ("code", "text", "said"),
    [(0, "", "ended with 0"), (124, "", "took too long"), (1, "Traceback: x", "Traceback"), (0, "{broken", "broken")],
)
def test_all_else_is_silence(code: int, text: str, said: str) -> None:
    with pytest.raises(Silence, match=said):
        answer_of(code, text, "")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ("refused", "nothing was touched: why"),
        ("rolled_back", "the node is as it was: why. Its log: podnet uplink status m1"),
        ("unreachable", "goes back by itself"),
        ("diverged", "podnet uplink rollback m1"),
    ],
)
def test_a_person_is_told_what_to_do(result: str, said: str) -> None:
    outcome = Outcome("m1", REQUEST, result, "why.")
    assert said in outcome.message() and "eth0 to br-x" in outcome.message() and not outcome.committed
    assert outcome.to_dict() == {
        "id": "m1", "direction": "move", "nic": "eth0", "bridge": "br-x", "result": result, "reason": "why.",
    }  # fmt: skip


def test_why_it_could_not_be_confirmed_is_told_after_the_deadline_too() -> None:
    applied = Answer(0, {"state": "applied", "deadline_in": 9.0})
    said = [
        ("begin", Answer(0, {"deadline_in": 10.0})),
        ("status", applied),
        ("confirm", Answer(1, {"error": "not over a new connection", "kind": "same_connection"})),
        ("status", applied),
        ("confirm", Answer(1, {"error": "it is rolling_back", "kind": "lost"})),
        ("status", Answer(0, {"state": "rolled_back", "reason": "nobody confirmed it"})),
    ]

    def call(words: list[str], _text: str) -> Answer:
        verb, answer = said.pop(0)
        assert words[0] == verb
        return answer

    outcome = Driver(REQUEST, call, say=lambda _text: None).drive()
    assert outcome.result == "rolled_back" and not said
    assert outcome.reason == "nobody confirmed it; it could not be confirmed: not over a new connection"


def test_what_is_confirmed_is_not_to_be_taken_back() -> None:
    said = Outcome("m1", REQUEST, "diverged", "the disk is full", confirmed=True).message()
    assert "confirmed and not yet done: the disk is full. The node goes on trying" in said
    assert "podnet uplink status m1" in said and "rollback" not in said


def answer(before: Any, after: Any, name: str) -> dict[str, Any]:
    """Of a module."""
    return {"before": before, "after": after, "operations": [name], "diff": [{"after": name}], "changed": True}


def test_what_a_run_with_a_move_returns_is_one_before_and_one_after() -> None:
    nic, own = {"eth0": {"addresses": ["a"]}}, {"br-x": {"addresses": ["a"]}}
    bridge = {"mtu": 1500, "uplinks": {"eth0": {"vlans": "all"}}}
    move = answer({"links": nic}, {"links": own, "bridges": {"br-x": bridge}}, "move")
    rest = answer(
        {"bridges": {"br-x": {"mtu": 1500}, "br-y": {"mtu": 1500}}},
        {"bridges": {"br-x": {"mtu": 1500, "interfaces": {"v5": {"vlan": 5}}}, "br-y": {"mtu": 1400}}},
        "rest",
    )
    whole = merged([move], rest)
    assert whole["operations"] == ["move", "rest"] and len(whole["diff"]) == 2
    assert whole["before"] == {"links": nic, "bridges": {"br-y": {"mtu": 1500}}}
    assert whole["after"] == {
        "links": own,
        "bridges": {"br-x": {**bridge, "interfaces": {"v5": {"vlan": 5}}}, "br-y": {"mtu": 1400}},
    }


def test_what_the_rest_takes_away_is_not_in_the_end() -> None:
    bridge = {"br-x": {"mtu": 1}}
    back = answer({"bridges": bridge}, {"bridges": bridge, "links": {"eth0": {}}}, "unbridge")
    rest = answer({"bridges": bridge}, {}, "remove")
    whole = merged([back], rest)
    assert whole["before"] == {"bridges": bridge}
    assert whole["after"] == {"links": {"eth0": {}}}
