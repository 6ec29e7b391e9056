# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent does between calls: takes dead ports away, and puts back the flows that a switch has lost, and the
routes that an uplink has.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ..attach.common import known_endpoint
from ..attach.routed_host import Watch
from ..attach.spoof import restore, waiting
from ..attach.stale import sweep
from ..attach.uplinks import now
from ..errors import PodnetError
from ..kernel.announce import announce
from ..vswitch.daemon import PID_FILE
from ..vswitch.fastpath import Switch
from ..vswitch.shared import SharedSwitch
from .metrics import Metrics

SECONDS = 30.0
"""Between two looks without an occasion."""
SOON_SECONDS = 1.0
"""After a call that may have left something to do: the next ones of a burst come first. And until what could not be
done is tried again; each time in vain it is twice as long.
"""
ANSWER_SECONDS = 5.0


class Housekeeper:
    """A thread of its own. What goes wrong is said once, and tried again at the next look."""

    def __init__(self, switch: SharedSwitch, metrics: Metrics, log: Callable[[str], None]) -> None:
        self._switch = switch
        self._metrics = metrics
        self._log = log
        self._wake = threading.Event()
        self._stopping = False
        self._guarded = True
        """Whether there may be flows of ours: after a start nobody knows."""
        self._switch_seal = 0
        self._due = self._not_before = time.monotonic()
        self._patience = SOON_SECONDS
        self._trouble = ""
        self._routes = Watch(self._uplink_now)
        self._routes_trouble = ""
        self._thread = threading.Thread(target=self._run, name="housekeeper", daemon=True)

    def start(self) -> None:
        """Begins, with a first look at once: the node may have started just now."""
        self._thread.start()

    def stop(self) -> None:
        """Ends before the next look."""
        self._stopping = True
        self._wake.set()

    def look_soon(self) -> None:
        """There may be something to do."""
        self._wake.set()

    def _run(self) -> None:
        while not self._stopping:
            self._wake.clear()
            self._look()
            self._look_after_routes()
            # A switch that was started anew has no flows: pods that depend on them are not left so for long.
            if self._wake.wait(min(max(self._due - time.monotonic(), 0.0), SOON_SECONDS)) and not self._stopping:
                time.sleep(SOON_SECONDS)
            if self._is_another_switch():
                self._due = time.monotonic()

    def _is_another_switch(self) -> bool:
        """Whether ovs-vswitchd has been started since the last look."""
        try:
            seal = os.stat(PID_FILE).st_mtime_ns
        except OSError:
            return False
        before, self._switch_seal = self._switch_seal, seal
        return before != seal

    def _look(self) -> None:
        """Does what there is to do, if it is time or if there is a sign of it."""
        try:
            with self._switch.open(known_endpoint(), ANSWER_SECONDS) as switch:
                now = time.monotonic()
                if now < self._due and (now < self._not_before or not (waiting.is_set() or switch.suspects())):
                    return
                self._tidy(switch)
            self._due = time.monotonic() + (SOON_SECONDS if waiting.is_set() else SECONDS)
            self._patience, self._trouble = SOON_SECONDS, ""
        except Exception as error:  # whatever it is: this thread stays for years
            self._due = self._not_before = time.monotonic() + self._patience
            self._patience = min(self._patience * 2, SECONDS)
            words = str(error) if isinstance(error, (PodnetError, OSError)) else f"internal error: {error!r}"
            if words != self._trouble:
                self._log(f"housekeeping: {words}")
            self._trouble = words

    def _uplink_now(self, named: str) -> str:
        with self._switch.open(known_endpoint(), ANSWER_SECONDS) as switch:
            return now(switch, named)

    def _look_after_routes(self) -> None:
        """Those of layer-3 attachments, which need no Open vSwitch."""
        trouble = ""
        try:
            repaired = self._routes.look()
            for name, addresses in repaired.asked.items():
                announce([(name, "", addresses)])
            if repaired.things:
                self._log(f"put {repaired.things} routes and rules of layer-3 attachments right")
        except Exception as error:
            trouble = str(error) if isinstance(error, (PodnetError, OSError)) else f"internal error: {error!r}"
        if trouble and trouble != self._routes_trouble:
            self._log(f"housekeeping: {trouble}")
        self._routes_trouble = trouble

    def _tidy(self, switch: Switch) -> None:
        gone = sweep(switch, switch.attachments())
        if gone:
            self._log(f"removed {len(gone)} ports of pods that are gone: {' '.join(gone[:20])}")
            self._metrics.removed_stale(len(gone))
        there = switch.attachments()
        restored = restore(switch) if self._guarded or any(item.spoof_check for item in there) else 0
        self._guarded = waiting.is_set() or any(item.spoof_check for item in there)
        if restored:
            self._log(f"put {restored} flows of spoof checks right")
            self._metrics.restored(restored)
        self._metrics.ports(len(there), sum(bool(item.error) for item in there))
