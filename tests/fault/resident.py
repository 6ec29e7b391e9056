# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent of a node that a test kills, hangs and starts again; and all that attachments may leave on a node."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light

AGENT = "/opt/podnet/current/bin/podnet-agent"
LOG = "/run/agent.log"
FLOWS = "cookie=0x706f646e00000000/0xffffffff00000000"
QUIET_THREADS = 5
"""Of an agent without calls: the first one, two that wait for calls, one visits namespaces, one keeps house."""
QUIET_FILES = 9
"""Three streams, the socket it listens at, its connection to the database, its own namespace; and some to spare."""
TURNS = "for turn in /run/podnet/turns/*; do [ ! -e $turn ] || flock -n $turn true || echo $turn; done"
LISTENING = f"ss -Hxl src unix:{cni.SOCKET} | grep -q ."


class Resident:
    """The agent of a light node, with a log under LOG that all of its lives write to."""

    def __init__(self, node: Light) -> None:
        self.node = node
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The process that runs."""
        assert self.process is not None
        return self.process.pid

    def start(self, executable: str = AGENT) -> None:
        """Starts it, and waits until it takes calls."""
        command = f"exec {executable} --socket {cni.SOCKET} 2>> {LOG}"
        self.process = self.node.popen("sh", "-c", command, stdout=None, stderr=None)
        until(lambda: self.node.sh(LISTENING, check=False).returncode == 0, 30, "the agent's socket")

    def kill(self) -> None:
        """Ends it in the middle of what it does."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> int:
        """Ends it in order; gives its exit status."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(timeout=60)

    def freeze(self) -> None:
        """Stops it where it is: it hangs."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        """Lets it go on."""
        os.kill(self.pid, signal.SIGCONT)

    def log(self) -> str:
        """What it has said so far, in all of its lives."""
        return self.node.run("cat", LOG, check=False).stdout

    def held(self) -> tuple[int, int]:
        """How many descriptors it has open and how many threads it has."""
        return len(os.listdir(f"/proc/{self.pid}/fd")), len(os.listdir(f"/proc/{self.pid}/task"))

    def resident_mib(self) -> float:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    def close(self) -> None:
        """Ends it however it is."""
        if self.process is not None and self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                self.thaw()
            self.kill()
        self.node.run("rm", "-f", cni.SOCKET)


def collect(node: Light, conf: Mapping[str, Any]) -> None:
    """GC with an empty list: no attachment of this network is valid any more."""
    keys = {**conf, "cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
    answer = cni.call(node, "GC", keys, "", "")
    assert (answer.code, answer.stdout) == (0, ""), answer


def rows(node: Light, table: str) -> list[str]:
    """The rows of ours in a table of the database."""
    found = node.ovs.vsctl("--bare", "--columns=_uuid", "find", table, "external_ids:podnet_owner=podnet-ovs")
    return found.stdout.split()


def traces(node: Light, bridge: str = cni.BRIDGE) -> dict[str, list[str]]:
    """Whatever attachments have left on a node: only what is there is named, so nothing is an empty dictionary."""
    ports, links, leases = cni.leftovers(node)
    flows = node.run("ovs-ofctl", "--no-stats", "dump-flows", bridge, FLOWS).stdout.splitlines()
    found = {
        "ports": ports,
        "links": links,
        "leases": sorted(leases),
        "shapers": [*rows(node, "QoS"), *rows(node, "Queue")],
        "interfaces": rows(node, "Interface"),
        "flows": [line for line in flows if "cookie=" in line],
        "owed": node.sh("ls /run/podnet/owed 2> /dev/null || true").stdout.split(),
        "turns": node.sh(TURNS).stdout.split(),
    }
    return {what: there for what, there in found.items() if there}


def codes(answer: cni.Answer) -> int:
    """The CNI code of an answer, 0 for success. With an error a plugin prints JSON, and it never breaks down."""
    assert "Traceback" not in answer.stdout + answer.stderr, answer
    if answer.code == 0:
        return 0
    document = json.loads(answer.stdout)
    assert document["msg"] and document["cniVersion"], answer
    return int(document["code"])
