# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes to test on, of three kinds behind one interface.

    with Lab("try") as lab:
        trunk = lab.lan("trunk")
        n1 = lab.light("n1", nics=[Nic("eth1", trunk)])
        n1.ovs.vsctl("add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")

`full` nodes boot systemd, `light` ones are namespaces with an Open vSwitch. `vm` is a machine with a stock kernel, for
tests that run in it; a `machine` is a full node with a stock kernel and a disk.
"""

from __future__ import annotations

from .full import Full
from .lab import Lab, Pair
from .lan import Lan, Nic
from .light import Light
from .machine import Machine
from .node import Node, Pod
from .proc import CommandFailed, LabError, until
from .vm import Vm

__all__ = [
    "CommandFailed",
    "Full",
    "Lab",
    "LabError",
    "Lan",
    "Light",
    "Machine",
    "Nic",
    "Node",
    "Pair",
    "Pod",
    "Vm",
    "until",
]
