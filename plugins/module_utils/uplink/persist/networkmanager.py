# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NetworkManager: only an OVS plugin lets it configure a bridge of Open vSwitch, and Debian builds none."""

from __future__ import annotations

from ...errors import RefusedError
from ...kernel.files import read_text
from .networkd_state import ifindex
from .processes import processes


def claims(nic: str) -> bool:
    """Whether NetworkManager configures the NIC."""
    if not processes("NetworkManager"):
        return False
    text = read_text(f"/run/NetworkManager/devices/{ifindex(nic)}") or ""
    lines = {line.strip() for line in text.splitlines()}
    return bool(lines & {"managed=1", "managed=true", "managed=full"}) or "connection-uuid=" in text


def refuse(nic: str) -> RefusedError:
    """Why it is refused, and the way out."""
    return RefusedError(
        f"NetworkManager configures {nic}, and cannot be told to configure a bridge of Open vSwitch in its place",
        f"give {nic} to systemd-networkd, netplan or ifupdown first, at the console, and set it unmanaged in "
        "NetworkManager",
    )
