# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the NICs of a full node get their addresses: by which network manager, and that one's files."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .lan import Port
from .proc import LabError

OFF = "systemctl -q disable systemd-networkd.service systemd-networkd.socket systemd-network-generator.service\n"
"""Shell that leaves a root without systemd-networkd, as Debian has it before someone enables it."""


@dataclass(frozen=True)
class File:
    """A text of a node's disk."""

    text: str
    mode: int = 0o644


@dataclass(frozen=True)
class Manager:
    """A network manager: its packages, the shell that makes it the one that runs, and its files for some ports."""

    packages: tuple[str, ...]
    settle: str
    files: Callable[[Iterable[Port]], dict[str, File]]


def gateways_of(port: Port) -> dict[int, str]:
    """The gateways of a port's LAN, by the version of their addresses."""
    return {int(gateway.version): str(gateway.ip) for gateway in port.nic.lan.gateways}


def _networkd(ports: Iterable[Port]) -> dict[str, File]:
    files = {}
    for port in ports:
        lines = ["[Match]", f"Name={port.nic.name}", "[Network]"]
        if port.nic.mode == "dhcp":
            lines += ["DHCP=ipv4", "IPv6AcceptRA=yes"]
        else:
            lines += [f"Address={address}" for address in port.addresses]
            lines += [f"Gateway={gateway.ip}" for gateway in port.nic.lan.gateways]
            lines += ["IPv6AcceptRA=no"]
        files[f"etc/systemd/network/10-{port.nic.name}.network"] = File("\n".join(lines) + "\n")
    return files


def _netplan(ports: Iterable[Port]) -> dict[str, File]:
    lines = ["network:", "  version: 2", "  ethernets:"]
    for port in ports:
        lines += [f"    {port.nic.name}:"]
        if port.nic.mode == "dhcp":
            lines += ["      dhcp4: true"]
            continue
        lines += ["      accept-ra: false", "      addresses:"]
        lines += [f'        - "{address}"' for address in port.addresses]
        lines += ["      routes:"]
        for gateway in port.nic.lan.gateways:
            everywhere = "0.0.0.0/0" if gateway.version == 4 else "::/0"
            lines += [f'        - to: "{everywhere}"', f'          via: "{gateway.ip}"']
    return {"etc/netplan/50-cloud-init.yaml": File("\n".join(lines) + "\n", 0o600)} if len(lines) > 3 else {}


def _ifupdown(ports: Iterable[Port]) -> dict[str, File]:
    lines = ["source /etc/network/interfaces.d/*", "", "auto lo", "iface lo inet loopback"]
    for port in ports:
        name, gateways = port.nic.name, gateways_of(port)
        lines += ["", f"auto {name}"]
        for address in port.addresses:
            family = "inet" if address.version == 4 else "inet6"
            if port.nic.mode == "dhcp":
                lines += [f"iface {name} {family} {'dhcp' if address.version == 4 else 'auto'}"]
                continue
            lines += [f"iface {name} {family} static", f"    address {address}"]
            lines += [f"    gateway {gateways[address.version]}"]
            if address.version == 6:
                lines += ["    accept_ra 0"]
    return {"etc/network/interfaces": File("\n".join(lines) + "\n")}


def _networkmanager(ports: Iterable[Port]) -> dict[str, File]:
    files = {"etc/NetworkManager/conf.d/lab.conf": File("[main]\nno-auto-default=*\n")}
    for port in ports:
        name, gateways = port.nic.name, gateways_of(port)
        lines = ["[connection]", f"id={name}", "type=ethernet", f"interface-name={name}"]
        for version, family in ((4, "ipv4"), (6, "ipv6")):
            lines += ["", f"[{family}]"]
            mine = [address for address in port.addresses if address.version == version]
            if not mine:
                lines += ["method=disabled"]
            elif port.nic.mode == "dhcp":
                lines += ["method=auto"]
            else:
                lines += ["method=manual", f"address1={mine[0]},{gateways[version]}"]
        path = f"etc/NetworkManager/system-connections/{name}.nmconnection"
        files[path] = File("\n".join(lines) + "\n", 0o600)
    return files


SCRIPT = """[Unit]
Description=Addresses of the node, by a script
After=systemd-udev-trigger.service
Before=network.target

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -e /usr/local/sbin/site-network

[Install]
WantedBy=multi-user.target
"""


def _none(ports: Iterable[Port]) -> dict[str, File]:
    """No manager: a script of the site, once at boot."""
    lines = []
    for port in ports:
        name = port.nic.name
        if port.nic.mode == "dhcp":
            raise LabError(f"{name}: a NIC without a network manager can only be static")
        lines += [f"ip link set {name} up"]
        lines += [f"ip address replace {address} dev {name}" for address in port.addresses]
        lines += [f"ip route replace default via {gateway.ip} dev {name}" for gateway in port.nic.lan.gateways]
    if not lines:
        return {}
    return {
        "etc/systemd/system/site-network.service": File(SCRIPT),
        "usr/local/sbin/site-network": File("\n".join(lines) + "\n", 0o755),
    }


MANAGERS = {
    "networkd": Manager((), "", _networkd),
    "netplan": Manager(("netplan.io",), "", _netplan),
    "ifupdown": Manager(("ifupdown", "isc-dhcp-client"), OFF, _ifupdown),
    "networkmanager": Manager(("network-manager",), OFF, _networkmanager),
    "none": Manager((), OFF, _none),
}


def manager_of(name: str) -> Manager:
    """The manager of this name. Raises LabError if there is none."""
    try:
        return MANAGERS[name]
    except KeyError:
        raise LabError(f"no network manager {name!r}; there are {', '.join(MANAGERS)}") from None
