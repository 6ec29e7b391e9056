# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A switch in a network namespace: the LAN of a site, or the switch that uplinks lead to."""

from __future__ import annotations

import contextlib
import hashlib
import ipaddress
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Union

from .capture import DHCP, Capture
from .dhcp import RA, Lease, Network, dhcpd_text, dhcpd_words, dnsmasq_words, read_leases, spares, used_text
from .faults import both_ways, gateway_rules, vlan_rules
from .proc import LABS, MIRROR, PLAIN, Data, LabError, Result, run, until
from .space import netns_name, netns_path, valid_name

ALL_VLANS = range(1, 4095)
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

    `ipv4`, `ipv6`: the LAN's networks. The gateway has their first address, the controller (where ssh comes from) the
    second, nodes the eleventh and on. `mirror`: serve the packages of all built roots over HTTP from the gateway,
    each suite in a folder of its name.

    `dhcp`: dnsmasq, which gives a NIC its address by its MAC for 10 minutes. With `lease` (seconds, 20 will do) it is
    ISC's dhcpd, which knows clients by their identifier: the first one of a NIC gets the NIC's address, one with the
    same MAC and another identifier another address.

    `ra`: how nodes get IPv6 addresses: "slaac", "dhcpv6" (the managed flag is set, and addresses come by DHCPv6), or
    "off": no advertisements at all. `ra_interval` and `ra_lifetime` are seconds: between advertisements (4 at least),
    and of router and prefix (dnsmasq keeps a prefix 120 s at least).
    """

    def __init__(
        self,
        lab: str,
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
    ) -> None:
        self.lab = lab
        self.name = valid_name(name)
        self.netns = netns_name(lab, name)
        self.folder = LABS / lab / name
        self.networks: list[Network] = [ipaddress.ip_network(text) for text in (ipv4, ipv6) if text]
        self.gateways = [ipaddress.ip_interface(f"{net[1]}/{net.prefixlen}") for net in self.networks]
        self.controllers = [ipaddress.ip_interface(f"{net[2]}/{net.prefixlen}") for net in self.networks]
        self.dhcp = dhcp
        self.lease = lease
        if ra not in RA:
            raise LabError(f"{name}: ra is one of {', '.join(RA)}, not {ra!r}")
        self.ra = (ra, ra_interval, ra_lifetime)
        self.mirror = mirror
        self.mtu = mtu
        self.ports: list[Port] = []
        self._hosts = 10
        self._captures = 0
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self._clients: dict[str, str] = {}
        self._setup: dict[str, dict[str, str]] = {}

    @property
    def gateway(self) -> str:
        """The gateway's first address, without its prefix; "" for a mere switch."""
        return str(self.gateways[0].ip) if self.gateways else ""

    def enter(self) -> list[str]:
        """The words before a command that make it run on the gateway, that is in the switch's namespace."""
        return ["nsenter", f"--net={netns_path(self.lab, self.name)}"]

    def run(self, *argv: str | Path, input: Data = b"", check: bool = True, timeout: float = 60) -> Result:
        """Runs a command on the gateway."""
        return run([*self.enter(), *argv], input=input, check=check, timeout=timeout, env=PLAIN)

    def _ip(self, *lines: str) -> None:
        run(["ip", "-n", self.netns, "-batch", "-"], input="\n".join(lines))

    # --- its start and its services

    def start(self) -> None:
        """Makes the switch and starts its services."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "hosts").mkdir()
        (self.folder / "dhcpd.leases").touch()
        run(["ip", "netns", "add", self.netns])
        # only the gateway itself speaks IPv6 here: ports that announced themselves would be seen in every capture
        self.run("sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/default/disable_ipv6")
        own = derived_mac(f"{self.lab}/{self.name}")  # it would be that of some port, and change with the ports
        self._ip("link set lo up", f"link add br0 address {own} mtu {self.mtu} type bridge mcast_snooping 0")
        if any(gateway.version == 6 for gateway in self.gateways):
            # "forwarding" is how it says of itself that it is a router (RFC 4861, 7.3.3); else hosts drop its routes
            own_settings = "echo 0 > disable_ipv6; echo 0 > accept_dad; echo 1 > forwarding"
            self.run("sh", "-c", f"cd /proc/sys/net/ipv6/conf/br0; {own_settings}")
        self._ip("link set br0 up", *(f"addr add {own} dev br0" for own in [*self.gateways, *self.controllers]))
        if self.dhcp:
            self.dhcp_on()
        if self.mirror:
            self._service("mirror", "/usr/bin/python3", "-I", "-m", "http.server", "80", "--directory", MIRROR)
            until(lambda: self.run("sh", "-c", "ss -Hltn sport = :80").stdout, 5, f"the mirror of {self.name}", 0.02)

    def _service(self, name: str, *argv: str | Path) -> None:
        with open(self.folder / f"{name}.log", "ab") as log:
            words = [*self.enter(), *(str(word) for word in argv)]
            self._started[name] = subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=PLAIN, start_new_session=True
            )

    def _serve(self, name: str, words: list[str]) -> None:
        """Starts a daemon that writes a file with its number when it is ready."""
        pid = self.folder / f"{name}.pid"
        pid.unlink(missing_ok=True)
        self._service(name, *words)
        until(pid.exists, 5, f"{name} of {self.name} (see {self.folder}/{name}.log)", 0.01)

    def _end(self, name: str) -> None:
        process = self._started.pop(name, None)
        if process is not None:
            process.terminate()
            process.wait(timeout=5)

    def dhcp_on(self) -> None:
        """Starts the address services again after `dhcp_off` or `dhcp_other`."""
        self.dhcp_off()
        if self.lease is None:
            self._start_dnsmasq(dhcp=True)
        else:
            self._start_dhcpd(self.networks[0], self.gateway)

    def dhcp_off(self) -> None:
        """No DHCP of IPv4 any more; leases are kept. Routers are still advertised."""
        self._end("dhcpd")
        self._end("dnsmasq")
        if any(net.version == 6 for net in self.networks):
            self._start_dnsmasq(dhcp=False)

    def dhcp_other(self, network: str | None = None) -> None:
        """Another DHCP server takes the place of the LAN's: it knows no lease of that, and gives other addresses.

        With `network` they are of that one (of which the gateway gets the first address), else of the LAN's. Requests
        to renew an old address are left unanswered, so that clients ask anew when it has run out; who comes back with
        an old address of another network is refused (NAK). `dhcp_on` ends it.
        """
        self.dhcp_off()
        (self.folder / "dhcpd.leases").write_text("", encoding="utf-8")
        if network is None:
            self._start_dhcpd(self.networks[0], self.gateway, others=True)
            return
        other = ipaddress.ip_network(network)
        self._ip(f"addr replace {other[1]}/{other.prefixlen} dev br0")
        self._start_dhcpd(other, str(other[1]), others=True)

    def leases(self) -> list[Lease]:
        """The addresses that the DHCP server has given out."""
        name = "leases" if self.lease is None else "dhcpd.leases"
        with contextlib.suppress(FileNotFoundError):
            return read_leases((self.folder / name).read_text(encoding="latin-1"))
        return []

    def _start_dnsmasq(self, dhcp: bool) -> None:
        self._end("dnsmasq")
        ra, interval, lifetime = self.ra
        words = dnsmasq_words(self.folder, self.networks, dhcp=dhcp, ra=ra, interval=interval, lifetime=lifetime)
        self._serve("dnsmasq", words)

    def _start_dhcpd(self, network: Network, gateway: str, others: bool = False) -> None:
        self._end("dhcpd")
        lease = 600 if self.lease is None else self.lease
        text = dhcpd_text(network, gateway, lease, self._clients, others)
        (self.folder / "dhcpd.conf").write_text(text, encoding="utf-8")
        self._serve("dhcpd", dhcpd_words(self.folder))

    # --- its ports

    def plug(self, node: str, nic: Nic) -> Port:
        """Gives a NIC its port, MAC and addresses; the node still makes the link (see `link_commands`)."""
        mac = nic.mac or derived_mac(f"{self.lab}/{node}/{nic.name}")
        addresses: list[Address] = []
        if nic.mode != "none":
            if not self.networks:
                raise LabError(f"{node} {nic.name}: LAN {self.name} has no addresses")
            self._hosts += 1
            addresses = [ipaddress.ip_interface(f"{net[self._hosts]}/{net.prefixlen}") for net in self.networks]
        port = Port(nic, f"p{len(self.ports) + 1}", mac, tuple(addresses))
        self.ports.append(port)
        if nic.mode == "dhcp" and port.ipv4():
            words = [mac, port.ipv4(), *(f"[{own.ip}]" for own in addresses if own.version == 6), node]
            (self.folder / "hosts" / f"{node}-{nic.name}").write_text(",".join(words) + "\n", encoding="utf-8")
            self._clients[mac] = port.ipv4()
            if self.lease is not None:
                with open(self.folder / "dhcpd.leases", "a", encoding="utf-8") as leases:
                    leases.write(used_text(spares(self.networks[0], len(self._clients) - 1)))
                self._start_dhcpd(self.networks[0], self.gateway)
        return port

    def link_commands(self, port: Port, node: str) -> list[str]:
        """What `ip -batch` does in the switch's namespace to lay the cable to a namespace of this machine."""
        mtu = port.nic.mtu
        return [
            f"link add {port.switch_port} mtu {mtu} type veth "
            f"peer name {port.nic.name} address {port.mac} mtu {mtu} netns {node}",
            f"link set {port.switch_port} alias {node}:{port.nic.name} master br0 up",
        ]

    def setup_script(self, port: Port) -> Path:
        """Shell that puts a new cable's port into the state that it is to be in; run anew for each boot of the node."""
        return self.folder / f"{port.switch_port}.sh"

    def _set(self, port: Port, what: str, script: str) -> None:
        """Sets something of a port, now and whenever its cable is laid anew."""
        self._setup.setdefault(port.switch_port, {})[what] = script
        text = "\n".join(self._setup[port.switch_port].values()) + "\n"
        self.setup_script(port).write_text(text, encoding="utf-8")
        if self.run("ip", "link", "show", port.switch_port, check=False).returncode == 0:
            self.run("sh", "-ec", script)

    def carrier(self, port: Port, up: bool) -> None:
        """Pulls the cable of a port, or puts it back."""
        self._set(port, "carrier", f"ip link set {port.switch_port} {'up' if up else 'down'}")

    def drop(self, port: Port, on: bool = True) -> None:
        """The switch drops all that comes from a port and goes to it, while its link stays up; or ends that."""
        self._set(port, "drop", both_ways("podnet_drop", port.switch_port, ["drop" if on else "accept"]))

    def vlan_port(self, port: Port | None, *, untagged: bool = True, tagged: Iterable[int] = ALL_VLANS) -> None:
        """Sets which VLANs a port of the switch carries, None for the gateway's; from the start it is all.

        What is of another VLAN, or without a tag if `untagged` is false, is dropped there in both directions.
        """
        device = port.switch_port if port else "br0"
        script = both_ways("podnet_vlans", device, vlan_rules(untagged, tagged))
        if port is None:
            self.run("sh", "-ec", script)
        else:
            self._set(port, "vlan", script)

    # --- what is seen and what fails

    def capture(self, words: str = DHCP, *, port: Port | None = None) -> Capture:
        """Captures what goes over the LAN or one port, by a filter of tcpdump's; by default DHCP of IPv4.

        with lan.capture() as seen:
            ...
        assert not [message for message in seen.dhcp() if message.type == "RELEASE"]
        """
        self._captures += 1
        device = port.switch_port if port else "br0"
        return Capture(self.enter(), device, words, self.folder / f"capture{self._captures}.pcap")

    def gateway_down(self) -> None:
        """The gateway answers no more, not even ARP, and advertises nothing; the controller's ssh and DHCP go on."""
        own, controllers = [str(address.ip) for address in self.gateways], [str(a.ip) for a in self.controllers]
        self.run("nft", "-f", "-", input=gateway_rules(own, controllers))

    def gateway_up(self) -> None:
        """Ends `gateway_down`."""
        self.run("nft", "delete", "table", "netdev", "podnet_gateway")
