# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: with_runtime
short_description: Run a module with the runtime's libraries at hand
version_added: 0.1.0
author:
  - The podnet.ovs authors
description:
  - The modules that work on Open vSwitch need libraries that the role P(podnet.ovs.runtime#role) installs on a node.
  - Where they are not there yet, such as in check mode on a fresh node, this brings them along for the one task.
"""

from typing import Any

from ansible_collections.podnet.ovs.plugins.plugin_utils.carrier import RuntimeCarrier


class ActionModule(RuntimeCarrier):
    """Runs the module; when it says that the runtime is missing, once more with the archive."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ansible's entry."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        answer = self._execute_module(task_vars=task_vars)
        if answer.get("runtime_missing"):
            remote = self.bring(self.archive())
            answer = self._execute_module(
                module_args={**self._task.args, "_podnet_archive": remote}, task_vars=task_vars
            )
        result.update(answer)
        return result
