# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLAN sets: one parser for every form in which users and databases write them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import ConfigError

LOWEST = 1
HIGHEST = 4094
"""IEEE 802.1Q-2018, table 9-2: 0 tags a priority only and 4095 is reserved."""


def parse_vlan_id(value: object, path: str) -> int:
    """A VLAN id as JSON writes it: an int from 1 to 4094, nothing that merely looks like one.

    Raises ConfigError that names `path`.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(path, f"a VLAN id is a whole number, not {value!r}", f"{LOWEST} to {HIGHEST}, without quotes")
    return _in_range(value, path)


def ranges_of(ids: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The ids as ascending, separate ranges, both ends included. Takes any ints: databases hold 0 and 4095 too."""
    ranges: list[tuple[int, int]] = []
    for number in sorted(set(ids)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def collapse(ids: Iterable[int]) -> str:
    """The ids as people write them: `10,20-30`."""
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges_of(ids))


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
        return cls(ranges_of(_ids(value, path)))

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and any(low <= number <= high for low, high in self.ranges)

    def __iter__(self) -> Iterator[int]:
        for low, high in self.ranges:
            yield from range(low, high + 1)

    def __len__(self) -> int:
        return sum(high - low + 1 for low, high in self.ranges)

    def __or__(self, other: VlanSet) -> VlanSet:
        return VlanSet(ranges_of([*self, *other]))

    def __and__(self, other: VlanSet) -> VlanSet:
        return VlanSet(ranges_of(set(self) & set(other)))

    def __sub__(self, other: VlanSet) -> VlanSet:
        return VlanSet(ranges_of(set(self) - set(other)))

    def __le__(self, other: VlanSet) -> bool:
        return set(self) <= set(other)

    def __str__(self) -> str:
        return collapse(self)

    def to_trunk(self) -> list[dict[str, int]]:
        """The CNI form: `[{"id": 10}, {"minID": 20, "maxID": 30}]`."""
        return [{"id": low} if low == high else {"minID": low, "maxID": high} for low, high in self.ranges]


def _in_range(number: int, path: str) -> int:
    if not LOWEST <= number <= HIGHEST:
        raise ConfigError(path, f"VLAN {number} is out of range", f"{LOWEST} to {HIGHEST}")
    return number


def _ids(value: object, path: str) -> Iterator[int]:
    if isinstance(value, VlanSet):
        yield from value
    elif isinstance(value, str):
        for part in value.split(","):
            if part.strip() or "," in value:
                yield from _text(part.strip(), path)
    elif isinstance(value, Mapping):
        yield from _trunk_entry(value, path)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            yield from _ids(item, f"{path}[{index}]")
    else:
        yield parse_vlan_id(value, path)


def _text(part: str, path: str) -> Iterator[int]:
    low, dash, high = (piece.strip() for piece in part.partition("-"))
    ends = [low, high] if dash else [low]
    if not all(end.isascii() and end.isdigit() for end in ends):
        raise ConfigError(path, f"{part!r} is neither a VLAN id nor a range", "write it like 100 or 20-30")
    yield from _span(int(ends[0]), int(ends[-1]), path)


def _trunk_entry(entry: Mapping[object, object], path: str) -> Iterator[int]:
    keys = {str(key) for key in entry}
    if keys == {"id"}:
        yield parse_vlan_id(entry["id"], f"{path}.id")
    elif keys == {"minID", "maxID"}:
        low = parse_vlan_id(entry["minID"], f"{path}.minID")
        high = parse_vlan_id(entry["maxID"], f"{path}.maxID")
        yield from _span(low, high, path)
    else:
        raise ConfigError(path, f"a trunk entry has id, or minID and maxID, not {', '.join(sorted(keys)) or 'nothing'}")


def _span(low: int, high: int, path: str) -> Iterator[int]:
    _in_range(low, path)
    _in_range(high, path)
    if low > high:
        raise ConfigError(path, f"the range {low}-{high} runs backwards", f"{high}-{low}?")
    yield from range(low, high + 1)
