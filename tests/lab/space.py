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

from .proc import LABS, LabError, run, until

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
        return state in (b"Z", b"X") and len(os.listdir(f"/proc/{pid}/task")) <= 1
    except OSError:
        return True


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


def cgroup_name(lab: str, part: str) -> str:
    """The name of a part's control group, in each hierarchy that it is in."""
    return f"podnet-{lab}-{part}"


def _cgroups(lab: str, part: str) -> list[Path]:
    top, name = Path("/sys/fs/cgroup"), cgroup_name(lab, part)
    return [path for path in (top / name, top / "systemd" / name, top / "unified" / name) if path.is_dir()]


def _in_cgroups(lab: str, part: str) -> set[int]:
    found: set[int] = set()
    for group in _cgroups(lab, part):
        for folder, _folders, _files in os.walk(group):  # not rglob, which stops at a group that ends meanwhile
            with contextlib.suppress(OSError):
                found.update(int(word) for word in Path(folder, "cgroup.procs").read_text(encoding="utf-8").split())
    return found


def processes_in(lab: str, parts: Iterable[str]) -> set[int]:
    """The processes in the namespaces and control groups of these parts of a lab, and in the pods made there."""
    parts = list(parts)
    apart = {os.getpid(), os.getppid(), 1}
    found = {pid for part in parts for pid in _in_cgroups(lab, part)}
    here = _namespace(os.getpid(), "net")
    nets = {_inode(netns_path(lab, part)) for part in parts} - {0, here}
    if not nets:
        return found - apart
    seen = {pid: (_namespace(pid, "net"), _namespace(pid, "mnt")) for pid in _pids()}
    mounts = {mnt for net, mnt in seen.values() if net in nets} - {
        _namespace(1, "mnt"),
        _namespace(os.getpid(), "mnt"),
        0,
    }
    others = {_inode(path) for path in RUN_NETNS.iterdir()} | {_namespace(1, "net"), here}
    for mount in mounts:
        pid = next(pid for pid, (_net, mnt) in seen.items() if mnt == mount)
        nets |= _pod_namespaces(pid) - others
    return found | {pid for pid, (net, mnt) in seen.items() if net in nets or mnt in mounts} - apart


def _cgroups_of(pid: int) -> list[str]:
    """The paths of a process's control groups, in whatever hierarchies; container runtimes make such anywhere."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
        return [line.split(":", 2)[2].strip("/") for line in lines]
    return []


def _remove_empty_cgroups(paths: Iterable[str]) -> None:
    """Removes those of these control groups, and of the groups around them, in which nothing is any more."""
    top = Path("/sys/fs/cgroup")
    trees = [top] if (top / "cgroup.procs").exists() else [path for path in top.iterdir() if path.is_dir()]
    wanted = {parent for path in paths if path for parent in (Path(path), *Path(path).parents)} - {Path(".")}
    for path in sorted(wanted, key=lambda path: len(path.parts), reverse=True):
        for tree in trees:
            with contextlib.suppress(OSError):
                os.rmdir(tree / path)


def end_processes(lab: str, parts: Iterable[str], timeout: float = 10) -> None:
    """Kills what runs in these parts of a lab and waits until it is gone; raises LabError if something stays."""
    parts = list(parts)
    end = time.monotonic() + timeout
    groups: set[str] = set()
    while True:
        left = {pid for pid in processes_in(lab, parts) if not _ended(pid)}
        if not left:
            _remove_empty_cgroups(groups)
            return
        groups.update(group for pid in left for group in _cgroups_of(pid))
        if time.monotonic() > end:
            raise LabError(f"processes that do not end: {sorted(left)}")
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _remove_cgroups(lab: str, part: str) -> None:
    def gone() -> bool:
        for group in _cgroups(lab, part):
            for folder, _folders, _files in os.walk(group, topdown=False):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
        return not _cgroups(lab, part)

    until(gone, 5, f"the end of the control groups of {part}", 0.01)


def clear_part(lab: str, part: str) -> None:
    """Ends one part of a lab: its processes, namespace, control groups and folder. Nothing there is fine."""
    path = netns_path(lab, part)
    end_processes(lab, [part])
    if path.exists():
        run(["ip", "netns", "delete", path.name])
    _remove_cgroups(lab, part)
    shutil.rmtree(LABS / lab / part, ignore_errors=True)


def clear_lab(lab: str) -> None:
    """Ends all parts of a lab, whoever made them, and removes its folder."""
    folders = [path.name for path in (LABS / lab).iterdir() if path.is_dir()] if (LABS / lab).is_dir() else []
    parts = sorted({*parts_of(lab), *folders})
    end_processes(lab, parts)
    for part in parts:
        clear_part(lab, part)
    shutil.rmtree(LABS / lab, ignore_errors=True)
