# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch in a network namespace: the LAN of a site, or the switch that uplinks lead to."""

from __future__ import annotations

import hashlib
import ipaddress
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from .proc import LABS, MIRROR, PLAIN, Data, LabError, Result, run, until
from .space import netns_name, netns_path, valid_name

Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]


@dataclass(frozen=True)
class Nic:
    """A network card of a node, plugged into a LAN.

    `mode` says what the node's own network configuration does with it: "static" and "dhcp" give it addresses of the
    LAN, "none" leaves it alone, as a card that is to become an uplink.
    """

    name: str
    lan: Lan
    mode: str = "none"
    mac: str | None = None
    mtu: int = 1500

    def __post_init__(self) -> None:
        if self.mode not in ("none", "static", "dhcp"):
            raise LabError(f"{self.name}: a NIC is none, static or dhcp, not {self.mode!r}")
        if self.mode == "dhcp" and not self.lan.dhcp:
            raise LabError(f"{self.name}: LAN {self.lan.name} has no DHCP")


@dataclass(frozen=True)
class Port:
    """A NIC as it is plugged in: its port on the switch, its MAC, and the addresses that it has or will be given."""

    nic: Nic
    switch_port: str
    mac: str
    addresses: tuple[Address, ...]

    def ipv4(self) -> str:
        """The IPv4 address without its prefix, or ""."""
        return next((str(a.ip) for a in self.addresses if a.version == 4), "")


def derived_mac(text: str) -> str:
    """A MAC address that is always the same for the same text, of the range that QEMU uses."""
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"52:54:00:{digest[:2]}:{digest[2:4]}:{digest[4:6]}"


class Lan:
    """A switch that passes VLAN tags; with addresses also a gateway with DHCP, router advertisements and packages.

    `ipv4`, `ipv6`: the LAN's networks; the gateway has their first address, nodes the eleventh and on. `mirror`:
    serve the packages of all built roots over HTTP from the gateway, each suite in a folder of its name.
    """

    def __init__(
        self,
        lab: str,
        name: str,
        *,
        ipv4: str | None = None,
        ipv6: str | None = None,
        dhcp: bool = False,
        mirror: bool = False,
        mtu: int = 9000,
    ) -> None:
        self.lab = lab
        self.name = valid_name(name)
        self.netns = netns_name(lab, name)
        self.folder = LABS / lab / name
        self.networks = [ipaddress.ip_network(text) for text in (ipv4, ipv6) if text]
        self.gateways = [ipaddress.ip_interface(f"{net[1]}/{net.prefixlen}") for net in self.networks]
        self.dhcp = dhcp
        self.mirror = mirror
        self.mtu = mtu
        self._ports = 0
        self._hosts = 10
        self._started: list[subprocess.Popen[bytes]] = []

    @property
    def gateway(self) -> str:
        """The gateway's first address, without its prefix; "" for a mere switch."""
        return str(self.gateways[0].ip) if self.gateways else ""

    def run(self, *argv: str | Path, input: Data = b"", check: bool = True, timeout: float = 60) -> Result:
        """Runs a command in the switch's namespace, that is on the gateway."""
        return run(
            ["nsenter", f"--net={netns_path(self.lab, self.name)}", *argv],
            input=input,
            check=check,
            timeout=timeout,
            env=PLAIN,
        )

    def start(self) -> None:
        """Makes the switch and starts its services."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run(["ip", "netns", "add", self.netns])
        # only the gateway itself speaks IPv6 here: ports that announced themselves would be seen in every capture
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
        batch = ["link set lo up", f"link add br0 mtu {self.mtu} type bridge mcast_snooping 0"]
        run(["ip", "-n", self.netns, "-batch", "-"], input="\n".join(batch))
        if any(gateway.version == 6 for gateway in self.gateways):
            self.run(
                "sh",
                "-c",
                "echo 0 > /proc/sys/net/ipv6/conf/br0/disable_ipv6; echo 0 > /proc/sys/net/ipv6/conf/br0/accept_dad",
            )
        batch = ["link set br0 up", *(f"addr add {gateway} dev br0" for gateway in self.gateways)]
        run(["ip", "-n", self.netns, "-batch", "-"], input="\n".join(batch))
        if self.dhcp:
            self._start_dnsmasq()
        if self.mirror:
            self._start_mirror()

    def _service(self, name: str, *argv: str | Path) -> None:
        with open(self.folder / f"{name}.log", "wb") as log:
            words = ["nsenter", f"--net={netns_path(self.lab, self.name)}", *(str(word) for word in argv)]
            self._started.append(
                subprocess.Popen(
                    words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=PLAIN, start_new_session=True
                )
            )

    def _start_dnsmasq(self) -> None:
        (self.folder / "hosts").mkdir()
        words = [
            "--keep-in-foreground",
            "--conf-file=/dev/null",
            "--user=root",
            "--interface=br0",
            "--bind-interfaces",
            "--no-resolv",
            "--no-hosts",
            "--domain=lab",
            "--dhcp-authoritative",
            f"--pid-file={self.folder}/dnsmasq.pid",
            f"--dhcp-leasefile={self.folder}/leases",
            f"--dhcp-hostsdir={self.folder}/hosts",
        ]
        for net in self.networks:
            if net.version == 4:
                words.append(f"--dhcp-range={net[100]},{net[199]},10m")
            else:
                words += ["--enable-ra", f"--dhcp-range={net[0]},ra-stateless,{net.prefixlen},10m"]
        self._service("dnsmasq", "dnsmasq", *words)
        until((self.folder / "dnsmasq.pid").exists, 5, f"dnsmasq of {self.name} (see {self.folder}/dnsmasq.log)", 0.01)

    def _start_mirror(self) -> None:
        self._service("mirror", "/usr/bin/python3", "-I", "-m", "http.server", "80", "--directory", MIRROR)
        until(lambda: self.run("sh", "-c", "ss -Hltn sport = :80").stdout, 5, f"the mirror of {self.name}", 0.02)

    def plug(self, node: str, nic: Nic) -> Port:
        """Gives a NIC its port, MAC and addresses; the node still makes the link (see `link_commands`)."""
        self._ports += 1
        mac = nic.mac or derived_mac(f"{self.lab}/{node}/{nic.name}")
        addresses: list[Address] = []
        if nic.mode != "none":
            if not self.networks:
                raise LabError(f"{node} {nic.name}: LAN {self.name} has no addresses")
            self._hosts += 1
            addresses = [ipaddress.ip_interface(f"{net[self._hosts]}/{net.prefixlen}") for net in self.networks]
        port = Port(nic, f"p{self._ports}", mac, tuple(addresses))
        if nic.mode == "dhcp" and port.ipv4():
            (self.folder / "hosts" / f"{node}-{nic.name}").write_text(f"{mac},{port.ipv4()},{node}\n", encoding="utf-8")
        return port

    def link_commands(self, port: Port, node: str) -> list[str]:
        """What `ip -batch` does in the switch's namespace to lay the cable to a namespace of this machine."""
        mtu = port.nic.mtu
        return [
            f"link add {port.switch_port} mtu {mtu} type veth "
            f"peer name {port.nic.name} address {port.mac} mtu {mtu} netns {node}",
            f"link set {port.switch_port} alias {node}:{port.nic.name} master br0 up",
        ]

    def carrier(self, port: Port, up: bool) -> None:
        """Pulls the cable of a port, or puts it back."""
        run(["ip", "-n", self.netns, "link", "set", port.switch_port, "up" if up else "down"])
