# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""netplan with systemd-networkd: what netplan has made of its YAML for the NIC is moved, and the YAML stays as it is.

netplan writes networkd's files to /run at each boot and at each `netplan apply`; those of the move sort before them,
so that all three orders of events end alike. The YAML speaks for the NIC again as soon as it is out of the bridge.
"""

from __future__ import annotations

import os
from typing import Any

from .networkd import Networkd

GENERATED = "/run/systemd/network/10-netplan-"
_FOLDERS = ("/etc/netplan", "/run/netplan", "/usr/lib/netplan")


class Netplan(Networkd):
    """netplan, whose files networkd reads."""

    name = "netplan"

    def describe(self, nic: str) -> dict[str, Any]:
        """As networkd's, with netplan's own files named."""
        found = super().describe(nic)
        yaml = [
            f"{folder}/{name}"
            for folder in _FOLDERS
            if os.path.isdir(folder)
            for name in sorted(os.listdir(folder))
            if name.endswith(".yaml")
        ]
        return {**found, "manager": self.name, "files": [*yaml, *found["files"]]}
