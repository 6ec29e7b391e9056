# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Disks that machines boot from, and the initial file system that mounts them."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from .initrd import START, make_initrd
from .layers import lowers
from .proc import KERNEL, PLAIN, STATE, run

IMAGES = STATE / "images"
INITRD = STATE / "machine" / "initrd.gz"
MODULES = "virtio_pci 9pnet_virtio 9p virtio_blk ext4 virtio_net virtio_console"
PACKAGES = ("openvswitch-switch", "ethtool", "nftables", "tcpdump")
"""What is installed on every machine."""
SIZE = "2G"
KEPT = 6
"""How many disk images stay."""

# What the lab's host asks for is in /jobs: see MAIN. The seed is the node's own configuration, for its first boot.
INIT = (
    START
    + r"""
$b mount -t ext4 -o rw /dev/vda /root || { echo "no root"; $b poweroff -f; }
$b mkdir -p /root/usr/lib/modules /root/jobs
$b mount -t 9p -o $options,cache=loose,ro modules /root/usr/lib/modules
$b mount -t 9p -o $options jobs /root/jobs
if [ -e /root/jobs/seed.tar ]; then
    $b tar -x -f /root/jobs/seed.tar -C /root && $b sync && $b mv /root/jobs/seed.tar /root/jobs/seeded.tar
fi
$b cat /proc/sys/kernel/random/boot_id > /root/jobs/boot
$b umount /proc /sys
$b mount --move /dev /root/dev
exec $b switch_root /root /sbin/init
"""
)

# Jobs come as lines on a serial port, so that nobody has to look for them all the time; the rest of them is in a share.
MAIN = r"""#!/bin/sh
cd /jobs
cp boot ready
for port in /dev/vport*p1; do
    while read -r word job; do
        case $word in
            run)
                {
                    setsid sh -c 'echo $$ > "$1/pid"; cd /; exec sh /jobs/"$1"/run' job "$job" \
                        < "$job/in" > "$job/out" 2> "$job/err"
                    echo $? > "$job/new"
                    mv "$job/new" "$job/status"
                } &
                ;;
            kill) kill -s KILL -- "-$(cat "$job/pid")" ;;
        esac
    done < "$port"
done
"""
UNIT = """[Unit]
Description=Commands from the host of the lab
DefaultDependencies=no
Conflicts=shutdown.target
Before=shutdown.target

[Service]
ExecStart=/usr/local/sbin/lab-jobs
TimeoutStopSec=2
Restart=always
RestartSec=1

[Install]
WantedBy=sysinit.target
"""

# The emulated machine is slow: what no test needs does not start.
SETTLE = r"""
systemctl -q mask systemd-random-seed.service systemd-update-utmp.service systemd-update-utmp-runlevel.service \
    systemd-tmpfiles-clean.timer fstrim.timer dpkg-db-backup.timer logrotate.timer e2scrub_all.timer \
    systemd-journal-flush.service systemd-journal-catalog-update.service systemd-machine-id-commit.service \
    systemd-hwdb-update.service systemd-sysusers.service systemd-pcrphase.service systemd-pcrphase-sysinit.service \
    kmod-static-nodes.service modprobe@.service dev-hugepages.mount dev-mqueue.mount \
    sys-kernel-debug.mount sys-kernel-tracing.mount sys-kernel-config.mount sys-fs-fuse-connections.mount \
    systemd-ask-password-console.path systemd-ask-password-wall.path systemd-remount-fs.service \
    serial-getty@ttyS0.service systemd-user-sessions.service systemd-logind.service systemd-hostnamed.service \
    systemd-network-generator.service systemd-rfkill.socket uuidd.socket uuidd.service
systemctl -q enable lab-jobs.service
mkdir -p /etc/systemd/system.conf.d
printf '[Manager]\nDefaultTimeoutStartSec=300s\n' > /etc/systemd/system.conf.d/lab.conf
"""
MAKE = r"""
folder=$1 lower=$2 size=$3
cd "$folder"
mkdir -p upper work root
mount -t overlay -o "lowerdir=$lower,upperdir=upper,workdir=work,volatile" podnet-lab root
install -D -m 755 main root/usr/local/sbin/lab-jobs
install -D -m 644 unit root/etc/systemd/system/lab-jobs.service
chroot root sh -ec "$(cat settle)"
mke2fs -q -t ext4 -E root_owner=0:0,lazy_itable_init=0 -J size=16 -m 1 -L podnet -d root disk "$size"
"""


def machine_recipe() -> str:
    """All that decides what `make_machine_initrd` makes, besides the kernel."""
    return INIT + MODULES


def make_machine_initrd() -> None:
    """Makes the initial file system of machines from the kernel of the virtual machine."""
    INITRD.parent.mkdir(parents=True, exist_ok=True)
    make_initrd(INITRD, KERNEL / "files", MODULES, INIT)


def image(suite: str, manager: str, packages: Sequence[str]) -> Path:
    """A disk image with a suite's root, a manager and packages on it; to be copied. Made if there is none yet."""
    folders = [str(path) for path in lowers(suite, manager, sorted({*PACKAGES, *packages}))]
    text = [*folders, MAIN, UNIT, SETTLE, MAKE, SIZE]
    path = IMAGES / f"{suite}-{hashlib.sha256('//'.join(text).encode()).hexdigest()[:16]}"
    IMAGES.mkdir(parents=True, exist_ok=True)
    with open(IMAGES / "lock", "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            path.touch()
        else:
            _make(path, ":".join(folders))
    return path


def _make(path: Path, lower: str) -> None:
    new = path.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir()
    for name, text in (("main", MAIN), ("unit", UNIT), ("settle", SETTLE)):
        (new / name).write_text(text, encoding="utf-8")
    words = ["unshare", "--mount", "--propagation=private", "sh", "-ec", MAKE, "image", str(new), lower, SIZE]
    run(words, env=PLAIN, timeout=300)
    (new / "disk").rename(path)
    shutil.rmtree(new)
    old = sorted((other for other in IMAGES.glob("*-*") if other.is_file()), key=lambda other: other.stat().st_mtime)
    for other in old[:-KEPT]:
        other.unlink()
