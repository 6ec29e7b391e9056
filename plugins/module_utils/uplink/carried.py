# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a device carries what a snapshot has, once a network manager writes there too."""

from __future__ import annotations

import re
from collections.abc import Iterable

from ..errors import PodnetError
from ..kernel.l3 import missing, snapshot
from ..model.l3 import L3, Route

_METRIC = re.compile(r" metric \d+")


def check_carried(l3: L3, device: str, why: str) -> None:
    """Raises PodnetError naming what of the snapshot the device lacks, and `why` it should have it."""
    lost = missing(l3, device)
    if lost:
        raise PodnetError(f"{device} lacks {', '.join(lost)}, {why}")


def lacking(l3: L3, device: str) -> list[str]:
    """What the device lacks, in words, but for the metric of a route.

    systemd-networkd (252) gives the network of an address that it finds on a device the metric 0, whatever it is told.
    """
    lost = missing(l3, device)
    if not lost:
        return []
    there = _places(snapshot(device).routes)
    excused = {f"route {route.text}" for route in l3.routes if not route.gateway and _places([route]) <= there}
    return [text for text in lost if text not in excused]


def _places(routes: Iterable[Route]) -> set[tuple[int, int, str]]:
    return {(route.family, route.table, _METRIC.sub("", route.text)) for route in routes}
