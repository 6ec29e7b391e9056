# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A lab: LANs and nodes that end together."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from .build import KEY
from .full import Full
from .lan import Lan, Nic
from .light import Light
from .machine import Machine
from .node import Node
from .proc import LABS, LabError, run
from .space import clear_lab, netns_path, valid_name
from .vm import Vm


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP while a lab stands: it ends the program like Ctrl-C, so that the lab is cleaned up."""


def _terminate(number: int, _frame: FrameType | None) -> None:
    raise Terminated(f"signal {number}")


@dataclass(frozen=True)
class Pair:
    """Two light nodes, n1 and n2, whose eth1 are plugged into one switch."""

    trunk: Lan
    n1: Light
    n2: Light


class Lab:
    """LANs and nodes under one name; leaving the context ends them, whatever happened in it.

    Labs of other names may stand beside it, with the same addresses. A lab of the same name that was left behind is
    cleared first; one that a living program holds raises LabError. `keep`: stand on after the program has ended.
    """

    def __init__(self, name: str, *, keep: bool = False) -> None:
        self.name = valid_name(name)
        self.keep = keep
        self.folder = LABS / name
        self.lans: dict[str, Lan] = {}
        self.nodes: dict[str, Node] = {}
        self.machines: dict[str, Vm] = {}
        self._lock: int | None = None
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> Lab:
        LABS.mkdir(parents=True, exist_ok=True)
        clear_abandoned()
        self._lock = _hold(self.name)
        if self._lock is None:
            raise LabError(f"lab {self.name} is in use by another program")
        clear_lab(self.name)
        self.folder.mkdir()
        if self.keep:
            (self.folder / "keep").touch()
        if threading.current_thread() is threading.main_thread():
            self._handlers = {number: signal.signal(number, _terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(keep=self.keep and kind is None)

    def close(self, keep: bool = False) -> None:
        """Ends the lab, or only this program's hold on it."""
        try:
            if not keep:
                self._end_ssh()
                clear_lab(self.name)
        finally:
            for number, handler in self._handlers.items():
                signal.signal(number, handler)
            self._handlers = {}
            if self._lock is not None:
                if not keep:
                    _lock_file(self.name).unlink(missing_ok=True)
                os.close(self._lock)
                self._lock = None

    def lan(
        self,
        name: str,
        *,
        ipv4: str | None = None,
        ipv6: str | None = None,
        dhcp: bool = False,
        lease: int | None = None,
        ra: str = "slaac",
        ra_interval: int = 60,
        ra_lifetime: int = 600,
        mirror: bool = False,
        mtu: int = 9000,
    ) -> Lan:
        """Makes a LAN; without addresses a mere switch. See `Lan`."""
        lan = Lan(
            self.name,
            self._new(name),
            ipv4=ipv4,
            ipv6=ipv6,
            dhcp=dhcp,
            lease=lease,
            ra=ra,
            ra_interval=ra_interval,
            ra_lifetime=ra_lifetime,
            mirror=mirror,
            mtu=mtu,
        )
        lan.start()
        self.lans[name] = lan
        return lan

    def light(self, name: str, *, nics: Sequence[Nic] = (), datapath: str = "netdev", ovs: bool = True) -> Light:
        """Makes a light node. See `Light`."""
        node = Light(self.name, self._new(name), nics, datapath, ovs)
        node.start()
        self._add(node)
        return node

    def full(
        self,
        name: str,
        *,
        suite: str = "bookworm",
        nics: Sequence[Nic] = (),
        datapath: str = "netdev",
        manager: str = "networkd",
        packages: Sequence[str] = (),
        runtime: bool = False,
        wait: bool = True,
    ) -> Full:
        """Boots a full node; see `Full`. With `wait` false it still boots when this returns: see `Full.wait`."""
        node = Full(
            self.name,
            self._new(name),
            nics,
            datapath,
            suite,
            manager=manager,
            packages=packages,
            runtime=runtime,
        )
        node.start()
        if wait:
            node.wait()
        self._add(node)
        return node

    def vm(self, name: str = "vm", *, memory: int = 2048, cpus: int = 2) -> Vm:
        """Switches on a virtual machine with a stock kernel; it still boots when this returns. See `Vm`."""
        machine = Vm(self.name, self._new(name), memory=memory, cpus=cpus)
        machine.start()
        self.machines[name] = machine
        return machine

    def machine(
        self,
        name: str,
        *,
        suite: str = "bookworm",
        nics: Sequence[Nic] = (),
        manager: str = "networkd",
        packages: Sequence[str] = (),
        runtime: bool = False,
        memory: int = 1024,
        cpus: int = 2,
        wait: bool = True,
    ) -> Machine:
        """Boots a machine; see `Machine`. With `wait` false it still boots when this returns: see `Machine.wait`.

        `memory` is MiB.
        """
        node = Machine(
            self.name,
            self._new(name),
            nics,
            suite,
            manager=manager,
            packages=packages,
            runtime=runtime,
            memory=memory,
            cpus=cpus,
        )
        node.start()
        self._add(node)
        if wait:
            node.wait()
        return node

    def inventory(self, groups: Mapping[str, Sequence[str]] | None = None) -> Path:
        """Writes an Ansible inventory of the full nodes, group `nodes`, and gives its path.

        `groups`: more groups, each with the names of its nodes.
        """
        lines = ["nodes:", "  hosts:"]
        for node in self.nodes.values():
            if isinstance(node, Full) and node.address:
                lines.append(f"    {node.name}: {{ansible_host: {node.address}}}")
        lines += [
            "  vars:",
            "    ansible_user: root",
            "    ansible_python_interpreter: /usr/bin/python3",
            f"    ansible_ssh_common_args: -F {self.ssh_config}",
            f"    ansible_control_path_dir: {self.folder}/ssh",
            "    ansible_pipelining: true",
        ]
        for group, names in (groups or {}).items():
            lines += [f"{group}:", "  hosts:", *(f"    {name}:" for name in names)]
        path = self.folder / "inventory.yml"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    @property
    def ssh_config(self) -> Path:
        """The configuration with which ssh reaches the full nodes, by name or address."""
        return self.folder / "ssh_config"

    def _write_ssh_config(self) -> None:
        lines = []
        for node in self.nodes.values():
            port = next((port for port in node.ports.values() if port.ipv4()), None)
            if isinstance(node, Full) and port is not None:
                netns = netns_path(self.name, port.nic.lan.name)
                dial = f"nsenter --net={netns} /usr/bin/python3 -I -S {Path(__file__).with_name('dial.py')} %h %p"
                dial += f" {port.nic.lan.controllers[0].ip}"
                lines += [f"Host {node.name} {node.address}", f"  HostName {node.address}", f"  ProxyCommand {dial}"]
        lines += [
            "Host *",
            "  ProxyUseFdpass yes",
            "  User root",
            f"  IdentityFile {KEY}",
            "  IdentitiesOnly yes",
            "  StrictHostKeyChecking no",
            "  UserKnownHostsFile /dev/null",
            "  LogLevel ERROR",
            "  ConnectTimeout 10",
            "  ServerAliveInterval 5",
            "  ServerAliveCountMax 3",
        ]
        self.ssh_config.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def _end_ssh(self) -> None:
        for socket in (self.folder / "ssh").glob("*"):
            words = ["ssh", "-F", str(self.ssh_config), "-o", f"ControlPath={socket}", "-O", "exit", "lab"]
            run(words, check=False, timeout=10)

    def _new(self, name: str) -> str:
        if self._lock is None:
            raise LabError(f"lab {self.name} is not open: use it in a with statement")
        if name in {*self.lans, *self.nodes, *self.machines} or netns_path(self.name, name).exists():
            raise LabError(f"lab {self.name} has a {name} already")
        return name

    def _add(self, node: Node) -> None:
        self.nodes[node.name] = node
        self._write_ssh_config()
        self._save()

    def _save(self) -> None:
        nodes = {}
        for node in self.nodes.values():
            kind = "machine" if isinstance(node, Machine) else "full" if isinstance(node, Full) else "light"
            nodes[node.name] = {"kind": kind, "address": node.address, "holder": getattr(node, "holder", 0)}
        path = self.folder / "lab.json"
        path.with_suffix(".new").write_text(json.dumps(nodes, indent=1), encoding="utf-8")
        path.with_suffix(".new").replace(path)


def _lock_file(name: str) -> Path:
    return LABS / f"{name}.lock"


def _hold(name: str) -> int | None:
    """Locks a lab's name for this program; None if another one has it."""
    path = _lock_file(name)
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return None
        with contextlib.suppress(FileNotFoundError):
            if path.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        os.close(descriptor)  # its last holder has just removed it


def all_labs() -> list[str]:
    """The names of the labs that stand or have left something."""
    return sorted(path.stem for path in LABS.glob("*.lock"))


def is_held(name: str) -> bool:
    """Whether a living program holds the lab."""
    if not _lock_file(name).exists():
        return False
    descriptor = _hold(name)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def clear(name: str) -> None:
    """Ends a lab that no living program holds; raises LabError if one does."""
    descriptor = _hold(name)
    if descriptor is None:
        raise LabError(f"lab {name} is in use by another program: end that first")
    try:
        clear_lab(name)
        _lock_file(name).unlink(missing_ok=True)
    finally:
        os.close(descriptor)


def clear_abandoned() -> None:
    """Ends the labs of programs that were killed; not those that were to stand on."""
    for name in all_labs():
        if not (LABS / name / "keep").exists() and not is_held(name):
            with contextlib.suppress(LabError):
                clear(name)
