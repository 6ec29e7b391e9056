# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations


class ModuleDocFragment:
    """Attributes of the modules, and the options and results that those of the switch share."""

    DOCUMENTATION = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and say what it would change, without changing it.
    support: full
    details:
      - Works on a node on which neither Open vSwitch nor the runtime is installed yet.
        The node then counts as one with an empty switch.
  diff_mode:
    description: Returns what differs in C(diff) mode.
    support: full
  idempotent:
    description: A second run with the same options changes nothing.
    support: full
  platform:
    description: Platforms that the module runs on.
    platforms: linux
    support: full
"""

    INFO = r"""
options: {}
attributes:
  check_mode:
    description: Can run in C(check_mode) and say what it would change, without changing it.
    support: full
    details:
      - It never changes anything.
  diff_mode:
    description: Returns what differs in C(diff) mode.
    support: N/A
    details:
      - It never changes anything.
  idempotent:
    description: A second run with the same options changes nothing.
    support: N/A
    details:
      - It never changes anything, but what it returns may change from run to run.
  platform:
    description: Platforms that the module runs on.
    platforms: linux
    support: full
"""

    MOVING = r"""
options:
  confirm:
    description:
      - Who says that the node can still be reached after a move; otherwise it goes back to what it was.
      - With V(controller), Ansible does, over a new connection. With V(probe), the node does, when everything in
        O(probes) and its gateway answer. With V(both), Ansible does, after these.
      - V(none) is for a connection that does not depend on the network, C(ansible_connection=local).
    type: str
    choices: [controller, probe, both, none]
    default: controller
  confirm_timeout:
    description: Seconds until a move that nobody confirms is taken back, from 10 to 600.
    type: int
    default: 120
  probes:
    description: What must answer after a move, an address (echo) or V(tcp://HOST:PORT).
    type: list
    elements: str
    default: []
  manager:
    description: Who configures the NIC on the node; found out unless told.
    type: str
    choices: [auto, networkd, netplan, ifupdown, networkmanager, none]
    default: auto
attributes:
  async:
    description: Can be run with C(async).
    support: none
    details:
      - It waits for the node itself, over several connections.
"""

    SWITCH = r"""
options:
  ovsdb:
    description:
      - Where the node's Open vSwitch database listens, V(unix:) and the path of its socket.
    type: str
    default: unix:/run/openvswitch/db.sock
  _podnet_archive:
    description:
      - Set by the collection itself, where the runtime's libraries travel with the module. Not for tasks.
    type: path
attributes:
  action_group:
    description: Use C(group/podnet.ovs.ovs) in C(module_defaults) to set the options of all modules of this group.
    support: full
    membership:
      - podnet.ovs.ovs
requirements:
  - Open vSwitch 2.17 or later, which the role P(podnet.ovs.openvswitch#role) installs
  - >-
    pyroute2 and ovsdbapp of the runtime, which the role P(podnet.ovs.runtime#role) installs; where they are missing,
    they travel with the module
"""
