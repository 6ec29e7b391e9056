# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds on to a link: sockets that are bound to it (SO_BINDTODEVICE, packet(7)). Reads only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

SECONDS = 3.0
EAPOL = 0x888E
"""IEEE 802.1X: what a supplicant listens for."""
_USER = re.compile(r'\(\("([^"]+)",pid=(\d+)')


@dataclass(frozen=True)
class Bound:
    """A socket that works on one link only. `process`: its name, "" where that is not known."""

    process: str
    address: str


def bound_to(name: str) -> tuple[Bound, ...]:
    """Sockets for IP that are bound to the link, as ss(8) shows them; none where ss is not installed."""
    return tuple(sorted(set(parse_ss(_ss("-Hanptuw"), name)), key=lambda item: (item.process, item.address)))


def parse_ss(text: str, name: str) -> Iterator[Bound]:
    """The lines of `ss -Hanptuw` whose local address is on the link."""
    for line in text.splitlines():
        words = line.split()
        if len(words) < 5:
            continue
        local = words[4]
        host, _percent, rest = local.partition("%")
        if rest.rpartition(":")[0] != name or (host.strip("[").startswith("fe80:") and words[1] == "ESTAB"):
            continue
        user = _USER.search(line)
        yield Bound(user.group(1) if user else "", f"{words[0]} {local}")


def hears(index: int, protocol: int) -> bool:
    """Whether a packet socket listens on the link of this index for this protocol (an EtherType)."""
    try:
        with open("/proc/net/packet", encoding="ascii") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        return False
    return any(len(row) > 4 and int(row[3], 16) == protocol and row[4] == str(index) for row in rows)


def commands() -> Iterator[tuple[str, list[str]]]:
    """Name and command line of each process in this network namespace."""
    try:
        mine = os.readlink("/proc/self/ns/net")
    except OSError:
        return
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            if os.readlink(f"/proc/{entry}/ns/net") != mine:
                continue
            with open(f"/proc/{entry}/cmdline", "rb") as file:
                words = file.read().decode("utf-8", "replace").rstrip("\0").split("\0")
        except OSError:
            continue
        if words[0]:
            yield os.path.basename(words[0].split(" ")[0].rstrip(":")), words


def _ss(option: str) -> str:
    path = shutil.which("ss", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/sbin:/sbin:/bin")
    if path is None:
        return ""
    try:
        done = subprocess.run([path, option], capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")
