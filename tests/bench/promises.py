# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is promised of podnet-ovs in figures, held against the rows of a run. What was not measured is left out."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from .report import (
    AGENT,
    BARE,
    BRIDGE,
    CLIENT_BARE,
    CLIENT_CALL,
    CLIENT_VERSION,
    EMPTY,
    IN_PROCESS,
    META,
    SINGLE,
    Document,
    Row,
    bound,
    row_of,
)

ADD_MEDIAN, ADD_P95 = 1.2, 1.3
DEL_MEDIAN, DEL_PORTS = 0.7, (0, 100)
GROWTH = 1.1
SHARE = 0.8
NETWORKS = 1.1
SLOWEST_MS = 2000.0
CLIENT_MS = 2.0
IN_PROCESS_MS = 90.0
AGENT_MIB, FLAT_MIB = 45.0, 1.0
FEWEST_SAMPLES = 4


def _row(promise: str, value: float, limit: float, **more: Any) -> Row:
    return {"promise": promise, "limit": limit, "value": value, "holds": value <= limit, **more}


def promises(document: Document) -> list[Row]:
    """A row for each promise: `promise`, `limit`, `value`, `holds`."""
    return [
        *_beside_bridge(document),
        *_growth(document),
        *_at_once(document),
        *_networks(document),
        *_alone(document),
        *_soak(document),
    ]


def _beside_bridge(document: Document) -> Iterator[Row]:
    rows = document["singly"]
    wanted = [(0, "ADD", "median", ADD_MEDIAN), (0, "ADD", "p95", ADD_P95)]
    wanted += [(ports, "DEL", "median", DEL_MEDIAN) for ports in DEL_PORTS]
    for ports, verb, figure, limit in wanted:
        ours, peer = (row_of(rows, ports=ports, verb=verb, plugin=name).get(figure) for name in (AGENT, BRIDGE))
        if ours and peer:
            yield _row(f"{verb} at {ports} ports, {figure}, times that of bridge", ours / peer, limit)
    failures = [row["failures"] for row in rows if row["plugin"] in (AGENT, IN_PROCESS)]
    if failures:
        yield _row("single calls of podnet-ovs that failed", sum(failures), 0)


def _growth(document: Document) -> Iterator[Row]:
    rows = document["singly"]
    for row in rows:
        if (row["plugin"], row["verb"]) != (AGENT, "ADD") or not row["ports"]:
            continue
        # of the same rounds, on a node without ports: the machine does not stay as quick as it was
        alone = row_of(rows, ports=row["ports"], verb="ADD", plugin=EMPTY).get("median")
        bare = row_of(rows, ports=row["ports"], plugin=BARE).get("median")
        if alone and bare and row["median"]:
            what = f"ADD at {row['ports']} ports, median ms; limit: at 0 ports, and a bare insertion, and 10 %"
            yield _row(what, row["median"], GROWTH * (alone + bare))


def _at_once(document: Document) -> Iterator[Row]:
    for row in document["at_once"]:
        if row["plugin"] != AGENT or row["at_once"] == 1:
            continue
        what = f"{row['at_once']} {row['verb']}s at once"
        if row["verb"] == "ADD":
            least, least_with = SHARE * bound(row), SHARE * bound(row, delegates=True)
            others = "" if row["others"] is None else f"; others had {row['others']:.2f} cores"
            yield {
                "promise": f"{what}, per second, at least; with the delegate's CPU {least_with:.2f}{others}",
                "limit": least,
                "value": row["per_second"],
                "holds": row["per_second"] >= least,
                "limit_with_delegates": least_with,
            }
            yield _row(f"{what}, slowest, ms", row["worst"], SLOWEST_MS)
        yield _row(f"{what}, failed", row["failures"], 0)
    failures = [row["failures"] for row in document["standing"] if row["plugin"] == AGENT]
    if failures:
        yield _row("ADDs of what stands that failed", sum(failures), 0)


def _networks(document: Document) -> Iterator[Row]:
    rows = document["networks"]
    for row in rows:
        if (row["plugin"], row["verb"]) == (META, "ADD"):
            single = row_of(rows, networks=row["networks"], verb="ADD", plugin=SINGLE)["median"]
            what = f"ADD of {row['networks']} networks by podnet-meta, times the sum of single ADDs"
            yield _row(what, row["median"] / single, NETWORKS)


def _alone(document: Document) -> Iterator[Row]:
    base = row_of(document["startup"], start=CLIENT_BARE).get("median")
    for name in (CLIENT_VERSION, CLIENT_CALL):
        median = row_of(document["startup"], start=name).get("median")
        if base and median:
            yield _row(f"{name}, ms over an {CLIENT_BARE}", median - base, CLIENT_MS)
    own = row_of(document["singly"], ports=0, verb="ADD", plugin=IN_PROCESS).get("median")
    if own:
        yield _row("ADD in-process at 0 ports, median ms", own, IN_PROCESS_MS)


def _soak(document: Document) -> Iterator[Row]:
    soak = document["soak"]
    if not soak:
        return
    samples = soak["samples"]
    what = f"agent after {soak['pairs']} ADDs and DELs beside {soak['ports']} ports"
    yield _row(f"{what}, MiB at most", max(sample["rss_mib"] for sample in samples), AGENT_MIB)
    yield _row(f"{what}, failed", soak["failures"], 0)
    if len(samples) >= FEWEST_SAMPLES:
        late = samples[len(samples) // 2 :]
        halves = late[: len(late) // 2], late[len(late) // 2 :]
        for key, name, limit in (("rss_mib", "MiB", FLAT_MIB), ("descriptors", "descriptors", 0)):
            third, last = (statistics.median(sample[key] for sample in half) for half in halves)
            yield _row(f"{what}, {name} grown over the last half", last - third, limit)
