# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The processes that carry out a move, make it permanent, or undo it: one at a time, each ended by its own alarm.

Any of them may be killed at any moment: what starts in its place looks at what is there.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType

from ..errors import DeadlineExceeded, PodnetError
from ..kernel.files import locked
from ..model.move import (
    APPLIED,
    ARMED,
    COMMITTING,
    ROLLBACK_FAILED,
    ROLLED_BACK,
    ROLLING_BACK,
    UNCONFIRMED,
)
from . import deadman, points
from .carried import lacking
from .commit import finish
from .journal import Journal, Lost
from .probes import Way, look
from .steps import Work, back, check, directly, forward

PAUSE = 1.0
"""Seconds before the first change, in which the answer to who began it leaves the node."""
_TRIES = 4
_OWN_SECONDS = 120.0
"""When a process that undoes or finishes a move counts as hung."""
_TURN_SECONDS = 60.0
_FAILED_PAUSE = 5.0
"""Seconds between two tries when the NIC has the addresses, and only the switch is still to be told."""
_ROUNDS, _ROUND_SECONDS = 3, 5.0
"""With `confirm: probe`: how often all must answer, one after the other."""


def work(move: str) -> bool:
    """Carries out a move that was begun; undoes it if that fails, or if it was begun by a process that is gone.

    Gives whether it is over, or waits for its confirmation.
    """
    journal = Journal.load(move)
    if journal.state not in UNCONFIRMED:
        return recover(move)
    with _own(journal) as mine:
        if journal.worker or mine.state != ARMED:
            return _undo_with(mine, f"the process that carried it out ended in the state {mine.state}")
        return _carry_out(mine)


def _carry_out(journal: Journal) -> bool:
    _alarm_at_deadline(journal)
    points.reached("worker-started")
    time.sleep(PAUSE)
    try:
        journal = forward(journal, _alarm_at_deadline)
        if journal.request.confirm in ("probe", "none"):
            journal = _confirmed_by_itself(journal)
    except Lost as lost:
        journal = lost.journal
    except Exception as error:
        return _undo_with(journal, _words(error))
    finally:
        _alarm(0)
    if journal.state in (ROLLING_BACK, ROLLBACK_FAILED):
        return _undo(journal)
    return finish_move(journal.id, held=True) if journal.state == COMMITTING else True


def finish_move(move: str, held: bool = False) -> bool:
    """Makes a confirmed move permanent. Gives whether it is."""
    journal = Journal.load(move)
    if journal.state != COMMITTING:
        return not journal.open
    if not held:
        with _own(journal):
            return finish_move(move, held=True)
    _alarm(_OWN_SECONDS)
    try:
        finish(journal)
        return True
    except Exception as error:
        journal.note(reason=f"it is confirmed, but not yet permanent: {_words(error)}")
        time.sleep(PAUSE)
        return False
    finally:
        _alarm(0)


def recover(move: str) -> bool:
    """Brings a move to its end, at its deadline or as soon as nobody works on it: back, or forward if it is confirmed.

    Gives whether it is over.
    """
    while True:
        journal = Journal.load(move)
        if not journal.open:
            deadman.disarm(journal)
            return True
        if journal.state in UNCONFIRMED:
            reason = _overdue(journal)
            if not reason:
                time.sleep(min(max(journal.left, 0.01), 0.5))
                continue
            try:
                journal.advance(ROLLING_BACK, (journal.state,), reason=reason)
            except Lost:
                continue
            deadman.end(journal.worker)
            continue
        if journal.state == ROLLBACK_FAILED:
            time.sleep(_FAILED_PAUSE)
        with _own(journal) as mine:
            if mine.state == COMMITTING:
                return finish_move(move, held=True)
            if mine.state in (ROLLING_BACK, ROLLBACK_FAILED):
                return _undo(mine)


def _overdue(journal: Journal) -> str:
    """Why an unconfirmed move goes back now; "" if it does not."""
    if journal.left <= 0:
        if journal.state == APPLIED:
            return "nobody confirmed it before its deadline"
        return f"it was only {journal.state} at its deadline"
    if journal.state != APPLIED and journal.worker and not deadman.alive(journal.worker):
        return f"the process that carried it out ended in the state {journal.state}"
    return ""


def _confirmed_by_itself(journal: Journal) -> Journal:
    """The node is its own witness: what answered before and what the caller named must answer several times."""
    work_ = Work.of(journal)
    if journal.request.confirm == "probe":
        way: Way = look(work_.there, journal.request.target, ())
        for _round in range(_ROUNDS):
            time.sleep(PAUSE)
            check(work_, way, _ROUND_SECONDS)
    return journal.advance(COMMITTING, (APPLIED,))


def _undo_with(journal: Journal, reason: str) -> bool:
    """Undoes a move for a reason, if nobody confirmed or undoes it meanwhile."""
    try:
        journal = journal.advance(ROLLING_BACK, UNCONFIRMED, reason=reason)
    except Lost as lost:
        if lost.journal.state == COMMITTING:
            return finish_move(journal.id, held=True)
        journal = lost.journal
    return _undo(journal) if journal.open else True


def _undo(journal: Journal) -> bool:
    points.reached("rolling-back")
    _alarm(_OWN_SECONDS)
    try:
        error = _try_back(journal)
        if not error:
            journal = journal.advance(ROLLED_BACK, (ROLLING_BACK, ROLLBACK_FAILED), worker={})
            points.reached("rolled-back")
            deadman.disarm(journal)
            points.reached("back-cleaned")
            return True
        again = journal.state == ROLLBACK_FAILED
        first = journal.reason.split("; the way back failed", 1)[0]
        journal = journal.advance(
            ROLLBACK_FAILED, (ROLLING_BACK, ROLLBACK_FAILED), reason=f"{first}; the way back failed: {error}"
        )
        work_ = Work.of(journal)
        if not again or lacking(work_.l3, work_.request.nic):
            directly(work_)
        return False
    finally:
        _alarm(0)


def _try_back(journal: Journal) -> str:
    """The reason if the way back fails each time."""
    reason = ""
    for attempt in range(_TRIES if journal.state == ROLLING_BACK else 1):
        time.sleep(attempt)
        try:
            back(journal)
            return ""
        except Exception as error:
            reason = _words(error)
    return reason


@contextmanager
def _own(journal: Journal) -> Iterator[Journal]:
    """Holds the turn to work on a move, which ends with this process; one that keeps it for long is ended."""
    with ExitStack() as held:
        try:
            held.enter_context(locked(journal.work_lock, _TURN_SECONDS))
        except DeadlineExceeded:
            deadman.end(Journal.load(journal.id).worker)
            held.enter_context(locked(journal.work_lock, _TURN_SECONDS))
        yield journal.note(worker=deadman.me())


def _alarm_at_deadline(journal: Journal) -> None:
    """This process ends at the deadline, even if it hangs: the one that is started in its place undoes the move.

    The deadline is that of the journal as it is then: whoever reaches the node may have put it off.
    """
    if journal.state == APPLIED:
        _alarm(0)
        return

    def due(number: int, _frame: FrameType | None) -> None:
        left = 0.0
        with suppress(PodnetError):
            left = Journal.load(journal.id).left
        if left > 0:
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    signal.signal(signal.SIGALRM, due)
    signal.setitimer(signal.ITIMER_REAL, max(journal.left, 0.1))


def _alarm(seconds: float) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _words(error: Exception) -> str:
    if isinstance(error, PodnetError):
        return error.message
    return f"{type(error).__name__}: {error}"
