# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Builds what nodes are made of: Debian roots, the packages that nodes may install, and the machine's kernel.

`dev/setup` calls it through make.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from pathlib import Path

from .image import machine_recipe, make_machine_initrd
from .initrd import make_initrd
from .layers import fetch, fetch_recipe
from .proc import KERNEL, MIRROR, PLAIN, ROOTS, STATE, LabError, run

SUITES = ("bookworm", "trixie")
LAYERED = tuple(f"{suite}-layers" for suite in SUITES)
PARTS = (*SUITES, *LAYERED, "vm", "machine")
KEY = ROOTS / "id"
"""The private ssh key that every full node lets in as root."""

IN_ROOT = (
    "systemd systemd-sysv dbus udev openssh-server python3 python3-apt iproute2 iputils-ping procps kmod sudo "
    "ca-certificates"
)
"""A node before the product came: neither Open vSwitch, nor pip, nor venv."""
IN_MIRROR = "openvswitch-switch ethtool nftables tcpdump iperf3 containernetworking-plugins"
"""What nodes can install, with all that these depend on."""
IN_MACHINE = f"{IN_MIRROR} dnsmasq-base busybox-static"

# Nodes share the kernel of the machine: nothing here may set it, and udev deals with network cards only.
SETTLE = r"""
set -e
rm -f /usr/lib/sysctl.d/*.conf /etc/sysctl.d/*.conf
systemctl -q mask systemd-modules-load.service proc-sys-fs-binfmt_misc.automount systemd-networkd-wait-online.service \
    systemd-timesyncd.service getty.target console-getty.service apt-daily.timer apt-daily-upgrade.timer \
    e2scrub_reap.service
systemctl -q enable systemd-networkd.service ssh.service
mkdir -p /etc/systemd/system/systemd-udev-trigger.service.d
cat > /etc/systemd/system/systemd-udev-trigger.service.d/lab.conf <<'.'
[Service]
ExecStart=
ExecStart=udevadm trigger --type=devices --action=add --subsystem-match=net
.
: > /etc/machine-id
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/resolv.conf /etc/hostname
printf 'Acquire::Languages "none";\nAcquire::Retries "0";\n' > /etc/apt/apt.conf.d/90lab
"""

INIT = r"""#!/bin/busybox sh
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
while read -r module; do $b insmod "/modules/$module" || echo "insmod $module failed"; done < /modules/order
options=trans=virtio,version=9p2000.L,msize=262144
$b mount -t 9p -o $options,cache=loose,ro root /lower && $b mount -t tmpfs rw /rw && $b mkdir /rw/upper /rw/work &&
    $b mount -t overlay -o lowerdir=/lower,upperdir=/rw/upper,workdir=/rw/work root /root ||
    { echo "no root"; $b poweroff -f; }
$b mkdir -p /root/usr/lib/modules /root/jobs
$b mount -t 9p -o $options,cache=loose,ro modules /root/usr/lib/modules
$b mount -t 9p -o $options jobs /root/jobs
while read -r tag mode where; do
    $b mkdir -p "/root$where"
    case $mode in ro) mode=cache=loose,ro ;; esac
    $b mount -t 9p -o "$options,$mode" "$tag" "/root$where"
done < /root/jobs/shares
for place in proc sys dev; do $b mount --move /$place /root/$place; done
$b mkdir -p /root/run /root/tmp /root/dev/pts /root/dev/shm
$b mount -t tmpfs -o mode=755 run /root/run
$b mount -t tmpfs tmp /root/tmp
$b mount -t tmpfs shm /root/dev/shm
$b mount -t devpts pts /root/dev/pts
echo vm > /root/etc/hostname
# switch_root, not chroot: the kernel looks for modprobe in the root of the first process
exec $b switch_root /root /bin/sh /jobs/main
"""
MODULES = "virtio_pci 9pnet_virtio 9p overlay virtio_net"


def recipe(part: str) -> str:
    """A digest of all that decides what `make` builds."""
    text = [part, IN_ROOT, IN_MIRROR, SETTLE]
    if part in ("vm", "machine"):
        text += [IN_MACHINE, INIT, MODULES]
    if part in LAYERED:
        text += [fetch_recipe()]
    if part == "machine":
        text += [machine_recipe()]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()[:16]


def sources(suite: str) -> list[str]:
    """Lines of a sources list: where this machine gets its Debian from, for another release of it."""
    form = "$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)"
    listed = run(["apt-get", "indextargets", "--format", form, "Created-By: Packages"]).stdout
    codename = re.search(r"^VERSION_CODENAME=(\w+)", Path("/etc/os-release").read_text(encoding="utf-8"), re.M)
    here = codename.group(1) if codename else ""
    lines: dict[str, None] = {}
    for line in listed.splitlines():
        origin, uri, release, component = line.split("|")
        if origin == "Debian" and component == "main" and release.split("-")[0] == here:
            lines[f"deb {uri} {release.replace(here, suite)} main"] = None
    if not lines:
        raise LabError("no Debian repository known: run apt-get update")
    return list(lines)


def make(part: str) -> None:
    """Builds a part: a suite's root and mirror, its layers' packages, or what virtual machines boot from."""
    if part == "vm":
        make_machine()
    elif part == "machine":
        make_machine_initrd()
    elif part in LAYERED:
        suite = part.split("-")[0]
        fetch(suite, sources(suite))
    else:
        make_root(part)


def make_key() -> None:
    """Makes the ssh key of the lab, once."""
    if not KEY.exists():
        ROOTS.mkdir(parents=True, exist_ok=True)
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "podnet-lab", "-f", KEY])


def make_root(suite: str) -> None:
    """Builds a root and its package mirror in one go: the packages are those that apt would fetch on that root."""
    make_key()
    root, mirror = ROOTS / f"{suite}.new", MIRROR / f"{suite}.new"
    for folder in (root, mirror):
        shutil.rmtree(folder, ignore_errors=True)
    mirror.mkdir(parents=True)
    download = "apt-get -qq -y --download-only -o APT::Sandbox::User=root -o Dir::Cache::archives=/packages/"
    settle = STATE / f"settle-{suite}"
    settle.write_text(SETTLE, encoding="utf-8")
    hooks = [
        'mkdir -p "$1/packages/partial"',
        f'chroot "$1" {download} --no-install-recommends install {IN_MACHINE if suite == SUITES[0] else IN_MIRROR}',
        f'mv "$1"/packages/*.deb {mirror}/',
        'rm -r "$1/packages"',
        f'install -D -m 600 {KEY}.pub "$1/root/.ssh/authorized_keys"',
        f'cp {settle} "$1/settle"; chroot "$1" sh /settle; rm "$1/settle"',
    ]
    words = [
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={IN_ROOT.replace(' ', ',')}",
    ]
    words += [f"--customize-hook={hook}" for hook in hooks]
    run([*words, suite, root, "-"], input="\n".join(sources(suite)) + "\n", timeout=900, env={**os.environ, **PLAIN})
    settle.unlink()
    for name in ("pip", "pip3", "ovs-vsctl"):
        if shutil.which(name, path=f"{root}/usr/bin:{root}/usr/sbin"):
            raise LabError(f"{suite}: {name} is in a root that stands for a fresh node")
    index(mirror)
    for folder in (root, mirror):
        replace(folder, folder.with_suffix(""))


def index(mirror: Path) -> None:
    """Makes a flat repository of a folder of packages."""
    packages = run(["apt-ftparchive", "packages", "."], cwd=mirror, timeout=120).stdout
    (mirror / "Packages").write_text(packages, encoding="utf-8")
    (mirror / "Release").write_text(run(["apt-ftparchive", "release", "."], cwd=mirror).stdout, encoding="utf-8")


def replace(new: Path, old: Path) -> None:
    """Puts a folder in another one's place."""
    gone = old.with_name(f"{old.name}.old")
    shutil.rmtree(gone, ignore_errors=True)
    if old.exists():
        old.rename(gone)
    new.rename(old)
    shutil.rmtree(gone, ignore_errors=True)


def make_machine() -> None:
    """Builds the root and the start-up files of the virtual machine, from the first suite's root and mirror."""
    if not (ROOTS / SUITES[0]).exists():
        make_root(SUITES[0])
    root = ROOTS / "vm.new"
    shutil.rmtree(root, ignore_errors=True)
    run(["cp", "-a", ROOTS / SUITES[0], root], timeout=300)
    inside = root / "packages"
    shutil.copytree(MIRROR / SUITES[0], inside)
    (root / "etc/apt/sources.list").write_text("deb [trusted=yes] file:/packages ./\n", encoding="utf-8")
    (root / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n", encoding="utf-8")
    (root / "usr/sbin/policy-rc.d").chmod(0o755)
    install = f"apt-get -qq update; apt-get -qq -y --no-install-recommends install {IN_MACHINE}"
    run(["chroot", root, "sh", "-ec", install], timeout=600, env={**PLAIN, "DEBIAN_FRONTEND": "noninteractive"})
    shutil.rmtree(inside)
    make_kernel()
    replace(root, ROOTS / "vm")


def fetch_kernel(folder: Path) -> Path:
    """Downloads Debian's current kernel, with fresh package lists if those of the machine are missing or too old."""
    for fresh in (False, True):
        if fresh:
            run(["apt-get", "-q", "update"], timeout=300)
        depends = run(["apt-cache", "depends", "linux-image-amd64"], check=False).stdout
        package = re.search(r"Depends: (linux-image-\S+)", depends)
        if package is not None:
            words = ["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", package.group(1)]
            run(words, cwd=folder, timeout=300, check=fresh)
        for archive in folder.glob("*.deb"):
            return archive
    raise LabError("apt knows no linux-image-amd64")


def make_kernel() -> None:
    """Fetches Debian's kernel and makes the initial file system that mounts the root."""
    new = KERNEL.with_suffix(".new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    archive = fetch_kernel(new)
    run(["dpkg-deb", "-x", archive, new / "files"], timeout=120)
    archive.unlink()
    (version,) = [path.name for path in (new / "files/lib/modules").iterdir()]
    run(["depmod", "-b", new / "files", version], timeout=120)
    make_initrd(new / "initrd.gz", new / "files", MODULES, INIT)
    replace(new, KERNEL)
