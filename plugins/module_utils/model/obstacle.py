# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the way of a move, in words for a person. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import RefusedError

BLOCKING = "blocking"
"""The move is refused."""
WARNING = "warning"
"""The move goes on, and something beside it needs a person."""
INFO = "info"
LEVELS = (BLOCKING, WARNING, INFO)


@dataclass(frozen=True)
class Obstacle:
    """One thing that was found. `text` names it, `hint` is the way out ("" where nothing is to be done)."""

    level: str
    text: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.text} ({self.hint})" if self.hint else self.text


def refuse(found: Iterable[Obstacle], what: str) -> None:
    """Raises RefusedError with all that is blocking, if anything is. `what`: the move in words."""
    blocking = [item for item in found if item.level == BLOCKING]
    if not blocking:
        return
    if len(blocking) == 1:
        raise RefusedError(f"{what}: {blocking[0].text}", blocking[0].hint)
    raise RefusedError(f"{what}: {'; '.join(str(item) for item in blocking)}", "podnet.ovs.preflight lists them")
