#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: uplink
short_description: Manage an uplink of an Open vSwitch bridge, a NIC or a bond
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Makes a NIC, or several as an Open vSwitch bond, a port of a bridge with the VLANs that it carries, or ends that.
  - An option that is not given leaves what is there.
  - A NIC that carries addresses or routes is refused unless there is consent to O(move) it, and so is one that other
    interfaces stand on or that belongs to another bridge or bond. IPv6 link-local addresses do not count.
options:
  name:
    description: The NIC or, with O(nics), the name of the bond's port.
    type: str
    required: true
  bridge:
    description: The bridge. It must be there; M(podnet.ovs.bridge) makes it.
    type: str
    required: true
  state:
    description: Whether the uplink is there. A NIC that is taken off a bridge stays up.
    type: str
    choices: [present, absent]
    default: present
  nics:
    description: The NICs of a bond, two or more.
    type: list
    elements: str
  bond_mode:
    description:
      - How a bond uses its NICs. A new bond is V(active-backup) unless told.
      - V(balance-tcp) needs O(lacp) with the switch at the other end.
    type: str
    choices: [active-backup, balance-slb, balance-tcp]
  lacp:
    description: Whether a bond speaks LACP (IEEE 802.1AX), and who begins.
    type: str
    choices: ["off", active, passive]
  vlans:
    description:
      - The VLANs that the uplink carries, as a number, a string such as V(100,200-210), or a list of these.
      - A new uplink without it carries all VLANs, and untagged frames too.
    type: raw
  vlans_mode:
    description:
      - How O(vlans) meets what the uplink carries already. With V(merged) they are added, with V(replaced) the uplink
        carries them and no others, with V(deleted) it carries them no longer.
      - Only the difference is written, in one transaction, so that the other VLANs lose no frame.
    type: str
    choices: [merged, replaced, deleted]
    default: merged
  native_vlan:
    description: The VLAN whose frames travel untagged.
    type: int
  mtu:
    description: MTU of the NICs, in bytes.
    type: int
  other_config:
    description: Keys of the port's column C(other_config). Other keys stay.
    type: dict
  move:
    description:
      - Consent to move a NIC that carries addresses of the node. It then becomes a port of the bridge, and the bridge's
        own interface gets its addresses, routes and all else, over the SSH connection that runs on it.
      - Without consent such a NIC is refused. A NIC that carries none is not affected.
      - With O(state=absent), consent to the way back, the NIC gets the addresses before it leaves the bridge.
      - The runtime must be on the node before, for what undoes a move must survive a reboot. The role
        P(podnet.ovs.runtime#role) installs it.
    type: bool
    default: false
extends_documentation_fragment:
  - podnet.ovs.attributes
  - podnet.ovs.attributes.switch
  - podnet.ovs.attributes.moving
seealso:
  - module: podnet.ovs.bridge
  - module: podnet.ovs.node
"""

EXAMPLES = r"""
- name: The second NIC carries VLANs 100 and 200 to the pods
  podnet.ovs.uplink:
    name: eth1
    bridge: br-pod
    vlans: 100,200

- name: One VLAN more
  podnet.ovs.uplink:
    name: eth1
    bridge: br-pod
    vlans: 300

- name: VLANs 200 to 210 no longer
  podnet.ovs.uplink:
    name: eth1
    bridge: br-pod
    vlans: 200-210
    vlans_mode: deleted

- name: Two NICs as a bond with LACP, for these VLANs and no others
  podnet.ovs.uplink:
    name: bond0
    bridge: br-pod
    nics: [eth1, eth2]
    bond_mode: balance-tcp
    lacp: active
    vlans: [100, 200-210]
    vlans_mode: replaced

- name: The node's only NIC, with the node's own addresses, over the SSH connection that runs on it
  podnet.ovs.uplink:
    name: eth0
    bridge: br-ex
    vlans: 100,200
    move: true
    probes: [10.0.0.1, "tcp://10.0.0.5:6443"]

- name: And out again, just as safely
  podnet.ovs.uplink:
    name: eth0
    bridge: br-ex
    state: absent
    move: true

- name: The NIC is free again
  podnet.ovs.uplink:
    name: eth1
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
    - {kind: uplink, name: eth1, action: create, detail: {}}
  contains:
    kind:
      description: What the step touches.
      type: str
      returned: always
      sample: uplink
    name:
      description: The name of what it touches.
      type: str
      returned: always
      sample: eth1
    action:
      description: V(create), V(change), V(remove), V(up), V(down), V(add), V(write), V(move) or V(unbridge).
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
moves:
  description: The moves of NICs that were carried out or tried.
  returned: when the node's addresses had to move
  type: list
  elements: dict
  sample:
    - {id: 6d0e6a4c1b2f, direction: move, nic: eth0, bridge: br-ex, result: committed, reason: ""}
  contains:
    id:
      description: The move's name in the node's journal, for C(podnet uplink status).
      type: str
      returned: always
      sample: 6d0e6a4c1b2f
    direction:
      description: V(move), under the bridge, or V(unbridge), out of it.
      type: str
      returned: always
      sample: move
    nic:
      description: The NIC.
      type: str
      returned: always
      sample: eth0
    bridge:
      description: The bridge.
      type: str
      returned: always
      sample: br-ex
    result:
      description:
        - V(committed), the node is as wanted. V(rolled_back), it is as before. V(refused), nothing was touched.
        - V(unreachable), it did not answer in time, even after the deadline for its way back. V(diverged), it is
          neither as before nor as wanted, and needs a person.
      type: str
      returned: always
      sample: committed
    reason:
      description: Why it was not committed.
      type: str
      returned: always
      sample: the gateway 10.0.0.1 does not answer
hint:
  description: The way out of an error, where one is known.
  returned: failure
  type: str
  sample: load the kernel module (modprobe openvswitch), or say datapath_type netdev for the userspace datapath
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import MOVE_ARGUMENTS, OVSDB_ARGUMENT, given, run
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MovePlan, Request
from ansible_collections.podnet.ovs.plugins.module_utils.model.moves import (
    Terms,
    declaration,
    moves_between,
    ways_back,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import SYSTEM_INTERFACE, State
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import (
    DELETED,
    declaration_of_uplink,
    drop_port,
    merge_vlans,
    put_uplink,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet

SETTINGS = ("name", "nics", "bond_mode", "lacp", "vlans", "native_vlan", "mtu", "move", "other_config")


def argument_spec() -> dict[str, Any]:
    """The module's options."""
    return {
        "name": {"type": "str", "required": True},
        "bridge": {"type": "str", "required": True},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "nics": {"type": "list", "elements": "str"},
        "bond_mode": {"type": "str", "choices": ["active-backup", "balance-slb", "balance-tcp"]},
        "lacp": {"type": "str", "choices": ["off", "active", "passive"]},
        "vlans": {"type": "raw"},
        "vlans_mode": {"type": "str", "choices": ["merged", "replaced", "deleted"], "default": "merged"},
        "native_vlan": {"type": "int"},
        "mtu": {"type": "int"},
        "other_config": {"type": "dict"},
        "move": {"type": "bool", "default": False},
        **MOVE_ARGUMENTS,
        **OVSDB_ARGUMENT,
    }


def wish_of(module: AnsibleModule) -> Callable[[State], State]:
    """What the options ask for."""
    name, bridge = module.params["name"], module.params["bridge"]

    def absent(state: State) -> State:
        return drop_port(state, bridge, name, SYSTEM_INTERFACE)

    def present(state: State) -> State:
        return put_uplink(state, bridge, uplink_of(module, state))

    return absent if module.params["state"] == "absent" else present


def uplink_of(module: AnsibleModule, state: State) -> Uplink:
    """The uplink as the options and what is there make it. Raises ConfigError, RefusedError."""
    name, bridge = module.params["name"], module.params["bridge"]
    row = state.bridges.get(bridge)
    port = row.ports.get(name) if row else None
    wanted = {**(declaration_of_uplink(port) if port else {}), **given(module, *SETTINGS)}
    if module.params["vlans"] is not None:
        if port is None and module.params["vlans_mode"] == DELETED:
            raise ConfigError("vlans_mode", f"there is no uplink {name} on {bridge} to take VLANs from")
        vlans = VlanSet.parse(module.params["vlans"])
        wanted["vlans"] = merge_vlans(port, vlans, module.params["vlans_mode"])
    return Uplink.parse(wanted, "")


def moves_of(module: AnsibleModule) -> Callable[[State, Terms], tuple[Request, ...]]:
    """The moves that the options ask for and consent to."""
    name, bridge = module.params["name"], module.params["bridge"]

    def wanted(state: State, terms: Terms) -> tuple[Request, ...]:
        if not module.params["move"] or bridge not in state.bridges:
            return ()
        if module.params["state"] == "absent":
            moved = any((item.nic, item.bridge) == (name, bridge) for item in state.moved)
            return ways_back(state, [name], terms) if moved else ()
        declared = replace(declaration(state, bridge, name), uplinks=(uplink_of(module, state),))
        return moves_between(state, [declared], terms)

    return wanted


def foresee(request: Request) -> MovePlan:
    """What a move will do, from a look at the node."""
    from ansible_collections.podnet.ovs.plugins.module_utils.uplink.move import plan_move

    return plan_move(request)


def main() -> None:
    """The module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    run(module, wish_of(module), wanted_moves=moves_of(module), foresee=foresee)


if __name__ == "__main__":
    main()
