# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Measures podnet-ovs beside its peers, all in one run, and holds the figures against what is promised.

Compare ratios, not milliseconds of different machines.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from ansible_collections.podnet.ovs.tests.lab import Lab

from . import cpu, startup
from .bare import Bare
from .measure import BURSTS, at_once, singly
from .networks import networks
from .place import Peer, Place
from .promises import promises
from .report import Document, Row, text
from .soak import soak

PARTS = ("calls", "bare", "load", "client", "networks")
SOAK = "soak"
SCHEMA = 2
STARTS = 80
NETWORK_ROUNDS = 30


def numbers(words: str) -> list[int]:
    """Comma separated numbers."""
    return [int(word) for word in words.split(",")]


def parts(words: str) -> list[str]:
    """Comma separated parts."""
    found = words.split(",")
    if not set(found) <= {*PARTS, SOAK}:
        raise ValueError(words)
    return found


def options(argv: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="dev/bench", description=__doc__.partition("\n")[0])
    add = parser.add_argument
    add("--ports", type=numbers, default=[0, 100, 500], help="standing attachments (default: 0,100,500)")
    add("--runs", type=numbers, default=[60, 30, 20],
        help="calls of each kind at each of these; the last number counts on (default: 60,30,20)")  # fmt: skip
    add("--pause", type=float, default=0.03, help="seconds between calls, at least (default: 0.03)")
    add("--peer", type=Peer.parse, action="append", default=[], metavar="NAME=PATH[:JSON]",
        help="a further plugin for Open vSwitch, and keys for its configuration; may be repeated")  # fmt: skip
    add("--only", type=parts, default=[], metavar="PART,...", help=f"of {', '.join((*PARTS, SOAK))}")
    add("--soak", type=int, default=0, metavar="N", help="N ADDs and DELs more, beside the most standing ports")
    add("--json", type=Path, help="write the figures to this file too")
    found = parser.parse_args(argv)
    found.only = found.only or list(PARTS)
    if SOAK in found.only and not found.soak:
        parser.error("how many? --soak N")
    found.ports = sorted(set(found.ports))
    return found


def machine(when: str) -> Row:
    """What the machine does while nothing is measured, for a second."""
    before, began = cpu.machine(), time.monotonic()
    time.sleep(1)
    took = time.monotonic() - began
    busy, steal = ((now - then) / took for now, then in zip(cpu.machine(), before))
    return {"when": when, "busy": busy, "steal": steal}


def held(place: Place, ports: int) -> list[Row]:
    """Memory and descriptors of those that stay."""
    pids = {"agent": place.agent, **place.daemons}
    return [{"what": name, "ports": ports, "mib": cpu.resident(pid), "descriptors": cpu.descriptors(pid)}
            for name, pid in pids.items()]  # fmt: skip


def run(words: argparse.Namespace, document: Document) -> None:
    """Fills the document, in a lab of its own."""
    with Lab(f"bench-{os.getpid()}") as lab:
        place = Place(lab, words.peer)
        rest = cpu.Rest(words.pause, place.daemons["ovs-vswitchd"])
        bare = Bare(place) if "bare" in words.only else None
        kinds = place.kinds if "calls" in words.only else []
        document["openvswitch"] = place.ours.ovs.vsctl("--version").stdout.split("\n")[0].rpartition(" ")[2]
        if "client" in words.only:
            document["startup"], most = startup.measure(place, STARTS, rest)
            document["memory"].append({"what": "client", "ports": None, "mib": most, "descriptors": None})
        for number, ports in enumerate(words.ports):
            document["standing"] += place.stand(ports)
            rest()
            document["machine"].append(machine(f"before single calls at {ports} ports"))
            if kinds or bare:
                runs = words.runs[min(number, len(words.runs) - 1)]
                beside = [place.without_ports] if kinds and ports else []
                document["singly"] += singly([*kinds, *beside], bare, ports, runs, rest)
            if "load" in words.only and not number:
                document["at_once"] = at_once(place.kinds, rest, BURSTS)
            if "networks" in words.only and not number:
                document["networks"] = networks(place, NETWORK_ROUNDS, rest)
            document["memory"] += held(place, ports)
        if words.soak:
            document["soak"] = soak(place, words.soak)
        rest()
        document["machine"].append(machine("at the end"))
        place.close()


def main() -> int:
    """Prints tables and JSON. Exit status 1 if something that was measured is not as promised, or the run broke off."""
    words = options()
    began = time.monotonic()
    document: Document = {
        "schema": SCHEMA,
        "when": time.strftime("%FT%TZ", time.gmtime()),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "kernel": platform.release(),
        "singly": [],
        "at_once": [],
        "networks": [],
        "standing": [],
        "startup": [],
        "memory": [],
        "machine": [],
        "soak": None,
        "stopped": "",
    }
    try:
        run(words, document)
    except RuntimeError as error:  # what was measured before is shown all the same
        document["stopped"] = str(error)
    document["promises"] = promises(document)
    document["seconds"] = time.monotonic() - began
    print(text(document))
    line = json.dumps(document)
    print("\n" + line)
    if words.json:
        words.json.parent.mkdir(parents=True, exist_ok=True)
        words.json.write_text(line + "\n", encoding="utf-8")
    return 1 if document["stopped"] or not all(row["holds"] for row in document["promises"]) else 0


if __name__ == "__main__":
    sys.exit(main())
