# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Opening a pod's port: what may be wrong with it, and how it is given up."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

from ..errors import ConfigError, KernelError, RefusedError
from ..kernel import qdisc
from ..vswitch.fastpath import Switch
from ..vswitch.jsonrpc import TimedOut
from ..vswitch.podport import PodPort
from . import spoof
from .call import ANSWER_SECONDS, Call
from .wish import Wish

LIMIT_SECONDS = 1.0


def inserted(switch: Switch, port: PodPort) -> None:
    """Waits for the database to take the port. Raises ConfigError if the bridge is not there."""
    try:
        switch.inserted(port)
    except TimedOut as error:
        known = ", ".join(switch.bridges()) or "none"
        raise ConfigError("bridge", f"there is no bridge {port.bridge}", f"this node has: {known}") from error


def refuse_number(holder: str, wish: Wish, host: str) -> None:
    """Raises RefusedError if somebody else has the OpenFlow number that is asked for: ovs-vswitchd would give that one
    another number, behind the back of whoever has flows for it, or this one, without a word.
    """
    if holder and holder != host:
        raise RefusedError(
            f"ofport_request: OpenFlow port {wish.ofport_request} of bridge {wish.bridge} is taken by {holder}",
            "ask for another number, 32768 to 65279 are not given by Open vSwitch itself; or leave the key away",
        )


def abandon(call: Call, endpoint: str, switch: Switch, port: PodPort, guarded: Sequence[str]) -> None:
    """By the same connection if it lasts, behind what was sent before. The flows go first, on the bridge `guarded`."""
    for bridge in guarded:
        spoof.unguard(bridge, port.name)
    if switch.usable:
        switch.abandon(port)
        return
    with call.means.switch(endpoint, ANSWER_SECONDS, port.name) as another:
        another.abandon(port)


def refuse_unlimited(wish: Wish, host: str) -> None:
    """Raises KernelError if a limit that was asked for is not in force: ovs-vswitchd only logs that."""
    if not wish.bandwidth:
        return
    for rate, is_limited, what, needs in (
        (wish.bandwidth.ingress_rate, qdisc.is_shaped, "towards", "the queueing discipline htb"),
        (wish.bandwidth.egress_rate, qdisc.is_policed, "from", "the classifier basic with the action police"),
    ):
        if rate and not _soon(partial(is_limited, host)):
            raise KernelError(
                f"bandwidth: what goes {what} the pod is not limited: {host} has not got {needs}",
                "does the kernel have it? ovs-vswitchd's log says more",
            )


def _soon(is_so: Callable[[], bool]) -> bool:
    """Whether it is so, or becomes so within LIMIT_SECONDS: that a port forwards may be said before it is limited."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not is_so():
        if time.monotonic() >= deadline:
            return False
        time.sleep(LIMIT_SECONDS / 50)
    return True
