#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node
short_description: Make a node what is declared, all its bridges, uplinks and interfaces
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Converges the whole node in one plan, the switch in one transaction, and writes C(/etc/podnet/node.json), from which
    the CNI plugins take what pods may use.
  - What an earlier run made and is no longer declared is removed. What others made stays.
  - A NIC that carries addresses or routes is refused, and nothing is changed then, unless there is consent to move it
    with them (C(move) of the uplink). Moves come first, each confirmed over a new connection or taken back.
options:
  bridges:
    description: The bridges in their order; a CNI configuration without a bridge means the first.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The bridge's name, at most 15 bytes.
        type: str
        required: true
      datapath_type:
        description: The kernel's datapath or the one in userspace. Never replaced by the other one.
        type: str
        choices: [system, netdev]
        default: system
      fail_mode:
        description: What the bridge does without a controller.
        type: str
        choices: [standalone, secure]
        default: standalone
      stp:
        description: Whether the bridge takes part in the spanning tree protocol.
        type: bool
        default: false
      rstp:
        description: Whether the bridge takes part in the rapid spanning tree protocol.
        type: bool
        default: false
      mtu:
        description: MTU of the bridge's own interface, in bytes.
        type: int
      mac:
        description: MAC address of the bridge.
        type: str
      vlan_limit:
        description: How many VLAN headers the whole switch looks at, V(0) for no limit.
        type: int
        choices: [0, 1, 2]
      other_config:
        description: Keys of the column C(other_config). Keys that were never declared stay.
        type: dict
        default: {}
      external_ids:
        description: Keys of the column C(external_ids). Keys that were never declared stay.
        type: dict
        default: {}
      uplinks:
        description: NICs and bonds that lead to the site's switch.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The NIC or, with several NICs, the name of the bond's port.
            type: str
            required: true
          nics:
            description: The NICs of a bond, two or more.
            type: list
            elements: str
          bond_mode:
            description: How a bond uses its NICs; V(active-backup) unless told.
            type: str
            choices: [active-backup, balance-slb, balance-tcp]
          lacp:
            description: Whether a bond speaks LACP, and who begins.
            type: str
            choices: ["off", active, passive]
          vlans:
            description: The VLANs that it carries, as a number, a string such as V(100,200-210), or a list of these.
            type: raw
          native_vlan:
            description: The VLAN whose frames travel untagged.
            type: int
          mtu:
            description: MTU of the NICs, in bytes.
            type: int
          move:
            description:
              - Consent to moving a NIC that carries the node's own addresses. They go to the bridge's own interface,
                with routes and all else, over the SSH connection that runs on the NIC.
            type: bool
            default: false
          other_config:
            description: Keys of the port's column C(other_config).
            type: dict
            default: {}
      interfaces:
        description: Interfaces of the node itself.
        type: list
        elements: dict
        default: []
        suboptions:
          name:
            description: The interface's name, at most 15 bytes; the bridge's own name for the bridge's own interface.
            type: str
            required: true
          vlan:
            description: The VLAN; untagged without it.
            type: int
          addresses:
            description: Addresses with prefix length, IPv4 and IPv6.
            type: list
            elements: str
            default: []
          mtu:
            description: MTU in bytes.
            type: int
          mac:
            description: MAC address.
            type: str
  networks:
    description: The pod networks. Each opens what its pods' ports reach, its VLANs on its bridge, to pods.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: The network's name, which its NetworkAttachmentDefinition gets.
        type: str
        required: true
      bridge:
        description: One of O(bridges).
        type: str
        required: true
      vlan:
        description: The network's VLAN.
        type: int
      untagged:
        description: The network's frames are untagged; with O(networks[].trunk), untagged ones as well.
        type: bool
        default: false
      trunk:
        description:
          - The VLANs of a network whose pods tag their frames themselves, as a number, a string such as V(100,200-210),
            or a list of these.
        type: raw
      vlan_mode:
        description: Open vSwitch's mode of the ports. By default V(access), or V(trunk) with O(networks[].trunk).
        type: str
        choices: [access, trunk, native-tagged, native-untagged, dot1q-tunnel]
      cvlans:
        description: The VLANs that pods may send inside a V(dot1q-tunnel), in any form that O(networks[].trunk) takes.
        type: raw
      qinq_ethertype:
        description: The EtherType of the outer tag of a V(dot1q-tunnel); Open vSwitch's own is V(802.1ad).
        type: str
        choices: [802.1ad, 802.1q]
      mtu:
        description: MTU of the pods' interfaces, in bytes.
        type: int
      mac:
        description: MAC address of the pod's interface, for a network with a single pod.
        type: str
      spoof_check:
        description:
          - Pods may send from their own MAC and IP addresses only. All pods of O(networks[].namespaces) that reach one
            of its VLANs are checked, whatever their NetworkAttachmentDefinition says.
        type: bool
        default: false
      port_isolation:
        description: Pods of the network do not reach each other on one bridge, only what is behind its uplinks.
        type: bool
        default: false
      bandwidth:
        description:
          - Limits of each pod, with the keys C(ingressRate) and C(egressRate) in bits per second, and C(ingressBurst)
            and C(egressBurst) in bits. Ingress is towards the pod.
        type: dict
        default: {}
      namespaces:
        description: The namespaces whose pods may attach; all of them without it.
        type: list
        elements: str
        default: []
      ipam:
        description: The configuration of the IPAM plugin.
        type: dict
        default: {}
      cni_version:
        description: The CNI version of the configuration.
        type: str
        choices: ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]
        default: "1.0.0"
      capabilities:
        description: Capabilities of the configuration, by name, V(true) or V(false).
        type: dict
        default: {}
      annotations:
        description: Annotations of the NetworkAttachmentDefinition.
        type: dict
        default: {}
      chain:
        description:
          - Plugins that follow in the list of the NetworkAttachmentDefinition, such as C(podnet-vlan). Each
            has C(type) and its own keys, which are passed on as they are.
        type: list
        elements: dict
        default: []
      subinterfaces:
        description:
          - VLAN interfaces in the pods of a network that is a trunk. Each entry has C(vlan), which is one VLAN or
            several in any form that an uplink takes, and may have C(ipam), C(mtu) and C(protocol).
        type: list
        elements: dict
        default: []
  policy:
    description: What pods may use beyond the VLANs of O(networks).
    type: list
    elements: dict
    default: []
    suboptions:
      bridge:
        description: One of O(bridges). Needed, unless O(policy[].interface) is given.
        type: str
      interface:
        description:
          - An interface of the node itself, in place of a bridge. Pods may have VLAN interfaces of O(policy[].vlans)
            right on it with the CNI plugin C(podnet-vlan).
        type: str
      vlans:
        description: VLANs, in any form that an uplink takes.
        type: raw
      untagged:
        description: Whether pods may send and get untagged frames.
        type: bool
        default: false
      routed:
        description:
          - Whether the node routes for pods by this bridge or interface, with the CNI plugin C(podnet-routed).
        type: bool
        default: false
      spoof_check:
        description: Whether pods that reach one of these VLANs may send from their own MAC and IP addresses only.
        type: bool
        default: false
      namespaces:
        description: For pods of these namespaces; of all of them without it.
        type: list
        elements: str
  configuration_paths:
    description:
      - Files on the node that a configuration in the form of ovs-cni may name as C(configuration_path), and one of
        C(podnet-meta) as C(readinessindicatorfile); folders that one of C(podnet-meta) may name as C(confDir).
    type: list
    elements: str
    default: []
  purge:
    description: Whether what an earlier run made and is not declared any more is removed.
    type: bool
    default: true
  force:
    description: Remove a bridge that is not declared any more even if it carries ports that are not of this collection.
    type: bool
    default: false
  unbridge:
    description:
      - Consent to the way back of NICs that were moved, where they are declared no longer. The NIC gets the node's
        addresses before it leaves the bridge. Without consent that is refused.
      - Needs O(purge).
    type: bool
    default: false
extends_documentation_fragment:
  - podnet.ovs.attributes
  - podnet.ovs.attributes.switch
  - podnet.ovs.attributes.moving
seealso:
  - module: podnet.ovs.node_info
  - module: podnet.ovs.bridge
  - module: podnet.ovs.uplink
  - module: podnet.ovs.interface
"""

EXAMPLES = r"""
- name: One bridge, two pod networks, an address of the node on VLAN 300
  podnet.ovs.node:
    bridges:
      - name: br-pod
        uplinks:
          - name: eth1
            vlans: 100,200,300
        interfaces:
          - name: pods300
            vlan: 300
            addresses: [10.30.0.11/24, "fd00:30::11/64"]
    networks:
      - name: tenant-a
        bridge: br-pod
        vlan: 100
        ipam:
          type: host-local
          ranges: [[{subnet: 10.10.0.0/24}]]
      - name: tenant-b
        bridge: br-pod
        vlan: 200
        namespaces: [team-b]

- name: The node's only NIC under a bridge, over the SSH connection that runs on it
  podnet.ovs.node:
    bridges:
      - name: br-ex
        uplinks:
          - {name: eth0, vlans: "100,200", move: true}
    probes: [10.0.0.1]

- name: Nothing of this collection's is left on the node's switch, and NICs have their addresses back
  podnet.ovs.node:
    bridges: []
    unbridge: true
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

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import MOVE_ARGUMENTS, OVSDB_ARGUMENT, fail, run
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MovePlan, Request
from ansible_collections.podnet.ovs.plugins.module_utils.model.moves import Terms, gone, moves_between, ways_back
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import State
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import (
    Options,
    declared,
    node_state,
    warnings_of,
)

NAME = {"type": "str", "required": True}
TEXT = {"type": "str"}
NUMBER = {"type": "int"}
RAW = {"type": "raw"}
NO = {"type": "bool", "default": False}
KEYS = {"type": "dict", "default": {}}
WORDS = {"type": "list", "elements": "str"}
NO_WORDS = {"type": "list", "elements": "str", "default": []}

UPLINK = {
    "name": NAME,
    "nics": WORDS,
    "bond_mode": {"type": "str", "choices": ["active-backup", "balance-slb", "balance-tcp"]},
    "lacp": {"type": "str", "choices": ["off", "active", "passive"]},
    "vlans": RAW,
    "native_vlan": NUMBER,
    "mtu": NUMBER,
    "move": NO,
    "other_config": KEYS,
}
INTERFACE = {"name": NAME, "vlan": NUMBER, "addresses": NO_WORDS, "mtu": NUMBER, "mac": TEXT}
BRIDGE = {
    "name": NAME,
    "datapath_type": {"type": "str", "choices": ["system", "netdev"], "default": "system"},
    "fail_mode": {"type": "str", "choices": ["standalone", "secure"], "default": "standalone"},
    "stp": NO,
    "rstp": NO,
    "mtu": NUMBER,
    "mac": TEXT,
    "vlan_limit": {"type": "int", "choices": [0, 1, 2]},
    "other_config": KEYS,
    "external_ids": KEYS,
    "uplinks": {"type": "list", "elements": "dict", "default": [], "options": UPLINK},
    "interfaces": {"type": "list", "elements": "dict", "default": [], "options": INTERFACE},
}
NETWORK = {
    "name": NAME,
    "bridge": NAME,
    "vlan": NUMBER,
    "untagged": NO,
    "trunk": RAW,
    "vlan_mode": {"type": "str", "choices": ["access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel"]},
    "cvlans": RAW,
    "qinq_ethertype": {"type": "str", "choices": ["802.1ad", "802.1q"]},
    "mtu": NUMBER,
    "mac": TEXT,
    "spoof_check": NO,
    "port_isolation": NO,
    "bandwidth": KEYS,
    "namespaces": NO_WORDS,
    "ipam": KEYS,
    "cni_version": {
        "type": "str", "choices": ["0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"], "default": "1.0.0",
    },
    "capabilities": KEYS,
    "annotations": KEYS,
    "chain": {"type": "list", "elements": "dict", "default": []},
    "subinterfaces": {"type": "list", "elements": "dict", "default": []},
}  # fmt: skip
KEYS_OF_NODE = ("bridges", "networks", "policy", "configuration_paths", "ovsdb")
RULE = {"bridge": TEXT, "interface": TEXT, "vlans": RAW, "untagged": NO, "spoof_check": NO, "namespaces": WORDS,
        "routed": NO}  # fmt: skip


def argument_spec() -> dict[str, Any]:
    """The module's options."""
    return {
        "bridges": {"type": "list", "elements": "dict", "default": [], "options": BRIDGE},
        "networks": {"type": "list", "elements": "dict", "default": [], "options": NETWORK},
        "policy": {"type": "list", "elements": "dict", "default": [], "options": RULE},
        "configuration_paths": NO_WORDS,
        "purge": {"type": "bool", "default": True},
        "force": {"type": "bool", "default": False},
        "unbridge": {"type": "bool", "default": False},
        **MOVE_ARGUMENTS,
        **OVSDB_ARGUMENT,
    }


def foresee(request: Request) -> MovePlan:
    """What a move will do, from a look at the node."""
    from ansible_collections.podnet.ovs.plugins.module_utils.uplink.move import plan_move

    return plan_move(request)


def main() -> None:
    """The module."""
    module = AnsibleModule(argument_spec=argument_spec(), supports_check_mode=True)
    options = Options(purge=module.params["purge"], force=module.params["force"])
    try:
        node = Node.parse({key: module.params[key] for key in KEYS_OF_NODE})
    except PodnetError as error:
        fail(module, error)

    def wish(state: State) -> State:
        return node_state(state, node, declared(state), options)

    def moves(state: State, terms: Terms) -> tuple[Request, ...]:
        out = gone(state, node) if options.purge and module.params["unbridge"] else ()
        return (*ways_back(state, out, terms), *moves_between(state, node.bridges, terms))

    run(module, wish, warnings_of(node), moves, foresee)


if __name__ == "__main__":
    main()
