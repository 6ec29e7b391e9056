# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action plugins share whose modules may need a move of a NIC first."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from threading import Thread
from typing import Any

from ansible.errors import AnsibleError

from ansible_collections.podnet.ovs.plugins.plugin_utils.carrier import RuntimeCarrier
from ansible_collections.podnet.ovs.plugins.plugin_utils.move import (
    REFUSED,
    UNREACHABLE,
    Answer,
    Driver,
    Outcome,
    Silence,
    answer_of,
)

PODNET = "/opt/podnet/current/bin/podnet"
FRESH_SSH = {
    "ssh_args": "-o ControlMaster=no -o ControlPath=none -o ConnectTimeout=5 -o ServerAliveInterval=2"
    " -o ServerAliveCountMax=3",
    "reconnection_retries": 0,
}
"""Options of the connection plugin ssh: a connection of its own for each call, that ends soon if nobody answers."""
ROUNDS = 4
"""Moves can follow from moves: out of one bridge, then to another."""
_CALL_SECONDS = 45
_OTHER_SECONDS = _CALL_SECONDS + 10.0
"""How long a call may take over a connection that does not find out by itself that nobody answers, as paramiko."""


class MovingAction(RuntimeCarrier):
    """Runs the module; where it says that moves must come first, has the node carry them out, and runs it again."""

    _supports_async = False
    _lost = False
    """Whether the node did not answer any more in the end."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ansible's entry."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        first: list[dict[str, Any]] = []
        done: list[Outcome] = []
        answer = self._ask_module(task_vars)
        while answer.get("move_pending") and not answer.get("failed") and len(first) < ROUNDS:
            for request in answer.pop("move_pending"):
                done.append(self.carry_out(request))
                if not done[-1].committed:
                    self._lost = done[-1].result == UNREACHABLE
                    result.update(_failure(done), diff=[part for step in first for part in step["diff"]])
                    return result
            first.append(answer)
            answer = self._ask_module(task_vars)
        if answer.pop("move_pending", None):
            answer.update(failed=True, msg="the node asks for the same moves again and again")
        result.update(merged(first, answer))
        if done:
            result.update(changed=True, moves=[outcome.to_dict() for outcome in done])
        return result

    def cleanup(self, force: bool = False) -> None:
        """A node that does not answer keeps the temporary folder: to fail here would hide what is known of its move."""
        if not self._lost:
            super().cleanup(force)

    def carry_out(self, request: Mapping[str, Any]) -> Outcome:
        """Has the node carry out one move, and confirms it."""
        driver = Driver(request, self._call)
        wrong = self._wrong_confirmer(str(request["confirm"]))
        if wrong:
            return Outcome(driver.id, request, REFUSED, wrong)
        with self._fresh_connections():
            return driver.drive()

    def _ask_module(self, task_vars: dict[str, Any] | None) -> dict[str, Any]:
        """The module's answer; with the runtime's libraries where the node lacks them."""
        answer: dict[str, Any] = self._execute_module(task_vars=task_vars)
        if answer.get("runtime_missing"):
            remote = self.bring(self.archive())
            answer = self._execute_module(
                module_args={**self._task.args, "_podnet_archive": remote}, task_vars=task_vars
            )
        return answer

    def _wrong_confirmer(self, confirm: str) -> str:
        local = self._connection.transport == "local"
        if local and confirm in ("controller", "both"):
            return "over ansible_connection local nobody can see from outside that it worked: say confirm: probe"
        if not local and confirm == "none":
            return "confirm: none is for ansible_connection local: over the network say controller, probe or both"
        return ""

    def _call(self, words: list[str], text: str) -> Answer:
        """Runs `podnet uplink` on the node, over a new connection. Raises Silence."""
        command = shlex.join(["timeout", "--kill-after=5", str(_CALL_SECONDS), PODNET, "uplink", *words])
        become = self._connection.become
        data: bytes | None = f"{text}\n".encode()  # standard input also keeps ssh from asking for a terminal
        if not self._connection.has_pipelining or (become and not become.pipelining):
            command, data = f"printf %s {shlex.quote(text)} | {command}", None
        try:
            if self._connection.transport in ("ssh", "local"):
                done = self._low_level_execute_command(command, in_data=data)
            else:
                self._connection.reset()
                done = _within(_OTHER_SECONDS, lambda: self._low_level_execute_command(command, in_data=data))
        except AnsibleError as error:
            said = [line.strip() for line in str(error).splitlines() if line.strip()]
            raise Silence(said[-1] if said else type(error).__name__) from error  # ssh says why in its last line
        return answer_of(done["rc"], done["stdout"], done["stderr"])

    @contextlib.contextmanager
    def _fresh_connections(self) -> Iterator[None]:
        """Inside, each call has an ssh connection of its own; afterwards Ansible's shared one is made anew."""
        connection = self._connection
        if connection.transport != "ssh":
            yield
            return
        before = {name: connection.get_option(name) for name in FRESH_SSH}
        for name, value in FRESH_SSH.items():
            # the first of two values counts, ssh_config(5)
            connection.set_option(name, f"{value} {before[name] or ''}" if name == "ssh_args" else value)
        try:
            yield
        finally:
            for name, value in before.items():
                connection.set_option(name, value)
            with contextlib.suppress(AnsibleError):
                connection.reset()


def _within(seconds: float, call: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a call gives or raises; Silence if it does not end in time. The next reset of the connection ends it."""
    answer: Future[dict[str, Any]] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as error:
            answer.set_exception(error)

    Thread(target=work, daemon=True).start()
    try:
        return answer.result(seconds)
    except TimeoutError as error:
        raise Silence(f"no answer for {seconds:.0f} s") from error


def merged(first: list[dict[str, Any]], last: dict[str, Any]) -> dict[str, Any]:
    """The answer of the last run of the module, with what the moves before it have changed."""
    answer = dict(last)
    for part in reversed(first):
        for key in ("operations", "diff", "warnings"):
            answer[key] = [*part.get(key, []), *(item for item in answer.get(key, []) if item not in part.get(key, []))]
        last_before, last_after = answer.get("before", {}), answer.get("after", {})
        answer["before"] = _joined(part["before"], part["after"], last_before)
        answer["after"] = _joined(last_after, last_before, part["after"])
    return answer


def _joined(known: Mapping[str, Any], touched: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """What is known, and of the other side what is not touched here: what was touched and is not known is gone."""
    found = {}
    for key in dict.fromkeys((*other, *known)):
        sides = [side.get(key, {}) for side in (known, touched, other)]
        if key in other and all(isinstance(side, Mapping) for side in sides):
            inner = _joined(*sides)
            if inner or key in known or key not in touched:
                found[key] = inner
        elif key in known or key not in touched:
            found[key] = known.get(key, other.get(key))
    return found


def _failure(done: list[Outcome]) -> dict[str, Any]:
    return {
        "failed": True,
        "changed": any(outcome.committed for outcome in done),
        "msg": done[-1].message(),
        "moves": [outcome.to_dict() for outcome in done],
    }
