# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape that all CNI plugins here have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..cni.request import ADD, CHECK, DEL, GC, STATUS, Request
from .call import Call, Means


@dataclass(frozen=True)
class Plugin:
    """What a plugin does for each verb. All raise PodnetError.

    `add` gives the result in the configuration's version, and takes back what it made if it fails. `delete` takes what
    is missing as done. `let_go` serves a DEL without a readable configuration as well as that can be, and gives whether
    there was or may be anything.
    """

    type: str
    add: Callable[[Call], dict[str, Any]]
    delete: Callable[[Call], None]
    check: Callable[[Call], None]
    status: Callable[[Call], None]
    collect: Callable[[Call], None]
    let_go: Callable[[Request, Means], bool]

    def run(self, call: Call) -> dict[str, Any] | None:
        """The verb of the call; a result only from ADD."""
        verb = call.request.verb
        if verb == ADD:
            return self.add(call)
        {DEL: self.delete, CHECK: self.check, STATUS: self.status, GC: self.collect}[verb](call)
        return None
