# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product's runtime as it lies on a node, made once for each state of the tree."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
from pathlib import Path

from ansible_collections.podnet.ovs.plugins.plugin_utils.archive import build_archive

from .proc import PLAIN, STATE, run

COLLECTION = Path(__file__).absolute().parents[2]
RUNTIMES = STATE / "runtime"
KEPT = 30
"""How many runtimes of older trees stay."""

# The launchers name their place by its absolute path, so it is installed there: in a mount namespace of its own.
INSTALL = r"""
mount -t tmpfs podnet-lab /opt
mkdir -p /opt/cni/bin
/usr/bin/python3 -c '
import sys
from ansible_collections.podnet.ovs.plugins.module_utils.runtime import install
install(sys.argv[1])' "$1"
cp -a /opt/podnet /opt/cni "$2"
"""


def digest() -> str:
    """A digest of all that the runtime is made of."""
    total = hashlib.sha256()
    names = ["galaxy.yml", "plugins/plugin_utils/archive.py", "roles/runtime/files/wheels.lock"]
    sources = sorted((COLLECTION / "plugins/module_utils").rglob("*.py"))
    for path in [*(COLLECTION / name for name in names), *sources]:
        total.update(f"{path.relative_to(COLLECTION)}\0".encode() + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()[:16]


def runtime() -> Path:
    """A folder with what the runtime brings to /opt: `podnet` and `cni`. Made if this tree has none yet.

    Nodes mount it, so one that is used is dated anew: those of other trees are removed by their age.
    """
    folder = RUNTIMES / digest()
    if folder.exists():
        with contextlib.suppress(OSError):  # a virtual machine has it read-only, and has dated it when it started
            os.utime(folder)
        return folder
    RUNTIMES.mkdir(parents=True, exist_ok=True)
    with open(RUNTIMES / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make(folder)
    return folder


def _make(folder: Path) -> None:
    new = folder.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    archive = build_archive(COLLECTION, STATE / "wheels", new / "archive")
    words: list[str | Path] = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-ec",
        INSTALL,
        "install",
        archive.path,
        new,
    ]
    run(words, env={**PLAIN, "PYTHONPATH": str(COLLECTION.parents[2])}, timeout=300)
    shutil.rmtree(new / "archive")
    new.rename(folder)
    old = sorted((path for path in RUNTIMES.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for path in old[:-KEPT]:
        shutil.rmtree(path, ignore_errors=True)
