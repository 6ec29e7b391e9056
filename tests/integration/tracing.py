# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What processes of a node touch, by their system calls (strace(1)): files, connections, programs."""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light

FOLDER = "/run/trace"
# A file for each process and thread, so that no line is cut by another's; -y: descriptors with what they lead to.
STRACE = ["strace", "-ff", "-qq", "-y", "-s", "4096", "-e", "trace=%file,connect,bind", "-o", f"{FOLDER}/t"]
_CALL = re.compile(r"(\w+)\((.*)\)\s+= (-?\d+|\?)(?:<(.*)>)?")
_AT = re.compile(r"(?:AT_FDCWD|\d+)<([^>]*)>, ")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_WRITES = re.compile(r"\bO_(WRONLY|RDWR|CREAT|TRUNC|APPEND)\b")
_CHANGES = (
    "creat", "mkdir", "mkdirat", "rmdir", "unlink", "unlinkat", "rename", "renameat", "renameat2", "link", "linkat",
    "symlink", "symlinkat", "mknod", "mknodat", "chmod", "fchmodat", "chown", "lchown", "fchownat", "truncate", "mount",
    "umount2", "chroot", "pivot_root", "setxattr", "utimensat",
)  # fmt: skip


@dataclass
class Touched:
    """Paths as they were named, and as the kernel says that they lead to where one was opened."""

    named: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    connected: set[str] = field(default_factory=set)
    bound: set[str] = field(default_factory=set)
    executed: set[str] = field(default_factory=set)


def read(node: Light) -> Touched:
    """What all traces of the node say; they are taken away."""
    found = Touched()
    folder = node.host_path(FOLDER)
    for path in sorted(Path(folder).iterdir()):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            _take(found, line)
        path.unlink()
    return found


def _take(found: Touched, line: str) -> None:
    match = _CALL.match(line)
    if match is None:
        return  # a signal, or the end of a process
    call, arguments, result, leads_to = match.groups()
    if call in ("connect", "bind"):
        path = _TEXT.search(arguments)
        kind = re.search(r"sa_family=(\w+)", arguments)
        where = path[1] if path else kind[1] if kind else arguments
        (found.connected if call == "connect" else found.bound).add(where)
        return
    paths = [_plain(text) for text in _TEXT.findall(arguments if call != "execve" else arguments.partition(", ")[0])]
    at = _AT.match(arguments)
    paths = [path if path.startswith("/") or not at else os.path.join(at[1], path) for path in paths if path]
    found.named.update(paths)
    if leads_to and result != "-1":
        found.named.add(leads_to)
    if call == "execve" and result == "0":
        found.executed.update(paths)
    if call in _CHANGES or (call.startswith("open") and _WRITES.search(arguments)):
        found.written.update([leads_to] if leads_to else paths)


def _plain(text: str) -> str:
    return text.encode("latin-1", "replace").decode("unicode_escape", "replace")


def run(node: Light, program: str, stdin: bytes, env: Mapping[str, str]) -> Touched:
    """What a program does, with all that it starts."""
    node.run("mkdir", "-p", FOLDER)
    node.run(*STRACE, program, input=stdin, env=env, check=False)
    return read(node)


@contextlib.contextmanager
def attached(node: Light, pid: int) -> Iterator[None]:
    """Follows a process of the node with all its threads and all that they start; `read` tells afterwards."""
    node.run("mkdir", "-p", FOLDER)
    strace = node.popen(*STRACE, "-p", str(pid))
    try:
        until(lambda: all(_is_traced(task) for task in Path(f"/proc/{pid}/task").iterdir()), 20, "strace to attach")
        yield
    finally:
        strace.send_signal(signal.SIGINT)
        strace.communicate(timeout=30)


def _is_traced(task: Path) -> bool:
    return "TracerPid:\t0\n" not in (task / "status").read_text(encoding="ascii", errors="replace")
