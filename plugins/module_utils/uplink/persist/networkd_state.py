# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What systemd-networkd does with a device now: its state files, its leases, and which file it would use."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...kernel.files import read_text
from .processes import Process, processes
from .sections import Section, parse, values

FOLDERS: tuple[str, ...] = (
    "/etc/systemd/network",
    "/run/systemd/network",
    "/usr/local/lib/systemd/network",
    "/usr/lib/systemd/network",
)
OURS = ("0-podnet-", "05-podnet-")
_STATE = "/run/systemd/netif"


@dataclass(frozen=True)
class LinkState:
    """What networkd says of a device. `admin`: "unmanaged", "configuring", "configured", "failed" …, "" if nothing."""

    admin: str = ""
    file: str = ""
    lease: dict[str, str] = field(default_factory=dict)
    iaid6: str = ""
    duid6: str = ""

    @property
    def managed(self) -> bool:
        """Whether networkd configures the device."""
        return bool(self.file) and self.admin not in ("", "unmanaged", "linger")


def daemon() -> Process | None:
    """networkd itself, if it runs in this network namespace."""
    return next(iter(processes("systemd-networkd")), None)


def ifindex(device: str) -> int:
    """The number of a device; 0 without one."""
    return int(read_text(f"/sys/class/net/{device}/ifindex") or 0)


def link_state(device: str) -> LinkState:
    """The state of a device, from what networkd writes down; an empty one if networkd does not know it."""
    number = ifindex(device)
    pairs = _pairs(f"{_STATE}/links/{number}") if number else {}
    lease = _pairs(pairs["DHCP_LEASE"]) if pairs.get("DHCP_LEASE") else {}
    return LinkState(
        pairs.get("ADMIN_STATE", ""),
        pairs.get("NETWORK_FILE", ""),
        lease,
        pairs.get("DHCP6_CLIENT_IAID", ""),
        pairs.get("DHCP6_CLIENT_DUID", ""),
    )


def config_files(drop_ins_of: str | None = None) -> Iterator[str]:
    """Paths of .network files in the order in which networkd tries them; or of the drop-ins of one of them."""
    folders, end = FOLDERS, ".network"
    if drop_ins_of is not None:
        folders = tuple(f"{folder}/{os.path.basename(drop_ins_of)}.d" for folder in FOLDERS)
        end = ".conf"
    seen: dict[str, str] = {}
    for folder in folders:
        if os.path.isdir(folder):
            for name in os.listdir(folder):
                if name.endswith(end):
                    seen.setdefault(name, f"{folder}/{name}")
    for name in sorted(seen):
        if read_text(seen[name]):  # an empty one, or a link to /dev/null, hides those of its name
            yield seen[name]


def file_for(nic: str, mac: str) -> str | None:
    """The site's .network file for an Ethernet NIC, found as networkd finds it; None if none matches."""
    for path in config_files():
        if not os.path.basename(path).startswith(OURS) and matches(parse(read_text(path) or ""), nic, mac):
            return path
    return None


def matches(sections: tuple[Section, ...], nic: str, mac: str) -> bool:
    """Whether [Match] fits an Ethernet NIC by its name, MAC address and type; other conditions count as met."""
    if not any(section.name == "Match" and section.entries for section in sections):
        return False
    names = " ".join(values(sections, "Match", "Name")).split()
    macs = " ".join(values(sections, "Match", "MACAddress") + values(sections, "Match", "PermanentMACAddress"))
    types = " ".join(values(sections, "Match", "Type")).split()
    if macs and mac.lower() not in macs.lower().replace("-", ":").split():
        return False
    if types and not _fits("ether", types):
        return False
    return _fits(nic, names) if names else True


def names_only(sections: tuple[Section, ...], nic: str) -> bool:
    """Whether [Match] names just this NIC."""
    return " ".join(values(sections, "Match", "Name")).split() == [nic]


def _fits(word: str, patterns: list[str]) -> bool:
    if patterns[0].startswith("!"):
        patterns = [patterns[0][1:], *patterns[1:]]
        return not any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns)
    return any(fnmatch.fnmatchcase(word, pattern) for pattern in patterns)


def _pairs(path: str) -> dict[str, str]:
    lines = (read_text(path) or "").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
