# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rules of the node's firewall as text: nftables, and iptables of both makes. Reads only."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

SECONDS = 5.0
"""How long a tool may take: a cluster's nodes have tens of thousands of rules."""
NFT = "nft"
TOOLS = {
    "iptables": "iptables-save",
    "ip6tables": "ip6tables-save",
    "iptables-nft": "iptables-nft-save",
    "ip6tables-nft": "ip6tables-nft-save",
    "iptables-legacy": "iptables-legacy-save",
    "ip6tables-legacy": "ip6tables-legacy-save",
}
"""The command that changes rules, and the one that lists them."""

_COUNTER = re.compile(r"\bcounter packets \d+ bytes \d+")
_HANDLE = re.compile(r"\s*# handle (\d+)$")
_OPENING = re.compile(r"(table|chain|set|map|flowtable) (\S+)(?: (\S+))? \{")
_MEMBERS = re.compile(r"elements = \{([^}]*)\}", re.DOTALL)


@dataclass(frozen=True)
class Rule:
    """A rule as its tool prints it, without counters. `place`: "inet filter input" or "filter INPUT".

    `position`: nftables' handle, or the number in the chain.
    """

    tool: str
    place: str
    text: str
    position: int


@dataclass(frozen=True)
class Group:
    """A named set or map of nftables. `place`: "inet filter lan"."""

    place: str
    members: str


@dataclass(frozen=True)
class Firewall:
    """All rules. `unread`: tools that did not answer, with what they said."""

    rules: tuple[Rule, ...] = ()
    groups: tuple[Group, ...] = ()
    unread: Mapping[str, str] = field(default_factory=dict)


def read_firewall() -> Firewall:
    """What is loaded at this moment. Tools that are not installed are passed over."""
    unread: dict[str, str] = {}
    found: dict[tuple[str, str, str, int], Rule] = {}
    managed: set[tuple[str, str]] = set()
    for tool, command in TOOLS.items():
        text = _run(command, [], unread)
        family = "ip6" if tool.startswith("ip6") else "ip"
        for rule in parse_iptables(tool, text):
            # the plain name is one of the two makes
            found.setdefault((family, rule.place, rule.text, rule.position), rule)
        if "(nf_tables)" in text or tool.endswith("-nft"):
            managed |= {(family, line[1:].strip()) for line in text.splitlines() if line.startswith("*")}
    rules, groups = parse_nft(_run(NFT, ["-a", "list", "ruleset"], unread))
    others = [rule for rule in rules if tuple(rule.place.split(" ")[:2]) not in managed]
    return Firewall((*found.values(), *others), groups, unread)


def parse_iptables(tool: str, text: str) -> Iterator[Rule]:
    """What iptables-save(8) prints."""
    table = ""
    numbers: dict[str, int] = {}
    for line in text.splitlines():
        if line.startswith("*"):
            table, numbers = line[1:].strip(), {}
        elif line.startswith("-A "):
            _add, chain, rest = line.split(" ", 2) if line.count(" ") > 1 else (*line.split(" ", 1), "")
            numbers[chain] = numbers.get(chain, 0) + 1
            yield Rule(tool, f"{table} {chain}", rest, numbers[chain])


def parse_nft(text: str) -> tuple[tuple[Rule, ...], tuple[Group, ...]]:
    """What `nft -a list ruleset` prints."""
    rules: list[Rule] = []
    groups: list[Group] = []
    table = block = kind = ""
    body: list[str] = []
    for raw in text.splitlines():
        line = raw.strip()
        opening = _OPENING.match(line)
        if opening and opening.group(1) == "table":
            table = f"{opening.group(2)} {opening.group(3)}"
        elif opening and raw.startswith("\t") and not raw.startswith("\t\t"):
            kind, block, body = opening.group(1), opening.group(2), []
        elif line == "}" and block:
            if kind in ("set", "map"):
                members = _MEMBERS.search("\n".join(body))
                groups.append(Group(f"{table} {block}", members.group(1) if members else ""))
            block = ""
        elif block and kind == "chain" and line and not line.startswith(("#", "type ", "policy ", "comment ")):
            handle = _HANDLE.search(line)
            if handle:
                rule = _COUNTER.sub("counter", line[: handle.start()])
                rules.append(Rule(NFT, f"{table} {block}", rule, int(handle.group(1))))
        elif block:
            body.append(line)
    return tuple(rules), tuple(groups)


def _run(command: str, words: list[str], unread: dict[str, str]) -> str:
    path = shutil.which(command, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
    if path is None:
        return ""
    try:
        done = subprocess.run([path, *words], capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        unread[command] = str(error)
        return ""
    if done.returncode != 0:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        unread[command] = said[0] if said else f"ended with {done.returncode}"
        return ""
    return done.stdout.decode("utf-8", "replace")
