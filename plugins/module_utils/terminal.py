# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the `podnet` command speaks to a person, and to a program."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

OK, FAILED = 0, 1


def say(line: str) -> None:
    """A line of the answer."""
    sys.stdout.write(line + "\n")


def complain(line: str) -> None:
    """A line that is not part of the answer."""
    sys.stderr.write(line + "\n")


def print_json(document: Any) -> None:
    """The answer for a program."""
    say(json.dumps(document, indent=2))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Rows under a head, in columns. A cell that is empty shows as a dash; columns that are empty in all rows are left
    out.
    """
    filled = list(rows)
    kept = [i for i in range(len(head)) if not filled or any(row[i] for row in filled)]
    lines = [[head[i] for i in kept], *([row[i] or "-" for i in kept] for row in filled)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(kept))]
    for line in lines:
        say("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
