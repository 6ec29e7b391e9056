# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several networks in one pod: one call of podnet-meta beside single calls of what it is made of."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

from .measure import turns
from .place import OURS, Json, Kind, Place, netconf, own_conf
from .report import META, SINGLE, Row, spread

COUNTS = (1, 4, 16)
EXECUTABLE = "/opt/cni/bin/podnet-meta"


def networks(place: Place, rounds: int, rest: Callable[[], None]) -> list[Row]:
    """Rows of ADDs and DELs of pods with so many networks, in one call and in single ones, in turn.

    The time of single calls is their sum. Raises CallFailed.
    """
    ours = place.kinds[0]
    rows: list[Row] = []
    for count in COUNTS:
        times: dict[tuple[str, str], list[float]] = defaultdict(list)
        for number, name in turns((META, SINGLE), rounds):
            label = f"m{count}-{number}"
            for verb in ("ADD", "DEL"):
                rest()
                calls = _calls(ours, name, verb, label, count)
                (lane,) = place.kinds[0].driver.must([calls]).lanes
                if number:
                    times[name, verb].append(sum(done.ms for done in lane))
        rows += [
            {"networks": count, "verb": verb, "plugin": name, **spread(times[name, verb])}
            for verb in ("ADD", "DEL")
            for name in (META, SINGLE)
        ]
    return rows


def _calls(ours: Kind, name: str, verb: str, label: str, count: int) -> list[Json]:
    """Interfaces are named alike in both: eth0, and then net1 and so on."""
    if name == META:
        delegates = [{**own_conf(), "name": "bench"} for _number in range(count)]
        conf: Any = {**netconf("podnet-meta", "10.50.0.0/16"), "delegates": delegates}
        del conf["ipam"]
        return [_call(ours, EXECUTABLE, conf, verb, label, "eth0")]
    names = ["eth0", *(f"net{number}" for number in range(1, count))]
    chosen = names if verb == "ADD" else names[::-1]
    return [_call(ours, OURS, own_conf(), verb, label, ifname) for ifname in chosen]


def _call(ours: Kind, plugin: str, conf: Json, verb: str, label: str, ifname: str) -> Json:
    kind = Kind(ours.name, ours.driver, plugin, conf, ifname, ours.watched)
    call = kind.call(verb, label, "p0")
    call["env"]["CNI_CONTAINERID"] = label
    return call
