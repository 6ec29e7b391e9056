# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ovs-vswitchd as a process: what tells one that is slow, as with hundreds of ports, from one that stands still."""

from __future__ import annotations

PID_FILE = "/run/openvswitch/ovs-vswitchd.pid"
_STOPPED = "Tt"
_IN_THE_KERNEL = "D"


def pulse() -> tuple[str, int] | None:
    """State and processor ticks of its main thread (proc(5), /proc/PID/stat); None if they cannot be had."""
    try:
        with open(PID_FILE, encoding="ascii") as file:
            pid = int(file.read())
        with open(f"/proc/{pid}/task/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return words[0], int(words[11]) + int(words[12])
    except (OSError, ValueError, IndexError):
        return None


def is_there(now: tuple[str, int] | None) -> bool:
    """Whether it may be heard from again: it has neither ended nor been stopped."""
    return now is not None and now[0] not in _STOPPED


def is_at_work(before: tuple[str, int] | None, now: tuple[str, int] | None) -> bool:
    """Whether it has done something between two pulses, or waits for the kernel."""
    if before is None or now is None or not is_there(now):
        return False
    return now[1] > before[1] or now[0] == _IN_THE_KERNEL
