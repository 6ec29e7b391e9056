# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network namespaces with a lab's name in theirs, and the end of everything in them.

A lab keeps no list of what it started: whatever runs in one of its namespaces is its own. So a lab that was killed
can be cleared by its name alone, and nothing else is ever ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from .proc import LABS, LabError, run

RUN_NETNS = Path("/run/netns")
PREFIX = "podnet."
NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?")


def valid_name(name: str) -> str:
    """The name of a lab, a LAN or a node, if it is one: a host name label of at most 40 characters, in lower case."""
    if not NAME.fullmatch(name):
        raise LabError(f"not a name for a part of the lab: {name!r} (a-z, 0-9 and -, at most 40)")
    return name


def netns_name(lab: str, part: str) -> str:
    """The name of a part's network namespace on this machine."""
    return f"{PREFIX}{lab}.{part}"


def netns_path(lab: str, part: str) -> Path:
    """Where that namespace is mounted."""
    return RUN_NETNS / netns_name(lab, part)


def labs_with_namespaces() -> set[str]:
    """The names of labs that have a network namespace."""
    return {path.name.split(".")[1] for path in RUN_NETNS.glob(f"{PREFIX}*.*")} if RUN_NETNS.is_dir() else set()


def parts_of(lab: str) -> list[str]:
    """The parts of a lab that have a network namespace."""
    start = netns_name(lab, "")
    return sorted(path.name[len(start) :] for path in RUN_NETNS.glob(f"{start}*"))


def _inode(path: Path) -> int:
    """The number of a namespace; 0 for what is none, or gone."""
    try:
        found = path.stat()
    except OSError:
        return 0
    return found.st_ino if found.st_dev == os.stat("/proc/self/ns/net").st_dev else 0


def _namespace(pid: int, kind: str) -> int:
    try:
        return int(os.readlink(f"/proc/{pid}/ns/{kind}").split("[")[1].rstrip("]"))
    except OSError:
        return 0


def _ended(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return True
    return state in (b"Z", b"X")


def _pids() -> Iterator[int]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            yield int(entry)


def _pod_namespaces(pid: int) -> set[int]:
    """The network namespaces that are mounted by name where this process looks: a node's pods."""
    found = set()
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            words = line.split()
            if words[3].startswith("net:[") and "/netns/" in words[4]:
                found.add(int(words[3][5:-1]))
    return found


def processes_in(parts: Iterable[Path]) -> set[int]:
    """The processes in these network namespaces, in the mount namespaces of those, and in the pods made there."""
    wanted = {_inode(path) for path in parts} - {0, _namespace(os.getpid(), "net")}
    if not wanted:
        return set()
    own = {_namespace(1, "mnt"), _namespace(os.getpid(), "mnt"), 0}
    host_nets = {_inode(path) for path in RUN_NETNS.iterdir()} | {_namespace(1, "net"), _namespace(os.getpid(), "net")}
    seen = {pid: (_namespace(pid, "net"), _namespace(pid, "mnt")) for pid in _pids()}
    mounts = {mnt for net, mnt in seen.values() if net in wanted} - own
    for pid, (_net, mnt) in seen.items():
        if mnt in mounts:
            wanted |= _pod_namespaces(pid) - host_nets
    return {pid for pid, (net, mnt) in seen.items() if net in wanted or mnt in mounts} - {os.getpid(), os.getppid(), 1}


def end_processes(parts: Iterable[Path], timeout: float = 10) -> None:
    """Kills what runs in these namespaces and waits until it is gone; raises LabError if something stays."""
    parts = list(parts)
    end = time.monotonic() + timeout
    while True:
        left = {pid for pid in processes_in(parts) if not _ended(pid)}
        if not left:
            return
        if time.monotonic() > end:
            raise LabError(f"processes that do not end: {sorted(left)}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def mounts_under(folder: Path) -> list[str]:
    """Mount points at or under a folder, the deepest first."""
    found = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        where = line.split()[4].encode().decode("unicode_escape")
        if where == str(folder) or where.startswith(f"{folder}/"):
            found.append(where)
    return sorted(found, key=len, reverse=True)


def remove_cgroups(name: str) -> None:
    """Removes the control groups of that name, and those in them, wherever nodes put them."""
    for top in Path("/sys/fs/cgroup").glob(name), Path("/sys/fs/cgroup").glob(f"*/{name}"):
        for group in top:
            for folder, _folders, _files in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)


def clear_part(lab: str, part: str) -> None:
    """Ends one part of a lab: its processes, mounts, namespace, control groups and folder. Nothing there is fine."""
    path = netns_path(lab, part)
    end_processes([path])
    folder = LABS / lab / part
    for where in mounts_under(folder):
        run(["umount", "--lazy", where], check=False)
    if path.exists():
        run(["ip", "netns", "delete", path.name])
    remove_cgroups(f"podnet-{lab}-{part}")
    shutil.rmtree(folder, ignore_errors=True)


def clear_lab(lab: str) -> None:
    """Ends all parts of a lab, whoever made them, and removes its folder."""
    parts = parts_of(lab)
    end_processes([netns_path(lab, part) for part in parts])
    folders = [path.name for path in (LABS / lab).iterdir() if path.is_dir()] if (LABS / lab).is_dir() else []
    for part in sorted({*parts, *folders}):
        clear_part(lab, part)
    for where in mounts_under(LABS / lab):
        run(["umount", "--lazy", where], check=False)
    shutil.rmtree(LABS / lab, ignore_errors=True)
