# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machines: full nodes with a stock kernel, a disk of their own and systemd, that can lose their power."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .full import Full
from .image import INITRD, image
from .lan import Nic, Port
from .managers import File
from .proc import KERNEL, PLAIN, LabError, run, until
from .space import cgroup_name, end_processes, netns_path
from .vm import join_cgroup

FIRST_TAP = 100
"""The descriptor of the first NIC's tap device in QEMU."""


class Machine(Full):
    """An emulated machine on the LANs of a lab: Debian's kernel, Open vSwitch's kernel datapath, systemd and ssh.

    It is used like a full node, but boots in half a minute. Its disk is an ext4 file system that outlives restarts.
    `run` and the like reach it whatever it does to its network; they are 0.1 s slower than in other nodes, and standard
    input has to end before a command starts. Packages: see `image.PACKAGES`, and what `packages` names.
    """

    def __init__(
        self,
        lab: str,
        name: str,
        nics: Sequence[Nic],
        suite: str,
        *,
        manager: str = "networkd",
        packages: Sequence[str] = (),
        runtime: bool = False,
        memory: int = 1024,
        cpus: int = 2,
    ) -> None:
        super().__init__(lab, name, nics, "system", suite, manager=manager, packages=packages, runtime=runtime)
        if not INITRD.exists():
            raise LabError(f"{name}: run dev/setup --lab vm first")
        self.memory = memory
        self.cpus = cpus
        self.jobs = self.folder / "jobs"
        self.disk = self.folder / "disk.img"

    def start(self) -> None:
        """Switches the machine on; the first time it gets its disk. `wait` waits until it is up."""
        if self._process is not None and self._process.poll() is None:
            raise LabError(f"{self.name} is on")
        if not self.disk.exists():
            self._make_disk()
        for name in ("trigger.in", "trigger.out"):
            (self.folder / name).unlink(missing_ok=True)
            os.mkfifo(self.folder / name)
        (self.jobs / "ready").unlink(missing_ok=True)
        for port in self.ports.values():
            self._lay_cable(port)
        words: list[str] = []
        for number, port in enumerate(self.ports.values()):
            netns = netns_path(self.lab, port.nic.lan.name)
            tap = ["/usr/bin/python3", "-IS", str(Path(__file__).with_name("tap.py")), port.switch_port]
            words += ["nsenter", f"--net={netns}", *tap, str(FIRST_TAP + number)]
        with open(self.folder / "console", "ab") as log:
            self._process = subprocess.Popen(
                [*words, *self._qemu()],
                env=PLAIN,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        join_cgroup(cgroup_name(self.lab, self.name), self._process.pid)

    def _make_disk(self) -> None:
        self.jobs.mkdir(parents=True)
        run(["cp", "--sparse=always", image(self.suite, self.manager, self.packages), self.disk])
        seed = self.folder / "seed"
        self.write_configuration(seed)
        run(["tar", "-C", seed, "-c", "-f", self.jobs / "seed.tar", "."])
        shutil.rmtree(seed)

    def _configuration(self) -> dict[str, File]:
        # of a machine that lost its power at once nothing may be left to chance that the next boot needs
        number = hashlib.sha256(f"{self.lab}/{self.name}".encode()).hexdigest()[:32]
        files = {**super()._configuration(), "etc/machine-id": File(f"{number}\n", 0o444)}
        for index, port in enumerate(self.ports.values()):
            if port.nic.name != f"eth{index}":
                text = f"[Match]\nMACAddress={port.mac}\n[Link]\nName={port.nic.name}\n"
                files[f"etc/systemd/network/05-{port.nic.name}.link"] = File(text)
        return files

    def _lay_cable(self, port: Port) -> None:
        lan, device = port.nic.lan, port.switch_port
        lan.run("ip", "link", "delete", device, check=False)
        lan.run("ip", "tuntap", "add", "name", device, "mode", "tap", "vnet_hdr")
        lan.run("ip", "link", "set", device, "mtu", str(port.nic.mtu), "alias", f"{self.name}:{port.nic.name}")
        lan.run("ip", "link", "set", device, "master", "br0", "up")
        if lan.setup_script(port).exists():
            lan.run("sh", "-e", lan.setup_script(port))

    def _qemu(self) -> list[str]:
        kernel = next((KERNEL / "files/boot").glob("vmlinuz-*"))
        line = "console=ttyS0 quiet mitigations=off net.ifnames=0 systemd.show_status=error systemd.gpt_auto=0"
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self.cpus)]
        words += ["-m", str(self.memory), "-display", "none", "-nodefaults"]
        words += ["-chardev", f"file,id=console,path={self.folder}/console,append=on", "-serial", "chardev:console"]
        words += ["-kernel", str(kernel), "-initrd", str(INITRD), "-append", line]
        # what the machine has written is in files of this one; what it only meant to write goes with it
        words += ["-drive", f"file={self.disk},format=raw,if=none,id=disk,cache=unsafe"]
        words += ["-device", "virtio-blk-pci,drive=disk"]
        for tag, path, more in (("modules", KERNEL / "files/lib/modules", ",readonly=on"), ("jobs", self.jobs, "")):
            words += ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{more}"]
            words += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        words += ["-chardev", f"pipe,id=trigger,path={self.folder}/trigger"]
        words += ["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=trigger,nr=1,name=lab"]
        words += ["-qmp", f"unix:{self.folder}/qmp,server=on,wait=off"]
        for number, port in enumerate(self.ports.values()):
            words += ["-netdev", f"tap,id=net{number},fd={FIRST_TAP + number}"]
            mtu = f",host_mtu={port.nic.mtu}" if port.nic.mtu != 1500 else ""
            words += ["-device", f"virtio-net-pci,id=nic{number},netdev=net{number},mac={port.mac},romfile={mtu}"]
        return words

    def monitor(self, command: str, **arguments: Any) -> Any:
        """Asks QEMU something in its own protocol (QMP), and gives the answer."""
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(10)
            connection.connect(str(self.folder / "qmp"))
            with connection.makefile("rw", encoding="utf-8") as stream:
                stream.readline()
                for asked in ({"execute": "qmp_capabilities"}, {"execute": command, "arguments": arguments}):
                    stream.write(json.dumps(asked) + "\n")
                    stream.flush()
                    answer = json.loads(stream.readline())
                    while "event" in answer:
                        answer = json.loads(stream.readline())
        if "error" in answer:
            raise LabError(f"{command}: {answer['error']['desc']}")
        return answer["return"]

    def carrier(self, nic: str, up: bool) -> None:
        """Pulls the cable of a NIC, or puts it back: the machine sees its link go."""
        super().carrier(nic, up)
        self.monitor("set_link", name=f"nic{list(self.ports).index(nic)}", up=up)

    def enter(self) -> list[str]:
        """In the machine, without its network: works whatever it does to that."""
        return enter_words(self.folder)

    def leader(self) -> int:
        """The process of QEMU; 0 while the machine is off."""
        return self._process.pid if self._process is not None and self._process.poll() is None else 0

    def boot_id(self) -> str:
        """What the machine's kernel calls the boot that it is in, once it takes commands; until then ""."""
        with contextlib.suppress(FileNotFoundError):
            if self.leader():
                return (self.jobs / "ready").read_text(encoding="utf-8").strip()
        return ""

    def wait(self, timeout: float = 180) -> None:
        """Waits until systemd says that the machine has booted; raises LabError when it does not."""

        def listens() -> str:
            if not self.leader():
                raise LabError(f"{self.name} ended while it booted:\n{self.console()}")
            return self.boot_id()

        until(listens, timeout, f"{self.name} up; its console is {self.folder}/console")
        self.run("systemctl", "is-system-running", "--wait", check=False, timeout=timeout)
        if self.state() not in ("running", "degraded"):
            raise LabError(f"{self.name} has not booted:\n{self.console()}")

    def reboot(self, timeout: float = 180) -> None:
        """Restarts the machine in order, and waits until it is up again."""
        before = self.boot_id()
        asked = self.popen("systemctl", "--no-block", "reboot")  # it may end before it can say so
        until(lambda: self.boot_id() not in ("", before), timeout, f"the restart of {self.name}")
        asked.communicate(timeout=10)
        self.wait(timeout)

    def power_cut(self) -> None:
        """Takes the power away at once. `start` gives it back, and `wait` waits for it.

        What programs have written but not synced is lost, as far as the kernel had not written it by itself (it does
        after 5 to 30 s); what was synced, or was on its way to the disk before, is not.
        """
        end_processes(self.lab, [self.name])
        assert self._process is not None
        self._process.wait(timeout=10)

    def power_cycle(self, timeout: float = 180) -> None:
        """Takes the power away and gives it back, and waits until the machine is up again."""
        self.power_cut()
        self.start()
        self.wait(timeout)


def enter_words(folder: Path) -> list[str]:
    """The words before a command that make it run in the machine with this folder."""
    return ["/usr/bin/python3", "-IS", str(Path(__file__).with_name("inside.py")), str(folder / "jobs")]
