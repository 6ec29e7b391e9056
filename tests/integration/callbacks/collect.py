# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import json
import os
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: collect
type: notification
short_description: Write each result that changed something as a line of JSON
description:
  - For tests, to the file that the environment variable PODNET_COLLECT names.
author:
  - The podnet.ovs authors (@podnet)
"""


class CallbackModule(CallbackBase):
    """Results as JSON."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "collect"

    def v2_runner_on_ok(self, result: Any) -> None:
        """A task, or the sum of a loop: its items have come one by one."""
        if "results" not in result._result:
            self._write(result)

    def v2_runner_item_on_ok(self, result: Any) -> None:
        """One round of a loop."""
        self._write(result)

    def _write(self, result: Any) -> None:
        if result._result.get("changed"):
            row = {"host": result._host.get_name(), "task": result._task.get_name(), "result": result._result}
            with open(os.environ["PODNET_COLLECT"], "a", encoding="utf-8") as file:
                file.write(json.dumps(row, default=str) + "\n")
