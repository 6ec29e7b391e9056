# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Full nodes: Debian with systemd, booted by systemd-nspawn on an overlay of a shared root."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from .build import SUITES
from .lan import Nic
from .layers import lowers
from .managers import File, manager_of
from .node import Node, Word
from .proc import PLAIN, ROOTS, Data, LabError, Result, run, until
from .space import cgroup_name, clear_part, end_processes, processes_in

# A node that restarts gets a new network namespace and new network cards: nothing of the kernel's outlives a restart.
# nsenter, not nspawn's --network-namespace-path: with that and a writable /sys a node would see the machine's cards.
# The disk is mounted where only the node sees it, so that it goes when the node does.
BOOT = r"""
node=$1 folder=$2 netns=$3 base=$4 group=$5
trees='/sys/fs/cgroup/systemd /sys/fs/cgroup/unified'
[ ! -e /sys/fs/cgroup/cgroup.procs ] || trees=/sys/fs/cgroup
for tree in $trees; do
    # without a group of its own each node would use its caller's, and two nodes the same
    mkdir -p "$tree/$group"
    echo $$ > "$tree/$group/cgroup.procs"
done
run='
    mkdir -p /run/systemd/nspawn
    mount -t tmpfs podnet-lab /run/systemd/nspawn
    mount -t overlay -o "lowerdir=$2,upperdir=disk,workdir=work" podnet-lab root
    exec systemd-nspawn --quiet --boot --directory=root --machine="$1" --keep-unit --register=no --console=pipe \
        --capability=all --resolv-conf=off --link-journal=no --timezone=off
'
export SYSTEMD_NSPAWN_API_VFS_WRITABLE=yes
cd "$folder"
while :; do
    sh links || exit 1
    rc=0
    nsenter --net="/run/netns/$netns" unshare --mount --propagation=slave sh -ec "$run" node "$node" "$base" || rc=$?
    if [ -e again ]; then rm again; elif [ $rc != 133 ]; then exit $rc; fi
    ip netns delete "$netns"
done
"""

NETDEV = """[Service]
# The userspace datapath passes on checksums that veth left to hardware, unless it is told before it starts.
ExecStartPre=/usr/bin/ovs-vsctl --no-wait --timeout=5 set Open_vSwitch . other_config:userspace-tso-enable=true
"""


class Full(Node):
    """A node with systemd, ssh and apt, as a fresh installation: what it changes on its disk ends with it.

    `manager` configures its static and dhcp NICs, and is the only network manager that runs: "networkd", "netplan",
    "ifupdown", "networkmanager", or "none" (a script of the site, static NICs only). `packages` are preinstalled, of
    those that nodes can install: "openvswitch-switch", say. With `runtime` the product's files and units are there as
    well, enabled as its role does.
    """

    def __init__(
        self,
        lab: str,
        name: str,
        nics: Sequence[Nic],
        datapath: str,
        suite: str,
        *,
        manager: str = "networkd",
        packages: Sequence[str] = (),
        runtime: bool = False,
    ) -> None:
        super().__init__(lab, name, nics, datapath)
        if suite not in SUITES:
            raise LabError(f"{name}: no root for {suite!r}; there are {', '.join(SUITES)}")
        if not (ROOTS / suite).is_dir():
            raise LabError(f"{name}: run dev/setup --lab {suite} first")
        self.suite = suite
        self.manager = manager
        self.packages = tuple(packages)
        self.runtime = runtime
        self._process: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def start(self) -> None:
        """Writes the node's configuration and switches it on; `wait` waits until it is up."""
        for folder in ("disk", "work", "root"):
            (self.folder / folder).mkdir(parents=True)
        self.write_configuration(self.folder / "disk")
        (self.folder / "links").write_text(self.link_script(), encoding="utf-8")
        base = ":".join(str(path) for path in lowers(self.suite, self.manager, self.packages))
        words = [self.name, self.folder, self.netns_name, base, cgroup_name(self.lab, self.name)]
        with open(self.folder / "console", "wb") as console:
            self._process = subprocess.Popen(
                ["sh", "-c", BOOT, "boot", *map(str, words)],
                env=PLAIN,
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                start_new_session=True,
            )

    def write_configuration(self, disk: Path) -> None:
        """Writes the node's own files, and the product's, into a folder that comes over the root; enables units."""
        for path, file in self._configuration().items():
            target = disk / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.text, encoding="utf-8")
            target.chmod(file.mode)
        if self.runtime:
            from .units import put_runtime

            put_runtime(disk)
        enable(disk)

    def _configuration(self) -> dict[str, File]:
        hosts = f"127.0.0.1 localhost\n::1 localhost\n127.0.1.1 {self.name}\n"
        texts = {
            "etc/hostname": f"{self.name}\n",
            "etc/hosts": hosts,
            "etc/resolv.conf": "",
            "etc/apt/sources.list": "",
        }
        managed = [port for port in self.ports.values() if port.nic.mode != "none"]
        for port in managed:
            if port.nic.lan.mirror:
                texts["etc/apt/sources.list"] = f"deb [trusted=yes] http://{port.nic.lan.gateway}/{self.suite} ./\n"
        if self.datapath == "netdev":
            texts["etc/systemd/system/ovs-vswitchd.service.d/lab.conf"] = NETDEV
        files = {path: File(text) for path, text in texts.items()}
        return {**files, **manager_of(self.manager).files(managed)}

    def leader(self) -> int:
        """The node's first process, a number of this machine; 0 while there is none."""
        if not (self._leader and _is_first(self._leader)):
            self._leader = leader_of(self.lab, self.name)
        return self._leader

    def enter(self) -> list[str]:
        """In the node, without its network: works whatever the node does to that."""
        leader = self.leader()
        if not leader:
            raise LabError(f"{self.name} is not up; its console is {self.folder}/console")
        return enter_words(leader)

    def state(self) -> str:
        """What systemd says of the whole node: "running", "degraded", "starting" …; "" while it says nothing."""
        try:
            return self.run("systemctl", "is-system-running", check=False, timeout=10).stdout.strip()
        except (LabError, subprocess.TimeoutExpired):
            return ""

    def wait(self, timeout: float = 60) -> None:
        """Waits until the node has booted; raises LabError when it does not."""

        def booted() -> bool:
            if self._process is not None and self._process.poll() is not None:
                raise LabError(f"{self.name} ended while it booted:\n{self.console()}")
            return self.state() in ("running", "degraded")

        until(booted, timeout, f"{self.name} up; its console is {self.folder}/console")

    def console(self) -> str:
        """What the node has printed on its console."""
        return (self.folder / "console").read_text(encoding="utf-8", errors="replace")

    def reboot(self, timeout: float = 60) -> None:
        """Restarts the node in order, and waits until it is up again."""
        before = self.leader()
        self.run("systemctl", "--no-block", "reboot")
        until(lambda: self.leader() not in (0, before), timeout, f"the restart of {self.name}")
        self.wait(timeout)

    def power_cycle(self, timeout: float = 60) -> None:
        """Takes the power away and gives it back, and waits until the node is up again."""
        before = self.leader()
        (self.folder / "again").touch()
        run(["kill", "-KILL", str(before)])
        until(lambda: self.leader() not in (0, before), timeout, f"the restart of {self.name}")
        self.wait(timeout)

    def poweroff(self, timeout: float = 60) -> None:
        """Shuts the node down in order; `start` is not possible any more."""
        self.run("systemctl", "--no-block", "poweroff")
        assert self._process is not None
        self._process.wait(timeout)

    def ssh_words(self) -> list[str]:
        """The words before a command that make it run on the node over ssh."""
        return ["ssh", "-F", str(self.folder.parent / "ssh_config"), self.name]

    def ssh(
        self,
        *argv: Word,
        input: Data = b"",
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
        address: str = "",
    ) -> Result:
        """Runs a command line over ssh, as an operator would; the words are joined and read by the node's shell.

        `address`: at which the node is, if not at the one that it was given first.
        """
        words: list[Word] = [*self.ssh_words(), *argv]
        if address:
            words[1:1] = ["-o", f"HostName={address}"]
        return run(words, input=input, check=check, timeout=timeout, env={**PLAIN, **(env or {})})

    def down(self) -> None:
        """Switches the node off at once and forgets its disk."""
        end_processes(self.lab, [self.name])
        clear_part(self.lab, self.name)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)


def enter_words(leader: int) -> list[str]:
    """The words before a command that make it run in the node whose first process this is."""
    return ["nsenter", f"--target={leader}", "--all", "--"]


def enable(disk: Path) -> None:
    """Enables the units under a disk's /etc/systemd/system that say when they want to be started."""
    folder = disk / "etc/systemd/system"
    units = [path for path in folder.glob("*.*") if path.is_file() and "@." not in path.name]
    wanted = [path.name for path in units if "\n[Install]\n" in path.read_text(encoding="utf-8")]
    if wanted:
        run(["systemctl", "--quiet", f"--root={disk}", "enable", *sorted(wanted)], env=PLAIN)


def leader_of(lab: str, name: str) -> int:
    """The first process of a full node, a number of this machine; 0 while there is none."""
    return next((pid for pid in sorted(processes_in(lab, [name])) if _is_first(pid)), 0)


def _is_first(pid: int) -> bool:
    """Whether a process is the first of a container: number 1 inside, another one here."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False
    numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    alive = "\nState:\tZ" not in status
    return alive and len(numbers) == 2 and numbers[1] == "1"
