# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A NIC that no network manager configures: its addresses were put there by hand, or by a program of the site.

After the move the record of the move brings them back at each boot.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...model.move import FileChange
from .base import Managed, Manager
from .links import link_file, volatile_link_file

if TYPE_CHECKING:
    from ...model.l3 import L3


class Nobody(Manager):
    """No manager: nothing to stop, nothing to start."""

    name = "none"

    def describe(self, nic: str) -> dict[str, Any]:
        """Only that nobody manages it; router advertisements are the kernel's own."""
        return {
            "manager": self.name,
            "device": nic,
            "kind": "static",
            "dhcp4": False,
            "dhcp6": False,
            "ra": False,
            "files": [],
        }

    def files(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """The bridge keeps its MAC address; all else comes from the record of the move."""
        return (link_file(target),)

    def volatile(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """The bridge keeps its MAC address."""
        return () if target == managed["device"] else (volatile_link_file(target),)

    def rescue_files(self, managed: Managed, l3: L3, nic: str, bridge: str = "") -> tuple[FileChange, ...]:
        """None: there is nobody to tell."""
        return ()

    def release(self, managed: Managed, device: str) -> None:
        """Nobody holds it."""

    def take(self, managed: Managed, l3: L3, device: str, timeout: float, wait: bool = True) -> None:
        """Nobody takes it."""

    def settle(self, managed: Managed, source: str, target: str) -> None:
        """Nobody reads anything."""
