# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From where somebody works on this node at this moment, as sshd told the processes that it started (sshd(8))."""

from __future__ import annotations

import ipaddress
import os

from ..model.state import Visit

_VARIABLE = b"SSH_CONNECTION="


def current_visit() -> Visit | None:
    """The SSH connection that this process comes from; None if it comes from none."""
    words = current_connection()
    return Visit(peer=words[0], address=words[2]) if words else None


def current_connection() -> tuple[str, ...]:
    """Address and port of the client, address and port of this node, as sshd(8) has them; empty without one.

    sudo and su take the variable away, but not from their own environment: it is looked for up to the first process.
    """
    pid = os.getpid()
    while pid > 1:
        words = _connection_of(pid)
        if words:
            return words
        pid = _parent_of(pid)
    return ()


def _connection_of(pid: int) -> tuple[str, ...]:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            lines = file.read().split(b"\0")
    except OSError:
        return ()
    found = next((line for line in lines if line.startswith(_VARIABLE)), b"")
    words = found[len(_VARIABLE) :].decode("ascii", "replace").split()
    if len(words) != 4:
        return ()
    try:
        for address in (words[0], words[2]):
            ipaddress.ip_address(address.split("%", 1)[0])
    except ValueError:
        return ()
    return tuple(words)


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rsplit(")", 1)[1].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
