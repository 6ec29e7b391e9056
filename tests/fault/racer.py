# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One of two processes of a node that want to end the same move: each line of input is `VERB ID MOMENT`, each line of
output what became of it. MOMENT is of the monotonic clock. Runs under the node's Python, on the installed runtime.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from typing import Any


def main(lib: str) -> None:
    """Reads lines until the end of input."""
    sys.path.insert(0, lib)
    journal, move = (importlib.import_module(f"podnet.{name}") for name in ("uplink.journal", "model.move"))
    for line in sys.stdin:
        verb, name, moment = line.split()
        time.sleep(max(float(moment) - time.monotonic(), 0))
        if verb == "make":
            answer = make(journal, move, name)
        else:
            to = move.COMMITTING if verb == "confirm" else move.ROLLING_BACK
            expect = (move.APPLIED,) if verb == "confirm" else move.UNCONFIRMED
            try:
                answer = journal.Journal.load(name).advance(to, expect).state
            except journal.Lost as lost:
                answer = f"lost:{lost.journal.state}"
        sys.stdout.write(f"{answer} {time.monotonic():.4f}\n")
        sys.stdout.flush()


def make(journal: Any, move: Any, name: str) -> str:
    """A move that waits for its confirmation, and as a file the request that it has."""
    with open("/opt/request.json", encoding="utf-8") as file:
        request = move.Request.parse(json.load(file))
    with journal.turn():
        made = journal.Journal.create(
            journal.Journal(name, move.PLANNED, "", request, journal.boottime() + 60, journal.boot_id())
        )
    applied = made.advance(move.APPLIED, (move.PLANNED,))
    return str(applied.state)


if __name__ == "__main__":
    main(sys.argv[1])
