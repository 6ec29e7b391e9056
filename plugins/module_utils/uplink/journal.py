# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a move: all that a node needs to finish it or to undo it, on the disk before the first change.

Who changes the state holds one lock for all moves and says from which states it comes: of two that want to end a move,
exactly one wins. Times are of CLOCK_BOOTTIME, which goes on while a machine sleeps; they mean nothing after a reboot.
"""

from __future__ import annotations

import errno
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import DecodeError, PodnetError
from ..kernel.files import locked, make_folder, read_text, remove, remove_folder, write_text
from ..model.move import COMMITTED, OPEN, PLANNED, ROLLED_BACK, SCHEMA, STATES, FileChange, Request
from ..model.paths import BOOT_ID, UPLINK, UPLINK_LOCK

KEPT = 10
"""How many journals of moves that are over stay, for who asks later what became of them."""
_ID = re.compile(r"[A-Za-z0-9][-A-Za-z0-9]{0,63}")
_NOT_IDS = ("bridges", "lock")
_LOCK_SECONDS = 30.0
_ROOM = 4
"""Journals for which there is room."""


class UnknownMove(PodnetError):
    """There is no journal of that id."""


class Lost(PodnetError):
    """The move is in another state than the change wants: somebody else was faster. `journal` is as it is."""

    def __init__(self, journal: Journal, wanted: str) -> None:
        reason = f": {journal.reason}" if journal.reason else ""
        super().__init__(f"the move {journal.id} is {journal.state} and cannot become {wanted}{reason}")
        self.journal = journal


@dataclass(frozen=True)
class Journal:
    """A journal as it was read. `values` are what the move needs beyond its state, plain JSON."""

    id: str
    state: str
    nonce_hash: str
    request: Request
    deadline: float
    boot_id: str
    reason: str = ""
    holder: Mapping[str, Any] = field(default_factory=dict)
    connection: tuple[str, ...] = ()
    program: str = ""
    worker: Mapping[str, Any] = field(default_factory=dict)
    """Process id and start time of who works on it, `{}` if nobody does."""
    values: Mapping[str, Any] = field(default_factory=dict)
    log: tuple[Mapping[str, Any], ...] = ()

    @property
    def left(self) -> float:
        """Seconds until the deadline, negative after it."""
        return self.deadline - boottime()

    @property
    def open(self) -> bool:
        """Whether it is not over."""
        return self.state in OPEN

    @property
    def this_boot(self) -> bool:
        """Whether it was begun since the machine came up."""
        return self.boot_id == boot_id()

    @property
    def work_lock(self) -> str:
        """The file whose lock the process that carries it out holds."""
        return f"{UPLINK}/{self.id}/work.lock"

    @property
    def files(self) -> tuple[FileChange, ...]:
        """The files that are in place after the commit, and stay."""
        return tuple(FileChange.from_dict(item) for item in self.values.get("files", ()))

    def to_json(self) -> str:
        """The text of journal.json."""
        table = {
            "schema": SCHEMA,
            "id": self.id,
            "state": self.state,
            "nonce_hash": self.nonce_hash,
            "request": self.request.to_dict(),
            "deadline": self.deadline,
            "boot_id": self.boot_id,
            "reason": self.reason,
            "holder": dict(self.holder),
            "connection": list(self.connection),
            "program": self.program,
            "worker": dict(self.worker),
            "values": dict(self.values),
            "log": [dict(entry) for entry in self.log],
        }
        return json.dumps(table, indent=1, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Journal:
        """Raises DecodeError for what is no journal, or for one that a newer release wrote."""
        try:
            table = json.loads(text)
            schema, state = table["schema"], table["state"]
            if schema != SCHEMA or state not in STATES:
                raise DecodeError(f"a journal has schema {schema!r} and state {state!r}: use the release that wrote it")
            return cls(
                id=table["id"],
                state=state,
                nonce_hash=table["nonce_hash"],
                request=Request.parse(table["request"]),
                deadline=float(table["deadline"]),
                boot_id=table["boot_id"],
                reason=table["reason"],
                holder=table["holder"],
                connection=tuple(table["connection"]),
                program=table["program"],
                worker=table["worker"],
                values=table["values"],
                log=tuple(table["log"]),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise DecodeError(f"a journal is broken: {error}") from error

    @classmethod
    def load(cls, move: str) -> Journal:
        """The journal of a move. Raises UnknownMove, DecodeError."""
        text = read_text(_path(move)) if _is_id(move) else None
        if text is None:
            raise UnknownMove(f"this node knows no move {move}", "podnet uplink status")
        return cls.from_json(text)

    @classmethod
    def create(cls, journal: Journal) -> Journal:
        """Writes a new journal, whose state is `planned`. Call it under `turn`. Raises PodnetError."""
        if not _is_id(journal.id):
            raise DecodeError(f"{journal.id!r} is no id of a move", "letters, digits and dashes, 64 at most")
        make_folder(UPLINK, 0o700)
        made = _changed(journal, PLANNED, {})
        _write(made)
        return made

    def advance(self, to: str, expect: tuple[str, ...], **changes: Any) -> Journal:
        """Changes the state to `to` if it is one of `expect` on the disk at that moment, and other fields with it.

        Gives the journal as it is then. Raises Lost if the state is another one.
        """
        with turn():
            present = Journal.load(self.id)
            if present.state not in expect:
                raise Lost(present, to)
            made = _changed(present, to, changes)
            _write(made)
            return made

    def note(self, **changes: Any) -> Journal:
        """Changes other fields than the state, and gives the journal as it is then."""
        with turn():
            return Journal.load(self.id).put(**changes)

    def put(self, **changes: Any) -> Journal:
        """As `note`, for who holds the turn, and has read this journal in it."""
        made = _changed(self, self.state, changes)
        _write(made)
        return made


@contextmanager
def turn() -> Iterator[None]:
    """Holds the lock for changes of state. Not to be taken twice. Raises PodnetError if it cannot be had."""
    make_folder(UPLINK, 0o700)
    with locked(UPLINK_LOCK, _LOCK_SECONDS):
        yield


def all_moves() -> list[Journal]:
    """Every move that has a journal, the oldest first. A broken journal counts as none."""
    found = []
    for move in _ids():
        try:
            found.append(Journal.load(move))
        except (UnknownMove, DecodeError):
            continue
    return sorted(found, key=lambda journal: journal.log[0]["t"] if journal.log else 0.0)


def open_moves() -> list[Journal]:
    """The moves that are not over; there can be one."""
    return [journal for journal in all_moves() if journal.open]


def prune() -> None:
    """Removes the oldest journals of moves that are over, and what a crash left of one that was never written.

    Call it under `turn`.
    """
    moves = all_moves()
    over = [journal.id for journal in moves if journal.state in (COMMITTED, ROLLED_BACK)]
    known = {journal.id for journal in moves}
    broken = [move for move in _ids() if move not in known and read_text(_path(move)) is None]
    for move in [*over[: max(len(over) - KEPT, 0)], *broken]:
        remove_folder(f"{UPLINK}/{move}")


def boottime() -> float:
    """Seconds since the machine came up, those in which it slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def boot_id() -> str:
    """What tells one boot of the machine from another."""
    return (read_text(BOOT_ID) or "").strip()


def _ids() -> list[str]:
    try:
        names = os.listdir(UPLINK)
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [name for name in names if _is_id(name) and os.path.isdir(f"{UPLINK}/{name}")]


def _is_id(text: str) -> bool:
    return bool(_ID.fullmatch(text)) and text not in _NOT_IDS


def _path(move: str) -> str:
    return f"{UPLINK}/{move}/journal.json"


def _changed(journal: Journal, state: str, changes: Mapping[str, Any]) -> Journal:
    """With these fields, and a line in the log if the state or the reason is new."""
    table = {name: getattr(journal, name) for name in journal.__dataclass_fields__}
    table.update(changes, state=state)
    if "values" in changes:
        table["values"] = {**journal.values, **changes["values"]}
    told = changes.get("reason", journal.reason)
    if state != journal.state or told != journal.reason or not journal.log:
        entry = {"t": round(time.time(), 3), "point": state, **({"reason": told} if told != journal.reason else {})}
        table["log"] = (*journal.log, entry)
    return Journal(**table)


def _write(journal: Journal) -> None:
    """An open move has room on the disk kept for it: on a full one it is undone all the same."""
    path, text = _path(journal.id), journal.to_json()
    room = f"{UPLINK}/{journal.id}/room"
    try:
        write_text(path, text, 0o600)
    except PodnetError as error:
        if not isinstance(error.__cause__, OSError) or error.__cause__.errno != errno.ENOSPC:
            raise
        remove(room)
        write_text(path, text, 0o600)
        return
    if not journal.open:
        remove(room)
    elif journal.state == PLANNED:
        write_text(room, " " * (_ROOM * len(text)), 0o600)
