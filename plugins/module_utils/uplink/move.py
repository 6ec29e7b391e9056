# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A move before it runs: what it will do, and its beginning."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, DecodeError, OvsdbUnavailable, PodnetError, RefusedError
from ..kernel.files import locked, read_exact
from ..kernel.l3 import snapshot
from ..kernel.links import observe_links
from ..kernel.visit import current_connection
from ..model.l3 import L3
from ..model.move import (
    ARMED,
    MOVE,
    PLANNED,
    ROLLED_BACK,
    SCHEMA,
    FileChange,
    MovePlan,
    Request,
)
from ..model.names import refuse_unknown_keys
from ..model.obstacle import WARNING, refuse
from ..model.paths import NODE_LOCK
from ..model.state import State
from ..vswitch.bridges import NETDEV
from ..vswitch.session import Session
from . import deadman, points
from .crossing import saved
from .journal import Journal, Lost, UnknownMove, boot_id, boottime, open_moves, prune, turn
from .observe import observe
from .obstacles import obstacles
from .persist.base import Managed, Manager
from .persist.manager import detect, named
from .record import Record, load
from .status import busy
from .steps import present_files
from .units import guard_ready

REFUSED, BUSY, FAILED = "refused", "busy", "failed"
_NONCE_HASH = re.compile(r"[0-9a-f]{64}")
_TURN_SECONDS = 60.0
_DATABASE_SECONDS = 15.0
"""How long reading the database may take while nothing is moved yet: a small machine computes for seconds."""


class NotBegun(PodnetError):
    """A move that was not begun, and of which nothing is left. `kind` says why to a program."""

    def __init__(self, kind: str, message: str, hint: str = "", holder: Mapping[str, Any] | None = None) -> None:
        super().__init__(message, hint)
        self.kind = kind
        self.holder = holder


@dataclass(frozen=True)
class Order:
    """What `podnet uplink begin` is told: the request, under which id, and the digest of what will confirm it."""

    id: str
    nonce_hash: str
    request: Request
    holder: Mapping[str, Any]

    @classmethod
    def parse(cls, text: str) -> Order:
        """From JSON. Raises DecodeError, ConfigError."""
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"the order is not JSON: {error}") from error
        if not isinstance(table, dict) or table.pop("schema", SCHEMA) != SCHEMA:
            raise DecodeError(f"the order is no object of schema {SCHEMA}", "use the release that wrote it")
        refuse_unknown_keys(table, list(cls.__dataclass_fields__), "order")
        holder = table.get("holder") or {}
        nonce_hash = str(table.get("nonce_hash", ""))
        if not isinstance(holder, Mapping) or not _NONCE_HASH.fullmatch(nonce_hash):
            raise ConfigError("nonce_hash", "a SHA-256 digest is wanted here, in hexadecimal")
        return cls(str(table.get("id", "")), nonce_hash, Request.parse(table.get("request")), dict(holder))


@dataclass(frozen=True)
class _Found:
    """What a plan was made from."""

    state: State
    l3: L3
    managed: Managed
    manager: Manager
    record: Record | None
    plan: MovePlan


def plan_move(request: Request) -> MovePlan:
    """What a move will do. Reads only. Raises RefusedError with all that stands in its way, PodnetError."""
    return _find(request).plan


def begin(order: Order) -> tuple[Journal, MovePlan | None]:
    """Writes a move down, arms what undoes it, and starts it; a second call with the same id only says how it stands.

    The plan is None then. Raises NotBegun.
    """
    try:
        known = _known(order)
        if known is not None and known.state != PLANNED:
            return known, None
        with locked(NODE_LOCK, _TURN_SECONDS):
            _clear_interrupted()
            known = _known(order)
            return (known, None) if known is not None else _begin(order)
    except NotBegun:
        raise
    except (RefusedError, ConfigError) as error:
        raise NotBegun(REFUSED, error.message, error.hint) from error
    except PodnetError as error:
        raise NotBegun(FAILED, error.message, error.hint) from error


def _begin(order: Order) -> tuple[Journal, MovePlan]:
    """Who calls it holds the lock of the node: two moves do not begin at once, nor a move beside another change."""
    _check_free()
    with Session.open(order.request.ovsdb, _DATABASE_SECONDS):
        found = _find(order.request)
    if not guard_ready():
        raise RefusedError(
            "the unit podnet-guard.service, which undoes a move after a power cut, is not enabled",
            "run the role podnet.ovs.runtime",
        )
    journal = Journal(
        id=order.id,
        state=PLANNED,
        nonce_hash=order.nonce_hash,
        request=order.request,
        deadline=boottime() + order.request.timeout,
        boot_id=boot_id(),
        holder=order.holder,
        connection=current_connection(),
        program=deadman.program(),
        values=_values(found),
    )
    with turn():
        prune()
    deadman.arm(journal)  # before the journal: there is no moment in which a move could stay open for ever
    try:
        with turn():
            journal = Journal.create(journal)
        points.reached("planned")
        journal = journal.advance(ARMED, (PLANNED,))
        points.reached("armed")
        deadman.start(journal, deadman.WORK)
        points.reached("started")
    except PodnetError as error:
        with suppress(PodnetError):
            journal.advance(ROLLED_BACK, (PLANNED, ARMED), reason=error.message)
        deadman.disarm(journal)
        raise
    return journal, found.plan


def _values(found: _Found) -> dict[str, Any]:
    request, l3 = found.plan.request, found.l3
    volatile = found.manager.volatile(found.managed, l3, request.source, request.target)
    rescue = found.manager.rescue_files(found.managed, l3, request.nic, request.bridge.name)
    here = present_files((*volatile, *(item for item in rescue if item.path not in {one.path for one in volatile})))
    return {
        "l3": l3.to_dict(),
        "configured_as": dict(found.record.l3) if found.record and request.direction != MOVE else None,
        "managed": dict(found.managed),
        "files": [change.to_dict() for change in found.plan.files],
        "originals": {
            change.path: {"text": change.text, "mode": change.mode} for change in present_files(found.plan.files)
        },
        "volatile": [change.to_dict() for change in volatile],
        "volatile_before": [change.to_dict() for change in here],
        "rescue_files": [change.to_dict() for change in rescue],
        "switch": saved(found.state, request),
        "plan": found.plan.to_dict(),
    }


def _find(request: Request) -> _Found:
    with ExitStack() as held:
        try:
            session = held.enter_context(Session.open(request.ovsdb, _DATABASE_SECONDS))
        except OvsdbUnavailable:
            session = None  # one of the obstacles
        state = observe(session)
    l3 = snapshot(request.source) if request.source in observe_links() else None
    standing = obstacles(request, state, l3)
    refuse(standing, f"{request.nic} does not move")
    if l3 is None:
        raise RefusedError(f"there is no {request.source} on this node", "podnet node status")
    if request.confirm == "probe" and not request.probes and not any(route.gateway for route in l3.routes):
        raise RefusedError("there is no gateway that could tell whether the move went well", "name probes")
    record = load(request.bridge.name)
    manager, managed, files = _persistent(request, l3, record)
    warnings = [item.text for item in standing if item.level == WARNING]
    plan = MovePlan(
        request=request,
        effects=_effects(request, l3, managed),
        files=files,
        before={change.path: read_exact(change.path) for change in files},
        warnings=(*warnings, *_foreign_edits(request, record)),
    )
    return _Found(state, l3, managed, manager, record, _hashed(plan, l3))


def _persistent(request: Request, l3: L3, record: Record | None) -> tuple[Manager, Managed, tuple[FileChange, ...]]:
    """Who configures the NIC, how, and the files that stay."""
    if request.direction == MOVE:
        if record is not None and record.nic == request.nic:  # it was rescued: the files say how it is meant to be
            manager, managed = named(record.manager), record.managed
        else:
            manager = detect(request.nic, request.manager)
            managed = manager.describe(request.nic)
        return manager, managed, manager.files(managed, l3, request.source, request.target)
    if record is None or record.nic != request.nic:
        raise RefusedError(
            f"{request.nic} did not come to {request.bridge.name} by a move: nobody knows how it was before",
            "give the NIC its addresses by hand, at the node's console",
        )
    return named(record.manager), record.managed, record.restoring


def _effects(request: Request, l3: L3, managed: Managed) -> dict[str, Any]:
    return {
        "outage": "short" if request.bridge.datapath_type == NETDEV else "none",
        "dhcp": "the same lease and client" if managed.get("dhcp4") or managed.get("dhcp6") else "none",
        "addresses": [item.cidr for item in l3.addresses],
        "routes": [item.text for item in l3.routes],
        "services": [str(managed["manager"])] if managed["manager"] != "none" else [],
        "vxlan": [item.name for item in l3.vxlan],
    }


def _foreign_edits(request: Request, record: Record | None) -> Iterable[str]:
    if request.direction == MOVE or record is None:
        return
    for change in record.files:
        if change.text is not None and read_exact(change.path) not in (change.text, None):
            yield f"{change.path} was changed since the move: the way back restores what was there before the move"


def _hashed(plan: MovePlan, l3: L3) -> MovePlan:
    told = {**plan.to_dict(), "mac": l3.mac, "mtu": l3.mtu}
    digest = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()
    return MovePlan(plan.request, plan.effects, plan.files, plan.before, plan.warnings, digest)


def _known(order: Order) -> Journal | None:
    """The move of this id, if it was begun before. Raises NotBegun if it is another one."""
    try:
        journal = Journal.load(order.id)
    except UnknownMove:
        return None
    if journal.nonce_hash != order.nonce_hash:
        raise NotBegun(REFUSED, f"there was another move with the id {order.id}", "take another id", journal.holder)
    return journal


def _check_free() -> None:
    for journal in open_moves():
        raise NotBegun(BUSY, busy(journal), "podnet uplink status", journal.holder)


def _clear_interrupted() -> None:
    """A move that never came beyond its plan is over: nothing was changed, and the process that began it is gone."""
    for journal in open_moves():
        if journal.state == PLANNED:
            with suppress(Lost):
                journal.advance(ROLLED_BACK, (PLANNED,), reason="its beginning was interrupted")
                deadman.disarm(journal)
