#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: bridge
short_description: Manage an Open vSwitch bridge
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Makes, changes or removes one bridge. What is on it is left to M(podnet.ovs.uplink) and M(podnet.ovs.interface).
    The whole node in one task is M(podnet.ovs.node).
  - An option that is not given leaves what is there.
  - A datapath that the node cannot run is an error, and the bridge is taken back. It is never replaced by another type.
options:
  name:
    description: The bridge's name, at most 15 bytes.
    type: str
    required: true
  state:
    description: Whether the bridge is there.
    type: str
    choices: [present, absent]
    default: present
  datapath_type:
    description:
      - V(system) is the kernel's datapath and needs its module V(openvswitch), V(netdev) the one in userspace.
      - A new bridge gets V(system) unless told.
    type: str
    choices: [system, netdev]
  fail_mode:
    description: What the bridge does without a controller. A new bridge is V(standalone), a learning switch.
    type: str
    choices: [standalone, secure]
  stp:
    description: Whether the bridge takes part in the spanning tree protocol (IEEE 802.1D).
    type: bool
  rstp:
    description: Whether the bridge takes part in the rapid spanning tree protocol. Excludes O(stp).
    type: bool
  mtu:
    description: MTU of the bridge's own interface, in bytes.
    type: int
  mac:
    description: MAC address of the bridge, a unicast one.
    type: str
  vlan_limit:
    description:
      - How many VLAN headers the switch looks at, V(0) for no limit. Q-in-Q needs V(2) or V(0).
      - It is a setting of the whole switch.
    type: int
    choices: [0, 1, 2]
  other_config:
    description: Further keys of the bridge's column C(other_config).
    type: dict
  other_config_mode:
    description: With V(merged), keys that O(other_config) does not name stay; with V(replaced) they are removed.
    type: str
    choices: [merged, replaced]
    default: merged
  external_ids:
    description: Keys of the bridge's column C(external_ids). Those that begin with C(podnet_) are the collection's own.
    type: dict
  external_ids_mode:
    description: With V(merged), keys that O(external_ids) does not name stay; with V(replaced) they are removed.
    type: str
    choices: [merged, replaced]
    default: merged
  force:
    description: With O(state=absent), remove the bridge even if it carries ports that are not of this collection.
    type: bool
    default: false
extends_documentation_fragment:
  - podnet.ovs.attributes
  - podnet.ovs.attributes.switch
seealso:
  - module: podnet.ovs.node
  - module: podnet.ovs.uplink
  - module: podnet.ovs.interface
"""

EXAMPLES = r"""
- name: A bridge for pods on the kernel's datapath
  podnet.ovs.bridge:
    name: br-pod

- name: The same in userspace, with rapid spanning tree and a MAC address that stays
  podnet.ovs.bridge:
    name: br-pod
    datapath_type: netdev
    rstp: true
    mac: 02:00:5e:10:00:01

- name: Nothing but these keys in other_config
  podnet.ovs.bridge:
    name: br-pod
    other_config:
      mac-table-size: 4096
    other_config_mode: replaced

- name: No bridge, whoever uses it
  podnet.ovs.bridge:
    name: br-pod
    state: absent
    force: true
"""

RETURN = r"""
operations:
  description: The steps that were taken or, in check mode, that would be. Empty if there was nothing to do.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: bridge, name: br-pod, action: create, detail: {}}
  contains:
    kind:
      description: What the step touches.
      type: str
      returned: always
      sample: bridge
    name:
      description: The name of what it touches.
      type: str
      returned: always
      sample: br-pod
    action:
      description: V(create), V(change), V(remove), V(up), V(down), V(add) or V(write).
      type: str
      returned: always
      sample: create
    detail:
      description: Columns and values. Maps have V(set) and V(remove), sets V(add) and V(remove).
      type: dict
      returned: always
      sample: {}
before:
  description: What the touched things were, by bridge. Empty if there was nothing to do.
  returned: success
  type: dict
  sample: {}
after:
  description: What they are now or, in check mode, would be.
  returned: success
  type: dict
  sample: {bridges: {br-pod: {datapath_type: system, fail_mode: standalone}}}
hint:
  description: The way out of an error, where one is known.
  returned: failure
  type: str
  sample: load the kernel module (modprobe openvswitch), or say datapath_type netdev for the userspace datapath
"""

from collections.abc import Callable
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import OVSDB_ARGUMENT, given, run
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Bridge
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import State
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import (
    Options,
    declaration_of_bridge,
    drop_bridge,
    put_bridge,
    put_vlan_limit,
)

SETTINGS = (
    "name", "datapath_type", "fail_mode", "stp", "rstp", "mtu", "mac", "vlan_limit", "other_config", "external_ids",
)  # fmt: skip


def argument_spec() -> dict[str, Any]:
    """The module's options."""
    mode = {"type": "str", "choices": ["merged", "replaced"], "default": "merged"}
    return {
        "name": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "datapath_type": {"type": "str", "choices": ["system", "netdev"]},
        "fail_mode": {"type": "str", "choices": ["standalone", "secure"]},
        "stp": {"type": "bool"},
        "rstp": {"type": "bool"},
        "mtu": {"type": "int"},
        "mac": {"type": "str"},
        "vlan_limit": {"type": "int", "choices": [0, 1, 2]},
        "other_config": {"type": "dict"},
        "other_config_mode": mode,
        "external_ids": {"type": "dict"},
        "external_ids_mode": mode,
        "force": {"type": "bool", "default": False},
        **OVSDB_ARGUMENT,
    }


def wish_of(module: AnsibleModule) -> Callable[[State], State]:
    """What the options ask for."""
    name = module.params["name"]
    options = Options(other_config=module.params["other_config_mode"], external_ids=module.params["external_ids_mode"])

    def absent(state: State) -> State:
        return drop_bridge(state, name, module.params["force"])

    def present(state: State) -> State:
        row = state.bridges.get(name)
        kept = declaration_of_bridge(row) if row else {}
        bridge = Bridge.parse({**kept, **given(module, *SETTINGS)}, "")
        return put_vlan_limit(put_bridge(state, bridge, None, options), bridge.vlan_limit)

    return absent if module.params["state"] == "absent" else present


def main() -> None:
    """The module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    run(module, wish_of(module))


if __name__ == "__main__":
    main()
