# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller of one move over ssh, each step on a connection of its own, as a process that can be killed.

Standard input: JSON with `ssh` (the words before a command), `begin` (the document) and `nonce`. Standard output: JSON
with `result`, and what the node has said last. Only the standard library.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

PODNET = "/opt/podnet/current/bin/podnet"


def call(ssh: list[str], *words: str, data: str = "") -> tuple[int, dict[str, Any]]:
    """Exit status and answer of a command on the node; 255 where ssh itself has failed."""
    argv = [*ssh, PODNET, "uplink", *words]
    done = subprocess.run(argv, input=data, capture_output=True, text=True, timeout=60, check=False)
    try:
        return done.returncode, json.loads(done.stdout)
    except ValueError:
        return done.returncode, {"error": done.stdout + done.stderr}


def carry_out(ssh: list[str], document: dict[str, Any], nonce: str) -> dict[str, Any]:
    """Begins, waits, confirms and waits."""
    move = document["id"]
    code, answer = call(ssh, "begin", data=json.dumps(document))
    if code != 0:
        return {"result": answer.get("kind", "failed"), "answer": answer}
    end = time.monotonic() + document["request"]["timeout"]
    while time.monotonic() < end:
        code, answer = call(ssh, "status", move, "--json")
        state = answer.get("state") if code == 0 else None
        if state == "applied":
            call(ssh, "confirm", move, nonce, "--json")
        if state in ("committed", "rolled_back"):
            return {"result": state, "answer": answer}
        time.sleep(0.2)
    return {"result": "unreachable", "answer": answer}


def main() -> None:
    """Reads what to do, does it, and says how it ended."""
    told = json.load(sys.stdin)
    sys.stdout.write(json.dumps(carry_out(told["ssh"], told["begin"], told["nonce"])) + "\n")


if __name__ == "__main__":
    main()
