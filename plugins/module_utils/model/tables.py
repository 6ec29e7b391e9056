# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Values out of what YAML or JSON gave, for the parsers of the model.

`table` is the map, `path` its place. All raise ConfigError (UnsupportedField for a key that is not known) with the path
of the bad value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, TypeVar

from ..errors import ConfigError
from .names import parse_mtu, refuse_unknown_keys
from .vlan import VlanSet

T = TypeVar("T")


def at(path: str, key: str) -> str:
    """The place of a key in a table, `bridges[0].name`."""
    return f"{path}.{key}" if path else key


def as_table(value: object, path: str, kind: Any) -> Mapping[str, Any]:
    """A map that has no key but the fields of the dataclass `kind`."""
    if not isinstance(value, Mapping):
        raise ConfigError(path, f"a map with keys is wanted here, not {value!r}")
    refuse_unknown_keys(value, [column.name for column in fields(kind)], path)
    return value


def as_list(table: Mapping[str, Any], key: str, path: str) -> list[Any]:
    """A list; what is not given is an empty one."""
    value = table.get(key)
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise ConfigError(at(path, key), f"a list is wanted here, not {value!r}")
    return list(value)


def each(table: Mapping[str, Any], key: str, path: str, parse: Callable[[object, str], T]) -> tuple[T, ...]:
    """Things that have a name, each once."""
    place = at(path, key)
    things = tuple(parse(item, f"{place}[{i}]") for i, item in enumerate(as_list(table, key, path)))
    names = [getattr(thing, "name", "") for thing in things]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"{place}[{i}].name", f"{name} is there twice")
    return things


def as_map(table: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    """A map; what is not given is an empty one."""
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(at(path, key), f"a map is wanted here, not {value!r}")
    return value


def strings(table: Mapping[str, Any], key: str, path: str) -> dict[str, str]:
    """A map of strings; YAML's own numbers and booleans are written as Open vSwitch reads them."""
    found = {}
    for name, value in as_map(table, key, path).items():
        if not isinstance(value, (str, int)) or not str(name):
            raise ConfigError(f"{at(path, key)}.{name}", f"a string is wanted here, not {value!r}")
        found[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def optional(table: Mapping[str, Any], key: str, path: str, parse: Callable[[Any, str], T]) -> T | None:
    """What `parse` makes of the value; None if it is not given."""
    value = table.get(key)
    return None if value is None else parse(value, at(path, key))


def choice(table: Mapping[str, Any], key: str, path: str, choices: tuple[str, ...]) -> str | None:
    """One of the words; None if it is not given."""
    value = table.get(key)
    if value is None:
        return None
    if value is False and "off" in choices:  # YAML 1.1 reads a bare off so
        return "off"
    if value not in choices:
        raise ConfigError(at(path, key), f"{value!r} is not known", f"one of {', '.join(choices)}")
    return str(value)


def flag(table: Mapping[str, Any], key: str, path: str) -> bool:
    """True or false; what is not given is false."""
    value = table.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError(
            at(path, key), f"true or false is wanted here, not {value!r}", "without quotes, or leave the key away"
        )
    return value


def any_mtu(value: object, path: str) -> int:
    """An MTU as YAML has it, which may be a text of digits."""
    return parse_mtu(int(value) if isinstance(value, str) and value.isdigit() else value, path)


def one_vlan(value: object, path: str) -> int:
    """A VLAN id as YAML has it, which may be a text of digits."""
    vlans = VlanSet.parse(value, path)
    if len(vlans) != 1:
        raise ConfigError(path, f"one VLAN is wanted here, not {value!r}")
    return next(iter(vlans))
