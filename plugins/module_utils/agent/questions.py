# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a person on the node may ask the agent, over the socket of the calls."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable

from ..attach.serve import SLOW_SECONDS, Served
from ..cni.reply import Reply, encode, failure
from ..errors import PodnetError
from .ask import METRICS, STATUS
from .metrics import Metrics


class Questions:
    """Answers them. `running` gives the calls at work."""

    def __init__(self, version: str, metrics: Metrics, running: Callable[[], int]) -> None:
        self._version = version
        self._metrics = metrics
        self._running = running
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._total = self._slow = 0

    def count(self, served: Served) -> None:
        """A call is over."""
        with self._lock:
            self._total += 1
            self._slow += served.seconds >= SLOW_SECONDS

    def is_one(self, word: str) -> bool:
        """Whether what stands in a plugin's place is a question."""
        return word.startswith("@")

    def answer(self, word: str) -> Reply:
        """The answer, or an error for one that is not known here."""
        if word == STATUS:
            return Reply(0, encode({
                "version": self._version,
                "pid": os.getpid(),
                "uptime_seconds": round(time.monotonic() - self._began, 3),
                "calls_running": self._running() - 1,
                "calls_total": self._total,
                "slow_calls": self._slow,
            }))  # fmt: skip
        if word == METRICS:
            return Reply(0, self._metrics.text().encode())
        return failure(PodnetError(f"the agent does not know the question {word}", "it is of another release"))
