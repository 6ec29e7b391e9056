# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The shape that all CNI plugins here have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION, Request
from .call import Call, Means
from .turns import turn

SECONDS: Mapping[str, float] = {ADD: 30.0, DEL: 20.0, CHECK: 20.0, GC: 60.0, STATUS: 10.0, VERSION: 5.0}
"""How long a call may take: well below the four minutes that a kubelet waits."""

TURN_SECONDS = 15.0
"""How long a call waits for another one of the same attachment."""


@dataclass(frozen=True)
class Plugin:
    """What a plugin does for each verb. All raise PodnetError.

    `add` gives the result in the configuration's version, and takes back what it made if it fails. `delete` takes what
    is missing as done. `let_go` serves a DEL without a readable configuration as well as that can be, and gives whether
    there was or may be anything.

    `seconds`: how long a verb may take. `scope`: of its turns; a plugin that calls others of its kind has one of its
    own, so as not to wait for itself.
    """

    type: str
    add: Callable[[Call], dict[str, Any]]
    delete: Callable[[Call], None]
    check: Callable[[Call], None]
    status: Callable[[Call], None]
    collect: Callable[[Call], None]
    let_go: Callable[[Request, Means], bool]
    seconds: Mapping[str, float] = field(default_factory=lambda: SECONDS)
    scope: str = ""

    def serve(self, call: Call) -> dict[str, Any] | None:
        """The verb of the call, in its turn: ADD, DEL and CHECK of one attachment take turns, other verbs are of none.

        Gives the result of ADD. Raises PodnetError.
        """
        request = call.request
        if request.verb not in (ADD, DEL, CHECK):
            return self._run(call)
        with turn(request.container_id, request.ifname, call.seconds(TURN_SECONDS), self.scope) as (fd, waited):
            call.steps.done("turn")
            return self._run(replace(call, turn_fd=fd, waited=waited))

    def _run(self, call: Call) -> dict[str, Any] | None:
        verb = call.request.verb
        if verb == ADD:
            return self.add(call)
        {DEL: self.delete, CHECK: self.check, STATUS: self.status, GC: self.collect}[verb](call)
        return None
