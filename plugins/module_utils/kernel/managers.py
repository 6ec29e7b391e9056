# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who says that it configures a link, by what each network manager keeps in /run. Reads only."""

from __future__ import annotations

import glob
import os

NETWORKD, NETPLAN, NETWORKMANAGER, IFUPDOWN = "networkd", "netplan", "networkmanager", "ifupdown"
_IFUP = ("/usr/sbin/ifup", "/sbin/ifup")


def configured_by(name: str, index: int) -> tuple[str, ...]:
    """The managers that have this link as theirs: none, one, or several that will quarrel."""
    found = []
    link = _read(f"/run/systemd/netif/links/{index}")
    if "NETWORK_FILE=" in link and "ADMIN_STATE=unmanaged" not in link:
        found.append(NETPLAN if "/run/systemd/network/10-netplan-" in link else NETWORKD)
    device = _read(f"/run/NetworkManager/devices/{index}")
    if "managed=true" in device or "connection-uuid=" in device:
        found.append(NETPLAN if "/run/NetworkManager/system-connections/netplan-" in device else NETWORKMANAGER)
    if any(line.startswith(f"{name}=") for line in _read("/run/network/ifstate").splitlines()) or _is_in_interfaces(
        name
    ):
        found.append(IFUPDOWN)
    return tuple(found)


def _is_in_interfaces(name: str) -> bool:
    """Whether ifupdown is installed and brings the link up at boot."""
    if not any(os.path.exists(path) for path in _IFUP):
        return False
    files = ["/etc/network/interfaces", *sorted(glob.glob("/etc/network/interfaces.d/*"))]
    return any(line.split()[:2] == ["iface", name] for path in files for line in _read(path).splitlines())


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""
