# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What full nodes, light nodes and their pods have in common."""

from __future__ import annotations

import subprocess
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Union

from .lan import Nic
from .proc import LABS, PLAIN, Data, Result, run, to_bytes
from .space import netns_name, netns_path, valid_name

Word = Union[str, Path]
DATAPATHS = ("netdev", "system")


class Place(ABC):
    """Somewhere that commands run."""

    @abstractmethod
    def enter(self) -> list[str]:
        """The words before a command that make it run there."""

    def run(
        self,
        *argv: Word,
        input: Data = b"",
        check: bool = True,
        timeout: float = 60,
        env: Mapping[str, str] | None = None,
    ) -> Result:
        """Runs a command there to its end; see `proc.run`. `env` is added to a plain environment."""
        return run([*self.enter(), *argv], input=input, check=check, timeout=timeout, env={**PLAIN, **(env or {})})

    def popen(
        self,
        *argv: Word,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.DEVNULL,
        stdout: int | None = subprocess.PIPE,
        stderr: int | None = subprocess.STDOUT,
    ) -> subprocess.Popen[bytes]:
        """Starts a command there. In light nodes and pods the process is the command itself, in full ones `nsenter`."""
        words = [*self.enter(), *(str(word) for word in argv)]
        return subprocess.Popen(words, env={**PLAIN, **(env or {})}, stdin=stdin, stdout=stdout, stderr=stderr)

    def sh(self, script: str, *, check: bool = True, timeout: float = 60) -> Result:
        """Runs a few lines of shell there, ended by the first that fails."""
        return self.run("sh", "-ec", script, check=check, timeout=timeout)


class Pod(Place):
    """A named network namespace inside a node."""

    def __init__(self, node: Node, name: str) -> None:
        self.node = node
        self.name = name
        self.path = f"/run/netns/{name}"
        """The path that a container runtime on the node would give as CNI_NETNS."""

    def enter(self) -> list[str]:
        """In the pod's network, with the node's files."""
        return [*self.node.enter(), "nsenter", f"--net={self.path}", "--"]

    def delete(self) -> None:
        """Takes the namespace away, as a runtime that forgot to call DEL."""
        self.node.run("ip", "netns", "delete", self.name)


class Node(Place):
    """A machine of the lab. `datapath` says which Open vSwitch datapath works on it: "netdev" or "system"."""

    def __init__(self, lab: str, name: str, nics: Sequence[Nic], datapath: str) -> None:
        if datapath not in DATAPATHS:
            raise ValueError(f"datapath is netdev or system, not {datapath!r}")
        self.lab = lab
        self.name = valid_name(name)
        self.datapath = datapath
        self.folder = LABS / lab / name
        self.netns_name = netns_name(lab, name)
        self.netns_path = netns_path(lab, name)
        self.ports = {nic.name: nic.lan.plug(name, nic) for nic in nics}

    @property
    def address(self) -> str:
        """The management IPv4 address: of the first NIC that has addresses; "" without one."""
        return next((port.ipv4() for port in self.ports.values() if port.ipv4()), "")

    def link_script(self) -> str:
        """Shell that makes the node's network namespace and lays its cables; run anew for each boot."""
        words = [f"ip netns add {self.netns_name}", f"ip -n {self.netns_name} link set lo up"]
        if self.datapath == "netdev":
            # The userspace datapath only listens on a NIC: the kernel hears all of it too and would answer ARP on it.
            quiet = "cd /proc/sys/net/ipv4/conf/all; echo 1 > arp_ignore; echo 1 > rp_filter"
            words.append(f"nsenter --net={self.netns_path} sh -c '{quiet}'")
        for port in self.ports.values():
            lan = port.nic.lan
            words.append(f"ip -n {lan.netns} link delete {port.switch_port} 2> /dev/null || true")
            batch = "\n".join(lan.link_commands(port, self.netns_name))
            words.append(f"ip -n {lan.netns} -batch - <<'.'\n{batch}\n.")
            if self.datapath == "netdev":
                # its packet socket must give it finished checksums and no oversized packets
                words.append(f"nsenter --net=/run/netns/{lan.netns} ethtool -K {port.switch_port} tx off > /dev/null")
            setup = lan.setup_script(port)
            words.append(f"[ ! -e {setup} ] || nsenter --net=/run/netns/{lan.netns} sh -e {setup}")
        dropped = [port.nic.name for port in self.ports.values() if port.nic.mode == "none"]
        if self.datapath == "netdev" and dropped:
            words.append(f"nsenter --net={self.netns_path} nft -f - <<'.'\n{ingress_drop(dropped)}.")
        return "set -e\n" + "\n".join(words) + "\n"

    def drop_ingress(self, nic: str, on: bool = True) -> None:
        """Hides what arrives on a NIC from the node's own kernel, not from the userspace datapath; or ends that.

        NICs of mode "none" are hidden from the start. What is set here holds until the node restarts.
        """
        script = ingress_drop([nic]) if on else f"delete chain netdev podnet_lab {chain(nic)}\n"
        run(["nsenter", f"--net={self.netns_path}", "nft", "-f", "-"], input=script, env=PLAIN)

    def netns(self, name: str) -> Pod:
        """Makes the network namespace of a pod in the node."""
        self.run("sh", "-ec", 'ip netns add "$1"; ip -n "$1" link set lo up', "sh", valid_name(name))
        return Pod(self, name)

    def put(self, source: Path, target: str) -> None:
        """Copies a file into the node, with its permissions for the owner."""
        mode = oct(source.stat().st_mode & 0o777)[2:]
        self.write(target, source.read_bytes(), mode)

    def write(self, target: str, content: Data, mode: str = "644") -> None:
        """Writes a file in the node; makes its folder."""
        script = 'mkdir -p "$(dirname "$1")"; cat > "$1"; chmod "$2" "$1"'
        self.run("sh", "-ec", script, "sh", target, mode, input=to_bytes(content))

    def get(self, source: str) -> bytes:
        """The content of a file in the node."""
        return self.run("cat", source).stdout.encode("utf-8", "surrogateescape")

    def carrier(self, nic: str, up: bool) -> None:
        """Pulls the cable of a NIC, or puts it back."""
        port = self.ports[nic]
        port.nic.lan.carrier(port, up)


def chain(nic: str) -> str:
    """The name of the chain that drops what arrives on a NIC."""
    return "drop_" + "".join(c if c.isalnum() else "_" for c in nic)


def ingress_drop(nics: Sequence[str]) -> str:
    """nftables rules that drop what arrives on these NICs, after packet sockets have seen it."""
    lines = ["add table netdev podnet_lab"]
    for nic in nics:
        hook = f'type filter hook ingress device "{nic}" priority 0; policy drop;'
        lines.append(f"add chain netdev podnet_lab {chain(nic)} {{ {hook} }}")
    return "\n".join(lines) + "\n"
