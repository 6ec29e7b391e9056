# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a port of a pod is in the Open vSwitch database."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.ownership import Mark

ACCESS = "access"
TRUNK = "trunk"
TUNNEL = "dot1q-tunnel"


@dataclass(frozen=True)
class Attachment:
    """A port of ours. `error` is ovs-vswitchd's word on its interface, empty when all is well.

    `vlan_mode`, `tag`, `trunks`, `cvlans` and `protected` are the columns of ovs-vswitchd.conf.db(5), table Port: none
    of `trunks` or `cvlans` means all. `ingress_rate` and `egress_rate` are bits per second towards the pod and from it,
    as the CNI capability `bandwidth` has them, 0 without a limit. `ethertype`: of a tunnel's outer tag, empty: the
    switch's own.
    """

    port: str
    bridge: str
    mark: Mark
    tag: int | None = None
    vlan_mode: str = ""
    ofport: int | None = None
    error: str = ""
    uuid: str = ""
    trunks: tuple[int, ...] = ()
    cvlans: tuple[int, ...] = ()
    protected: bool = False
    ingress_rate: int = 0
    egress_rate: int = 0
    ethertype: str = ""

    @property
    def spoof_check(self) -> bool:
        """Whether flows on the bridge hold the pod to its addresses."""
        return self.mark.spoof_check

    @property
    def mode(self) -> str:
        """The mode in force: without `vlan_mode` a port with a tag is an access port, and one without a trunk."""
        return self.vlan_mode or (TRUNK if self.tag is None else ACCESS)
