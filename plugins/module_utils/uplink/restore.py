# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""After a boot: the kernel gets back what it forgot, from the owner marks in the Open vSwitch database alone.

Bridges, ports, VLANs and MTUs Open vSwitch restores itself; that NICs are up, and the addresses of host interfaces,
it does not.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import DeadlineExceeded
from ..kernel.files import locked
from ..kernel.links import wait_for_links
from ..model.paths import NODE_LOCK, OVSDB
from ..model.plan import Operation, plan_between
from ..model.target import marked_interfaces, restored
from ..vswitch.session import Session
from .converge import apply_links
from .observe import observe


@dataclass(frozen=True)
class Report:
    """What was done, and which links of the node's uplinks and interfaces the kernel does not have."""

    operations: tuple[Operation, ...]
    missing: tuple[str, ...]


def restore(endpoint: str = OVSDB, timeout: float = 30.0) -> Report:
    """Puts the NICs of uplinks and the host interfaces up and gives the latter their addresses.

    Waits up to `timeout` seconds for the database, and as long again for links that are not there yet.
    Raises OvsdbUnavailable, KernelError, DeadlineExceeded while another run changes the node.
    """
    with locked(NODE_LOCK, timeout), Session.await_server(endpoint, timeout) as session:
        names = marked_interfaces(observe(session))
        missing: tuple[str, ...] = ()
        try:
            wait_for_links(names, timeout)
        except DeadlineExceeded:
            missing = tuple(sorted(set(names) - set(observe(session).links)))
        state = observe(session)
        operations = plan_between(state, restored(state)).operations
        apply_links(operations, timeout)
        return Report(operations, missing)
