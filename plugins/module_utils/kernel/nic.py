# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a NIC is, as sysfs and /proc say: the kinds that no bridge can take, bonds, carrier. Reads only."""

from __future__ import annotations

import array
import fcntl
import os
import re
import socket
import struct
from dataclasses import dataclass

from .offload import SIOCETHTOOL
from .stacked import Stacked, stacked_on

ETHERNET = 1
"""ARPHRD_ETHER (linux/if_arp.h), the type of a link whose frames a bridge can forward."""
TYPES = {32: "InfiniBand", 512: "PPP", 519: "raw IP (WWAN)", 65534: "point-to-point", 772: "loopback", 801: "Wi-Fi"}
ETHTOOL_GFLAGS = 0x25
ETH_FLAG_LRO = 1 << 15
"""linux/ethtool.h"""
_NET = "/sys/class/net"
_SLAVE = re.compile(r"^Slave Interface: ", re.MULTILINE)
_PARTNER = re.compile(r"details partner lacp pdu:.*?port state: (\d+)", re.DOTALL)
_SETTLED = 0x10 | 0x20
"""IEEE 802.1AX, LACPDU state: collecting and distributing."""


@dataclass(frozen=True)
class Bond:
    """A bond of the kernel. `settled`: with LACP, whether a partner takes its frames; `arp`: ARP monitoring."""

    mode: str
    fail_over_mac: str = "none"
    arp: bool = False
    settled: bool = True


@dataclass(frozen=True)
class Nic:
    """A link of this namespace. `type`: of hardware (ARPHRD); `devtype`: what udev calls it ("wlan", "wwan", …)."""

    name: str
    index: int
    type: int = ETHERNET
    devtype: str = ""
    wireless: bool = False
    carrier: bool = True
    bond: Bond | None = None
    stacked: tuple[Stacked, ...] = ()
    functions: int = 0
    """Virtual functions (SR-IOV) that are switched on."""
    lro: bool = False


def read_nic(name: str) -> Nic | None:
    """The link, None if there is none of that name. Takes milliseconds."""
    index = _number(name, "ifindex")
    if not index:
        return None
    events = dict(line.partition("=")[::2] for line in _read(f"{_NET}/{name}/uevent").splitlines())
    return Nic(
        name=name,
        index=index,
        type=_number(name, "type") or 0,
        devtype=events.get("DEVTYPE", ""),
        wireless=os.path.exists(f"{_NET}/{name}/wireless") or os.path.exists(f"{_NET}/{name}/phy80211"),
        carrier=_read(f"{_NET}/{name}/carrier") == "1",
        bond=_bond(name),
        stacked=stacked_on(index),
        functions=_number(name, "device/sriov_numvfs") or 0,
        lro=bool(_flags(name) & ETH_FLAG_LRO),
    )


def _bond(name: str) -> Bond | None:
    mode = _read(f"{_NET}/{name}/bonding/mode").split(" ")[0]
    if not mode:
        return None
    lacp = mode == "802.3ad"
    return Bond(
        mode,
        _read(f"{_NET}/{name}/bonding/fail_over_mac").split(" ")[0] or "none",
        _read(f"{_NET}/{name}/bonding/arp_interval") not in ("", "0"),
        not lacp or lacp_settled(_read(f"/proc/net/bonding/{name}")),
    )


def lacp_settled(text: str) -> bool:
    """Whether /proc/net/bonding/NAME shows a slave whose partner collects and distributes."""
    states = [int(found.group(1)) for part in _SLAVE.split(text)[1:] for found in _PARTNER.finditer(part)]
    return any(state & _SETTLED == _SETTLED for state in states)


def _flags(name: str) -> int:
    value = array.array("I", [ETHTOOL_GFLAGS, 0])
    address, _length = value.buffer_info()
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, SIOCETHTOOL, struct.pack("16sP16x", os.fsencode(name), address))
    except OSError:
        return 0
    return value[1]


def _number(name: str, file: str) -> int | None:
    text = _read(f"{_NET}/{name}/{file}")
    return int(text) if text.isdigit() else None


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
