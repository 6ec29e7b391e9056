# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spoof check: its flows follow from the marks of the ports, and are put back where a switch has lost them."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ConfigError
from ..vswitch import flows
from ..vswitch.attachments import Attachment
from ..vswitch.fastpath import Switch

SECONDS = 3.0
"""How long ovs-vswitchd may take to take flows."""


def refuse_ruled(switch: Switch, bridge: str) -> None:
    """Raises ConfigError if somebody else decides with flows what the bridge forwards."""
    row = switch.rule_of(bridge)
    if row:
        raise ConfigError(
            "spoof_check", f"bridge {bridge} {row}, whose flows decide what passes", "leave it away on this bridge"
        )


def guard(bridge: str, port: str, ofport: int, mac: str, addresses: Sequence[str]) -> None:
    """Holds a port to these addresses. Raises OvsdbError, DeadlineExceeded."""
    flows.install(bridge, port, flows.flows_of(port, ofport, mac, addresses), SECONDS)


def unguard(bridge: str, port: str) -> None:
    """Takes a port's flows away. Raises OvsdbError, DeadlineExceeded."""
    flows.install(bridge, port, [], SECONDS)


def restore(switch: Switch, found: Sequence[Attachment]) -> int:
    """Gives each bridge the flows that the marks of its ports ask for; gives how many were put back or taken away.

    `found` are all ports of pods. Raises PodnetError.
    """
    changed = 0
    for bridge in switch.bridges():
        wanted = [
            line
            for item in found
            if item.bridge == bridge and item.spoof_check and item.ofport is not None and item.ofport > 0
            for line in flows.flows_of(item.port, item.ofport, item.mark.mac, item.mark.addresses)
        ]
        there = flows.count(bridge, SECONDS)
        if there != len(wanted):
            flows.replace_all(bridge, wanted, SECONDS)
            changed += abs(len(wanted) - there)
    return changed
