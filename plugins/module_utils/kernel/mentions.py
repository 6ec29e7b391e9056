# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which configuration files of the node name a link. Reads only."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass

CNI = "CNI"
KUBERNETES = "Kubernetes"
SERVICE = "service"
FIREWALL = "firewall"
KERNEL = "kernel settings"
PLACES = (
    (CNI, "/etc/cni/net.d/*"),
    (CNI, "/var/lib/rancher/*/agent/etc/cni/net.d/*"),
    (CNI, "/etc/containers/networks/*.json"),
    (KUBERNETES, "/etc/rancher/*/*.yaml"),
    (KUBERNETES, "/etc/rancher/*/*.yaml.d/*.yaml"),
    (KUBERNETES, "/etc/kubernetes/manifests/*"),
    (SERVICE, "/etc/systemd/system/*.service"),
    (SERVICE, "/etc/systemd/system/*.service.env"),
    (SERVICE, "/etc/systemd/system/*.service.d/*.conf"),
    (SERVICE, "/etc/default/*"),
    (SERVICE, "/etc/keepalived/*.conf"),
    (SERVICE, "/etc/avahi/avahi-daemon.conf"),
    (SERVICE, "/etc/chrony/*.conf"),
    (SERVICE, "/etc/chrony/conf.d/*.conf"),
    (SERVICE, "/etc/dnsmasq.conf"),
    (SERVICE, "/etc/dnsmasq.d/*"),
    (SERVICE, "/etc/frr/*.conf"),
    (SERVICE, "/etc/bird/*.conf"),
    (SERVICE, "/etc/wireguard/*.conf"),
    (FIREWALL, "/etc/nftables.conf"),
    (FIREWALL, "/etc/nftables.d/*"),
    (FIREWALL, "/etc/iptables/rules.v*"),
    (FIREWALL, "/etc/ufw/*.rules"),
    (FIREWALL, "/etc/firewalld/zones/*.xml"),
    (FIREWALL, "/etc/firewalld/direct.xml"),
    (KERNEL, "/etc/sysctl.conf"),
    (KERNEL, "/etc/sysctl.d/*.conf"),
)
LARGEST = 1 << 20
"""Bytes of a file that are looked at."""


@dataclass(frozen=True)
class Mention:
    """The first line of a file that names the link. `also`: whether the file names the other one too."""

    kind: str
    path: str
    line: int
    text: str
    also: bool = False


def mentions(name: str, other: str) -> Iterator[Mention]:
    """Each file of PLACES that names the link `name`, once; `other` is the link that is to take its place."""
    wanted, twin = _word(name), _word(other)
    for kind, pattern in PLACES:
        for path in sorted(glob.glob(pattern)):
            text = _read(path)
            if name not in text:
                continue
            lines = [(i, line) for i, line in enumerate(text.splitlines(), 1) if not _is_comment(line)]
            also = any(twin.search(line) for _i, line in lines)
            hit = next(((i, line) for i, line in lines if wanted.search(line)), None)
            if hit:
                yield Mention(kind, path, hit[0], hit[1].strip()[:160], also)


def cni_plugins() -> tuple[str, ...]:
    """The names of the files from which a container runtime takes its networks."""
    return tuple(sorted(glob.glob("/etc/cni/net.d/*.conf*") + glob.glob("/var/lib/rancher/*/agent/etc/cni/net.d/*")))


def _word(name: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\d)")


def _is_comment(line: str) -> bool:
    return line.lstrip().startswith(("#", ";", "//"))


def _read(path: str) -> str:
    try:
        if not os.path.isfile(path):
            return ""
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST)
    except OSError:
        return ""
