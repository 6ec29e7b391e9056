#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: What a node's switch is, and what is wrong with it
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Reads bridges, uplinks, interfaces and the attachments of pods from the node's Open vSwitch and kernel, and compares
    them with what C(/etc/podnet/node.json) declares.
  - Says which NICs were moved under bridges, and which of them were rescued because the bridge failed.
  - A node without Open vSwitch is no error; it has a finding that says so.
extends_documentation_fragment:
  - podnet.ovs.attributes.info
  - podnet.ovs.attributes.switch
seealso:
  - module: podnet.ovs.node
"""

EXAMPLES = r"""
- name: What is on this node
  podnet.ovs.node_info:
  register: found

- name: Nothing is wrong with it
  ansible.builtin.assert:
    that: found.findings | length == 0
"""

RETURN = r"""
running:
  description: Whether the node's Open vSwitch database answers.
  returned: success
  type: bool
  sample: true
versions:
  description: The versions of Open vSwitch, and of the schema of node.json and of the owner marks.
  returned: success
  type: dict
  sample: {openvswitch: 3.1.0, node_json: 1, owner_mark: 1}
bridges:
  description: All bridges, by name.
  returned: success
  type: dict
  sample:
    br-pod: {datapath_type: system, fail_mode: standalone, stp: false, rstp: false, owned: true, ports: [br-pod, eth1]}
uplinks:
  description: Ports of bridges that are NICs or bonds and no attachments, by name.
  returned: success
  type: dict
  sample:
    eth1: {bridge: br-pod, nics: {eth1: up}, vlans: "100,200", native_vlan: null, owned: true}
interfaces:
  description: The node's own interfaces on bridges, by name.
  returned: success
  type: dict
  sample:
    pods300: {bridge: br-pod, vlan: 300, addresses: [10.30.0.11/24], mtu: 1500, up: true, owned: true}
attachments:
  description: The attachments of pods.
  returned: success
  type: list
  elements: dict
  sample:
    - port: pn0123456789ab
      bridge: br-pod
      vlan: 100
      network: tenant-a
      container_id: 5f1e6a0c9c4b
      ifname: net1
      pod: default/web-0
      addresses: [10.10.0.5/24]
moved:
  description: The NICs whose addresses a bridge carries since a move, by name.
  returned: success
  type: dict
  sample: {eth0: {bridge: br-ex, rescued: ""}}
  contains:
    bridge:
      description: The bridge.
      type: str
      returned: always
      sample: br-ex
    rescued:
      description: Why the NIC has the addresses back for now. Empty if the bridge carries them.
      type: str
      returned: always
      sample: bridge br-ex did not come up in 30 seconds
moves:
  description: The moves that the node's journal knows, the newest last.
  returned: success
  type: list
  elements: dict
  sample:
    - {id: 6d0e6a4c1b2f, direction: move, nic: eth0, bridge: br-ex, state: committed, reason: "", open: false}
declared:
  description: The names of what node.json declares. Empty without the file.
  returned: success
  type: dict
  sample: {bridges: [br-pod], networks: [tenant-a]}
findings:
  description: What is wrong, in sentences. Empty if nothing is.
  returned: success
  type: list
  elements: str
  sample: [eth1 on bridge br-pod is down]
hint:
  description: The way out of an error, where one is known.
  returned: failure
  type: str
  sample: run as root (become true)
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import OVSDB_ARGUMENT, fail, look
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.facts import facts_of
from ansible_collections.podnet.ovs.plugins.module_utils.model.findings import findings_of
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import declared
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.journal import all_moves


def main() -> None:
    """The module."""
    options: dict[str, Any] = dict(OVSDB_ARGUMENT)
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    state, trouble = look(module)
    try:
        node = declared(state)
        found = findings_of(state, None if trouble else node)
        facts = facts_of(state, node)
    except PodnetError as error:
        fail(module, error)
    moves = moves_of_journal()
    under_way = [
        f"a move is not over: {move['id']} of {move['nic']}: {move['state']}" for move in moves if move["open"]
    ]
    module.exit_json(changed=False, running=not trouble, findings=[*trouble, *found, *under_way], moves=moves, **facts)


def moves_of_journal() -> list[dict[str, Any]]:
    """The moves that the node has a journal of."""
    return [
        {
            "id": journal.id,
            "direction": journal.request.direction,
            "nic": journal.request.nic,
            "bridge": journal.request.bridge.name,
            "state": journal.state,
            "reason": journal.reason,
            "open": journal.open,
        }
        for journal in all_moves()
    ]


if __name__ == "__main__":
    main()
