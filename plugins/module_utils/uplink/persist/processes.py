# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Programs that run in this network namespace."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass

_NAME_LENGTH = 15
"""What the kernel keeps of a program's name."""


@dataclass(frozen=True)
class Process:
    """A program that runs: its number, its name as the kernel has it, and its words."""

    pid: int
    name: str
    words: tuple[str, ...]


def processes(*names: str) -> list[Process]:
    """Those of these names whose network is the one of the caller."""
    wanted = {name[:_NAME_LENGTH] for name in names}
    here = os.stat("/proc/self/ns/net")
    found = []
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        with contextlib.suppress(OSError):
            with open(f"/proc/{entry}/comm", encoding="utf-8", errors="replace") as file:
                name = file.read().rstrip("\n")
            if name not in wanted:
                continue
            there = os.stat(f"/proc/{entry}/ns/net")
            if (there.st_dev, there.st_ino) != (here.st_dev, here.st_ino):
                continue
            with open(f"/proc/{entry}/cmdline", encoding="utf-8", errors="replace") as file:
                words = tuple(file.read().split("\0")[:-1])
            if words:  # a zombie has none
                found.append(Process(int(entry), name, words))
    return sorted(found, key=lambda process: process.pid)


def kill(process: Process, timeout: float = 3.0) -> None:
    """Ends a program at once, so that it cannot say a last word to anyone, and waits until it is gone."""
    deadline = time.monotonic() + timeout
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGKILL)
    while process in processes(process.name) and time.monotonic() < deadline:
        time.sleep(0.01)
