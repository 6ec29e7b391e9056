# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One call of a plugin, with what the process that serves it lends."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..cni.config import NetConf
from ..cni.request import Request
from ..errors import DeadlineExceeded

Announcer = Callable[[socket.socket, str, list[str]], None]
"""Announces addresses: a packet socket on the interface, which is its own from then on, MAC, addresses."""


@dataclass(frozen=True)
class Call:
    """`netns_fd` is a descriptor of the pod's namespace, None if it is not to be had; `turn_fd` one that holds the
    attachment's turn (turns.py), -1 without; `deadline` is of time.monotonic().
    """

    request: Request
    conf: NetConf
    env: Mapping[str, str]
    netns_fd: int | None
    deadline: float
    announcer: Announcer
    turn_fd: int = -1

    def seconds(self, most: float) -> float:
        """What is left, at most so much. Raises DeadlineExceeded when nothing is."""
        left = min(self.deadline - time.monotonic(), most)
        if left <= 0:
            raise DeadlineExceeded(f"{self.request.verb} took too long")
        return left

    def of(self, container_id: str, ifname: str) -> Call:
        """The same call for another attachment, whose namespace is not known."""
        request = replace(self.request, container_id=container_id, ifname=ifname, netns="")
        env = {**self.env, "CNI_CONTAINERID": container_id, "CNI_IFNAME": ifname, "CNI_NETNS": ""}
        return replace(self, request=request, env=env, netns_fd=None)
