# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Tables for people from the rows of a run."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import Any

AGENT, IN_PROCESS, BRIDGE, MACVLAN = "podnet-ovs, agent", "podnet-ovs, in-process", "bridge", "macvlan"
EMPTY = "podnet-ovs, agent, 0 ports"
STANDING = "ADD that stands"
META, SINGLE = "podnet-meta, one call", "podnet-ovs, single calls, their sum"
BARE = "ovs-vswitchd, bare"
CLIENT_BARE, CLIENT_ENDING = "empty script", "script that only ends its process"
CLIENT_VERSION, CLIENT_CALL = "client, VERSION", "client, call answered at once"
FEWEST_FOR_P95 = 40
USED = ("clients", "agent", "ovs-vswitchd", "ovsdb-server")
"""Whose processor time an attachment costs, beside that of the delegate."""
Row = dict[str, Any]
Document = dict[str, Any]


def spread(times: Sequence[float]) -> Row:
    """How many, their median, and their 95th percentile if there are enough for one; None without."""
    ordered = sorted(times)
    p95 = ordered[math.ceil(len(ordered) * 0.95) - 1] if len(ordered) >= FEWEST_FOR_P95 else None
    return {"calls": len(ordered), "median": statistics.median(ordered) if ordered else None, "p95": p95}


def row_of(rows: Iterable[Row], **keys: Any) -> Row:
    """The row with these values, empty if it was not measured."""
    return next((row for row in rows if all(row.get(key) == value for key, value in keys.items())), {})


def bound(row: Row, delegates: bool = False) -> float:
    """Calls per second that the cores could serve if nothing but these calls kept them busy."""
    names = (*USED, "delegates") if delegates else USED
    return float(row["cores"] * 1000 / sum(row["cpu_ms"].get(name, 0.0) for name in names))


def _cell(value: object, digits: int = 1) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> list[str]:
    """Columns as wide as they must be; the first `words` of them to the left, figures to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]
    lines = []
    for line in cells:
        parts = [
            cell.ljust(width) if column < words else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths))
        ]
        lines.append("  ".join(parts).rstrip())
    return lines


def _singly(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        peer = row_of(rows, ports=row["ports"], verb=row["verb"], plugin=BRIDGE).get("median")
        ratio = row["median"] / peer if peer and row["median"] is not None else None
        figures = [_cell(row[key]) for key in ("calls", "failures", "median", "p95")]
        lines.append([str(row["ports"]), row["verb"], row["plugin"], *figures, _cell(ratio, 2)])
    head = ("ports", "verb", "plugin", "calls", "failed", "median ms", "p95 ms", "x bridge")
    return ["Single calls, in turn", *_table(head, lines, 3)]


def _at_once(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        bounds = [bound(row), bound(row, True)] if row["plugin"] == AGENT else [None, None]
        figures = [row["calls"], row["failures"], row["median"], row["p95"], row["worst"], row["per_second"], *bounds]
        lines.append([str(row["at_once"]), row["verb"], row["plugin"], *map(_cell, figures)])
    head = ("at once", "verb", "plugin", "calls", "failed", "median ms", "p95 ms", "worst ms", "per s", "bound",
            "with delegate")  # fmt: skip
    title = "Calls at once. bound: per s if clients, agent and Open vSwitch, or also the delegate, had all cores"
    return [title, *_table(head, lines, 3)]


def _standing(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        figures = [row["calls"], row["failures"], row["median"], row["p95"], row["calls"] / row["seconds"]]
        lines.append([str(row["ports"]), row["plugin"], *map(_cell, figures)])
    head = ("up to", "plugin", "calls", "failed", "median ms", "p95 ms", "per s")
    return ["ADDs for what stands, 16 at a time; a failed one was tried again", *_table(head, lines, 2)]


def _used(rows: Sequence[Row]) -> list[str]:
    names = (*USED, "delegates", "driver")
    lines = []
    for row in rows:
        figures = [*(_cell(row["cpu_ms"].get(name)) for name in names), _cell(row["busy"], 2), _cell(row["others"], 2)]
        lines.append([str(row["at_once"]), row["verb"], row["plugin"], *figures])
    title = (
        "Processor ms per call; how many cores the whole machine kept busy meanwhile, and how many with something else"
    )
    return [title, *_table(("at once", "verb", "plugin", *names, "cores busy", "others"), lines, 3)]


def _networks(rows: Sequence[Row]) -> list[str]:
    lines = []
    for row in rows:
        single = row_of(rows, networks=row["networks"], verb=row["verb"], plugin=SINGLE)["median"]
        figures = [_cell(row["calls"]), _cell(row["median"]), _cell(row["p95"]), _cell(row["median"] / single, 2)]
        lines.append([str(row["networks"]), row["verb"], row["plugin"], *figures])
    head = ("networks", "verb", "plugin", "calls", "median ms", "p95 ms", "x single")
    return ["Several networks in one pod", *_table(head, lines, 3)]


def _startup(rows: Sequence[Row]) -> list[str]:
    base = rows[0]["median"]
    lines = [[row["start"], *(_cell(row[k], 2) for k in ("calls", "median", "p95")), _cell(row["median"] - base, 2)]
             for row in rows]  # fmt: skip
    return ["Start of the client", *_table(("what", "calls", "median ms", "p95 ms", "over bare ms"), lines, 1)]


def _memory(rows: Sequence[Row]) -> list[str]:
    lines = [[row["what"], _cell(row["ports"]), _cell(row["mib"]), _cell(row["descriptors"])] for row in rows]
    return ["Memory and open files", *_table(("what", "ports", "MiB", "descriptors"), lines, 1)]


def _machine(rows: Sequence[Row]) -> list[str]:
    lines = [[row["when"], _cell(row["busy"], 2), _cell(row["steal"], 2)] for row in rows]
    return [*_table(("what else the machine did", "cores busy", "cores stolen"), lines, 1)]


def _promises(rows: Sequence[Row]) -> list[str]:
    lines = [[row["promise"], "holds" if row["holds"] else "DOES NOT HOLD", _cell(row["value"], 2),
              _cell(row["limit"], 2)] for row in rows]  # fmt: skip
    return ["Promises", *_table(("promise", "", "value", "limit"), lines, 2)]


def _soak(row: Row) -> list[str]:
    lines = [[_cell(sample[key]) for key in ("pairs", "rss_mib", "descriptors")] for sample in row["samples"]]
    title = f"{row['pairs']} ADDs and DELs in {row['seconds']:.0f} s beside {row['ports']} ports"
    return [f"{title}, {row['failures']} failed", *_table(("pairs", "MiB", "descriptors"), lines, 0)]


def _failures(document: Document) -> list[str]:
    rows = [
        *document["singly"],
        *document["at_once"],
        *document["standing"],
        *([document["soak"]] if document["soak"] else []),
    ]
    said = {f"{row.get('plugin', AGENT)}, {row.get('verb', 'soak')}": row["said"][:300] for row in rows if row["said"]}
    lines = [f"{who}: {words}" for who, words in said.items()]
    return ["What failed calls said (one of each)", *lines] if said else []


def text(document: Document) -> str:
    """All tables of what was measured."""
    shown: tuple[tuple[str, Callable[[Any], list[str]]], ...] = (
        ("singly", _singly),
        ("at_once", _at_once),
        ("at_once", _used),
        ("standing", _standing),
        ("networks", _networks),
        ("startup", _startup),
        ("memory", _memory),
        ("soak", _soak),
        ("machine", _machine),
        ("promises", _promises),
    )
    parts = [show(document[name]) for name, show in shown if document[name]]
    stopped = ["STOPPED before its end: " + document["stopped"]] if document["stopped"] else []
    return "\n\n".join("\n".join(part) for part in [*parts, _failures(document), stopped] if part)
