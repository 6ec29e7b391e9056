# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Standard input of a call: strict JSON, and the keys that the specification gives each plugin.

Raises DecodeError (code 6) for what is not JSON or not of the protocol's shape, ConfigError (code 7) for a bad value.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ..errors import ConfigError, DecodeError
from ..model.names import parse_plugin_type
from .versions import NEWEST, parse_version

T = TypeVar("T")

MAX_BYTES = 1 << 20
MAX_DEPTH = 64
_AROUND = 4
"""Levels that a result gets around it on its way back."""
MAX_NAME = 255
"""Characters of a name: IPAM plugins and runtimes make a file of it (linux/limits.h, NAME_MAX)."""
MAX_DIGITS = 20
"""Of a whole number: 64 bits have as many. Reading one of a million digits takes Python minutes."""
VALID_ATTACHMENTS = ("cni.dev/valid-attachments", "cni.dev/attachments")
"""The second is what libcni also sends."""
COMMON_KEYS = frozenset({
    "cniVersion", "name", "type", "ipam", "dns", "args", "runtimeConfig", "prevResult", "capabilities", "ipMasq",
})  # fmt: skip

_HALF = re.compile("[\ud800-\udfff]")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")


@dataclass(frozen=True)
class NetConf:
    """A plugin's configuration. `raw` is the whole of it, `stdin` the bytes as they came, for a delegate."""

    version: str
    name: str
    type: str
    raw: Mapping[str, Any]
    stdin: bytes
    ipam: Mapping[str, Any] = field(default_factory=dict)
    dns: Mapping[str, Any] = field(default_factory=dict)
    runtime: Mapping[str, Any] = field(default_factory=dict)
    args: Mapping[str, Any] = field(default_factory=dict)
    prev_result: Mapping[str, Any] | None = None

    @property
    def ipam_type(self) -> str:
        """The delegated plugin, empty without addresses."""
        return str(self.ipam.get("type", ""))


def decode(stdin: bytes) -> dict[str, Any]:
    """One JSON object. Duplicate keys, NaN and infinity, wild nesting, other encodings, half characters are refused."""
    return _decode(stdin, "the configuration", MAX_BYTES, MAX_DEPTH, _no_duplicates)


def decode_result(stdout: bytes) -> dict[str, Any]:
    """What another plugin printed. It has to fit into a configuration, in which it comes back as `prevResult`: what is
    let through here and refused there makes a pod that no DEL takes away. Raises DecodeError.
    """
    return _decode(stdout, "what it printed", MAX_BYTES // 2, MAX_DEPTH - _AROUND, dict)


def _decode(
    data: bytes, what: str, most: int, depth: int, table: Callable[[list[tuple[str, Any]]], dict[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    if len(data) > most:
        raise DecodeError(f"{what} has {len(data)} bytes", f"at most {most} are read")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(f"{what} is not UTF-8: byte {error.start}") from error
    _check_depth(text, what, depth)
    try:
        value = json.loads(
            text, object_pairs_hook=table, parse_int=_whole_number, parse_float=_number, parse_constant=_no_constant
        )
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"{what} is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DecodeError(f"{what} is a JSON {type(value).__name__}", "an object is wanted")
    if "\\u" in text:
        _refuse_halves(value, what)
    return value


def parse_netconf(raw: Mapping[str, Any], stdin: bytes, forgiving: bool = False) -> NetConf:
    """The protocol's part of a configuration; a plugin's own keys stay in `raw`.

    `forgiving`, for DEL: what cannot be used counts as not given, since no ADD can have used it either.
    """

    def read(parse: Callable[[], T], otherwise: T) -> T:
        try:
            return parse()
        except ConfigError:
            if forgiving:
                return otherwise
            raise

    nothing: Mapping[str, Any] = {}
    name = read(lambda: parse_name(raw.get("name")), "")
    return NetConf(
        version=read(lambda: parse_version(raw.get("cniVersion")), NEWEST),
        name=name,
        type=str(raw.get("type", "")),
        raw=raw,
        stdin=stdin,
        ipam=read(lambda: parse_ipam(raw, raw.get("type")), nothing) if name else nothing,
        dns=read(lambda: _map(raw, "dns"), nothing),
        runtime=read(lambda: _map(raw, "runtimeConfig"), nothing),
        args=read(lambda: _map(_map(raw, "args"), "cni", "args."), nothing),
        prev_result=read(lambda: _map(raw, "prevResult") or None, None),
    )


def parse_name(value: object, path: str = "name") -> str:
    """A network's name."""
    if not isinstance(value, str) or not _NAME.fullmatch(value):
        raise ConfigError(path, f"{value!r} is not a network name"[:200], "a letter or digit, and then also . _ -")
    if len(value) > MAX_NAME:
        raise ConfigError(path, f"the network's name has {len(value)} characters", f"at most {MAX_NAME} fit")
    return value


def valid_attachments(raw: Mapping[str, Any]) -> frozenset[tuple[str, str]] | None:
    """The (container id, interface name) pairs that GC is to keep; None if the runtime does not say."""
    for key in VALID_ATTACHMENTS:
        if key not in raw:
            continue
        entries = raw[key] if raw[key] is not None else []
        if not isinstance(entries, list):
            raise ConfigError(key, "a list is wanted")
        return frozenset(_attachment(entry, f"{key}[{i}]") for i, entry in enumerate(entries))
    return None


def expanded(raw: Mapping[str, Any], names: Callable[[str, str], Iterable[str]]) -> dict[str, Any]:
    """The configuration of a GC for an IPAM plugin that knows an attachment by more names than its interface's.

    `names` gives those of an attachment (container id, interface name); each valid pair is listed with them, and as it
    is. Raises ConfigError for a list that is none.
    """
    lists: dict[str, Any] = {}
    for key in VALID_ATTACHMENTS:
        if key not in raw:
            continue
        pairs = sorted(valid_attachments({key: raw[key]}) or ())
        wanted = dict.fromkeys((pair[0], name) for pair in pairs for name in (pair[1], *names(*pair)))
        lists[key] = [{"containerID": container, "ifname": name} for container, name in wanted]
    return {**raw, **lists}


def parse_ipam(table: Mapping[str, Any], own: object, path: str = "") -> Mapping[str, Any]:
    """The part `ipam` of a table, empty without one. `own` is the type of the plugin itself. Raises ConfigError."""
    prefix = f"{path}." if path else ""
    ipam = _map(table, "ipam", prefix)
    if ipam:
        plugin = parse_plugin_type(ipam.get("type"), f"{prefix}ipam.type")
        if plugin == own:  # it would wait for itself
            raise ConfigError(
                f"{prefix}ipam.type", f"{plugin} gives no addresses", "name an IPAM plugin, such as host-local"
            )
    return ipam


def _attachment(entry: object, path: str) -> tuple[str, str]:
    if isinstance(entry, Mapping):
        container_id, ifname = entry.get("containerID"), entry.get("ifname")
        if isinstance(container_id, str) and isinstance(ifname, str):
            return container_id, ifname
    raise ConfigError(path, "an attachment has containerID and ifname")


def _map(table: Mapping[str, Any], key: str, prefix: str = "") -> Mapping[str, Any]:
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(prefix + key, f"an object is wanted, not {value!r}")
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) != len(pairs):
        seen: set[str] = set()
        for key, _value in pairs:
            if key in seen:
                raise ValueError(f"the key {key!r} is there twice")
            seen.add(key)
    return table


def _whole_number(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, at most {MAX_DIGITS} are read")
    return int(digits)


def _number(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text} is more than any number")
    return number


def _refuse_halves(value: object, what: str) -> None:
    """JSON can write half of a pair of surrogates (RFC 8259, 8.2). It is no character: no database takes it."""
    half = _HALF.search(json.dumps(value, ensure_ascii=False))
    if half:
        raise DecodeError(f"{what} is not UTF-8: \\u{ord(half[0]):x} is half of a character")


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def _check_depth(text: str, what: str, most: int) -> None:
    """Brackets inside strings count too: a bound, not a parser."""
    depth = 0
    for sign in re.finditer(r"[\[{\]}]", text):
        depth += 1 if sign[0] in "[{" else -1
        if depth > most:
            raise DecodeError(f"{what} is nested too deeply", f"at most {most} levels are read")
