# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin's call in its own process, for when no agent is there."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from ..errors import PodnetError
from ..kernel.announce import News, announce
from ..vswitch.fastpath import open_switch
from ..vswitch.jsonrpc import Connection
from .call import ANSWER_SECONDS, Means
from .common import known_endpoint
from .serve import serve
from .stale import sweep

LATE_SECONDS = 120.0
"""For a database that answers late: the process of a plugin is over by then, and its requests would be with it."""


def run(plugin: str, environment: Mapping[bytes, bytes], stdin: bytes, hangs: bool = False) -> int:
    """Serves one call; writes its reply to standard output and error, and returns the exit status.

    `hangs`: there is an agent, which may have begun with the call and then did not say so.
    """
    env = {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()}
    later: list[tuple[int, Sequence[News]]] = []
    unanswered: list[Connection] = []

    def announcer(netns_fd: int, news: Sequence[News]) -> None:
        later.append((netns_fd, news))

    served = serve(
        plugin, env, stdin, open_netns(env), Means(announcer, partial(open_switch, unanswered=unanswered), hangs)
    )
    reply = served.reply
    _write(1, reply.stdout)
    _write(2, served.line.encode(errors="replace") + b"\n" + reply.stderr)
    if later or unanswered:
        _finish_later(later, unanswered)
    return reply.code


def open_netns(env: Mapping[str, str]) -> int | None:
    """A descriptor of the container's namespace, None if it is not there. Of a pipe nobody waits for a writer."""
    path = env.get("CNI_NETNS")
    try:
        return os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC) if path else None
    except (OSError, ValueError):
        return None


def _finish_later(later: Sequence[tuple[int, Sequence[News]]], unanswered: Sequence[Connection]) -> None:
    """What an agent does after a call, in a child of its own, which holds nothing that the runtime waits for."""
    if os.fork():
        return
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.setsid()
        for netns_fd, news in later:
            announce(news, netns_fd)
        for connection in unanswered:  # what was taken back must come to the server as well
            with suppress(PodnetError):
                connection.drain(LATE_SECONDS)
        with suppress(PodnetError), open_switch(known_endpoint(), ANSWER_SECONDS) as switch:
            sweep(switch, switch.broken())
    finally:
        os._exit(0)


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]
