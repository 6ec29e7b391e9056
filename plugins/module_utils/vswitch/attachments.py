# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a port of a pod is in the Open vSwitch database."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.ownership import Mark

ACCESS = "access"


@dataclass(frozen=True)
class Attachment:
    """A port of ours. `error` is ovs-vswitchd's word on its interface, empty when all is well."""

    port: str
    bridge: str
    mark: Mark
    tag: int | None = None
    vlan_mode: str = ""
    ofport: int | None = None
    error: str = ""
    uuid: str = ""
