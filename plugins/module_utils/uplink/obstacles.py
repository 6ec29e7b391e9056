# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All that stands in the way of a move, found before anything is touched. Reads only, in less than a second."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..errors import PodnetError
from ..kernel.firewall import read_firewall
from ..kernel.managers import configured_by
from ..kernel.nic import Nic, read_nic
from ..model.move import MOVE, Request
from ..model.obstacle import BLOCKING, LEVELS, Obstacle
from ..model.state import State
from .journal import open_moves
from .obstacles_back import of_bridge_left
from .obstacles_nic import is_rescued, of_nic, of_stacked
from .obstacles_node import of_database, of_disks, of_files, of_kernel, of_runtime, of_sockets
from .obstacles_way import of_bridge, of_route, of_visit
from .persist.manager import detect
from .twins import rules_waiting, twins_missing

if TYPE_CHECKING:
    from ..model.l3 import L3


def obstacles(request: Request, state: State, l3: L3 | None) -> list[Obstacle]:
    """What was found, the blocking first. `l3`: what the source carries, if it was read already.

    Works on a node where neither Open vSwitch nor the runtime is installed.
    """
    found = list(dict.fromkeys(_all(request, state, l3)))
    return sorted(found, key=lambda item: LEVELS.index(item.level))


def _all(request: Request, state: State, l3: L3 | None) -> Iterator[Obstacle]:
    yield from _of_other_moves()
    nic = read_nic(request.nic)
    if nic is None:
        there = ", ".join(
            sorted(name for name, link in state.links.items() if name != "lo" and link.kind != "openvswitch")
        )
        yield Obstacle(BLOCKING, f"there is no NIC {request.nic}", f"this node has {there or 'none'}")
        return
    if request.direction == MOVE:
        yield from of_nic(request, state, nic)
        yield from of_bridge(request, state)
        yield from of_kernel(request)
        yield from _of_manager(request, state, nic)
    else:
        yield from of_bridge_left(request, state)
    source = nic if request.direction == MOVE else read_nic(request.source)
    if source is not None:
        yield from of_stacked(request, state, source)
    yield from of_visit(request, state)
    yield from of_route(request, state, l3)
    firewall = read_firewall()
    yield from twins_missing(firewall, request.source, request.target)
    yield from rules_waiting(firewall, request.source, request.target)
    yield from of_sockets(request, source or nic)
    yield from of_files(request)
    yield from of_disks()
    yield from of_database(request)
    yield from of_runtime()


def _of_other_moves() -> Iterator[Obstacle]:
    for journal in open_moves():
        holder = journal.holder
        who = "@".join(str(holder[key]) for key in ("user", "host") if holder.get(key)) or "somebody"
        other = journal.request
        text = f"a move of {other.source} to {other.target} is under way: {journal.id}, {journal.state}, begun by {who}"
        yield Obstacle(BLOCKING, text, "wait until it is over; on the node: podnet uplink status")


def _of_manager(request: Request, state: State, nic: Nic) -> Iterator[Obstacle]:
    if is_rescued(request, state):
        return  # it runs by the rescue's own files, and the move's record knows the manager
    try:
        manager = detect(request.nic, request.manager)
        manager.describe(request.nic)
    except PodnetError as error:
        yield Obstacle(BLOCKING, error.message, error.hint)
        return
    claims = configured_by(nic.name, nic.index)
    if len(claims) > 1:
        text = f"{' and '.join(claims)} configure {nic.name} at the same time"
        yield Obstacle(BLOCKING, text, f"leave {nic.name} to one of them")
    elif claims and claims[0] != manager.name:
        text = f"{claims[0]} configures {nic.name}, and cannot be told by a move to configure the bridge"
        yield Obstacle(BLOCKING, text, f"give {nic.name} to systemd-networkd, or make the bridge at the node's console")
