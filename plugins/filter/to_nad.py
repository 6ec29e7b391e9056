# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: to_nad
short_description: Render pod networks as NetworkAttachmentDefinitions
version_added: 0.1.0
author:
  - The podnet.ovs authors
description:
  - Gives one manifest per pod network and namespace. Without C(namespaces) that is one in the namespace C(default).
  - The CNI configuration inside is a list with one plugin, C(podnet-ovs), and serves as a C(.conflist) file too.
options:
  _input:
    description:
      - Pod networks as in C(podnet_networks), merged.
    type: list
    elements: dict
    required: true
"""

EXAMPLES = r"""
- name: Write the manifests to one file
  ansible.builtin.copy:
    content: "{% for nad in networks | podnet.ovs.to_nad %}---\n{{ nad | to_nice_yaml }}{% endfor %}"
    dest: /tmp/nads.yml
    mode: "0644"
  vars:
    networks:
      - name: tenant-a
        bridge: br-pod
        vlan: 100
"""

RETURN = r"""
_value:
  description: The manifests.
  type: list
  elements: dict
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.network import Network
from ansible_collections.podnet.ovs.plugins.plugin_utils.nad import manifests


def to_nad(networks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The filter. Raises AnsibleFilterError that names the path of a bad value."""
    try:
        return manifests([Network.parse(item, f"networks[{index}]") for index, item in enumerate(networks)])
    except PodnetError as error:
        raise AnsibleFilterError(f"to_nad: {error}") from None  # Ansible would say its cause again


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"to_nad": to_nad}
