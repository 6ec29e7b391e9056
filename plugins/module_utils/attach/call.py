# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of a plugin, with what the process that serves it lends."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

from ..cni.config import NetConf
from ..cni.request import Request
from ..errors import DeadlineExceeded
from ..kernel.announce import News
from ..vswitch.fastpath import Switch

ANSWER_SECONDS = 1.2
"""How long the database may take to answer; when it works that is a millisecond."""

Announcer = Callable[[int, Sequence[News]], None]
"""Announces addresses soon, and keeps nobody waiting: the namespace's descriptor (the caller's to close; -1 for the
node's own), and what of interfaces in it.
"""

SwitchOpener = Callable[[str, float, str], AbstractContextManager[Switch]]
"""Opens the Open vSwitch database: endpoint, seconds that it may take to answer, the port that the call is about."""


@dataclass(frozen=True)
class Means:
    """What the process that serves a call lends it. `doubled`: an agent that hangs may serve the same call as well."""

    announce: Announcer
    switch: SwitchOpener
    doubled: bool = False


class Steps:
    """Where the time of a call goes: seconds by step, in order."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._last = time.monotonic()

    def done(self, step: str) -> None:
        """All since the step before was this one."""
        now = time.monotonic()
        self.seconds[step] = self.seconds.get(step, 0.0) + now - self._last
        self._last = now


@dataclass(frozen=True)
class Call:
    """`netns_fd` is a descriptor of the pod's namespace, None if it is not to be had; `turn_fd` one that holds the
    attachment's turn (turns.py), -1 without; `waited`: another call for the same attachment was served right before.
    `deadline` is of time.monotonic(). `notes`: what a call that succeeds has to say to a person.
    """

    request: Request
    conf: NetConf
    env: Mapping[str, str]
    netns_fd: int | None
    deadline: float
    means: Means
    steps: Steps
    turn_fd: int = -1
    waited: bool = False
    notes: list[str] = field(default_factory=list)

    def switch(self, endpoint: str, port: str = "", most: float = ANSWER_SECONDS) -> AbstractContextManager[Switch]:
        """The Open vSwitch database, for a port. Raises OvsdbUnavailable, DeadlineExceeded."""
        return self.means.switch(endpoint, self.seconds(most), port)

    def seconds(self, most: float) -> float:
        """What is left, at most so much. Raises DeadlineExceeded when nothing is."""
        left = min(self.deadline - time.monotonic(), most)
        if left <= 0:
            raise DeadlineExceeded(f"{self.request.verb} took too long")
        return left

    def of(self, container_id: str, ifname: str, netns: str = "") -> Call:
        """The same call for another attachment. `netns`: the path of its namespace, empty if it is not known."""
        request = replace(self.request, container_id=container_id, ifname=ifname, netns=netns)
        env = {**self.env, "CNI_CONTAINERID": container_id, "CNI_IFNAME": ifname, "CNI_NETNS": netns}
        return replace(self, request=request, env=env, netns_fd=None)
