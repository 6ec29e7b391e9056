# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places between any two steps of a move, by name: a log line each, and where a crash must do no harm.

Both directions pass the same places in the same order.
"""

from __future__ import annotations

import sys
import time

BEGIN = ("planned", "backed-up", "guarded", "armed", "started")
"""While `podnet uplink begin` runs."""
FORWARD = (
    "worker-started",
    "bridge-made",
    "staged",
    "prepared",
    "files-volatile",
    "released",
    "cutover",
    "crossed",
    "swapped",
    "attached",
    "announced",
    "taken",
    "probed",
    "applied",
)
"""While the worker moves. `crossed` and `attached` stand on both sides of the swap of routes."""
COMMIT = (
    "committing",
    "recorded",
    "files-written",
    "durable",
    "units-enabled",
    "settled",
    "committed",
    "cleaned",
)
"""After a confirmation."""
BACK = (
    "rolling-back",
    "back-staged",
    "back-files",
    "back-released",
    "back-crossed",
    "back-swapped",
    "back-attached",
    "back-taken",
    "bridge-removed",
    "back-checked",
    "rolled-back",
    "back-cleaned",
)
"""While a move is undone."""


def reached(point: str) -> None:
    """Says on standard error, which systemd keeps, that all before this point is done."""
    sys.stderr.write(f"podnet uplink: {time.monotonic():.3f} {point}\n")
    sys.stderr.flush()
