# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ports of pods that are gone: a reboot, or a DEL while database or switch were away, leaves their rows on the bridge.

Such a port has no link any more. That ovs-vswitchd says so too is no condition: its userspace datapath does not notice.
A port that is being made looks the same for some milliseconds, so each is looked at twice: the second time some seconds
later, for calls in containers of their own whose turns nobody sees, and while no other call can be at work on it.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..kernel import pod
from ..vswitch.attachments import Attachment
from ..vswitch.fastpath import Switch
from . import spoof
from .turns import try_turn

PAUSE_SECONDS = 2.0
"""A call makes the link within milliseconds after the port, whatever else it waits for."""


def sweep(switch: Switch, found: Iterable[Attachment], pause: float = PAUSE_SECONDS) -> list[str]:
    """Takes the dead ones of these ports away, and gives their names. Raises PodnetError.

    Takes `pause` seconds if one of them looks dead, which is the time between the two looks.
    """
    suspects = [item for item in found if not pod.exists(item.port)]
    if suspects:
        time.sleep(pause)
    gone = []
    for item in suspects:
        with try_turn(item.mark.container_id, item.mark.ifname) as ours:
            again = switch.attachment(item.port) if ours and not pod.exists(item.port) else None
            if again is not None and again.uuid == item.uuid:
                spoof.detach(switch, [again])
                gone.append(again.port)
    return gone
