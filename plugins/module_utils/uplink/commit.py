# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A confirmed move becomes permanent: files, record, database, units. From its first step on it only goes forward."""

from __future__ import annotations

from ..model.move import COMMITTED, COMMITTING, MOVE, FileChange
from ..vswitch.offline import database, sync_database
from ..vswitch.session import Session
from . import deadman, points, units
from .crossing import confirmed, nic_detached
from .journal import Journal
from .record import Record, load, merged_originals
from .steps import Work, change, put_files


def finish(journal: Journal) -> Journal:
    """Makes a confirmed move permanent; may be repeated after a crash. Raises PodnetError."""
    points.reached("committing")
    work = Work.of(journal)
    request = work.request
    put_files(journal.files)
    points.reached("files-written")
    write_record(journal)
    points.reached("recorded")
    with Session.open(request.ovsdb) as session:
        change(session, lambda state: confirmed(state, request))
        if request.direction != MOVE:
            change(session, lambda state: nic_detached(state, request))
    sync_database(database())
    points.reached("durable")
    switch_units(journal)
    points.reached("units-switched")
    put_files(FileChange(item.path, None) for item in (*work.volatile_before, *work.volatile))
    work.manager.settle(work.managed, request.source, request.target)
    points.reached("settled")
    journal = journal.advance(COMMITTED, (COMMITTING,), worker={}, reason="")
    points.reached("committed")
    deadman.disarm(journal)
    points.reached("cleaned")
    return journal


def write_record(journal: Journal) -> None:
    """What brings the bridge back for years, or after the way back nothing any more. Needs neither switch nor network.

    Raises PodnetError.
    """
    values, request = journal.values, journal.request
    earlier = load(request.bridge.name)
    if request.direction != MOVE:
        if earlier is not None:
            earlier.forget()
        return
    if earlier is not None and earlier.id == journal.id:
        return
    Record(
        bridge=request.bridge.name,
        nic=request.nic,
        id=journal.id,
        request=request.to_dict(),
        l3=values["l3"],
        managed=values["managed"],
        manager=values["managed"]["manager"],
        files=journal.files,
        originals=merged_originals(values["originals"], earlier),
        rescue_files=tuple(FileChange.from_dict(item) for item in values["rescue_files"]),
    ).save()


def switch_units(journal: Journal) -> None:
    """The units that keep the bridge up are for a bridge that carries the node. Raises PodnetError."""
    switch = units.enable if journal.request.direction == MOVE else units.disable
    switch(journal.request.bridge.name)
