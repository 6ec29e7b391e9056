# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

from ansible_collections.podnet.ovs.plugins.plugin_utils.carrier import RuntimeCarrier


class ActionModule(RuntimeCarrier):
    """Of `node` and of all modules that work on a node's switch, through meta/runtime.yml.

    They need libraries that the role runtime installs. Where these are not there yet, as in check mode on a fresh node,
    the module says so, and is run once more with the archive.
    """

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
