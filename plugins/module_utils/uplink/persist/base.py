# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every network manager of a node can do for the move of a NIC: one class per manager, all of this shape.

What a manager finds out about a NIC goes as plain JSON into the journal (`managed`), so that whatever is done later,
also after a crash, needs nothing but that and the node.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...model.move import FileChange

if TYPE_CHECKING:
    from ...model.l3 import L3

Managed = Mapping[str, Any]
"""How a NIC is configured: at least `manager` and `device` (the NIC), `kind` (words), and `dhcp4`, `dhcp6`, `ra`."""

SIGN = "# Written by podnet.ovs: "
"""How every file begins that is written here."""


class Manager(ABC):
    """Who gives a NIC its addresses, and how that is handed to a bridge and back.

    The order of a move: `describe`, the files of `volatile` written (best before the bridge is made), `release` of the
    source, the cutover, `take` of the target. After its confirmation: the files of `files` written, those of
    `volatile` removed, `settle`. Back, at any time before: the files of `volatile` removed, addresses and routes put
    back, then `take` of the source with `wait=False`. Each of them may be repeated.
    """

    name: str

    @abstractmethod
    def describe(self, nic: str) -> dict[str, Any]:
        """How a NIC is configured now. Raises RefusedError for what could not be kept."""

    @abstractmethod
    def files(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """The persistent files after a move from the NIC `source` to the bridge `target`. Pure."""

    @abstractmethod
    def volatile(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """Files in /run with which the manager leaves `source` alone and configures `target`, in either direction."""

    @abstractmethod
    def rescue_files(self, managed: Managed, l3: L3, nic: str, bridge: str = "") -> tuple[FileChange, ...]:
        """Files in /run with which the NIC is configured and the bridge is not, although the persistent ones say so."""

    @abstractmethod
    def release(self, managed: Managed, device: str) -> None:
        """The manager lets go of a device: its addresses stay, its DHCP lease is not released. Raises PodnetError."""

    @abstractmethod
    def take(self, managed: Managed, l3: L3, device: str, timeout: float, wait: bool = True) -> None:
        """The manager configures a device that carries the addresses already.

        With `wait` it returns when the device has the same addresses from the manager, within `timeout` seconds; raises
        PodnetError when DHCP answers with another one, which is then taken off again, or not at all.
        """

    @abstractmethod
    def settle(self, managed: Managed, source: str, target: str) -> None:
        """The manager reads its files anew, once the persistent ones are in place and the volatile ones are gone."""
