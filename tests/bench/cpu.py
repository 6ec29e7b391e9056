# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes, and the machine, have used so far: processor seconds, memory, descriptors."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_WINDOW = 0.02
_BUSY = 0.25
_AT_MOST = 2.0


def seconds(pid: int) -> float:
    """Processor seconds of all threads that a process has or had, to the nanosecond (clock_getcpuclockid(3))."""
    return time.clock_gettime(~pid << 3 | 2)


def children_seconds(pid: int) -> float:
    """Processor seconds of the children that a process has waited for, to a tick of 10 ms (proc_pid_stat(5))."""
    words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return (int(words[13]) + int(words[14])) / _TICKS


def machine() -> tuple[float, float]:
    """Seconds that the machine's processors were busy, and seconds that its host kept from them (proc_stat(5))."""
    with open("/proc/stat", encoding="ascii") as file:
        user, nice, system, _idle, _iowait, irq, softirq, steal = (int(word) for word in file.readline().split()[1:9])
    return (user + nice + system + irq + softirq) / _TICKS, steal / _TICKS


def resident(pid: int) -> float:
    """MiB of memory that a process holds now."""
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:")) / 1024


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


class Watched:
    """Processes of a node whose processor time is told apart. `agent` may be absent: 0."""

    def __init__(self, agent: int, daemons: Mapping[str, int]) -> None:
        self._agent = agent
        self._daemons = daemons

    def read(self) -> dict[str, float]:
        """Seconds so far by name; `delegates` are the plugins that the agent calls; `machine` is everything."""
        used = {name: seconds(pid) for name, pid in self._daemons.items()}
        if self._agent:
            used |= {"agent": seconds(self._agent), "delegates": children_seconds(self._agent)}
        return {**used, "machine": machine()[0]}


class Rest:
    """The pause before each call, whoever's: at least `pause` seconds, and until ovs-vswitchd has done with the last.

    A switch that is behind would be measured with the next call, on whatever node that is.
    """

    def __init__(self, pause: float, switch: int) -> None:
        self._pause = pause
        self._switch = switch

    def __call__(self) -> None:
        time.sleep(self._pause)
        end = time.monotonic() + _AT_MOST
        before = seconds(self._switch)
        while time.monotonic() < end:
            time.sleep(_WINDOW)
            now = seconds(self._switch)
            if now - before < _BUSY * _WINDOW:
                return
            before = now
