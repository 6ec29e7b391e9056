# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ISC's DHCP client: ended without a word to the server, and started on another device with the same lease.

It knows its lease and its DUID from a file in which each lease names its interface; see dhclient.leases(5).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence

from ...kernel.files import read_text, write_text
from .command import find, run, tried
from .processes import Process, kill, processes

RUN = "/run/podnet/dhcp"
"""Leases of a client whose move is not confirmed."""
STATE = "/var/lib/dhcp"


def clients(device: str) -> list[Process]:
    """The clients that run on a device."""
    return [process for process in processes("dhclient") if device in process.words[1:]]


def version(words: Sequence[str]) -> int:
    """Of which IP version a client is, by its words."""
    return 6 if "-6" in words else 4


def lease_path(words: Sequence[str]) -> str:
    """Where a client keeps its lease, by its words."""
    found = [after for word, after in zip(words, words[1:]) if word == "-lf"]
    return found[-1] if found else f"{STATE}/dhclient{'6' if version(words) == 6 else ''}.leases"


def moved_words(words: Iterable[str], nic: str, device: str) -> tuple[str, ...]:
    """The words of the same client on another device."""
    part = re.compile(rf"(?<![\w-]){re.escape(nic)}(?![\w-])")
    return tuple(word if word.startswith("-") else part.sub(device, word) for word in words)


def volatile_words(words: Iterable[str]) -> tuple[str, ...]:
    """The same client with its lease in /run."""
    return tuple(f"{RUN}/{os.path.basename(word)}" if word.startswith(f"{STATE}/") else word for word in words)


def moved_lease(text: str, device: str) -> str:
    """A file of leases, for another interface."""
    return re.sub(r'(?m)^(\s*interface\s+)"[^"]*"', rf'\1"{device}"', text)


def leases(text: str) -> list[str]:
    """The IPv4 leases of a file as their text, the newest last."""
    return re.findall(r"(?ms)^lease \{.*?^\}\n?", text)


def newest(text: str) -> str:
    """The newest IPv4 lease of a file as its text, "" without one."""
    return (leases(text) or [""])[-1]


def with_newest(text: str) -> str:
    """A file with its newest IPv4 lease only: a second one is then an answer, even if the server changed nothing."""
    rest = text
    for lease in leases(text)[:-1]:
        rest = rest.replace(lease, "", 1)
    return rest


def address_of(lease: str) -> str:
    """The address of an IPv4 lease."""
    found = re.search(r"(?m)^\s*fixed-address\s+([0-9.]+);", lease)
    return found.group(1) if found else ""


def lifetime(lease: str) -> int | None:
    """Seconds of an IPv4 lease; None if it does not say."""
    found = re.search(r"(?m)^\s*option dhcp-lease-time\s+(\d+);", lease)
    return int(found.group(1)) if found else None


def stop(device: str) -> dict[int, str]:
    """Ends the clients of a device; gives what they knew of their leases, by IP version."""
    known: dict[int, str] = {}
    for process in clients(device):
        kill(process)
        known[version(process.words)] = read_text(lease_path(process.words)) or ""
    return known


def start(words: Sequence[str], device: str, lease: str) -> None:
    """Starts a client with a lease. Raises PodnetError.

    In a unit of its own: it must outlive its caller, and whoever ends it must not let it give its lease back.
    """
    write_text(lease_path(words), moved_lease(with_newest(lease), device))
    command = (words[0], "-nw", *(word for word in words[1:] if word not in ("-nw", "-d", "-1")))
    if find("systemd-run") and os.path.isdir("/run/systemd/system"):
        unit = f"dhclient{version(words)}-{device}"
        manners = ("--property=Type=forking", "--property=KillSignal=SIGKILL", "--property=RemainAfterExit=no")
        tried(["systemctl", "--no-ask-password", "stop", f"{unit}.service"])  # one that was killed may not be gone yet
        command = ("systemd-run", "--quiet", "--collect", f"--unit={unit}", *manners, *command)
    run(command, timeout=20.0)
