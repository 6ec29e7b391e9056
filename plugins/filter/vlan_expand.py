# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: vlan_expand
short_description: Give the single ids of a VLAN set
version_added: 0.1.0
author:
  - The podnet.ovs authors
description:
  - Takes every form in which this collection reads VLAN sets.
options:
  _input:
    description:
      - An id, a text like C(10,20-30), or a list of ids, texts, C(id) entries and C(minID)/C(maxID) entries.
    type: raw
    required: true
"""

EXAMPLES = r"""
- name: Print [10, 20, 21, 22]
  ansible.builtin.debug:
    msg: "{{ '10,20-22' | podnet.ovs.vlan_expand }}"
"""

RETURN = r"""
_value:
  description: The ids, ascending.
  type: list
  elements: int
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet


def vlan_expand(vlans: object) -> list[int]:
    """The filter. Raises AnsibleFilterError for what is no VLAN set."""
    try:
        return list(VlanSet.parse(vlans))
    except PodnetError as error:
        raise AnsibleFilterError(f"vlan_expand: {error}") from None  # Ansible would say its cause again


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"vlan_expand": vlan_expand}
