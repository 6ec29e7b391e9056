# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

from ansible_collections.podnet.ovs.plugins.module_utils.runtime import read_manifest
from ansible_collections.podnet.ovs.plugins.plugin_utils.carrier import RuntimeCarrier


class ActionModule(RuntimeCarrier):
    """Tells the module what the archive would bring, and copies it only to a node that lacks the version."""

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Ansible's entry."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        args = dict(self._task.args)
        if args.get("state", "present") == "absent" or args.get("version"):
            result.update(self._execute_module(task_vars=task_vars))
            return result
        archive = self.archive()
        args["_manifest"] = read_manifest(str(archive)).to_dict()
        answer = self._execute_module(module_args=args, task_vars=task_vars)
        if answer.pop("archive_wanted", False):
            args["_archive"] = self.bring(archive)
            answer = self._execute_module(module_args=args, task_vars=task_vars)
        result.update(answer)
        return result
