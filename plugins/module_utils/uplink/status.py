# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How moves stand, and the bridges that carry the node."""

from __future__ import annotations

import json
from typing import Any

from ..errors import PodnetError
from ..kernel.files import read_text
from ..kernel.links import observe_links
from ..model.l3 import L3
from ..model.paths import RESCUED
from ..model.state import Link
from .journal import Journal, all_moves
from .record import Record, load, names

OK, RESCUED_STATE, BROKEN = "ok", "rescued", "broken"
_SHOWN = 5


def status(move: str) -> dict[str, Any]:
    """How a move stands. Raises UnknownMove."""
    return _shown(Journal.load(move))


def overview() -> dict[str, Any]:
    """The last moves, the newest last, and each bridge that a move brought the node to."""
    return {"moves": [_shown(item) for item in all_moves()[-_SHOWN:]], "bridges": [_bridge(name) for name in names()]}


def deadline_in(journal: Journal) -> float:
    """Seconds until the deadline; 0 if it is past, or of an earlier boot."""
    return round(max(journal.left, 0.0), 1) if journal.this_boot else 0.0


def busy(journal: Journal) -> str:
    """In words, which move is under way, and whose."""
    holder = " on ".join(str(journal.holder[key]) for key in ("user", "host") if journal.holder.get(key))
    request = journal.request
    what = f"the {request.direction} of {request.nic} with {request.bridge.name}"
    return f"{what} is under way ({journal.id}, {journal.state}), begun by {holder or 'somebody on the node'}"


def _shown(journal: Journal) -> dict[str, Any]:
    request = journal.request
    return {
        "id": journal.id,
        "direction": request.direction,
        "nic": request.nic,
        "bridge": request.bridge.name,
        "state": journal.state,
        "reason": journal.reason,
        "deadline_in": deadline_in(journal),
        "holder": dict(journal.holder),
        "log": [dict(entry) for entry in journal.log],
    }


def _bridge(name: str) -> dict[str, str]:
    try:
        record = load(name)
    except PodnetError as error:
        return {"bridge": name, "nic": "", "state": BROKEN, "why": error.message}
    if record is None:
        return {"bridge": name, "nic": "", "state": BROKEN, "why": "its record is gone"}
    rescued = read_text(f"{RESCUED}/{name}.json")
    if rescued is not None:
        return {"bridge": name, "nic": record.nic, "state": RESCUED_STATE, "why": _why_rescued(rescued)}
    why = _why_broken(record)
    return {"bridge": name, "nic": record.nic, "state": BROKEN if why else OK, "why": why}


def _why_rescued(text: str) -> str:
    try:
        return str(json.loads(text)["why"])
    except (ValueError, KeyError, TypeError):
        return "its mark cannot be read"


def _why_broken(record: Record) -> str:
    """What the bridge lacks. Of a family whose addresses DHCP or a router gave, any address will do."""
    link = observe_links().get(record.bridge)
    if link is None:
        return f"there is no {record.bridge}"
    if not link.up:
        return f"{record.bridge} is down"
    try:
        lost = _lacking(L3.from_dict(record.l3), link)
    except PodnetError as error:
        return error.message
    return f"{record.bridge} does not carry {', '.join(lost)}" if lost else ""


def _lacking(l3: L3, link: Link) -> list[str]:
    wanted = [item for item in l3.addresses if not item.link_local and not item.temporary]
    there = {*link.addresses, *link.dynamic}
    lost = [item.cidr for item in wanted if not item.dynamic and item.cidr not in there]
    families = {":" in address for address in there}
    return lost + [item.cidr for item in wanted if item.dynamic and (":" in item.cidr) not in families]
