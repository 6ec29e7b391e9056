# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Stays for as long as a bridge carries the node, looks whether it does, and has the node rescued if not.

It loads next to nothing, looks every 5 seconds at most, and leaves what is to be done to processes of their own: they
come from the version in use, whichever that is by then. Times are seconds.
"""

from __future__ import annotations

import contextlib
import ipaddress
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import PodnetError
from ..kernel.news import News, Seen, look
from ..model.paths import BRIDGES, OPT
from .marks import is_rescued, mark
from .units import have_systemd, unescaped

NOTHING, REPAIR, RESCUE = "", "repair", "rescue"
PROGRAM = f"{OPT}/current/bin/podnet"
PACE = 5.0
PATIENCE = 20.0
"""How long the bridge may not carry the node: a restart of Open vSwitch is over by then."""
BOOT_PATIENCE = 45.0
"""The same while systemd is still busy with Open vSwitch and the bridge."""
LEASE_PATIENCE = 60.0
"""How long DHCP or a router may take to give an address after a boot or a failure."""
REPAIR_AFTER = 7.0
SOUND_AFTER = 10.0
"""For how long all must be well until a failure counts as over: what crashes again and again is never well for long."""
_CHILD_SECONDS = {REPAIR: PATIENCE - REPAIR_AFTER, RESCUE: 120.0}
"""How long each may take: a repair that hangs must not put off the rescue."""
_PID_FILE = "/run/openvswitch/ovs-vswitchd.pid"
_DAEMON = "ovs-vswitchd"
_DATAPATH = "ovs-system"
"""The device that every NIC in the kernel's datapath has as its master."""


@dataclass(frozen=True)
class Duty:
    """What is watched: `fixed` and `leased` are the IP versions in which the node has addresses of each sort."""

    bridge: str
    nic: str
    userspace: bool
    fixed: frozenset[int]
    leased: frozenset[int]

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> Duty:
        """From the JSON of a record. Raises KeyError, TypeError, ValueError for what is none."""
        found = {False: set(), True: set()}  # type: dict[bool, set[int]]
        for item in table["l3"]["addresses"]:
            version = _version(item["cidr"])
            if version:
                found[bool(item["dynamic"])].add(version)
        return cls(
            bridge=str(table["bridge"]),
            nic=str(table["nic"]),
            userspace=table["request"]["bridge"]["datapath_type"] == "netdev",
            fixed=frozenset(found[False]),
            leased=frozenset(found[True] - found[False]),
        )


@dataclass(frozen=True)
class Trouble:
    """What is wrong, in words: `hard` with the bridge itself, `soft` with addresses that others give."""

    hard: str = ""
    soft: str = ""


@dataclass
class Course:
    """How long something has been wrong, and what has been tried."""

    since: float | None = None
    well: float | None = None
    repaired: bool = False
    settled: bool = False
    """Whether all was well once, since the start or since the last hard trouble."""

    def step(self, now: float, trouble: Trouble, coming: bool) -> str:
        """What is to be done now. `coming`: systemd is still about to bring the bridge up."""
        wrong = trouble.hard or (trouble.soft if not self.settled else "")
        if not wrong:
            self.well = now if self.well is None else self.well
            if self.since is None or now - self.well >= SOUND_AFTER:
                self.since, self.repaired = None, False
                self.settled = self.settled or not trouble.soft
            return NOTHING
        self.well = None
        self.settled = self.settled and not trouble.hard
        if self.since is None:
            self.since = now
        patience = LEASE_PATIENCE if not trouble.hard else BOOT_PATIENCE if coming else PATIENCE
        waited = now - self.since
        if waited >= patience:
            return RESCUE
        if waited >= REPAIR_AFTER and not self.repaired and not coming:
            self.repaired = True
            return REPAIR
        return NOTHING


def main() -> int:
    """`podnet-watch BRIDGE`, for the unit: the command `podnet` would load what only others of its verbs need."""
    if len(sys.argv) != 2:
        _say("usage: podnet-watch BRIDGE")
        return 2
    try:
        watch(sys.argv[1])
    except PodnetError as error:
        _say(str(error))
        return 1
    return 0


def watch(instance: str) -> None:
    """Watches until there is no record of the bridge any more. Raises KernelError if the kernel does not answer."""
    bridge = unescaped(instance)
    course, duty, pid = Course(), None, 0
    with News() as news:
        while os.path.exists(f"{BRIDGES}/{bridge}.json"):
            began = time.monotonic()
            duty = _duty(bridge, duty)
            if duty is not None:
                _look(duty, course)
            pid = running()
            while not news.wait(PACE) and course.since is None and pid and pid == running():
                began = time.monotonic()
            time.sleep(max(began + PACE - time.monotonic(), 0.0))
    _say(f"no move brings the node to {bridge} any more")


def trouble_of(duty: Duty, bridge: Seen | None, nic: Seen | None, daemon: bool) -> Trouble:
    """What keeps the bridge from carrying the node. `daemon`: whether ovs-vswitchd runs."""
    name = duty.bridge
    if bridge is None:
        return Trouble(f"there is no device {name}")
    if not bridge.up:
        return Trouble(f"{name} is down")
    if not daemon:
        return Trouble(f"{_DAEMON} does not run")
    if nic is None:
        return Trouble(f"there is no device {duty.nic}")
    if not duty.userspace and nic.master != _DATAPATH:
        return Trouble(f"{duty.nic} is not in {name}")
    has = versions(bridge)
    return Trouble(_lacks(name, duty.fixed - has), _lacks(name, duty.leased - has))


def versions(seen: Seen) -> set[int]:
    """The IP versions in which a link has an address that other networks can reach."""
    return {version for version in map(_version, seen.addresses) if version}


def running() -> int:
    """The process of ovs-vswitchd, 0 if it does not run."""
    try:
        with open(_PID_FILE, encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/comm", encoding="ascii", errors="replace") as file:
            return pid if file.read().startswith(_DAEMON) else 0
    except (OSError, ValueError):
        return 0


def _look(duty: Duty, course: Course) -> None:
    bridge, nic = look(duty.bridge), look(duty.nic)
    if is_rescued(duty.bridge):
        has = versions(nic) if nic is not None else duty.fixed | duty.leased
        lost = Trouble(_lacks(duty.nic, duty.fixed - has), _lacks(duty.nic, duty.leased - has))
        todo = course.step(time.monotonic(), lost, False)
        if todo == RESCUE and not _moving() and _run(RESCUE, duty.bridge):
            course.since = None
        return
    trouble = trouble_of(duty, bridge, nic, bool(running()))
    why = trouble.hard or trouble.soft
    todo = course.step(time.monotonic(), trouble, bool(why) and _coming(duty.bridge))
    if todo == NOTHING or _moving():
        return
    _say(f"{why}: {todo}")
    if todo == RESCUE:
        with contextlib.suppress(PodnetError):
            mark(duty.bridge, why)
    if _run(todo, duty.bridge) and todo == RESCUE:
        course.since = None


def _run(verb: str, bridge: str) -> bool:
    """Has a process of its own do it; gives whether it could."""
    try:
        words = [PROGRAM, "uplink", verb, bridge]
        done = subprocess.run(words, stdin=subprocess.DEVNULL, timeout=_CHILD_SECONDS[verb], check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        _say(f"{verb}: {error}")
        return False
    return done.returncode == 0


def _coming(bridge: str) -> bool:
    """Whether systemd is about to bring the bridge up: the time for that is not over."""
    if not have_systemd():
        return False
    words = ["systemctl", "show", "--property=ActiveState,Job", f"podnet-bridge@{bridge}.service"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=PACE, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    values = dict(line.split("=", 1) for line in done.stdout.splitlines() if "=" in line)
    return values.get("ActiveState") == "activating" or values.get("Job", "0") not in ("", "0")


def _moving() -> bool:
    """Whether a move is under way, which puts things right itself."""
    from .journal import open_moves  # only a node in trouble pays for it

    return any(journal.this_boot for journal in open_moves())


def _duty(bridge: str, known: Duty | None) -> Duty | None:
    """From the record as it is now; from an earlier reading if the disk has failed since."""
    try:
        with open(f"{BRIDGES}/{bridge}.json", encoding="utf-8") as file:
            return Duty.of(json.load(file))
    except (OSError, ValueError, KeyError, TypeError) as error:
        if known is None:
            _say(f"cannot read the record of {bridge}: {error!r}")
        return known


def _lacks(name: str, missing: frozenset[int] | set[int]) -> str:
    return (
        f"{name} has no IPv{' and no IPv'.join(str(version) for version in sorted(missing))} address" if missing else ""
    )


def _version(cidr: str) -> int:
    """4 or 6, 0 for an address that is only of use on its link."""
    address = ipaddress.ip_interface(cidr).ip
    return 0 if address.is_link_local else address.version


def _say(text: str) -> None:
    sys.stderr.write(f"podnet watch: {text}\n")
    sys.stderr.flush()
