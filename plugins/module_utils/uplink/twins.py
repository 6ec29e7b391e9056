# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Firewall rules that name one link and leave out the one that takes its place, and the rules that are to be added.

After a move the node's own traffic comes in and goes out by the bridge: a rule that names the NIC matches it no more,
whether it let something through, kept something out or translated addresses. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..kernel.firewall import NFT, Firewall, Group, Rule
from ..model.obstacle import BLOCKING, WARNING, Obstacle

_QUOTED = re.compile(r'"([^"]*)"')
_REMARK = re.compile(r'\b(?:comment|prefix) "[^"]*"')
_INTERFACE = re.compile(r"\b[io]if(?:name)?\b")
_BY_INDEX = re.compile(r"\b([io]if) ")
"""Such a rule can only name a link that is there, and the bridge comes with the move."""
_EXCLUDED = re.compile(r"(\b[io]if(?:name)? != )(\{[^}]*\}|\"[^\"]*\")")
_OPTION = re.compile(r"(?<!\S)(! )?(-i|-o|--in-interface|--out-interface) (\S+)")
_COMMENT = re.compile(r'--comment (?:"[^"]*"|\S+)')
_ZONE = re.compile(r"(?:PRE|IN|OUT|FWDI|FWDO|FWD|POST)_([\w-]+)$")
_FIREWALLD = "firewalld"
_MARK = "\0"
_PAST = ("-j RETURN", "-j ACCEPT")


def twins_missing(firewall: Firewall, nic: str, bridge: str) -> Iterator[Obstacle]:
    """One obstacle for each rule, set or zone that names `nic` and knows nothing of `bridge`."""
    zones: dict[str, None] = {}
    chains: dict[tuple[str, str], list[Rule]] = {}
    for rule in firewall.rules:
        chains.setdefault((rule.tool, rule.place), []).append(rule)
    for rule in firewall.rules:
        if not _names(rule, nic, bridge) or _has_twin(chains[rule.tool, rule.place], rule, nic, bridge):
            continue
        if _FIREWALLD in rule.place.split(" "):
            zone = _ZONE.search(rule.text.split("(")[0].strip())
            zones[zone.group(1) if zone else ""] = None
        else:
            yield Obstacle(
                BLOCKING,
                f"the firewall rule `{_command(rule)}` is for {nic} and not for {bridge}",
                _way(rule, nic, bridge),
            )
    for name in zones:
        option = f"--zone={name} " if name else ""
        add = f"firewall-cmd {option}--add-interface={bridge}"
        text = f"the firewalld zone {name or 'of ' + nic} holds {nic} and not {bridge}"
        yield Obstacle(BLOCKING, text, f"{add} && {add.replace('firewall-cmd', 'firewall-cmd --permanent')}")
    for group in firewall.groups:
        if _FIREWALLD not in group.place.split(" "):
            yield from _of_group(group, nic, bridge)
    for tool, said in firewall.unread.items():
        yield Obstacle(WARNING, f"the firewall's rules could not be read: {tool}: {said}", f"look for rules with {nic}")


def rules_waiting(firewall: Firewall, source: str, target: str) -> Iterator[Obstacle]:
    """Rules for the device that takes over, and not for the one that has the addresses: harmless so far."""
    chains: dict[tuple[str, str], list[Rule]] = {}
    for rule in firewall.rules:
        chains.setdefault((rule.tool, rule.place), []).append(rule)
    for rule in firewall.rules:
        if _names(rule, target, source) and not _has_twin(chains[rule.tool, rule.place], rule, target, source):
            text = f"the firewall rule `{_command(rule)}` is for {target}, and holds for the node itself after the move"
            yield Obstacle(WARNING, text, "see that it lets through what reaches the node")


def _of_group(group: Group, nic: str, bridge: str) -> Iterator[Obstacle]:
    words = _QUOTED.findall(group.members)
    mine = [word for word in words if _matches(word, nic, "*") and not _matches(word, bridge, "*")]
    if not mine or any(_matches(word, bridge, "*") for word in words):
        return
    entries = [entry.strip() for entry in group.members.replace("\n", " ").split(",")]
    wanted = [entry.replace(f'"{mine[0]}"', f'"{bridge}"') for entry in entries if f'"{mine[0]}"' in entry]
    yield Obstacle(
        BLOCKING,
        f"the firewall's set `{group.place}` holds {nic} and not {bridge}",
        f"nft 'add element {group.place} {{ {', '.join(wanted)} }}'",
    )


def _names(rule: Rule, nic: str, bridge: str) -> bool:
    """Whether the rule is about the NIC and not about both."""
    words = _words(rule)
    mine = any(_matches(word, nic, _star(rule)) and not _matches(word, bridge, _star(rule)) for word in words)
    if rule.tool != NFT:
        return mine
    return mine and not any(_matches(word, bridge, "*") for word in words)


def _words(rule: Rule) -> list[str]:
    if rule.tool == NFT:
        text = _REMARK.sub("", rule.text)
        return _QUOTED.findall(text) if _INTERFACE.search(text) else []
    return [found.group(3) for found in _OPTION.finditer(_COMMENT.sub("", rule.text))]


def _star(rule: Rule) -> str:
    return "*" if rule.tool == NFT else "+"


def _matches(word: str, name: str, star: str) -> bool:
    return name.startswith(word[:-1]) if word.endswith(star) else word == name


def _has_twin(beside: list[Rule], rule: Rule, nic: str, bridge: str) -> bool:
    if _is_exclusion(rule, nic):
        early = {f"{option} {bridge} {past}" for option in ("-i", "-o") for past in _PAST}
        return any(other.position < rule.position and other.text in early for other in beside if rule.tool != NFT)
    wanted = _marked(rule, nic)
    if any(_marked(other, bridge) == wanted for other in beside if other != rule):
        return True
    if _FIREWALLD not in rule.place.split(" "):
        return False
    # the default zone's rule, which comes last, names no interface
    rest = _QUOTED.sub("", rule.text).replace("iifname", "").replace("oifname", "").split()
    return any(other.text.split() == rest for other in beside)


def _is_exclusion(rule: Rule, nic: str) -> bool:
    if rule.tool == NFT:
        return any(f'"{nic}"' in found.group(2) for found in _EXCLUDED.finditer(rule.text))
    return any(found.group(1) and found.group(3) == nic for found in _OPTION.finditer(rule.text))


def _marked(rule: Rule, name: str) -> str:
    """The rule with a mark in the place of each interface that is, or covers, that name; "" if there is none."""
    text = " ".join(_put(rule, _REMARK.sub("", _COMMENT.sub("", rule.text)), name, _MARK).split())
    return text if _MARK in text else ""


def _put(rule: Rule, text: str, name: str, other: str) -> str:
    """The text with `other` for each interface that is, or covers, that name."""
    if rule.tool == NFT:
        text = _BY_INDEX.sub(r"\1name ", text)
        return _QUOTED.sub(lambda found: f'"{other}"' if _matches(found.group(1), name, "*") else found.group(0), text)

    def changed(found: re.Match[str]) -> str:
        if not _matches(found.group(3), name, "+"):
            return found.group(0)
        return f"{found.group(1) or ''}{found.group(2)} {other}"

    return _OPTION.sub(changed, text)


def _command(rule: Rule) -> str:
    if rule.tool == NFT:
        return f"nft add rule {rule.place} {rule.text}"
    table, _space, chain = rule.place.partition(" ")
    return f"{rule.tool} -t {table} -A {chain} {rule.text}"


def _way(rule: Rule, nic: str, bridge: str) -> str:
    if rule.tool == NFT:
        if _is_exclusion(rule, nic):
            return f"nft 'replace rule {rule.place} handle {rule.position} {_widened(rule.text, nic, bridge)}'"
        # after the NIC's own rule, and not at the end, where nothing may come any more
        return f"nft 'add rule {rule.place} handle {rule.position} {_for_bridge(rule, nic, bridge)}'"
    table, _space, chain = rule.place.partition(" ")
    if _is_exclusion(rule, nic):
        option = next(found.group(2) for found in _OPTION.finditer(rule.text) if found.group(1))
        return (
            f"it must leave out {bridge} too: {rule.tool} -t {table} -I {chain} {rule.position} {option} {bridge} "
            "-j RETURN, if no later rule of that chain is for it"
        )
    if chain.startswith("ufw"):
        return _ufw(rule, nic, bridge)
    return f"{rule.tool} -t {table} -I {chain} {rule.position + 1} {_for_bridge(rule, nic, bridge)}"


def _for_bridge(rule: Rule, nic: str, bridge: str) -> str:
    remarks = [*_REMARK.findall(rule.text), *_COMMENT.findall(rule.text)]
    text = rule.text
    for remark in remarks:  # which may name the NIC too
        text = text.replace(remark, _MARK, 1)
    text = _put(rule, text, nic, bridge)
    for remark in remarks:
        text = text.replace(_MARK, remark, 1)
    return text


def _widened(text: str, nic: str, bridge: str) -> str:
    def wider(found: re.Match[str]) -> str:
        if f'"{nic}"' not in found.group(2):
            return found.group(0)
        members = found.group(2).strip("{ }")
        return f'{found.group(1)}{{ {members}, "{bridge}" }}'

    return _EXCLUDED.sub(wider, _BY_INDEX.sub(r"\1name ", text))


def _ufw(rule: Rule, nic: str, bridge: str) -> str:
    """The rule in the words of ufw(8), which forgets what others add to its chains."""
    words = rule.text.split()
    pairs = dict(zip(words, words[1:]))
    actions = {"ACCEPT": "allow", "DROP": "deny", "REJECT": "reject"}
    target = pairs.get("-j", "")
    action = actions.get(target, "limit" if "limit" in target else "")
    way = "in on" if pairs.get("-i") == nic else "out on"
    if not action:
        return f"give ufw the same rule for {bridge}: ufw status, /etc/ufw/*.rules"
    said = ["ufw", action, way, bridge]
    if "-s" in pairs:
        said += ["from", pairs["-s"]]
    said += ["to", pairs.get("-d", "any")]
    port = pairs.get("--dport") or pairs.get("--dports")
    if port:
        said += ["port", port]
    if "-p" in pairs:
        said += ["proto", pairs["-p"]]
    return " ".join(said)
