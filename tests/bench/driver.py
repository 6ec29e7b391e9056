# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inside a node, as a container runtime would: starts plugins one after the other and times each.

Reads one call a line from standard input (`argv`, `env`, `stdin`), writes one answer a line (`ms`, `code`, `out`).
The time is from before the spawn to the exit of the plugin.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time


def main() -> None:
    """Answers calls until standard input ends."""
    for line in sys.stdin:
        call = json.loads(line)
        began = time.perf_counter()
        done = subprocess.run(
            call["argv"], env=call["env"], input=call["stdin"].encode(), capture_output=True, timeout=60, check=False
        )
        took = (time.perf_counter() - began) * 1000
        answer = {"ms": took, "code": done.returncode, "out": done.stdout.decode(errors="replace")}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
