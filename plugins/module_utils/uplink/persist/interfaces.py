# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of interfaces(5), with a NIC's stanzas given to a bridge. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from ...errors import RefusedError
from .base import SIGN

_STARTS = re.compile(r"(iface|mapping|auto|allow-\S+|no-\S+|source|source-directory|template|rename)$")
_COMMANDS = ("up", "post-up", "pre-up", "down", "pre-down", "post-down")
_OF_THE_LINK = re.compile(r"(hwaddress|ethernet-.*|link-.*|offload-.*|hardware-.*|driver-.*|wireless-.*|wpa-.*)$")
"""Options of the NIC itself: the bridge has its MAC address from Open vSwitch, and no speed."""
_REFUSED = re.compile(r"(ovs_.*|bridge[-_].*|bond[-_].*|vrf.*|inherits)$")


@dataclass(frozen=True)
class Stanza:
    """One stanza: its first word, its other words, and its lines as they were written."""

    kind: str
    words: tuple[str, ...]
    lines: tuple[str, ...]


def stanzas(text: str) -> Iterator[Stanza]:
    """The stanzas of a file; comments and empty lines belong to what stands before them."""
    kind, words, lines = "", tuple[str, ...](), list[str]()
    for line in _joined(text):
        first, *rest = line.replace("\\\n", " ").split() or [""]
        if _STARTS.match(first):
            yield Stanza(kind, words, tuple(lines))
            kind, words, lines = first, tuple(rest), []
        lines.append(line)
    yield Stanza(kind, words, tuple(lines))


def methods(text: str, nic: str) -> list[tuple[str, str]]:
    """Family and method of each `iface` stanza of a NIC, such as ("inet", "dhcp")."""
    found = (stanza.words for stanza in stanzas(text) if stanza.kind == "iface" and stanza.words[:1] == (nic,))
    return [(words[1], words[2]) for words in found if len(words) >= 3]


def brought_up(text: str, nic: str) -> bool:
    """Whether the NIC comes up by itself."""
    return any(
        nic in stanza.words and re.match(r"auto$|allow-(auto|hotplug)$", stanza.kind) for stanza in stanzas(text)
    )


def sources(text: str) -> list[tuple[str, str]]:
    """What a file takes in: ("source", pattern) or ("source-directory", pattern)."""
    return [
        (stanza.kind, word) for stanza in stanzas(text) if stanza.kind.startswith("source") for word in stanza.words
    ]


def moved(text: str, nic: str, bridge: str) -> str:
    """The file after the move. Raises RefusedError for what a bridge cannot take over."""
    out: list[str] = []
    for stanza in stanzas(text):
        if stanza.kind == "iface" and stanza.words[:1] == (nic,):
            out += _iface(stanza, nic, bridge)
        elif nic in stanza.words and re.match(r"auto$|allow-", stanza.kind):
            out += _auto(stanza, nic, bridge)
        else:
            out += stanza.lines
    head = f"{SIGN}what {nic} had is the bridge {bridge}'s; the file as it was is kept."
    return "\n".join([head, *out]) + "\n"


def _auto(stanza: Stanza, nic: str, bridge: str) -> list[str]:
    rest = [word for word in stanza.words if word not in (nic, bridge)]
    kept = [f"{stanza.kind} {' '.join(rest)}"] if rest else []
    return [*kept, f"auto {bridge}", *stanza.lines[1:]]


def _iface(stanza: Stanza, nic: str, bridge: str) -> list[str]:
    out = [" ".join([stanza.kind, bridge, *stanza.words[1:]])]
    for line in stanza.lines[1:]:
        key, *rest = line.split() or [""]
        if _REFUSED.match(key):
            raise RefusedError(
                f"ifupdown makes {nic} part of something else: {line.strip()}",
                f"take that out of the configuration of {nic}, or name another NIC",
            )
        if _OF_THE_LINK.match(key):
            continue
        is_hung = key in _COMMANDS and _names(line, nic)
        out.append(_command(line, rest, nic, bridge) if is_hung else line)
    return out


def _command(line: str, words: list[str], nic: str, bridge: str) -> str:
    """A command that hangs something on the NIC hangs it on the bridge; one about the link stays about the link."""
    if words and words[0].rpartition("/")[2] == "ethtool":
        return line
    changed = re.sub(rf"\bdev\s+{re.escape(nic)}(?![\w.-])", f"dev {bridge}", line)
    if _names(changed, nic):
        raise RefusedError(
            f"a command of ifupdown names {nic}, and it is not known what it means on a bridge: {line.strip()}",
            'write "$IFACE" in its place, or take it out',
        )
    return changed


def _names(line: str, nic: str) -> bool:
    return re.search(rf"(?<![\w.-]){re.escape(nic)}(?![\w.-])", line) is not None


def _joined(text: str) -> Iterator[str]:
    pending = ""
    for line in text.splitlines():
        pending += line
        if line.endswith("\\") and not line.lstrip().startswith("#"):
            pending += "\n"
            continue
        yield pending
        pending = ""
    if pending:
        yield pending.rstrip("\n")
