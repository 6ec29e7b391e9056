# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layers of packages on a suite's root: what a full node has installed before it boots.

`dev/setup` fetches the packages. A layer is made when the first node asks for it, and kept: roots stay as they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from .managers import MANAGERS, Manager, manager_of
from .proc import MIRROR, PLAIN, ROOTS, STATE, LabError, run

LAYERS = STATE / "layers"
IN_LAYERS = " ".join(package for manager in MANAGERS.values() for package in manager.packages)
"""What layers may hold besides the packages that nodes can install."""

# A layer is the upper folder of an overlay on the root. It is not synced: half a layer is never used.
ON_ROOT = r"""
root=$1 new=$2
mkdir -p "$new/upper" "$new/work" "$new/root"
mount -t overlay -o "lowerdir=$root,upperdir=$new/upper,workdir=$new/work,volatile" podnet-lab "$new/root"
mount --bind /dev "$new/root/dev"
mount -t proc proc "$new/root/proc"
cd "$new"
"""
FETCH = r"""
mirror=$3
shift 3
cp /etc/resolv.conf root/etc/
cp sources.list root/etc/apt/
mkdir -p root/packages/partial
chroot root apt-get -q update
chroot root apt-get -q -y --download-only --no-install-recommends -o APT::Sandbox::User=root \
    -o Dir::Cache::archives=/packages/ install "$@"
mv root/packages/*.deb "$mirror/"
"""
INSTALL = r"""
settle=$3
shift 3
if [ $# -gt 0 ]; then
    for mirror in mirrors/*; do
        mkdir -p "root/packages/${mirror##*/}"
        mount --bind "$(readlink "$mirror")" "root/packages/${mirror##*/}"
        echo "deb [trusted=yes] file:/packages/${mirror##*/} ./"
    done > root/etc/apt/sources.list
    printf '#!/bin/sh\nexit 101\n' > root/usr/sbin/policy-rc.d
    chmod +x root/usr/sbin/policy-rc.d
    chroot root apt-get -q update
    chroot root apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io install "$@"
    umount root/packages/*
    rm -r root/packages root/usr/sbin/policy-rc.d root/etc/apt/sources.list
    find root/var/lib/apt/lists root/var/cache/apt -type f -delete
fi
chroot root sh -ec "$settle"
"""


def fetch_recipe() -> str:
    """All that decides what `fetch` brings, besides the suite's root."""
    return IN_LAYERS + FETCH


def fetch(suite: str, sources: Sequence[str]) -> None:
    """Downloads the packages of a suite's layers. `sources` are lines of a sources list."""
    from .build import index, replace

    mirror, new = more(suite).with_suffix(".new"), LAYERS / f"{suite}.fetch"
    for folder in (mirror, new):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
    (new / "sources.list").write_text("\n".join(sources) + "\n", encoding="utf-8")
    _on_root(FETCH, suite, new, mirror, *IN_LAYERS.split())
    index(mirror)
    replace(mirror, more(suite))
    shutil.rmtree(new)


def more(suite: str) -> Path:
    """The folder of the packages that only layers hold."""
    return MIRROR / f"{suite}-layers"


def lowers(suite: str, manager: str, packages: Sequence[str] = ()) -> list[Path]:
    """The folders that a node's disk lies on, uppermost first: a layer if one is needed, and the suite's root.

    `packages`: names of what is preinstalled, of the packages that nodes can install. Makes the layer, which takes
    some 10 s, if there is none yet.
    """
    kind = manager_of(manager)
    root = ROOTS / suite
    names = sorted({*kind.packages, *packages})
    if not names and not kind.settle:
        return [root]
    LAYERS.mkdir(parents=True, exist_ok=True)
    layer = LAYERS / f"{suite}-{_state(root)}-{_digest(kind, names)}"
    with open(LAYERS / f"{layer.name}.lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not layer.is_dir():
            _make(suite, layer, kind, names)
    return [layer, root]


def _state(root: Path) -> str:
    """What tells a root from one that is built in its place."""
    state = root.stat()
    return hashlib.sha256(f"{state.st_ino} {state.st_mtime_ns}".encode()).hexdigest()[:8]


def _digest(kind: Manager, names: Sequence[str]) -> str:
    text = [ON_ROOT, INSTALL, kind.settle, *names]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def _make(suite: str, layer: Path, kind: Manager, names: Sequence[str]) -> None:
    if names and not more(suite).is_dir():
        raise LabError(f"no packages for layers of {suite}: run dev/setup --lab {suite} first")
    for old in LAYERS.glob(f"{suite}-*"):
        if not old.name.startswith(f"{suite}-{_state(ROOTS / suite)}-"):
            shutil.rmtree(old, ignore_errors=True)  # of a root that is no more; so are the nodes on it
    new = layer.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    (new / "mirrors").mkdir(parents=True)
    (new / "mirrors/nodes").symlink_to(MIRROR / suite)
    (new / "mirrors/layers").symlink_to(more(suite))
    _on_root(INSTALL, suite, new, kind.settle, *names)
    (new / "upper").rename(layer)
    shutil.rmtree(new)


def _on_root(script: str, suite: str, new: Path, *words: str | Path) -> None:
    """Runs shell in a mount namespace of its own, in which `new`/root is the suite's root, to be written to."""
    argv: list[str | Path] = [
        "unshare",
        "--mount",
        "--propagation=private",
        "sh",
        "-ec",
        ON_ROOT + script,
        "layer",
        ROOTS / suite,
        new,
    ]
    run([*argv, *words], env={**PLAIN, "DEBIAN_FRONTEND": "noninteractive"}, timeout=600)
