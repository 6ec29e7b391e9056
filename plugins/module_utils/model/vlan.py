# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLAN sets: one parser for every form in which users and databases write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

from ..errors import ConfigError

LOWEST = 1
HIGHEST = 4094
"""IEEE 802.1Q-2018, table 9-2: 0 tags a priority only and 4095 is reserved."""
_RESERVED = 4095
_DIGITS = 9
"""Of a number in a text. Python refuses to read one of thousands, or takes long."""


def parse_vlan_id(value: object, path: str) -> int:
    """A VLAN id as JSON writes it: an int from 1 to 4094, nothing that merely looks like one.

    Raises ConfigError that names `path`.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(path, f"a VLAN id is a whole number, not {value!r}", f"{LOWEST} to {HIGHEST}, without quotes")
    return _in_range(value, path)


def ranges_of(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The ids as ascending, separate ranges, both ends included. Takes any ints: databases hold 0 and 4095 too."""
    numbers = set(ids)
    lows = sorted(number for number in numbers if number - 1 not in numbers)
    highs = sorted(number for number in numbers if number + 1 not in numbers)
    return tuple(zip(lows, highs))


def collapse(ids: Iterable[int]) -> str:
    """The ids as people write them: `10,20-30`."""
    return _words(ranges_of(ids))


@dataclass(frozen=True)
class VlanSet:
    """An immutable set of VLAN ids, canonical: equal sets have equal `ranges`, and print alike (`10,20-30`)."""

    ranges: tuple[tuple[int, int], ...] = ()

    @classmethod
    def of(cls, ids: Iterable[int], path: str = "vlans") -> VlanSet:
        """From ints. Raises ConfigError for one that is no VLAN id."""
        return cls(ranges_of(parse_vlan_id(number, path) for number in ids))

    @classmethod
    def parse(cls, value: object, path: str = "vlans") -> VlanSet:
        """From `100`, `"10,20-30"`, a CNI trunk list of `{id}` and `{minID, maxID}`, or a list that mixes them.

        Raises ConfigError that names the place of the bad part.
        """
        spans = list(islice(_spans(value, path), HIGHEST + 1))
        if len(spans) > HIGHEST:
            raise ConfigError(path, f"there are more than {HIGHEST} entries", "write ranges, like 20-30")
        return cls(_merged(spans))

    @classmethod
    def union(cls, sets: Iterable[VlanSet]) -> VlanSet:
        """All that is in any of them."""
        return cls(_merged(span for vlans in sets for span in vlans.ranges))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(low <= number <= high for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    # On ranges, not on numbers: a trunk of thousands is compared with the policy on each attachment.

    def __or__(self, other: VlanSet) -> VlanSet:
        return VlanSet.union((self, other))

    def __and__(self, other: VlanSet) -> VlanSet:
        found, mine, theirs = [], 0, 0
        while mine < len(self.ranges) and theirs < len(other.ranges):
            (low, high), (start, end) = self.ranges[mine], other.ranges[theirs]
            if max(low, start) <= min(high, end):
                found.append((max(low, start), min(high, end)))
            if high < end:
                mine += 1
            else:
                theirs += 1
        return VlanSet(tuple(found))

    def __sub__(self, other: VlanSet) -> VlanSet:
        lows = (0, *(high + 1 for _low, high in other.ranges))
        highs = (*(low - 1 for low, _high in other.ranges), _RESERVED)
        return self & VlanSet(tuple((low, high) for low, high in zip(lows, highs) if low <= high))

    def __le__(self, other: VlanSet) -> bool:
        return not self - other

    def __str__(self) -> str:
        return _words(self.ranges)

    def to_trunk(self) -> list[dict[str, int]]:
        """The CNI form: `[{"id": 10}, {"minID": 20, "maxID": 30}]`."""
        return [{"id": low} if low == high else {"minID": low, "maxID": high} for low, high in self.ranges]


def _in_range(number: int, path: str) -> int:
    if not LOWEST <= number <= HIGHEST:
        raise ConfigError(path, f"VLAN {number} is out of range", f"{LOWEST} to {HIGHEST}")
    return number


def _words(ranges: Iterable[tuple[int, int]]) -> str:
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def _merged(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for low, high in sorted(spans):
        if found and low <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


def _spans(value: object, path: str) -> Iterator[tuple[int, int]]:
    if isinstance(value, VlanSet):
        yield from value.ranges
    elif isinstance(value, str):
        for part in value.split(","):
            if part.strip() or "," in value:
                yield _text(part.strip(), path)
    elif isinstance(value, Mapping):
        yield _trunk_entry(value, path)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _spans(item, f"{path}[{index}]")
    else:
        number = parse_vlan_id(value, path)
        yield number, number


def _text(part: str, path: str) -> tuple[int, int]:
    low, dash, high = (piece.strip() for piece in part.partition("-"))
    ends = [low, high] if dash else [low]
    if not all(end.isascii() and end.isdigit() and len(end) <= _DIGITS for end in ends):
        raise ConfigError(path, f"{part[:40]!r} is neither a VLAN id nor a range", "write it like 100 or 20-30")
    return _span(int(ends[0]), int(ends[-1]), path)


def _trunk_entry(entry: Mapping[object, object], path: str) -> tuple[int, int]:
    keys = {str(key) for key in entry}
    if keys == {"id"}:
        number = parse_vlan_id(entry["id"], f"{path}.id")
        return number, number
    if keys == {"minID", "maxID"}:
        low = parse_vlan_id(entry["minID"], f"{path}.minID")
        high = parse_vlan_id(entry["maxID"], f"{path}.maxID")
        return _span(low, high, path)
    raise ConfigError(path, f"a trunk entry has id, or minID and maxID, not {', '.join(sorted(keys)) or 'nothing'}")


def _span(low: int, high: int, path: str) -> tuple[int, int]:
    _in_range(low, path)
    _in_range(high, path)
    if low > high:
        raise ConfigError(path, f"the range {low}-{high} runs backwards", f"{high}-{low}?")
    return low, high
