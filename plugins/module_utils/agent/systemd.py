# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent and systemd tell each other: a listening socket, and signs of life."""

from __future__ import annotations

import contextlib
import os
import socket


def listener_of_systemd() -> socket.socket | None:
    """The socket that systemd passed (sd_listen_fds(3)), None if it passed none."""
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or os.environ.get("LISTEN_FDS") != "1":
        return None
    listener = socket.socket(fileno=3)
    listener.set_inheritable(False)
    return listener


def notify(state: str) -> None:
    """Tells systemd (sd_notify(3)), if it asked to be told. Waits for nobody."""
    path = os.environ.get("NOTIFY_SOCKET", "")
    if not path:
        return
    address = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as pipe:
        pipe.setblocking(False)
        pipe.sendto(state.encode(), address)
