# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A move is confirmed, called back or given more time: what somebody does to it from outside. All may be repeated."""

from __future__ import annotations

import hashlib
import hmac

from ..errors import PodnetError
from ..kernel.links import observe_links
from ..kernel.visit import current_connection
from ..model.l3 import L3
from ..model.move import APPLIED, COMMITTED, COMMITTING, LONGEST, ROLLBACK_FAILED, ROLLING_BACK, UNCONFIRMED
from . import deadman
from .journal import Journal, Lost, UnknownMove, boottime, turn

LOST, NOT_READY, SAME_CONNECTION, WRONG_NONCE, UNKNOWN = (
    "lost",
    "not_ready",
    "same_connection",
    "wrong_nonce",
    "unknown",
)


class NotConfirmed(PodnetError):
    """A move that did not become permanent by this call; `kind` says why to a program."""

    def __init__(self, kind: str, message: str, hint: str = "", journal: Journal | None = None) -> None:
        super().__init__(message, hint)
        self.kind = kind
        self.state = journal.state if journal else ""
        self.reason = journal.reason if journal else ""


def confirm(move: str, nonce: str) -> Journal:
    """Makes a move permanent, if its nonce is the one, and if this call reaches the node on its new way.

    Returns when that is certain, before it is all done. Raises NotConfirmed.
    """
    journal = _load(move)
    digest = hashlib.sha256(nonce.encode()).hexdigest()
    if not hmac.compare_digest(digest, journal.nonce_hash):
        raise NotConfirmed(WRONG_NONCE, f"this is not the nonce of the move {move}", "", journal)
    if journal.state in (COMMITTING, COMMITTED):
        return journal
    if journal.state not in UNCONFIRMED:
        raise _lost(journal)
    if journal.state != APPLIED:
        raise NotConfirmed(NOT_READY, f"the move {move} is only {journal.state}", "ask again in a second", journal)
    _check_connection(journal)
    try:
        journal = journal.advance(COMMITTING, (APPLIED,))
    except Lost as lost:
        if lost.journal.state in (COMMITTING, COMMITTED):
            return lost.journal
        raise _lost(lost.journal) from lost
    deadman.start(journal, deadman.FINISH)
    return journal


def rollback(move: str, reason: str) -> Journal:
    """Has a move undone that nobody confirmed; returns at once. Raises NotConfirmed if it is confirmed already."""
    journal = _load(move)
    if journal.state in (COMMITTING, COMMITTED):
        raise NotConfirmed(LOST, f"the move {move} is confirmed", "take the NIC out again: unbridge", journal)
    if journal.state in UNCONFIRMED:
        try:
            worker = journal.worker
            journal = journal.advance(ROLLING_BACK, UNCONFIRMED, reason=reason)
            deadman.end(worker)
        except Lost as lost:
            return rollback(move, reason) if lost.journal.state != journal.state else lost.journal
    if journal.state in (ROLLING_BACK, ROLLBACK_FAILED):
        deadman.start(journal, deadman.RECOVER)
    return journal


def extend(move: str, seconds: float) -> Journal:
    """Puts the deadline at least so far into the future; it never comes nearer. Raises NotConfirmed."""
    wanted = boottime() + min(max(seconds, 0.0), LONGEST)
    with turn():
        journal = _load(move)
        if journal.state not in UNCONFIRMED:
            raise _lost(journal)
        return journal.put(deadline=max(journal.deadline, wanted))


def _load(move: str) -> Journal:
    try:
        return Journal.load(move)
    except UnknownMove as error:
        raise NotConfirmed(UNKNOWN, error.message, error.hint) from error


def _lost(journal: Journal) -> NotConfirmed:
    reason = f": {journal.reason}" if journal.reason else ""
    return NotConfirmed(LOST, f"the move {journal.id} is {journal.state}{reason}", "", journal)


def _check_connection(journal: Journal) -> None:
    """A new connection to an address that moved proves that the node is reached as before; the old one proves little.

    Who began the move without SSH, on the node itself, may end it so.
    """
    mine = current_connection()
    if not journal.connection:
        return
    if not mine or mine == journal.connection:
        raise NotConfirmed(
            SAME_CONNECTION,
            "this call does not come over a new SSH connection, and so does not prove that the node can be reached",
            "open a new one (with OpenSSH: -o ControlPath=none)",
            journal,
        )
    address = mine[2].split("%", 1)[0]
    moved = {item.cidr.split("/", 1)[0] for item in L3.from_dict(journal.values["l3"]).addresses}
    target = observe_links().get(journal.request.target)
    there = {item.split("/", 1)[0] for item in (*target.addresses, *target.dynamic)} if target else set()
    if address in moved and address not in there:
        raise NotConfirmed(
            NOT_READY, f"this call came to {address}, which is not on {journal.request.target}", "", journal
        )
