# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes with a single NIC, moves of it by the `podnet` command, and processes that are killed at a point of a move.

The node's launcher is replaced by one that wraps `points.reached` before it calls the product: see injected.py. What a
node is asked goes through the product's command; where a move stands is read from its journal on disk, which costs no
process.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import secrets
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import COMMITTED, MOVE, OPEN, ROLLED_BACK, UNBRIDGE
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import UPLINK
from ansible_collections.podnet.ovs.tests.lab import Full, LabError, Lan, Light, Machine, until
from ansible_collections.podnet.ovs.tests.lab.proc import PATIENCE, Result

NIC, BRIDGE = "eth0", "br-x"
PODNET = "/opt/podnet/current/bin/podnet"
FAULT = "/opt/fault"
GRACE = 10.0
"""Seconds after the deadline in which a node must be back on its address."""
PING = r"""
ping -4 -nqc 1 -W 1 "$1" > /dev/null & four=$!
ping -6 -nqc 1 -W 1 "$2" > /dev/null; six=$?
wait $four && exit $six
"""
Node = Union[Light, Full]
_ports = itertools.count(40000)


@dataclass
class Move:
    """A move that was begun, or that should have been: `began` and `deadline` are seconds of the monotonic clock."""

    direction: str
    timeout: int
    id: str = field(default_factory=lambda: secrets.token_hex(8))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    began: float = field(default_factory=time.monotonic)

    @property
    def deadline(self) -> float:
        """When it goes back without a confirmation."""
        return self.began + self.timeout


class Watch:
    """Pings a node all the time from the gateway, over both families, and keeps when it did not answer."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.last_lost = 0.0
        self.last_found = 0.0

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        while not self._end.is_set():
            asked = time.monotonic()
            if self._subject.reachable():
                self.last_found = asked
            else:
                self.last_lost = time.monotonic()
            self._end.wait(0.3)


class Subject:
    """A node whose only NIC, `eth0` on `lan`, carries its addresses, with the runtime and its launcher replaced."""

    def __init__(self, node: Node, lan: Lan, manager: str) -> None:
        self.node = node
        self.lan = lan
        self.manager = manager
        port = node.ports[NIC]
        self.addresses = [str(next(a.ip for a in port.addresses if a.version == version)) for version in (4, 6)]
        self.pace = 0.0
        """How many seconds an undisturbed move takes here as far as its confirmation: more on a busy machine."""
        self.ids: set[str] = set()
        """Of all moves that were tried here."""

    @property
    def full(self) -> Full:
        """The node, if it is one with systemd."""
        assert isinstance(self.node, Full)
        return self.node

    @property
    def light(self) -> bool:
        """Whether it is a node without systemd."""
        return isinstance(self.node, Light)

    def path(self, path: str) -> Path:
        """Where a file that was written in the node lies on this machine; not of a machine with a disk of its own."""
        if isinstance(self.node, Light):
            return self.node.host_path(path)
        return self.node.folder / "disk" / path.lstrip("/")

    def read(self, path: str) -> str:
        """A file of the node; "" if there is none."""
        if isinstance(self.node, Machine):
            return self.node.run("cat", path, check=False).stdout
        try:
            return self.path(path).read_text(encoding="utf-8")
        except OSError:
            return ""

    def podnet(self, *words: str, input: str = "", timeout: float = 60, connection: str | None = None) -> Result:
        """Runs `podnet uplink …` in a session of its own, as over an SSH connection of its own."""
        env = {"SSH_CONNECTION": connection or f"{self.lan.gateway} {next(_ports)} {self.addresses[0]} 22"}
        argv = ["setsid", "--wait", PODNET, "uplink", *words]
        return self.node.run(*argv, input=input, check=False, timeout=timeout, env=env)

    def request(self, direction: str, timeout: int, bridge: str = BRIDGE, **more: Any) -> dict[str, Any]:
        """What is asked for; `more` are keys of the request."""
        uplink = {"name": NIC, "move": True}
        declared = {"name": bridge, "datapath_type": self.node.datapath, "uplinks": [uplink]}
        asked = {"schema": 1, "direction": direction, "nic": NIC, "bridge": declared, "timeout": timeout}
        return {**asked, "manager": self.manager, **more}

    def begin(self, direction: str, timeout: int = 10, bridge: str = BRIDGE, **more: Any) -> tuple[Move, Result]:
        """Begins a move; whether that went well is in the result."""
        move = Move(direction, timeout)
        return move, self.podnet("begin", input=json.dumps(self.begin_document(move, bridge, **more)))

    def begin_document(self, move: Move, bridge: str, holder: str = "controller", **more: Any) -> dict[str, Any]:
        """What `podnet uplink begin` reads. `more` are keys of the request."""
        self.ids.add(move.id)
        return {
            "schema": 1,
            "id": move.id,
            "nonce_hash": hashlib.sha256(move.nonce.encode()).hexdigest(),
            "request": self.request(move.direction, move.timeout, bridge, **more),
            "holder": {"host": holder, "user": "tester"},
        }

    def confirm(self, move: Move) -> Result:
        """Confirms it on a new connection."""
        return self.podnet("confirm", move.id, move.nonce, "--json")

    def rollback(self, move: Move) -> Result:
        """Asks for the way back, and waits for its end."""
        return self.podnet("rollback", move.id, "--json", timeout=90)

    def start_rollback(self, move: Move) -> None:
        """Asks for the way back, and waits for nothing."""
        self.node.popen("setsid", PODNET, "uplink", "rollback", move.id, stdout=subprocess.DEVNULL)

    def state(self, move: Move) -> str:
        """Where it stands by its journal; "" without one."""
        text = self.read(f"{UPLINK}/{move.id}/journal.json")
        return str(json.loads(text)["state"]) if text else ""

    def wait_for(self, move: Move, *states: str, seconds: float) -> str:
        """Waits for one of these states, and gives it."""
        try:
            return until(lambda: self._in(move, states), seconds, f"{move.direction} {' or '.join(states)}", 0.1)
        except LabError as error:
            raise LabError(f"{error}: {self.read(f'{UPLINK}/{move.id}/journal.json')}") from error

    def _in(self, move: Move, states: tuple[str, ...]) -> str:
        state = self.state(move)
        return state if state in states else ""

    def run_whole(self, direction: str, timeout: int = 60, bridge: str = BRIDGE) -> Move:
        """A move that nothing disturbs, to its end. Raises AssertionError if it does not get there."""
        timeout = round(timeout * PATIENCE)
        move, begun = self.begin(direction, timeout, bridge)
        assert begun.returncode == 0, f"begin {direction}: {begun.stdout}{begun.stderr}"
        state = self.wait_for(move, "applied", ROLLED_BACK, seconds=timeout)
        self.pace = max(self.pace, time.monotonic() - move.began)
        assert state == "applied", f"{direction}: {state}: {self.podnet('status', move.id, '--json').stdout}"
        confirmed = self.confirm(move)
        assert confirmed.returncode == 0, f"confirm {direction}: {confirmed.stdout}{confirmed.stderr}"
        self.wait_for(move, COMMITTED, seconds=timeout)
        return move

    def deadline(self, least: int = 10) -> int:
        """A timeout for moves that are to get as far as their confirmation, short otherwise."""
        return max(least, math.ceil(2.5 * self.pace))

    def over(self, move: Move) -> bool:
        """Whether nothing more will happen to it by itself."""
        return self.state(move) not in OPEN

    def reachable(self) -> bool:
        """Whether the gateway gets answers from its addresses of both families."""
        return self.lan.run("sh", "-c", PING, "ping", *self.addresses, check=False).returncode == 0

    def carries(self, device: str) -> bool:
        """Whether a device has the node's addresses of both families."""
        shown = self.node.run("ip", "-o", "addr", "show", "dev", device, check=False).stdout
        return all(f" {address}/" in shown for address in self.addresses)

    def bridges(self) -> list[str]:
        """The bridges that the NIC is a port of: none, or one."""
        found = self.node.run("ovs-vsctl", "--timeout=10", "port-to-br", NIC, check=False)
        return found.stdout.split() if found.returncode == 0 else []

    def tell(self, **plan: object) -> None:
        """What the launcher shall do from now on: `kill` = {point, times, whole}, `record` = {folders, files}."""
        self.node.sh(f"rm -f {FAULT}/reached {FAULT}/killed")
        self.node.write(f"{FAULT}/plan.json", json.dumps(plan))

    def reached(self) -> list[str]:
        """The points that were reached since `tell`, in order."""
        return self._lines("reached")

    def killed(self) -> list[str]:
        """The points at which a process was killed since `tell`."""
        return self._lines("killed")

    def _lines(self, name: str) -> list[str]:
        return [line.split(" ", 1)[0] for line in self.read(f"{FAULT}/{name}").splitlines()]


def other(direction: str) -> str:
    """The way back."""
    return UNBRIDGE if direction == MOVE else MOVE
