# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Loaded in a node by the launcher that the harness puts in the place of the product's: logs points, and kills there.

It lies in /opt/fault with what it is told (`plan.json`) and what it has seen (`reached`, `killed`): they outlive a
restart of the node. The product knows nothing of it. Only the standard library; runs under the node's Python.
"""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PLAN, REACHED, KILLED = HERE / "plan.json", HERE / "reached", HERE / "killed"


@contextmanager
def alone() -> Iterator[None]:
    """One process of the node at a time."""
    descriptor = os.open(HERE / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def plan() -> dict[str, Any]:
    """What is to be done in this node; nothing without a plan."""
    try:
        found: dict[str, Any] = json.loads(PLAN.read_text(encoding="utf-8"))
    except OSError:
        return {}
    return found


def note(point: str) -> int:
    """Logs a point, and says how often it has now been reached, by whatever process."""
    line = f"{point} {os.getpid()} {' '.join(sys.argv[1:3])}\n"
    with open(REACHED, "a+", encoding="utf-8") as file:
        file.seek(0)
        before = sum(entry.split(" ", 1)[0] == point for entry in file)
        file.write(line)
    return before + 1


def victims(whole: bool) -> list[int]:
    """The processes to kill, this one last. `whole`: all of its service, or of its session where there is none."""
    me = os.getpid()
    others: set[int] = set()
    if whole:
        others = _of_service() or _of_session()
    return [*sorted(others - {me, 0, 1}), me]


def _of_service() -> set[int]:
    """The processes of this systemd service; none for one that a person or a test has called."""
    lines = Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    for line in lines:
        _number, controllers, path = line.split(":", 2)
        if controllers in ("", "name=systemd") and path.endswith(".service") and "/.." not in path:
            for top in ("/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"):
                file = Path(top + path) / "cgroup.procs"
                if file.exists() and "podnet" in path:
                    return {int(word) for word in file.read_text(encoding="utf-8").split()}
    return set()


def _of_session() -> set[int]:
    """The processes of this session, if the product itself has opened it or a test has opened it for the product."""
    session = os.getsid(0)
    try:
        words = Path(f"/proc/{session}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return set()
    if not any(b"/opt/podnet/" in word for word in words):
        return set()
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                if os.getsid(int(entry)) == session:
                    found.add(int(entry))
            except OSError:
                continue
    return found


def wrapped(reached: Callable[[str], None], recorder: Any) -> Callable[[str], None]:
    """The product's `reached`, and what the plan has for a point."""

    def instead(point: str) -> None:
        reached(point)
        told = plan()
        with alone():
            count = note(point)
        if recorder is not None:
            recorder.mark(point)
        kill = told.get("kill") or {}
        if kill.get("point") == point and count in kill["times"]:
            with open(KILLED, "a", encoding="utf-8") as file:
                file.write(f"{point} {count} {' '.join(sys.argv[1:3])}\n")
            for pid in victims(bool(kill.get("whole"))):
                os.kill(pid, signal.SIGKILL)

    return instead


def main() -> int:
    """The product's command, with its points wrapped."""
    cli, points = (importlib.import_module(f"podnet.{name}") for name in ("cli", "uplink.points"))
    what = plan().get("record")
    recorder = importlib.import_module("recorded").Recorder(HERE / "trace", alone, what) if what else None
    vars(points)["reached"] = wrapped(points.reached, recorder)
    if recorder is not None:
        recorder.start()
    status: int = cli.main()
    return status
