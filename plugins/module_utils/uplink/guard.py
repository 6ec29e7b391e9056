# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""At boot, before Open vSwitch and the network manager start: moves that the last boot did not end.

One that nobody had confirmed is undone, in the database's file; the files that its manager was given were in /run and
are gone. One that was confirmed is completed: its files are written again, and the bridge comes by its own unit.
Nothing here waits for the network, and nothing that is broken holds up the boot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PodnetError
from ..kernel.files import read_exact
from ..model.move import COMMITTED, COMMITTING, MOVE, OPEN, ROLLED_BACK, FileChange
from ..vswitch import dbfile, offline
from . import commit, deadman, points, record
from .crossing import KEY_MOVE
from .journal import Journal, all_moves
from .persist import command
from .steps import put_files

UNDONE = "the node was started anew before the move was confirmed"


def guard() -> tuple[str, ...]:
    """Ends all moves of earlier boots. Gives what was done, and what could not be, in a line each. Never raises."""
    said: list[str] = []
    for journal in all_moves():
        if journal.open and not journal.this_boot:
            with _reported(f"move {journal.id} of {journal.request.nic}", said.append):
                said.append(_ended(journal))
    with _reported("the database of Open vSwitch", said.append):
        said.extend(_set_aside())
    with _reported("ports that an unknown move left", said.append):
        said.extend(_drop_strays())
    return tuple(said)


def _ended(journal: Journal) -> str:
    if journal.state == COMMITTING:
        _complete(journal)
        return f"move {journal.id}: it was confirmed and is now complete"
    _undo(journal)
    return f"move {journal.id}: it was not confirmed and is undone"


def _undo(journal: Journal) -> None:
    """Below a confirmation only /run, the database and the kernel were touched."""
    request = journal.request
    points.reached("guard-undo")
    _drop_volatile(journal)
    if request.direction == MOVE:
        try:
            _detach(journal)
        except PodnetError:
            deadman.start(journal, deadman.RECOVER)  # as soon as the database has a server, it can be undone there
            raise
    points.reached("guard-undone")
    reason = journal.reason or UNDONE
    journal.advance(ROLLED_BACK, tuple(state for state in OPEN if state != COMMITTING), reason=reason, worker={})


def _complete(journal: Journal) -> None:
    """In the order of `commit.finish`; the database's rows follow when the bridge's unit has it at work."""
    request = journal.request
    points.reached("guard-complete")
    put_files(journal.files)
    points.reached("guard-files")
    if request.direction != MOVE:
        _detach(journal)
    commit.write_record(journal)
    points.reached("guard-recorded")
    _drop_volatile(journal)
    commit.switch_units(journal)
    points.reached("guard-units")
    if journal.values["managed"]["manager"] == "netplan":
        command.tried(["netplan", "generate"])  # what it gave its backend at this boot comes from the files before
    journal.advance(COMMITTED, (COMMITTING,), worker={})
    points.reached("guard-completed")


def _detach(journal: Journal) -> None:
    """Takes the NIC out of the bridge in the database's file, and removes a bridge that an undone move had made.

    A file that is no database any more holds no port either: Open vSwitch replaces it with an empty one.
    """
    db, bridge, nic = offline.database(), journal.request.bridge.name, journal.request.nic
    if not dbfile.whole_length(db):
        return
    offline.remove_port(db, bridge, nic)
    made = journal.request.direction == MOVE and journal.values.get("switch", {}).get("bridge") is None
    if made and set(offline.bridges(db).get(bridge, ())) == {bridge}:
        offline.remove_bridge(db, bridge)
    dbfile.sync_database(db)


def _drop_volatile(journal: Journal) -> None:
    """Only what is as the move wrote it: a boot empties /run, and others have filled it since."""
    before = {item["path"]: FileChange.from_dict(item) for item in journal.values.get("volatile_before", ())}
    for item in journal.values.get("volatile", ()):
        change = FileChange.from_dict(item)
        if change.text is not None and read_exact(change.path) == change.text:
            put_files([before.get(change.path, FileChange(change.path, None))])


def _set_aside() -> Iterator[str]:
    """A node that stands on a bridge needs an Open vSwitch that starts; the rest the bridge's own unit does."""
    aside = dbfile.set_aside(offline.database()) if record.names() and not offline.served() else None
    if aside:
        yield f"the database was broken: it is now {aside}, and Open vSwitch begins with an empty one"


def _drop_strays() -> Iterator[str]:
    """Ports that carry the mark of an unconfirmed move whose journal is gone or broken."""
    db = offline.database()
    if not dbfile.whole_length(db):
        return
    known = {journal.id for journal in all_moves()}
    kept = set(record.names())
    for bridge, nic, move in offline.marked(db, KEY_MOVE):
        if move not in known and bridge not in kept:
            offline.remove_port(db, bridge, nic)
            yield f"move {move}: its journal cannot be read, and {nic} was taken out of {bridge}"


@contextmanager
def _reported(what: str, say: Callable[[str], None]) -> Iterator[None]:
    try:
        yield
    except (PodnetError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        say(f"{what}: {error}")
