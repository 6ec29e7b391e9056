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
