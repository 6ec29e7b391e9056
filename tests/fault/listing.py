# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node consists of, as lines by topic: two nodes that went different ways to the same state show the same."""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import OPEN
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import UPLINK
from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, NIC, Subject
from ansible_collections.podnet.ovs.tests.lab import Light, Machine

Listing = Mapping[str, list[str]]

FILES = r"""
for top in /etc/podnet /var/lib/podnet /run/podnet /run/systemd/network /run/netplan /etc/systemd/network /etc/netplan \
    /etc/network /etc/cloud /etc/systemd/system /run/systemd/system /run/systemd/transient; do
    [ ! -e $top ] || find $top ! -name '*.journal' -printf '%y %m %p %l\n'
done
find /etc/systemd /etc/netplan /etc/network /etc/cloud /run/systemd/network /run/systemd/system /run/netplan -type f \
    -exec sha256sum {} + 2> /dev/null || true
"""
LOCKS = r"""
find /var/lib/podnet /run/podnet -name '*lock*' -type f 2> /dev/null | while read -r file; do
    flock -n "$file" true || echo "$file"
done
"""
SYSCTLS = rf"""
for device in {NIC} {BRIDGE}; do for family in ipv4 ipv6; do
    cd /proc/sys/net/$family/conf/$device 2> /dev/null || continue
    grep -Hs . * | sed "s/^/$family $device /" || true
done; done
"""
MARK = "/opt/podnet/"
OF_DATAPATHS = ("ovs-netdev", "ovs-system")
"""Open vSwitch's own links: made with a random MAC address whenever the first bridge is made."""
OVS = "ovs-vsctl --timeout=10 --format=json --columns={columns} list {table}"
TABLES = {
    "bridge": "name,datapath_type,fail_mode,other_config,external_ids",
    "port": "name,tag,trunks,vlan_mode,other_config,external_ids",
    "interface": "name,type,mtu_request,other_config,external_ids",
}
_VOLATILE = (
    "valid_life_time",
    "preferred_life_time",
    "ifindex",
    "expires",
    "used",
    "cache",
    "link_index",
    "link",
    "flags",
)


def listing(subject: Subject) -> Listing:
    """All of a node that a move may touch; ids of moves are hidden, and those that are over are left out."""
    found = {
        "files": _files(subject),
        "processes": processes(subject),
        "locks": _lines(subject, LOCKS),
        "sysctls": _lines(subject, SYSCTLS),
        "ovs": [line for table, columns in TABLES.items() for line in _rows(subject, table, columns)],
        "network": _network(subject),
        "units": [] if subject.light else _units(subject),
    }
    return {topic: sorted(_hidden(subject, line) for line in lines) for topic, lines in found.items()}


def processes(subject: Subject) -> list[str]:
    """The command lines of the product's processes in the node."""
    node = subject.node
    if isinstance(node, Machine):
        return [line for line in _lines(subject, "ps -eo args") if MARK in line]
    first, kind = (node.holder, "mnt") if isinstance(node, Light) else (node.leader(), "pid")
    found = []
    with contextlib.suppress(OSError):
        mine = os.readlink(f"/proc/{first}/ns/{kind}")
        for number in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{number}/ns/{kind}") == mine:
                    found.append(Path(f"/proc/{number}/cmdline").read_bytes().replace(b"\0", b" ").decode())
    return [line for line in found if MARK in line]


def difference(expected: Listing, found: Listing) -> str:
    """What is not as expected, as a diff; "" if all is."""
    lines: list[str] = []
    for topic, wanted in expected.items():
        lines += difflib.unified_diff(
            wanted, found[topic], f"{topic}: undisturbed", f"{topic}: found", n=0, lineterm=""
        )
    return "\n".join(lines)


def _lines(subject: Subject, script: str) -> list[str]:
    return subject.node.sh(script).stdout.splitlines()


def _hidden(subject: Subject, line: str) -> str:
    for move in subject.ids:
        line = line.replace(move, "ID")
    return line


def _files(subject: Subject) -> list[str]:
    """Without the folders of moves that are over: they are kept for the report."""
    over = [f"{UPLINK}/{move}" for move in subject.ids if _is_over(subject, move)]
    return [line for line in _lines(subject, FILES) if not any(path in line for path in over)]


def _is_over(subject: Subject, move: str) -> bool:
    text = subject.read(f"{UPLINK}/{move}/journal.json")
    return bool(text) and json.loads(text)["state"] not in OPEN


def _rows(subject: Subject, table: str, columns: str) -> list[str]:
    text = subject.node.run("sh", "-c", OVS.format(columns=columns, table=table), check=False).stdout
    return [f"{table} {json.dumps(row)}" for row in json.loads(text)["data"]] if text else []


def _network(subject: Subject) -> list[str]:
    lines = []
    for family in ("-4", "-6"):
        for words in ("addr show", "route show table all", "rule show"):
            shown = subject.node.run("ip", family, "-j", *words.split()).stdout
            lines += [f"{family} {words}: {json.dumps(_stable(row))}" for row in json.loads(shown or "[]")]
    links = json.loads(subject.node.run("ip", "-j", "link", "show").stdout)
    mine = [row for row in links if row["ifname"] not in OF_DATAPATHS]
    return lines + [f"link {row['ifname']} {row['mtu']} {row.get('address')} {row.get('master')}" for row in mine]


def _stable(value: Any) -> Any:
    """Without what differs between two looks at the same thing."""
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in sorted(value.items()) if key not in _VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value


def _units(subject: Subject) -> list[str]:
    """Ours, what systemd-run made, and all that has failed."""
    script = "systemctl list-units --all --plain --no-legend; systemctl list-unit-files --no-legend 'podnet*'"
    ours = re.compile(r"podnet|^run-|failed")
    return [" ".join(line.split()) for line in _lines(subject, script) if ours.search(line)]
