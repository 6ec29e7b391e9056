# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases of several interfaces of one attachment: their IPAM plugins work side by side, a few at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ..cni.reply import Reported
from ..cni.result import Result
from ..errors import PodnetError
from . import lease as ipam, owed
from .call import Call
from .common import attempt
from .undo import Undo

AT_ONCE = 8
UNDO_SECONDS = 5.0


class Leases:
    """The plugins' ADDs, one for each of the calls (`lease.of_interface`). The first few begin when this is made.

    `undo` gets what gives them back.
    """

    def __init__(self, calls: Sequence[Call], undo: Undo) -> None:
        self._waiting = list(calls)
        self._undo = undo
        self._running = self._begin()

    def results(self) -> list[Result]:
        """The addresses for each call, in order. Raises DelegateError, DeadlineExceeded, ConfigError."""
        found: list[Result] = []
        while self._running:
            found += [lease.result() for lease in self._running]
            self._running = self._begin()
        return found

    def _begin(self) -> list[ipam.Lease]:
        now, self._waiting = self._waiting[:AT_ONCE], self._waiting[AT_ONCE:]
        leases = []
        for call in now:
            lease = ipam.Lease(call)
            self._undo.add(partial(_give_back, lease))
            leases.append(lease)
        for lease in leases:
            lease.begin()
        return leases


def release_all(calls: Sequence[Call], notes: Sequence[str], trace: Callable[[int], bool]) -> list[PodnetError]:
    """The plugins' DELs. Gives what went wrong, after all were tried.

    `trace` says by a call's place whether there was or may be anything of it: where there was nothing at all an IPAM
    plugin that reports an error has leased nothing. `notes` are the names under which `owed` keeps what stays leased
    for a DEL that comes again and finds no trace any more.
    """
    failed: list[PodnetError] = []
    for start in range(0, len(calls), AT_ONCE):
        releases: list[tuple[int, ipam.Release]] = []
        refused: dict[int, list[PodnetError]] = {}
        for place in range(start, min(start + AT_ONCE, len(calls))):
            refused[place] = []
            attempt(refused[place], partial(_start, calls[place], place, releases))
        for place, release in releases:
            attempt(refused[place], partial(release.run, calls[place].deadline))
        for place, errors in refused.items():
            if not errors:
                attempt(failed, partial(owed.forget, notes[place]))
            elif trace(place) or owed.is_owed(notes[place]) or not isinstance(errors[0], Reported):
                attempt(failed, partial(owed.remember, notes[place]))
                failed += errors
    return failed


def _start(call: Call, place: int, releases: list[tuple[int, ipam.Release]]) -> None:
    release = ipam.Release(call)
    releases.append((place, release))
    release.begin()


def _give_back(lease: ipam.Lease) -> None:
    lease.release(time.monotonic() + UNDO_SECONDS)
