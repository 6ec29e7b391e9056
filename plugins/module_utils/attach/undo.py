# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The way back of a call that fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..errors import PodnetError


class Undo:
    """What to take back, last thing first, if a call fails. Each step runs whatever the others do."""

    def __init__(self) -> None:
        self._steps: list[Callable[[], object]] = []

    def add(self, step: Callable[[], object]) -> None:
        self._steps.append(step)

    def run(self) -> list[str]:
        """Errors of the way back, in words."""
        failed = []
        for step in reversed(self._steps):
            try:
                step()
            except Exception as error:
                failed.append(str(error) if isinstance(error, (PodnetError, OSError)) else repr(error))
        return failed


@contextmanager
def undoing() -> Iterator[Undo]:
    """Steps added inside are taken back if the block fails; what goes wrong with that is in the error's hint."""
    undo = Undo()
    try:
        yield undo
    except BaseException as error:
        left = undo.run()
        if left and isinstance(error, PodnetError):
            error.hint = "; ".join([*([error.hint] if error.hint else []), "on the way back: " + ", ".join(left)])
        raise
