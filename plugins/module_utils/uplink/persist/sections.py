# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The text of systemd's configuration files as sections of lines, kept as they were written. Pure.

See systemd.syntax(7): a line that ends in a backslash goes on; a file and its drop-ins count as one text, in order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HEADER = re.compile(r"\s*\[([^\]]+)\]\s*")


@dataclass(frozen=True)
class Entry:
    """One setting: its key, its value, and the lines it was written in. Comments have the key ""."""

    key: str
    value: str
    text: str


@dataclass(frozen=True)
class Section:
    """One section, as often as it is written."""

    name: str
    entries: tuple[Entry, ...]

    def without(self, keys: Iterable[str]) -> Section:
        """The section without some settings."""
        gone = set(keys)
        return Section(self.name, tuple(entry for entry in self.entries if entry.key not in gone))

    def only(self, keys: Iterable[str]) -> Section:
        """The section with some settings only."""
        kept = set(keys)
        return Section(self.name, tuple(entry for entry in self.entries if entry.key in kept))

    def render(self) -> str:
        """Its text."""
        return "\n".join([f"[{self.name}]", *(entry.text for entry in self.entries)]) + "\n"


def parse(text: str) -> tuple[Section, ...]:
    """The sections of a text in order; what stands before the first one are comments."""
    sections: list[Section] = []
    name, entries = "", list[Entry]()
    for lines in _logical(text):
        header = _HEADER.fullmatch(lines)
        if header:
            sections.append(Section(name, tuple(entries)))
            name, entries = header.group(1), []
        elif lines.strip():
            entries.append(_entry(lines))
    sections.append(Section(name, tuple(entries)))
    return tuple(section for section in sections if section.name)


def values(sections: Iterable[Section], section: str, key: str) -> tuple[str, ...]:
    """All values of a setting in order; an empty one forgets those before it."""
    found: list[str] = []
    for part in sections:
        if part.name == section:
            for entry in part.entries:
                if entry.key == key:
                    found = [*found, entry.value] if entry.value else []
    return tuple(found)


def _logical(text: str) -> Iterable[str]:
    pending: list[str] = []
    for line in text.splitlines():
        comment = line.lstrip()[:1] in ("#", ";")
        pending.append(line)
        if (comment and len(pending) > 1) or (not comment and line.endswith("\\")):
            continue
        yield "\n".join(pending)
        pending = []
    if pending:
        yield "\n".join(pending)


def _entry(lines: str) -> Entry:
    if lines.lstrip()[:1] in ("#", ";"):
        return Entry("", "", lines)
    joined = " ".join(line[:-1] if line.endswith("\\") else line for line in lines.split("\n"))
    key, equals, value = joined.partition("=")
    return Entry(key.strip() if equals else "", value.strip(), lines)
