# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plugin's call in its own process, for when no agent is there."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping

from ..kernel.announce import PAUSES, announce
from .serve import serve


def run(plugin: str, environment: Mapping[bytes, bytes], stdin: bytes) -> int:
    """Serves one call; writes its reply to standard output and error, and returns the exit status."""
    env = {os.fsdecode(key): os.fsdecode(value) for key, value in environment.items()}
    news: list[tuple[socket.socket, str, list[str]]] = []

    def announcer(raw: socket.socket, mac: str, addresses: list[str]) -> None:
        announce(raw, mac, addresses)
        news.append((raw, mac, addresses))

    reply = serve(plugin, env, stdin, open_netns(env), announcer)
    _write(1, reply.stdout)
    _write(2, reply.stderr)
    for raw, mac, addresses in news:
        _announce_later(raw, mac, addresses)
    return reply.code


def open_netns(env: Mapping[str, str]) -> int | None:
    """A descriptor of the container's namespace, None if it is not there."""
    path = env.get("CNI_NETNS")
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC) if path else None
    except (OSError, ValueError):
        return None


def _announce_later(raw: socket.socket, mac: str, addresses: list[str]) -> None:
    """Further rounds in a child of its own, which holds nothing that the runtime waits for."""
    if not addresses or os.fork():
        return
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for number in range(3):
            os.dup2(null, number)
        os.setsid()
        for pause in PAUSES[1:]:
            time.sleep(pause)
            announce(raw, mac, addresses)
    finally:
        os._exit(0)


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[os.write(number, data) :]
