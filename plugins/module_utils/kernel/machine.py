# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the machine is, for a move that must survive a boot: disks, modules, the database's server. Reads only."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
from dataclasses import dataclass

from ..model.paths import CONF_DBS

VOLATILE = ("tmpfs", "ramfs")
NETWORK_DISKS = ("nfs", "nfs4", "cifs", "ceph", "glusterfs")
CLUSTERED = b"OVSDB CLUSTER"
"""ovsdb(5): the first bytes of a database that several servers share."""


@dataclass(frozen=True)
class Disk:
    """Where a path lies. `free`: bytes, for root."""

    path: str
    free: int
    writable: bool
    kind: str


@dataclass(frozen=True)
class Server:
    """Who answers at the database's socket. `here`: in this mount namespace; `database`: its file, "" if not known."""

    pid: int
    here: bool
    database: str = ""
    on_disk: bool = True
    clustered: bool = False


def disk_of(path: str) -> Disk:
    """The disk of a path, or of the nearest folder above it that is there."""
    while not os.path.exists(path):
        path = os.path.dirname(path)
    found = os.statvfs(path)
    return Disk(path, found.f_bfree * found.f_frsize, not found.f_flag & os.ST_RDONLY, kind_of_disk(path))


def kind_of_disk(path: str) -> str:
    """The file system that a path is on, as mounted: "ext4", "overlay", "tmpfs" …; "" if not known."""
    best, kind = "", ""
    path = os.path.realpath(path)
    for where, what in _mounts():
        inside = where == "/" or path == where or path.startswith(where + "/")
        if inside and len(where) >= len(best):
            best, kind = where, what
    return kind


def has_module(name: str) -> bool:
    """Whether the kernel has the module, or can load it."""
    if os.path.isdir(f"/sys/module/{name}"):
        return True
    modprobe = shutil.which("modprobe", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if modprobe is None:
        return False
    try:
        done = subprocess.run([modprobe, "--dry-run", name], capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def kernel_arguments() -> list[str]:
    """What the boot loader gave to the kernel."""
    return _read("/proc/cmdline").split()


def vendor() -> str:
    """Who made the machine, as its firmware says: "VMware, Inc.", "Amazon EC2" …"""
    return _read("/sys/class/dmi/id/sys_vendor")


def server_of(endpoint: str) -> Server | None:
    """Who answers at `unix:PATH`; None if nobody does."""
    path = endpoint.partition(":")[2]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
            sock.settimeout(1.0)
            sock.connect(path)
            size = struct.calcsize("=iII")
            pid = struct.unpack("=iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[0]
    except OSError:
        return None
    try:
        here = pid > 0 and os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
    except OSError:
        return Server(pid, False)
    if not here:
        return Server(pid, False)
    database = _database_of(pid)
    if not database or not os.path.isfile(database):
        return Server(pid, True, database, False)
    with open(database, "rb") as file:
        clustered = file.read(len(CLUSTERED)) == CLUSTERED
    return Server(pid, True, database, kind_of_disk(database) not in VOLATILE, clustered)


def _database_of(pid: int) -> str:
    """The switch's database on the server's command line (ovsdb-server(1)); by default the one under /etc."""
    words = _read(f"/proc/{pid}/cmdline").split("\0")[1:]
    named = [word for word in words if word.endswith("conf.db") and not word.startswith("-")]
    files = [*named, *CONF_DBS]
    return next((file for file in files if os.path.isfile(file)), named[0] if named else "")


def _mounts() -> list[tuple[str, str]]:
    found = []
    for line in _read("/proc/self/mountinfo").splitlines():
        left, _dash, right = line.partition(" - ")
        words = left.split(" ")
        if len(words) > 4 and right:
            found.append((words[4].replace("\\040", " "), right.split(" ")[0]))
    return found


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
