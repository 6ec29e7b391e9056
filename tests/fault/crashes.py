# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a disk may hold after a power cut, from a recorded log of the file layer (see recorded.py).

A file system keeps what was made durable: the content of a file after fsync of the file, a name after fsync of its
folder. Of what came later each part may be there or not, whatever the order: a rename without the content gives an
empty file. `crashes` gives the disks of every moment, each once.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

Event = Mapping[str, Any]
Entry = tuple[str, str, int]
"""Kind (file, link, folder), content's digest or the link's target, permissions."""
EMPTY = hashlib.sha256(b"").hexdigest()
CHANGES = ("write", "rename", "unlink", "mkdir", "rmdir")
OVSDB_MAGIC = b"OVSDB JSON "


@dataclass(frozen=True)
class Crash:
    """A disk after a power cut. `entries` by path; `database` is the content of conf.db, None if there is none."""

    moment: int
    point: str
    lost: str
    entries: Mapping[str, Entry]
    database: bytes | None

    def __str__(self) -> str:
        return f"event {self.moment} after {self.point or 'the start'}, {self.lost}"


@dataclass(frozen=True)
class Trace:
    """A recorded log: what was there, what happened, and the contents by their digest."""

    start: Mapping[str, Entry]
    events: Sequence[Event]
    blobs: Mapping[str, bytes]
    folders: Sequence[str]
    database: str
    """The path of conf.db."""

    @classmethod
    def read(cls, folder: Path, folders: Sequence[str], database: str) -> Trace:
        """From what recorded.py wrote."""
        events = [json.loads(line) for line in (folder / "events").read_text(encoding="utf-8").splitlines()]
        start = {e["path"]: (e["kind"], e["data"], e["mode"]) for e in events if e["op"] == "there"}
        blobs = {path.name: path.read_bytes() for path in (folder / "blobs").iterdir()}
        return cls(start, [event for event in events if event["op"] != "there"], blobs, folders, database)

    def content(self, entry: Entry) -> bytes:
        """The bytes of a file."""
        return b"" if entry[1] == EMPTY else self.blobs[entry[1]]


@dataclass
class _Disk:
    """Names and inodes while a log is played. `inodes` hold the content that is kept of each file."""

    names: dict[str, int] = field(default_factory=dict)
    inodes: dict[int, Entry] = field(default_factory=dict)


Keep = Callable[[int, str], bool]
"""Whether a change that nothing has made durable is kept: by its event's number, and what it is: "data" or "name"
(of a file that was there, its truncation)."""


def crashes(trace: Trace, seed: int = 1) -> Iterator[Crash]:
    """All different disks, of every moment: all unsynced changes kept, all lost, only names kept, only the last lost,
    and two of the many other ways. conf.db as it was then; before its durable commit also as it began, and without
    its last record.
    """
    seen: set[str] = set()
    point = ""
    for moment in range(len(trace.events) + 1):
        if moment and trace.events[moment - 1]["op"] == "mark":
            point = trace.events[moment - 1]["point"]
        for lost, keep in ways(trace, moment, seed):
            entries = played(trace, moment, keep)
            for database, what in databases(trace, moment):
                key = _digest(entries, database)
                if key not in seen:
                    seen.add(key)
                    yield Crash(moment, point, f"{lost}, {what}", entries, database)


def ways(trace: Trace, moment: int, seed: int) -> list[tuple[str, Keep]]:
    """The ways in which the unsynced changes before this moment may be kept or lost, by name."""
    pending = unsynced(trace, moment)
    last = max((number for number, _part in pending), default=-1)
    found: list[tuple[str, Keep]] = [("all kept", lambda _number, _part: True)]
    if not pending:
        return found
    found += [
        ("all unsynced lost", lambda _number, _part: False),
        ("only names kept", lambda _number, part: part == "name"),
        ("only the last lost", lambda number, _part: number != last),
    ]
    for turn in range(2):
        chance = random.Random(f"{seed} {moment} {turn}")
        kept = {change for change in sorted(pending) if chance.random() < 0.5}
        found.append((f"some lost ({turn})", partial(_is_kept, kept)))
    return found


def _is_kept(kept: set[tuple[int, str]], number: int, part: str) -> bool:
    return (number, part) in kept


def unsynced(trace: Trace, moment: int) -> set[tuple[int, str]]:
    """The changes before this moment that nothing has made durable by then."""
    pending: dict[tuple[int, str], str] = {}
    """The path whose fsync makes the change durable: the file itself for its content, the folder for a name."""
    known = set(trace.start)
    for number, event in enumerate(trace.events[:moment]):
        op, path = event["op"], event.get("path", "")
        if path == trace.database:
            continue
        if op == "fsync":
            pending = {change: where for change, where in pending.items() if where != path}
        elif op == "sync":
            pending = {}
        elif op == "write":
            if event["kind"] == "file":
                pending[number, "data"] = path
            pending[number, "name"] = path if path in known else os.path.dirname(path)
        elif op in CHANGES:
            pending[number, "name"] = os.path.dirname(event.get("to", path))
        if op == "rename":
            pending = {c: event["to"] if where == path and c[1] == "data" else where for c, where in pending.items()}
        known = _known(known, event)
    return set(pending)


def _known(known: set[str], event: Event) -> set[str]:
    if event["op"] in ("write", "mkdir"):
        known.add(event["path"])
    elif event["op"] == "rename":
        known.discard(event["path"])
        known.add(event["to"])
    elif event["op"] in ("unlink", "rmdir"):
        known.discard(event["path"])
    return known


def played(trace: Trace, moment: int, keep: Keep) -> dict[str, Entry]:
    """The names and contents on the disk at this moment, with those unsynced changes that are kept."""
    pending = unsynced(trace, moment)
    real, disk = _Disk(), _Disk()
    numbers = itertools.count()
    for path, entry in sorted(trace.start.items()):
        if path != trace.database:
            real.names[path] = disk.names[path] = number = next(numbers)
            disk.inodes[number] = entry
    for number, event in enumerate(trace.events[:moment]):
        if event["op"] not in CHANGES or event["path"] == trace.database:
            continue
        data, name = ((number, part) not in pending or keep(number, part) for part in ("data", "name"))
        _play(event, real, disk, numbers, data, name)
    found = {path: disk.inodes[inode] for path, inode in disk.names.items()}
    return {path: entry for path, entry in sorted(found.items()) if _has_folders(path, found, trace.folders)}


def _play(event: Event, real: _Disk, disk: _Disk, numbers: Iterator[int], data: bool, name: bool) -> None:
    """One change: `real` is what processes saw, `disk` what remains."""
    op, path = event["op"], event["path"]
    if op == "write" and path in real.names:
        if data or name:  # a file that is written in place is truncated first
            kept = event["data"] if data else EMPTY
            disk.inodes[real.names[path]] = (event["kind"], kept, event["mode"])
        return
    if op in ("write", "mkdir"):
        entry = (event["kind"], event["data"], event["mode"]) if op == "write" else ("folder", "", 0o755)
        real.names[path] = inode = next(numbers)
        disk.inodes[inode] = entry if data or entry[0] != "file" else ("file", EMPTY, entry[2])
        if name:
            disk.names[path] = inode
    elif op == "rename":
        inode = real.names.pop(path)
        real.names[event["to"]] = inode
        if name:
            if disk.names.get(path) == inode:
                del disk.names[path]
            disk.names[event["to"]] = inode
    else:
        gone = real.names.pop(path, None)
        if name and disk.names.get(path) == gone:
            disk.names.pop(path, None)


def _has_folders(path: str, found: Mapping[str, Entry], tops: Sequence[str]) -> bool:
    """Whether all folders above are there, as far as they were recorded."""
    above = os.path.dirname(path)
    return path in tops or (above in found and _has_folders(above, found, tops))


def databases(trace: Trace, moment: int) -> list[tuple[bytes | None, str]]:
    """What conf.db may hold: Open vSwitch makes nothing durable but what a durable commit asks for."""
    states = [trace.start[trace.database]] if trace.database in trace.start else []
    durable = False
    for event in trace.events[:moment]:
        if event["op"] == "write" and event["path"] == trace.database:
            states.append((event["kind"], event["data"], event["mode"]))
            durable = False
        elif event["op"] == "mark" and event["point"] == "durable":
            durable = True
    if not states:
        return [(None, "no database")]
    last = trace.content(states[-1])
    found: list[tuple[bytes | None, str]] = [(last, "database whole")]
    if not durable and len(states) > 1:
        found += [(cut(last), "without its last record"), (trace.content(states[0]), "database as it began")]
    return found


def cut(database: bytes, kept: float = 0.5) -> bytes:
    """The file of a database when the power went while its last record was written, of which so much is there."""
    last = database.rfind(OVSDB_MAGIC)
    return database[: last + int((len(database) - last) * kept)] if last > 0 else database


def _digest(entries: Mapping[str, Entry], database: bytes | None) -> str:
    text = json.dumps(sorted(entries.items())).encode()
    return hashlib.sha256(text + b"\0" + (database or b"")).hexdigest()
