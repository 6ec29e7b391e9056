#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: interface
short_description: Manage an interface of the node itself on a VLAN of a bridge
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Gives the node an interface on a VLAN of an Open vSwitch bridge, with addresses, or takes it away.
  - An option that is not given leaves what is there.
options:
  name:
    description:
      - The interface's name, at most 15 bytes.
      - The name of the bridge itself means the bridge's own interface, which comes and goes with the bridge.
    type: str
    required: true
  bridge:
    description: The bridge. It must be there; M(podnet.ovs.bridge) makes it.
    type: str
    required: true
  state:
    description: Whether the interface is there.
    type: str
    choices: [present, absent]
    default: present
  vlan:
    description: The VLAN; V(0) is untagged, which a new interface is unless told.
    type: int
  addresses:
    description:
      - All of the interface's addresses with prefix length, IPv4 and IPv6.
      - Those that an earlier run gave and that are not listed are removed. Those of others stay.
    type: list
    elements: str
  mtu:
    description: MTU in bytes.
    type: int
  mac:
    description: MAC address, a unicast one.
    type: str
extends_documentation_fragment:
  - podnet.ovs.attributes
  - podnet.ovs.attributes.switch
seealso:
  - module: podnet.ovs.bridge
  - module: podnet.ovs.node
"""

EXAMPLES = r"""
- name: The node has an address on VLAN 300, for both families
  podnet.ovs.interface:
    name: pods300
    bridge: br-pod
    vlan: 300
    addresses: [10.30.0.11/24, "fd00:30::11/64"]

- name: It has jumbo frames
  podnet.ovs.interface:
    name: pods300
    bridge: br-pod
    mtu: 9000

- name: It has no addresses of ours
  podnet.ovs.interface:
    name: pods300
    bridge: br-pod
    addresses: []

- name: It is gone
  podnet.ovs.interface:
    name: pods300
    bridge: br-pod
    state: absent
"""

RETURN = r"""
operations:
  description: The steps that were taken or, in check mode, that would be. Empty if there was nothing to do.
  returned: success
  type: list
  elements: dict
  sample:
    - {kind: interface, name: pods300, action: create, detail: {}}
  contains:
    kind:
      description: What the step touches.
      type: str
      returned: always
      sample: interface
    name:
      description: The name of what it touches.
      type: str
      returned: always
      sample: pods300
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
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Interface
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import INTERNAL, State
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import drop_port, put_interface


def argument_spec() -> dict[str, Any]:
    """The module's options."""
    return {
        "name": {"type": "str", "required": True},
        "bridge": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "vlan": {"type": "int"},
        "addresses": {"type": "list", "elements": "str"},
        "mtu": {"type": "int"},
        "mac": {"type": "str"},
        **OVSDB_ARGUMENT,
    }


def wish_of(module: AnsibleModule) -> Callable[[State], State]:
    """What the options ask for."""
    name, bridge = module.params["name"], module.params["bridge"]

    def absent(state: State) -> State:
        return drop_port(state, bridge, name, INTERNAL)

    def present(state: State) -> State:
        row = state.bridges.get(bridge)
        port = row.ports.get(name) if row else None
        wanted = given(module, "name", "vlan", "addresses", "mtu", "mac")
        if port and "vlan" not in wanted:
            wanted["vlan"] = port.tag
        return put_interface(state, bridge, Interface.parse({**wanted, "vlan": wanted.get("vlan") or None}, ""))

    return absent if module.params["state"] == "absent" else present


def main() -> None:
    """The module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    run(module, wish_of(module))


if __name__ == "__main__":
    main()
