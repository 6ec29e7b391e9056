# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The layers of an operator's variables, fleet < site < host, merged into what one node should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..errors import ConfigError
from .node import Node

ABSENT = "absent"
STATES = ("present", ABSENT)
_NAMED: Mapping[str, Any] = {"bridges": {"uplinks": {}, "interfaces": {}}, "networks": {}}
"""The lists that merge by name, and those in their entries."""


def merge_layers(*layers: Mapping[str, Any]) -> dict[str, Any]:
    """The layers (`{"bridges": [...], "networks": [...], "policy": [...]}`), lowest first, as one such map.

    Lists whose entries have a `name` merge by it, at every depth, in the order of first mention; other lists replace;
    maps merge by key, where null counts as not said; `state: absent` removes what a lower layer gave. The result is
    checked: raises ConfigError with the path of the bad value.
    """
    merged: Any = {}
    for layer in layers:
        if not isinstance(layer, Mapping):
            raise ConfigError("", f"a layer is a map, not {layer!r}")
        _check_shape(layer, _NAMED, "")
        merged = _merge(merged, layer, "")
    cleaned = _without_absent(merged)
    Node.parse(cleaned)
    return dict(cleaned)


def _check_shape(table: Mapping[str, Any], named: Mapping[str, Any], path: str) -> None:
    """What cannot be merged by name is an error: an empty list in a layer above would silently take its place."""
    for key, inner in named.items():
        place = f"{path}.{key}" if path else key
        value = table.get(key)
        if value is not None and not isinstance(value, (list, tuple)):
            raise ConfigError(place, f"a list is wanted here, not {value!r}")
        for index, entry in enumerate(value or ()):
            if not isinstance(entry, Mapping):
                raise ConfigError(f"{place}[{index}]", f"a map with keys is wanted here, not {entry!r}")
            if not isinstance(entry.get("name"), str):
                raise ConfigError(f"{place}[{index}].name", f"a name is wanted here, not {entry.get('name')!r}")
            _check_shape(entry, inner, f"{place}[{index}]")


def _merge(low: Any, high: Any, path: str) -> Any:
    if high is None:
        return low
    if isinstance(low, Mapping) and isinstance(high, Mapping):
        keys = [*low, *(key for key in high if key not in low)]
        return {key: _merge(low.get(key), high.get(key), f"{path}.{key}" if path else str(key)) for key in keys}
    if _is_named(low) and _is_named(high) and (low or high):
        return _merge_named(low or [], high or [], path)
    return high


def _merge_named(low: list[Any], high: list[Any], path: str) -> list[Any]:
    found: dict[str, Any] = {entry["name"]: entry for entry in low}
    seen: set[str] = set()
    for index, entry in enumerate(high):
        name = entry["name"]
        if name in seen:
            raise ConfigError(f"{path}[{index}].name", f"{name} is there twice in one layer")
        seen.add(name)
        below = found.get(name)
        if below is not None and below.get("state") == ABSENT and entry.get("state") != ABSENT:
            below = None  # removed by a layer below: this one begins afresh
        found[name] = _merge(below, entry, f"{path}[{index}]")
    return list(found.values())


def _is_named(value: Any) -> bool:
    return value is None or (
        isinstance(value, (list, tuple))
        and all(isinstance(entry, Mapping) and isinstance(entry.get("name"), str) for entry in value)
    )


def _without_absent(value: Any, path: str = "") -> Any:
    if isinstance(value, Mapping):
        pairs = {key: _without_absent(item, f"{path}.{key}" if path else str(key)) for key, item in value.items()}
        if "name" in pairs and "state" in pairs:
            if pairs["state"] not in STATES:
                raise ConfigError(f"{path}.state", f"{pairs['state']!r} is not known", f"one of {', '.join(STATES)}")
            del pairs["state"]
        return pairs
    if isinstance(value, (list, tuple)):
        kept = [item for item in value if not (isinstance(item, Mapping) and "name" in item and _is_absent(item))]
        return [_without_absent(item, f"{path}[{index}]") for index, item in enumerate(kept)]
    return value


def _is_absent(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("state") == ABSENT)
