# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet uplink`: the moves of this node's NICs, for a person at its console and for the controller."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from .errors import PodnetError
from .model.move import ROLLBACK_FAILED
from .terminal import FAILED, OK, complain, print_json, say
from .uplink import deadman
from .uplink.confirm import NotConfirmed, confirm, extend, rollback
from .uplink.ensure import ensure
from .uplink.guard import guard
from .uplink.journal import Journal, UnknownMove, open_moves
from .uplink.move import NotBegun, Order, begin
from .uplink.rescue import repair, rescue
from .uplink.status import deadline_in, overview, status
from .uplink.watch import watch
from .uplink.worker import finish_move, recover, work

_WAIT = 60.0
_AGAIN = 0.2
_NEXT_TRY = 20.0
"""How long the way back that has failed once may take to be tried again."""


def main(argv: Sequence[str]) -> int:
    """Runs one command; `argv` is what follows `podnet uplink`. Gives the exit status."""
    parser = argparse.ArgumentParser(
        prog="podnet uplink", description="The NICs that carry this node, and their moves."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text, arguments, command in (
        ("status", "the moves, and the bridges that carry this node", ("[ID]",), _status),
        ("begin", "begin a move, which standard input describes as JSON", (), _begin),
        ("confirm", "make a move permanent", ("ID", "NONCE"), _confirm),
        ("rollback", "undo the move that is under way", ("[ID]",), _rollback),
        ("extend", "give a move so many seconds from now", ("ID", "SECONDS"), _extend),
    ):
        sub = _command(commands, name, arguments, command, help=text)
        sub.add_argument("--json", action="store_true", help="for a program")
    for name, text, one in (
        ("guard", "at boot: undo or finish what a loss of power interrupted", ()),
        ("ensure", "bring a bridge that carries this node up", ("BRIDGE",)),
        ("repair", "bring such a bridge up again, and have it configured", ("BRIDGE",)),
        ("rescue", "give a NIC its addresses back directly, whatever becomes of its bridge", ("BRIDGE",)),
        ("watch", "look after a bridge that carries this node", ("BRIDGE",)),
    ):
        _command(commands, name, one, _YEARS[name], help=text)
    for verb, run in ((deadman.WORK, work), (deadman.FINISH, finish_move), (deadman.RECOVER, recover)):
        _command(commands, verb, ("ID",), _as_process(run))
    _command(commands, deadman.KEEP, ("ID",), _keep)
    options = parser.parse_args(argv)
    try:
        status_: int = options.command(options)
        return status_
    except PodnetError as error:
        complain(f"podnet: {error}")
        return FAILED


def _command(
    parser: Any, name: str, arguments: tuple[str, ...], command: Callable[[argparse.Namespace], int], **more: Any
) -> argparse.ArgumentParser:
    """A sub-command with positional arguments; one in brackets may be left away."""
    sub: argparse.ArgumentParser = parser.add_parser(name, **more)
    for word in arguments:
        plain = word.strip("[]")
        kind = float if plain == "SECONDS" else str
        sub.add_argument(plain.lower(), metavar=plain, type=kind, nargs="?" if word != plain else None)
    sub.set_defaults(command=command)
    return sub


def _begin(_options: argparse.Namespace) -> int:
    """Speaks JSON only: nobody types an order."""
    try:
        journal, plan = begin(Order.parse(sys.stdin.read()))
    except PodnetError as error:
        kind, holder = (error.kind, error.holder) if isinstance(error, NotBegun) else ("refused", None)
        _json({"error": error.message, "hint": error.hint, "kind": kind, "holder": holder})
        return FAILED
    shown = journal.values.get("plan", {}) if plan is None else plan.to_dict()
    return _json({"id": journal.id, "state": journal.state, "deadline_in": deadline_in(journal), "plan": shown})


def _status(options: argparse.Namespace) -> int:
    if options.id:
        try:
            found = status(options.id)
        except UnknownMove as error:
            return _failed(options, error, kind="unknown")
        if options.json:
            return _json(found)
        say(_line(found))
        for entry in found["log"]:
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(entry["t"]))
            say(f"  {when}  {entry['point']}{': ' + entry['reason'] if entry.get('reason') else ''}")
        return OK
    every = overview()
    if options.json:
        return _json(every)
    for bridge in every["bridges"]:
        why = f": {bridge['why']}" if bridge["why"] else ""
        say(f"{bridge['bridge']} with {bridge['nic']}: {bridge['state']}{why}")
    for move in every["moves"]:
        say(_line(move))
    if not every["bridges"] and not every["moves"]:
        say("no NIC was moved under a bridge")
    return FAILED if any(bridge["state"] != "ok" for bridge in every["bridges"]) else OK


def _confirm(options: argparse.Namespace) -> int:
    try:
        journal = confirm(options.id, options.nonce)
    except NotConfirmed as error:
        return _failed(options, error, kind=error.kind, state=error.state, reason=error.reason)
    if options.json:
        return _json({"state": journal.state})
    journal = _wait(journal.id)
    say(_line(status(journal.id)))
    return FAILED if journal.open else OK


def _rollback(options: argparse.Namespace) -> int:
    move = options.id
    if move is None:
        there = open_moves()
        if not there:
            complain("podnet: no move is under way")
            return FAILED
        move = there[0].id
    try:
        journal = rollback(move, "somebody asked for it")
    except NotConfirmed as error:
        return _failed(options, error, kind=error.kind, state=error.state, reason=error.reason)
    journal = _wait(journal.id, _NEXT_TRY if journal.state == ROLLBACK_FAILED else 0.0)
    if options.json:
        return _json({"id": journal.id, "state": journal.state, "reason": journal.reason})
    say(_line(status(journal.id)))
    return FAILED if journal.open else OK


def _extend(options: argparse.Namespace) -> int:
    try:
        journal = extend(options.id, options.seconds)
    except NotConfirmed as error:
        return _failed(options, error, kind=error.kind, state=error.state, reason=error.reason)
    if options.json:
        return _json({"deadline_in": deadline_in(journal)})
    say(_line(status(journal.id)))
    return OK


def _wait(move: str, patience: float = 0.0) -> Journal:
    """The journal when the move is over, or after a minute, or when its undoing has failed for so long."""
    until, failed = time.monotonic() + _WAIT, time.monotonic() + patience
    while True:
        journal = Journal.load(move)
        now = time.monotonic()
        if not journal.open or now >= until or (journal.state == ROLLBACK_FAILED and now >= failed):
            return journal
        time.sleep(_AGAIN)


def _as_process(run: Callable[[str], bool]) -> Callable[[argparse.Namespace], int]:
    """What systemd starts, and starts again until it succeeds."""

    def command(options: argparse.Namespace) -> int:
        try:
            return OK if run(options.id) else FAILED
        except UnknownMove:
            return OK  # nothing is left to be done
        except PodnetError as error:
            complain(f"podnet: {error}")
            time.sleep(1.0)
            return FAILED

    return command


def _keep(options: argparse.Namespace) -> int:
    deadman.keep(options.id)
    return OK


def _guard(_options: argparse.Namespace) -> int:
    for line in guard():
        say(line)
    return OK


def _ensure(options: argparse.Namespace) -> int:
    say(ensure(options.bridge))
    return OK


def _repair(options: argparse.Namespace) -> int:
    say(repair(options.bridge))
    return OK


def _rescue(options: argparse.Namespace) -> int:
    for line in rescue(options.bridge, "somebody asked for it, or its service failed"):
        complain(f"podnet: {line}")
    return OK


def _watch(options: argparse.Namespace) -> int:
    watch(options.bridge)
    return OK


_YEARS: dict[str, Callable[[argparse.Namespace], int]] = {
    "guard": _guard,
    "ensure": _ensure,
    "repair": _repair,
    "rescue": _rescue,
    "watch": _watch,
}


def _line(move: dict[str, Any]) -> str:
    way = "to" if move["direction"] == "move" else "out of"
    text = f"{move['id']}: {move['nic']} {way} {move['bridge']}: {move['state']}"
    if move["reason"]:
        text += f": {move['reason']}"
    if move["deadline_in"] and move["state"] in ("armed", "prepared", "cutover", "applied"):
        text += f" (goes back in {move['deadline_in']:.0f} s; podnet uplink rollback does so now)"
    return text


def _failed(options: argparse.Namespace, error: PodnetError, **more: Any) -> int:
    if options.json:
        _json({"error": error.message, "hint": error.hint, **more})
    else:
        complain(f"podnet: {error}")
    return FAILED


def _json(document: Any) -> int:
    print_json(document)
    return OK
