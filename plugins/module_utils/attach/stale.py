# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of pods that are gone: a reboot, or a DEL while the database was away, leaves their rows on the bridge.

Such a port has no link any more, and ovs-vswitchd says that it cannot use it. A port that is being made looks the same
for some milliseconds, so each is looked at again while no call can be at work on its attachment.
"""

from __future__ import annotations

from ..kernel import pod
from ..vswitch.fastpath import Switch
from . import spoof
from .turns import try_turn


def sweep(switch: Switch) -> list[str]:
    """Takes dead ports away, whichever bridge they are on; gives their names. Raises PodnetError."""
    gone = []
    for item in switch.broken():
        if pod.exists(item.port):
            continue
        with try_turn(item.mark.container_id, item.mark.ifname) as ours:
            if not ours or pod.exists(item.port):
                continue
            again = [found for found in switch.broken() if found.uuid == item.uuid]
            spoof.detach(switch, again)
            gone += [found.port for found in again]
    return gone
