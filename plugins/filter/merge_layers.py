# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: merge_layers
short_description: Merge the layers of podnet variables
version_added: 0.1.0
author:
  - The podnet.ovs authors
description:
  - Merges what fleet, site and host say about a node's bridges, pod networks and policy, and checks the result.
  - Lists whose entries have a C(name) merge by it, at every depth; other lists replace; maps merge by key.
  - C(state=absent) in an entry removes what a lower layer gave under that name.
options:
  _input:
    description:
      - The layers, lowest first. Each has the keys C(bridges), C(networks) and C(policy), or some of them.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Show what this node should be
  ansible.builtin.debug:
    msg: "{{ [{'bridges': podnet_bridges}, {'bridges': podnet_host_bridges}] | podnet.ovs.merge_layers }}"
"""

RETURN = r"""
_value:
  description: The merged and checked state.
  type: dict
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model import layers as model_layers


def merge_layers(layers: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The filter. Raises AnsibleFilterError that names the path of a bad value."""
    try:
        return model_layers.merge_layers(*layers)
    except PodnetError as error:
        raise AnsibleFilterError(f"podnet variables: {error}") from None  # Ansible would say its cause again


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"merge_layers": merge_layers}
