# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The controller's part of a move: the node carries it out by itself, and takes it back unless it is confirmed.

Begin, then short new connections only: what a connection from before the move still carries proves nothing. Each call
is harmless if it is repeated, for nobody knows of a call without an answer whether it arrived.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import random
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible.utils.display import Display

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import (
    APPLIED,
    COMMITTED,
    COMMITTING,
    LONGEST,
    MOVE,
    ROLLBACK_FAILED,
    ROLLED_BACK,
    ROLLING_BACK,
)

UNREACHABLE, DIVERGED, REFUSED = "unreachable", "diverged", "refused"
"""Results of a move beside `committed` and `rolled_back`."""
MARGIN = 60.0
"""Seconds after the deadline in which a node may be busy with the way back, or with a boot."""
EXTENSIONS = 4
"""How often a controller that reaches the node gives it more time."""
_SCHEMA = 1
_USAGE, _TIMEOUT, _NOT_EXECUTABLE, _NOT_FOUND = 2, 124, 126, 127
"""Exit status of a command that does not know the words, of timeout(1) and of sh(1)."""


class Silence(Exception):
    """The node gave no answer; the text says what came instead."""


@dataclass(frozen=True)
class Answer:
    """What the command on the node said: its exit status, and its JSON."""

    code: int
    data: Mapping[str, Any] = field(default_factory=dict)
    text: str = ""


Call = Callable[[list[str], str], Answer]
"""Runs `podnet uplink` with these words and this standard input over a new connection; raises Silence."""


@dataclass(frozen=True)
class Outcome:
    """How a move ended."""

    id: str
    request: Mapping[str, Any]
    result: str
    reason: str = ""
    confirmed: bool = False
    """Whether it can only go forward."""

    @property
    def committed(self) -> bool:
        """Whether the node is as wanted."""
        return self.result == COMMITTED

    def to_dict(self) -> dict[str, Any]:
        """For a task's result."""
        return {
            "id": self.id,
            "direction": self.request["direction"],
            "nic": self.request["nic"],
            "bridge": self.request["bridge"]["name"],
            "result": self.result,
            "reason": self.reason,
        }

    def message(self) -> str:
        """For a person: what happened, and what to do."""
        nic, bridge = self.request["nic"], self.request["bridge"]["name"]
        way = f"{nic} to {bridge}" if self.request["direction"] == MOVE else f"{nic} out of {bridge}"
        reason = self.reason.rstrip(".") or "no reason was given"
        if self.result == REFUSED:
            return f"the move of {way} is refused, nothing was touched: {reason}"
        if self.result == ROLLED_BACK:
            return f"the move of {way} was taken back, the node is as it was: {reason}. Its log: {self._status()}"
        if self.result == UNREACHABLE:
            return (
                f"the move of {way} has an unknown end, the node does not answer: {reason}. Unless it was confirmed it "
                f"goes back by itself at its deadline, at the next boot at the latest; run this again, or at its "
                f"console: {self._status()}"
            )
        if self.confirmed:
            return (
                f"the move of {way} is confirmed and not yet done: {reason}. The node goes on trying; on it, at its "
                f"console if need be: {self._status()}"
            )
        return (
            f"the move of {way} is neither done nor taken back: {reason}. On the node, at its console if need be: "
            f"{self._status()}, and then podnet uplink rollback {self.id}"
        )

    def _status(self) -> str:
        return f"podnet uplink status {self.id}"


@dataclass
class Driver:
    """One move, from begin to its end. `call` reaches the node, `say` tells who watches how far it is."""

    request: Mapping[str, Any]
    call: Call
    say: Callable[[str], None] = Display().vv
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    _heard: str = ""
    _silence: str = ""

    def drive(self) -> Outcome:
        """Begins the move and sees it through, in bounded time."""
        try:
            left = self._begin()
        except Silence as error:
            return self._end(UNREACHABLE, f"it did not answer to the order: {error}")
        return left if isinstance(left, Outcome) else self._watch(left)

    def _begin(self) -> float | Outcome:
        """The seconds until the deadline, or why nothing was begun. Raises Silence."""
        order = {
            "schema": _SCHEMA,
            "id": self.id,
            "nonce_hash": hashlib.sha256(self.nonce.encode()).hexdigest(),
            "request": dict(self.request),
            "holder": {"host": socket.gethostname(), "user": getpass.getuser()},
        }
        # the order may have been taken all the same, and the node be back only after its deadline
        until = time.monotonic() + float(self.request["timeout"]) + MARGIN
        while True:
            try:
                answer = self.call(["begin", "--json"], json.dumps(order))
                break
            except Silence:
                if time.monotonic() > until:
                    raise
                _pause(1.0, 2.0)
        if answer.code == 0:
            return float(answer.data["deadline_in"])
        if answer.code in (_NOT_EXECUTABLE, _NOT_FOUND):
            return self._end(REFUSED, "the runtime is not on the node: run the role podnet.ovs.runtime first")
        if answer.code == _USAGE:
            return self._end(REFUSED, "the runtime on the node is too old: run the role podnet.ovs.runtime first")
        return self._end(REFUSED, _why(answer))

    def _watch(self, left: float) -> Outcome:
        """Looks, gives more time, and confirms, until the move is over."""
        seconds = float(self.request["timeout"])
        confirms = self.request["confirm"] in ("controller", "both")
        last = time.monotonic() + LONGEST + MARGIN
        until = time.monotonic() + left + MARGIN
        extensions = EXTENSIONS
        state, trouble, reason = "begun", "", ""
        while time.monotonic() < min(until, last):
            _pause(1.0, 2.0) if self._silence else _pause(0.3, 0.8)
            answer = self._ask("status", self.id)
            if answer is None:
                continue
            if answer.code != 0:
                return self._end(DIVERGED, _why(answer))
            state, reason = str(answer.data["state"]), str(answer.data.get("reason") or "")
            if state in (COMMITTED, ROLLED_BACK, ROLLBACK_FAILED):
                told = "; ".join(text for text in (reason, trouble) if text)
                return self._end(DIVERGED if state == ROLLBACK_FAILED else state, "" if state == COMMITTED else told)
            if state in (COMMITTING, ROLLING_BACK):
                continue
            left = float(answer.data.get("deadline_in") or 0.0)
            until = time.monotonic() + max(left, 0.0) + MARGIN
            if state == APPLIED and confirms:
                trouble = self._confirm() or trouble  # the deadline comes between two of them
            elif left < seconds / 2 and extensions:
                extensions -= 1
                self._ask("extend", self.id, str(int(seconds)))
        if self._silence:
            return self._end(UNREACHABLE, f"since it was {state}: {self._silence}")
        return self._end(DIVERGED, reason or trouble or f"it is still {state}", state == COMMITTING)

    def _confirm(self) -> str:
        """What is in the way of the confirmation; "" if nothing is, or if only the next look can tell."""
        answer = self._ask("confirm", self.id, self.nonce)
        if answer is None or answer.code == 0 or answer.data.get("kind") in ("not_ready", "lost"):
            return ""
        return f"it could not be confirmed: {_why(answer)}"

    def _ask(self, *words: str) -> Answer | None:
        try:
            answer = self.call([*words, "--json"], "")
        except Silence as error:
            self._silence = str(error)
            self._tell("does not answer")
            return None
        self._silence = ""
        if answer.data.get("state"):
            self._tell(str(answer.data["state"]))
        return answer

    def _tell(self, text: str) -> None:
        if text != self._heard:
            self._heard = text
            self.say(f"move {self.id} of {self.request['nic']}: {text}")

    def _end(self, result: str, reason: str, confirmed: bool = False) -> Outcome:
        outcome = Outcome(self.id, self.request, result, reason, confirmed)
        self._tell(f"{result} {reason}".strip())
        return outcome


def answer_of(code: int, text: str, error: str) -> Answer:
    """What a command said. Raises Silence if it said nothing that can be understood, and did not end on its own."""
    start = text.find("{")
    try:
        data = json.loads(text[start:]) if start >= 0 else None
    except ValueError:
        data = None
    if isinstance(data, dict):
        return Answer(code, data)
    said = (error.strip() or text.strip() or "nothing").splitlines()[-1]
    if code in (_USAGE, _NOT_EXECUTABLE, _NOT_FOUND):
        return Answer(code, {}, said)
    raise Silence(f"podnet took too long ({said})" if code == _TIMEOUT else f"podnet ended with {code} ({said})")


def _why(answer: Answer) -> str:
    """The error of an answer, its way out, and who else is at work."""
    data = answer.data
    text = str(data.get("error") or data.get("reason") or answer.text or f"exit status {answer.code}")
    holder = data.get("holder") or {}
    who = "@".join(str(holder[key]) for key in ("user", "host") if holder.get(key))
    if who and who not in text:
        text += f", begun by {who}"
    return f"{text} ({data['hint']})" if data.get("hint") else text


def _pause(least: float, most: float) -> None:
    """Not all controllers of a fleet in step."""
    time.sleep(random.uniform(least, most))
