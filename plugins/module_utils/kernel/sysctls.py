# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Settings of the kernel for one device (Documentation/networking/ip-sysctl.rst), named by their path below
/proc/sys/net with `%s` for the device.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

ROOT = "/proc/sys/net"
FOLDERS = ("ipv4/conf", "ipv4/neigh", "ipv6/conf", "ipv6/neigh")
RP_FILTER = "ipv4/conf/%s/rp_filter"
ARP_IGNORE = "ipv4/conf/%s/arp_ignore"
DISABLE_IPV6 = "ipv6/conf/%s/disable_ipv6"
ACCEPT_RA = "ipv6/conf/%s/accept_ra"
ADDR_GEN_MODE = "ipv6/conf/%s/addr_gen_mode"
USE_TEMPADDR = "ipv6/conf/%s/use_tempaddr"

_OWN = {"ipv6/conf/%s/stable_secret"}
"""Of one device only: addresses come from it together with the device's permanent MAC."""
STRICT, LOOSE = "1", "2"
"""Values of rp_filter: RFC 3704, sections 2.2 and 2.4."""


def read_all(device: str) -> dict[str, str]:
    """All settings of a device that can be read."""
    found = {}
    for folder in FOLDERS:
        try:
            names = sorted(os.listdir(f"{ROOT}/{folder}/{device}"))
        except OSError:
            continue  # a kernel without IPv6, or the device is gone
        for name in names:
            path = f"{folder}/%s/{name}"
            value = read(device, path)
            if value is not None and path not in _OWN:
                found[path] = value
    return found


def read(device: str, path: str) -> str | None:
    """A setting's value, None if the device or the kernel has none."""
    try:
        with open(f"{ROOT}/{path % device}", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return None


def write(device: str, path: str, value: str) -> bool:
    """Sets a value; whether it holds afterwards. Some settings cannot be written, or not to any value."""
    if read(device, path) == value:
        return True
    try:
        with open(f"{ROOT}/{path % device}", "w", encoding="ascii") as file:
            file.write(value)
    except OSError:
        return False
    return True


def copy(settings: Mapping[str, str], device: str, leave: frozenset[str] = frozenset()) -> None:
    """Gives a device these settings, but those in `leave`."""
    # forwarding resets others of its folder, so it comes first
    for path in sorted(settings, key=lambda path: (not path.endswith(("forwarding", "disable_ipv6")), path)):
        if path not in leave:
            write(device, path, settings[path])


def loosen(device: str) -> None:
    """Lets a device take packets whose way back leads over another one. The kernel uses the larger of `all` and it."""
    values = [read("all", RP_FILTER) or "0", read(device, RP_FILTER) or "0"]
    if max(values) == STRICT:
        write(device, RP_FILTER, LOOSE)
