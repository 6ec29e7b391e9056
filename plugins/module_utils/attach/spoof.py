# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spoof check: its flows follow from the marks of the ports, and are put back where a switch has lost them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from ..errors import ConfigError, PodnetError
from ..vswitch import flows
from ..vswitch.attachments import Attachment
from ..vswitch.fastpath import Switch
from .turns import try_turn

MOST_IPV6 = 32
SECONDS = 3.0
"""How long ovs-vswitchd may take to take flows, or to let them go."""
waiting = threading.Event()
"""Set when flows could not be taken away, and when `restore` has left a port to a call that is at work on it."""


def refuse_ruled(switch: Switch, bridge: str) -> None:
    """Raises ConfigError if somebody else decides with flows what the bridge forwards."""
    row = switch.rule_of(bridge)
    if row:
        raise ConfigError(
            "spoof_check", f"bridge {bridge} {row}, whose flows decide what passes", "leave it away on this bridge"
        )


def refuse_many(addresses: Sequence[str]) -> None:
    """Raises ConfigError for more IPv6 addresses on a port than there are flows for.

    An advertisement has a source and a target, and either may be any of them: flows grow with the square.
    """
    count = sum(":" in address for address in addresses)
    if count > MOST_IPV6:
        raise ConfigError(
            "spoof_check", f"the port has {count} IPv6 addresses",
            f"at most {MOST_IPV6} can be checked: leave the check away, or spread them over several interfaces",
        )  # fmt: skip


def guard(bridge: str, port: str, ofport: int, mac: str, addresses: Sequence[str], turn_fd: int = -1) -> None:
    """Holds a port to these addresses. What does it holds the attachment's turn, too. Raises OvsdbError,
    OvsdbUnavailable, DeadlineExceeded.
    """
    flows.install(bridge, port, flows.flows_of(port, ofport, mac, addresses), SECONDS, turn_fd)


def unguard(bridge: str, port: str) -> None:
    """Takes a port's flows away. Raises OvsdbError, DeadlineExceeded."""
    try:
        flows.install(bridge, port, [], SECONDS)
    except PodnetError:
        waiting.set()
        raise


def is_guarded(item: Attachment) -> bool:
    """Whether all flows of a port are there. Raises OvsdbError, OvsdbUnavailable, DeadlineExceeded."""
    return _are_there(item, flows.seen(item.bridge, SECONDS))


def detach(switch: Switch, found: Sequence[Attachment]) -> None:
    """Takes ports away, the flows of each before: once it is gone nothing says any more that there are some.

    Raises OvsdbError, DeadlineExceeded; all of them stay then.
    """
    for item in found:
        if item.spoof_check:
            unguard(item.bridge, item.port)
    switch.detach_all(found)


def restore(switch: Switch) -> int:
    """Gives each bridge the flows that the marks of its ports ask for; gives how many were put back or taken away.

    Calls go on meanwhile: a port that one is at work on is left to it. Raises PodnetError.
    """
    changed = 0
    waiting.clear()
    for bridge in switch.bridges():
        there = flows.seen(bridge, SECONDS)  # before the ports: a port is there before its flows, and goes after them
        guarded = [item for item in switch.attachments() if item.bridge == bridge and item.spoof_check]
        for item in guarded:
            # One without a MAC address is still being made; flows of one without a link would be another port's.
            if not item.mark.mac or item.ofport is None or item.ofport < 0:
                continue
            if not _are_there(item, there):
                changed += _put_back(switch, item)
            there.pop(flows.cookie_of(item.port), None)
        for cookie, ports in there.items():
            flows.forget(bridge, cookie, SECONDS)
            changed += len(ports)
    return changed


def _put_back(switch: Switch, item: Attachment) -> int:
    with try_turn(item.mark.container_id, item.mark.ifname) as ours:
        if not ours or switch.attachment(item.port) != item:
            waiting.set()
            return 0
        lines = _flows_of(item)
        flows.install(item.bridge, item.port, lines, SECONDS)
        return len(lines)


def _are_there(item: Attachment, there: Mapping[int, Sequence[int]]) -> bool:
    return there.get(flows.cookie_of(item.port)) == [item.ofport] * len(_flows_of(item))


def _flows_of(item: Attachment) -> list[str]:
    return flows.flows_of(item.port, item.ofport or 0, item.mark.mac, item.mark.addresses)
