# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses as the kernel has them, for what a manager must know of them."""

from __future__ import annotations

import ipaddress

from ...kernel.files import read_text
from ...kernel.links import observe_links

_TEMPORARY, _TENTATIVE, _PERMANENT = 0x01, 0x40, 0x80
"""linux/if_addr.h"""
_HALF = (1 << 64) - 1


def addresses(device: str) -> frozenset[str]:
    """Every address of a device with its prefix length, but for IPv6 link-local ones; none without the device."""
    link = observe_links().get(device)
    return frozenset(link.addresses | set(link.dynamic)) if link else frozenset()


def addresses_of(device: str, address: str) -> list[str]:
    """The address of a device with its prefix length, as often as it is there."""
    return sorted(cidr for cidr in addresses(device) if cidr.split("/")[0] == address)


def dynamic(device: str) -> frozenset[str]:
    """Those that end unless somebody renews them."""
    link = observe_links().get(device)
    return frozenset(link.dynamic) if link else frozenset()


def mac(device: str) -> str:
    """The MAC address of a device; "" without one."""
    return (read_text(f"/sys/class/net/{device}/address") or "").strip()


def interface_ids(device: str) -> list[str]:
    """The lower halves of the addresses that a device has made itself of a router's prefixes (RFC 4862, 5.5.3).

    As `::1:2:3:4`, without those of temporary addresses (RFC 8981), which change anyway.
    """
    found: dict[str, None] = {}
    for line in (read_text("/proc/net/if_inet6") or "").splitlines():
        text, _index, length, scope, flags, name = line.split()
        short_lived = not int(flags, 16) & (_TEMPORARY | _TENTATIVE | _PERMANENT)
        if name == device and int(length, 16) == 64 and int(scope, 16) == 0 and short_lived:
            found[str(ipaddress.IPv6Address(int(text, 16) & _HALF))] = None
    return list(found)
