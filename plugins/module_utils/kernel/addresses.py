# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses of a link that the kernel makes up and drops again. Reads only."""

from __future__ import annotations

import ipaddress

IFA_F_TEMPORARY = 0x01
"""linux/if_addr.h; of IPv6 addresses"""


def temporary(name: str) -> frozenset[str]:
    """The temporary IPv6 addresses of a link (RFC 8981), without prefix length."""
    try:
        with open("/proc/net/if_inet6", encoding="ascii") as file:
            return parse_if_inet6(file.read(), name)
    except OSError:
        return frozenset()


def parse_if_inet6(text: str, name: str) -> frozenset[str]:
    """/proc/net/if_inet6: address, index, prefix length, scope and flags in hexadecimal, name."""
    rows = [line.split() for line in text.splitlines()]
    return frozenset(
        str(ipaddress.IPv6Address(bytes.fromhex(row[0])))
        for row in rows
        if len(row) == 6 and row[5] == name and int(row[4], 16) & IFA_F_TEMPORARY
    )
