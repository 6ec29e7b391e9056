# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The places between any two steps of a move, by name: a log line each, and where a crash must do no harm.

Both directions pass the same places in the same order.
"""

from __future__ import annotations

import sys
import time

BEGIN = ("planned", "armed", "started")
"""While `podnet uplink begin` runs, and the caller waits."""
FORWARD = (
    "worker-started",
    "files-volatile",
    "bridge-made",
    "staged",
    "prepared",
    "released",
    "cutover",
    "half-crossed",
    "crossed",
    "announced",
    "taken",
    "probed",
    "applied",
)
"""While the worker moves the NIC. At `half-crossed` the one of port and routes has changed, the other not yet."""
COMMIT = ("committing", "files-written", "recorded", "durable", "units-switched", "settled", "committed", "cleaned")
"""After a confirmation."""
BACK = (
    "rolling-back",
    "back-files",
    "back-released",
    "back-staged",
    "back-half-crossed",
    "back-crossed",
    "back-announced",
    "back-taken",
    "back-switch",
    "back-checked",
    "rolled-back",
    "back-cleaned",
)
"""While a move is undone."""


def reached(point: str) -> None:
    """Says on standard error, which systemd keeps, that all before this point is done."""
    sys.stderr.write(f"podnet uplink: {time.monotonic():.3f} {point}\n")
    sys.stderr.flush()
