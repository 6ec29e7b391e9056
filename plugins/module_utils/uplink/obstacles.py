# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that stands in the way of a move, found before anything is touched. Reads only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..model.move import Request
from ..model.obstacle import Obstacle
from ..model.state import State

if TYPE_CHECKING:
    from ..model.l3 import L3


def obstacles(request: Request, state: State, l3: L3 | None) -> list[Obstacle]:
    """What was found, the blocking first. `l3`: what the source carries, if it was read already.

    Works on a node where neither Open vSwitch nor the runtime is installed.
    """
    return []
