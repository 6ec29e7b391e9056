# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of a LAN's address services: dnsmasq, which knows NICs by MAC, and ISC's dhcpd, by client."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Union

Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]
RA = ("slaac", "dhcpv6", "off")
SPARE = 3
"""How many addresses dhcpd has for further clients of one NIC."""


NOBODY = "02:00:00:00:00:00"


@dataclass(frozen=True)
class Lease:
    """An address that a server has given out. `client` is the client identifier in hex, "" if none was sent."""

    address: str
    mac: str
    client: str


def dnsmasq_words(
    folder: Path, networks: Sequence[Network], *, dhcp: bool, ra: str, interval: int, lifetime: int
) -> list[str]:
    """The command that serves DHCP for IPv4 (if `dhcp`) and advertises the router of IPv6.

    `interval` and `lifetime` are seconds: between advertisements, and of the router and the prefix.
    """
    words = ["dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--user=root", "--interface=br0"]
    words += ["--bind-interfaces", "--no-resolv", "--no-hosts", "--domain=lab", "--dhcp-authoritative"]
    words += [f"--pid-file={folder}/dnsmasq.pid", f"--dhcp-leasefile={folder}/leases"]
    words += [f"--dhcp-hostsdir={folder}/hosts"]
    for net in networks:
        if net.version == 4 and dhcp:
            words.append(f"--dhcp-range={net[100]},{net[199]},10m")
        elif net.version == 6 and ra != "off":
            first = f"{net[0]},ra-stateless" if ra == "slaac" else f"{net[0x100]},{net[0x1FF]}"
            words += ["--enable-ra", f"--dhcp-range={first},{net.prefixlen},{max(lifetime, 120)}"]
            words.append(f"--ra-param=br0,{interval},{lifetime}")
    return words


def dhcpd_words(folder: Path) -> list[str]:
    """The command of a dhcpd that has its configuration and leases in this folder."""
    files = ["-cf", f"{folder}/dhcpd.conf", "-lf", f"{folder}/dhcpd.leases", "-pf", f"{folder}/dhcpd.pid"]
    return ["dhcpd", "-4", "-d", *files, "br0"]


def dhcpd_text(network: Network, gateway: str, lease: int, nics: Mapping[str, str], others: bool = False) -> str:
    """A configuration of dhcpd that knows clients by their identifier, with leases of so many seconds.

    `nics`: MAC to address. The first client with that MAC gets the address; one with the same MAC and another
    identifier gets one of its spare ones. With `others` only the spare ones are given out, as by another server.
    """
    lines = ["authoritative;", "ping-check false;", "ddns-update-style none;", "one-lease-per-client false;"]
    lines += [f"{kind}-lease-time {lease};" for kind in ("default", "max", "min")]
    pools = []
    guests = ["deny unknown-clients;"] if not nics else []
    for number, (mac, address) in enumerate(nics.items()):
        name = mac.replace(":", "")
        lines.append(f'class "{name}" {{ match if substring(hardware, 1, 6) = {mac}; }}')
        spare = spares(network, number)
        ranges = [f"range {spare[0]} {spare[-1]};"]
        if not others:
            ranges.append(f"range {address};")
        pools.append(f'  pool {{ allow members of "{name}"; {" ".join(ranges)} }}')
        guests.append(f'deny members of "{name}";')
    pools.append(f"  pool {{ {' '.join(guests)} range {network[200]} {network[249]}; }}")
    lines.append(f"subnet {network.network_address} netmask {network.netmask} {{")
    lines += [f"  option routers {gateway};", *pools, "}"]
    return "\n".join(lines) + "\n"


def spares(network: Network, number: int) -> list[str]:
    """The addresses for further clients of the NIC with this number."""
    return [str(network[100 + SPARE * number + index]) for index in range(SPARE)]


def used_text(addresses: Iterable[str]) -> str:
    """Leases by which dhcpd takes these addresses for used long ago: it gives out those first that never were."""
    old = "starts 3 2020/01/01 00:00:00; ends 3 2020/01/01 00:00:01; binding state free"
    return "".join(f"lease {own} {{\n  {old}; hardware ethernet {NOBODY};\n}}\n" for own in addresses)


def read_leases(text: str) -> list[Lease]:
    """The leases in a file of dnsmasq's or of dhcpd's; of several for one address the last."""
    found = {}
    for address, body in re.findall(r"^lease (\S+) \{\n(.*?)^\}", text, re.M | re.S):
        mac = re.search(r"hardware ethernet ([0-9a-f:]+);", body)
        uid = re.search(r'^  uid "(.*)";$', body, re.M)
        if mac and mac.group(1) != NOBODY:
            found[address] = Lease(address, mac.group(1), _unescape(uid.group(1)).hex() if uid else "")
    for line in text.splitlines():
        words = line.split()
        if len(words) == 5 and words[0].isdigit():
            client = "" if words[4] == "*" else words[4].replace(":", "")
            found[words[2]] = Lease(words[2], words[1], client)
    return list(found.values())


def _unescape(text: str) -> bytes:
    r"""The bytes of a string as dhcpd writes it: \ooo in octal, and \ before what else is special."""
    parts = re.findall(r"\\([0-7]{3})|\\(.)|([^\\])", text)
    return b"".join(
        bytes([int(octal, 8)]) if octal else (quoted or plain).encode("latin-1") for octal, quoted, plain in parts
    )
