# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: vlan_compress
short_description: Write a VLAN set in its short form
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
- name: Print 10,20-22
  ansible.builtin.debug:
    msg: "{{ [22, 10, 20, 21] | podnet.ovs.vlan_compress }}"
"""

RETURN = r"""
_value:
  description: The set, as in C(10,20-30).
  type: str
"""

from collections.abc import Callable
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.vlan import VlanSet


def vlan_compress(vlans: object) -> str:
    """The filter. Raises AnsibleFilterError for what is no VLAN set."""
    try:
        return str(VlanSet.parse(vlans))
    except PodnetError as error:
        raise AnsibleFilterError(f"vlan_compress: {error}") from None  # Ansible would say its cause again


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"vlan_compress": vlan_compress}
