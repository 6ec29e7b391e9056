# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The initial file system that a virtual machine's kernel starts from."""

from __future__ import annotations

import shutil
from pathlib import Path

from .proc import run

START = r"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module" || echo "insmod $module failed"; done < /modules/order
options=trans=virtio,version=9p2000.L,msize=262144
"""
"""How an init of busybox begins: its modules are in, and `options` are those of shares with this machine."""


def make_initrd(target: Path, files: Path, modules: str, init: str) -> None:
    """Makes one with these modules of the kernel that is unpacked in `files`, and this init."""
    (version,) = [path.name for path in (files / "lib/modules").iterdir()]
    ram = target.with_suffix(".ram")
    shutil.rmtree(ram, ignore_errors=True)
    for place in ("bin", "modules", "dev", "proc", "sys", "lower", "rw", "root"):
        (ram / place).mkdir(parents=True)
    shutil.copy("/bin/busybox", ram / "bin/busybox")
    wanted: list[str | Path] = ["modprobe", "-S", version, "-d", files, "-a", "--show-depends", *modules.split()]
    order = []
    for line in run(wanted).stdout.splitlines():
        if line.startswith("insmod"):
            module = Path(line.split()[1])
            if module.name not in order:
                order.append(module.name)
                shutil.copy(module, ram / "modules")
    (ram / "modules/order").write_text("\n".join(order) + "\n", encoding="utf-8")
    (ram / "init").write_text(init, encoding="utf-8")
    (ram / "init").chmod(0o755)
    run(["sh", "-ec", 'find . | cpio -o -H newc --quiet | gzip -1 > "$1"', "sh", target], cwd=ram)
    shutil.rmtree(ram)
