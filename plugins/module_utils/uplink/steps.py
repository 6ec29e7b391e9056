# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The steps of a move and of the way back. Each may be done again, whatever was done before it.

Nothing here asks which step was the last one: every step looks at what is there and does what is missing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import DeadlineExceeded, PodnetError
from ..kernel.datapath import detach
from ..kernel.files import mode_of, read_exact, remove, sweep, write_text
from ..kernel.l3 import announce_device, loud, quiet, snapshot, stage, swap, wait_master
from ..kernel.links import observe_links, wait_for_links
from ..model.l3 import L3, Moment
from ..model.move import APPLIED, ARMED, CUTOVER, MOVE, PREPARED, FileChange, Request
from ..model.plan import DATABASE_KINDS, Operation, plan_between
from ..model.state import State
from ..vswitch.bridges import NETDEV, change_switch, check_switch
from ..vswitch.foresee import foresee_port
from ..vswitch.session import Session
from . import points
from .carried import check_carried, lacking
from .crossing import bridge_made, nic_attached, nic_detached, put_back
from .journal import Journal, boot_id, boottime
from .observe import observe
from .persist.base import Manager
from .persist.manager import named
from .probes import Way, failures, look

SECONDS = 10.0
"""How long the switch and the kernel may take for one step."""
_PROBE_SECONDS = 15.0
_LEAST_SECONDS = 60
"""What an address that DHCP or a router gave has left at least: whoever renews it takes over meanwhile."""


@dataclass(frozen=True)
class Work:
    """What a journal says, as values."""

    id: str
    request: Request
    l3: L3
    """What the source carried at the beginning."""
    there: L3
    """The same with the settings that the target shall have."""
    manager: Manager
    managed: dict[str, Any]
    volatile: tuple[FileChange, ...]
    volatile_before: tuple[FileChange, ...]
    rescue_files: tuple[FileChange, ...]
    switch: dict[str, Any]

    @classmethod
    def of(cls, journal: Journal) -> Work:
        """Raises PodnetError if the journal lacks something."""
        values = journal.values
        l3 = L3.from_dict(values["l3"])
        now = Moment(boot_id(), boottime(), time.time())
        l3 = l3.lasting(_LEAST_SECONDS, now)
        there = values.get("configured_as")
        return cls(
            id=journal.id,
            request=journal.request,
            l3=l3,
            there=l3.configured_as(L3.from_dict(there)) if there else l3,
            manager=named(values["managed"]["manager"]),
            managed=dict(values["managed"]),
            volatile=tuple(FileChange.from_dict(item) for item in values["volatile"]),
            volatile_before=tuple(FileChange.from_dict(item) for item in values["volatile_before"]),
            rescue_files=tuple(FileChange.from_dict(item) for item in values["rescue_files"]),
            switch=dict(values["switch"]),
        )

    @property
    def userspace(self) -> bool:
        """Whether the bridge hears the NIC on a packet socket, and the kernel hears it too."""
        return self.request.bridge.datapath_type == NETDEV


def forward(journal: Journal, arm: Callable[[Journal], None]) -> Journal:
    """Moves the NIC, or takes it out again, as far as a confirmation. `arm` is called after each change of state.

    Raises PodnetError with the reason if it cannot be done, or if the node cannot be reached as before afterwards.
    """
    request = journal.request
    way = look(L3.from_dict(journal.values["l3"]), request.source, journal.connection)
    check_carried(Work.of(journal).l3, request.source, "which it had when the move was planned")
    # what others have added since then moves too
    journal = journal.note(values={"l3": snapshot(request.source).to_dict()})
    work = Work.of(journal)
    put_files(work.volatile)
    points.reached("files-volatile")
    with Session.open(request.ovsdb, SECONDS) as session:
        if request.direction == MOVE:
            _make_bridge(session, work)
        points.reached("bridge-made")
        if request.direction != MOVE and work.userspace:
            loud(request.nic, work.there)
        stage(work.there, request.target)
        points.reached("staged")
        arm(journal := journal.advance(PREPARED, (ARMED,)))
        points.reached("prepared")
        work.manager.release(work.managed, request.source)
        check_carried(work.l3, request.source, "which the network manager took off it")
        points.reached("released")
        arm(journal := journal.advance(CUTOVER, (PREPARED,)))
        points.reached("cutover")
        if request.direction == MOVE:
            _to_bridge(session, work, work.there, lambda state: nic_attached(state, request, work.id), "half-crossed")
        else:
            _to_nic(work, work.there, lambda: session, "half-crossed")
        check_carried(work.there, request.target, "which should have moved there")
        points.reached("crossed")
    announce_device(request.target, work.there)
    points.reached("announced")
    work.manager.take(work.managed, work.there, request.target, max(journal.left / 2, 5.0))
    points.reached("taken")
    check(work, way, min(_PROBE_SECONDS, max(journal.left / 2, 1.0)))
    points.reached("probed")
    arm(journal := journal.advance(APPLIED, (CUTOVER,)))
    points.reached("applied")
    return journal


def check(work: Work, way: Way, timeout: float) -> None:
    """Raises PodnetError with all that does not work as before."""
    reasons = failures(work.request, work.there, way, timeout)
    if reasons:
        raise PodnetError("; ".join(reasons))


def back(journal: Journal) -> None:
    """Undoes a move, however far it came; waits for nothing beyond this node. Raises PodnetError."""
    work = Work.of(journal)
    request = work.request
    put_files(work.volatile_before)
    points.reached("back-files")
    links = observe_links()
    if request.target in links:
        work.manager.release(work.managed, request.target)
    points.reached("back-released")
    if request.direction == MOVE and work.userspace:
        loud(request.nic, work.l3)
    stage(work.l3, request.source)
    points.reached("back-staged")
    session: Session | None = None

    def as_before(state: State) -> State:
        return put_back(state, request, work.switch)

    def opened() -> Session:
        nonlocal session
        session = session or Session.open(request.ovsdb)
        return session

    try:
        if request.direction == MOVE:
            _to_nic(work, work.l3, opened, "back-half-crossed")
        else:
            _to_bridge(
                opened(), work, work.l3, lambda state: put_back(state, request, work.switch), "back-half-crossed"
            )
        check_carried(work.l3, request.source, "which should be back there")
        points.reached("back-crossed")
        announce_device(request.source, work.l3)
        points.reached("back-announced")
        work.manager.take(work.managed, work.l3, request.source, SECONDS, wait=False)
        points.reached("back-taken")
        change(opened(), as_before)
        points.reached("back-switch")
    finally:
        if session is not None:
            session.close()
    lost = lacking(work.l3, request.source)
    if lost:
        raise PodnetError(f"{request.source} did not get back {', '.join(lost)}")
    points.reached("back-checked")


def directly(work: Work) -> None:
    """The node's addresses and routes to the NIC, and no word with the switch: the last way out of a failed way back.

    Raises PodnetError.
    """
    request = work.request
    nic = request.nic
    loud(nic, work.l3)
    stage(work.l3, nic)
    swap(work.l3, request.bridge.name, nic)
    link = observe_links().get(nic)
    if link is not None and link.master:
        detach(nic)
    announce_device(nic, work.l3)
    if request.direction != MOVE:
        put_files(work.rescue_files)
    work.manager.take(work.managed, work.l3, nic, SECONDS, wait=False)


def put_files(changes: Iterable[FileChange]) -> None:
    """Writes and removes files; one that is as it should be is not touched. Raises PodnetError."""
    for change in changes:
        sweep(change.path)
        if change.text is None:
            remove(change.path)
        elif (read_exact(change.path), mode_of(change.path)) != (change.text, change.mode):
            write_text(change.path, change.text, change.mode)


def present_files(changes: Iterable[FileChange]) -> tuple[FileChange, ...]:
    """What is there now in the places of these files."""
    return tuple(
        FileChange(change.path, read_exact(change.path), mode_of(change.path) or change.mode) for change in changes
    )


def _make_bridge(session: Session, work: Work) -> None:
    operations = change(session, lambda state: bridge_made(state, work.request, work.id))
    check_switch(session, operations, SECONDS)
    wait_for_links([work.request.bridge.name], SECONDS)


def _to_bridge(session: Session, work: Work, l3: L3, wish: Callable[[State], State], point: str) -> None:
    """First the port, then the routes: what arrives goes to the bridge, and what leaves goes by the NIC until then."""
    nic, bridge = work.request.nic, work.request.bridge.name
    if work.userspace:
        operations = change(session, wish)
        session.ports_ready([nic], SECONDS)
    else:
        # until ovs-vswitchd is done it drops what leaves by the bridge, so the routes stay where they are
        operations = change(session, wish, lambda: foresee_port(bridge))
        _wait_enslaved(session, nic)
    points.reached(point)
    swap(l3, nic, bridge)
    if work.userspace:
        quiet(nic)
    check_switch(session, operations, SECONDS)


def _to_nic(work: Work, l3: L3, opened: Callable[[], Session], point: str) -> None:
    """First the routes, then the port: an enslaved NIC sends all the same, and the bridge hears for it until then."""
    nic, bridge = work.request.nic, work.request.bridge.name
    swap(l3, bridge, nic, keep=True)
    points.reached(point)
    change(opened(), lambda state: nic_detached(state, work.request))
    if not work.userspace:
        wait_master(nic, False, SECONDS)
    swap(l3, bridge, nic)


def _wait_enslaved(session: Session, nic: str) -> None:
    try:
        wait_master(nic, True, SECONDS)
    except DeadlineExceeded:
        session.ports_ready([nic], 1.0)  # the switch's own words, if it has any
        raise


def change(
    session: Session, wish: Callable[[State], State], just_before: Callable[[], object] | None = None
) -> list[Operation]:
    """Makes the database what the wish makes of it, in one transaction, and gives what was done. Raises PodnetError.

    `just_before`: called right before the transaction, if there is one.
    """
    state = observe(session)
    operations = [step for step in plan_between(state, wish(state)).operations if step.kind in DATABASE_KINDS]
    if operations:
        if just_before is not None:
            just_before()
        change_switch(session, operations, SECONDS)
    return operations
