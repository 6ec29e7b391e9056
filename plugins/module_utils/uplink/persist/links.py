# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""udev's configuration of the bridge: it gives a new interface a MAC address of its own choice, unless told not to.

See systemd.link(5), MACAddressPolicy=; the first file that matches, by name, decides.
"""

from __future__ import annotations

from ...model.move import FileChange
from .base import SIGN

PERSISTENT = "/etc/systemd/network"
VOLATILE = "/run/systemd/network"


def link_file(bridge: str) -> FileChange:
    """The persistent file."""
    return FileChange(f"{PERSISTENT}/05-podnet-{bridge}.link", _text(bridge))


def volatile_link_file(bridge: str) -> FileChange:
    """The one that a restart of the node forgets."""
    return FileChange(f"{VOLATILE}/04-podnet-{bridge}.link", _text(bridge))


def _text(bridge: str) -> str:
    why = f"{SIGN}the bridge {bridge} has the MAC address of its NIC, and keeps it."
    return f"{why}\n[Match]\nOriginalName={bridge}\n\n[Link]\nMACAddressPolicy=none\n"
