# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The move of a NIC, with the node's addresses, to a bridge and back: its states, and what is asked for. Pure."""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ConfigError
from .names import parse_ifname, refuse_unknown_keys
from .node import Bridge, Node
from .paths import OVSDB

SCHEMA = 1
"""Of requests, journals and records: keys may be added within a major version, a newer major is refused."""

MOVE, UNBRIDGE = "move", "unbridge"
DIRECTIONS = (MOVE, UNBRIDGE)

PLANNED, ARMED, PREPARED, CUTOVER, APPLIED = "planned", "armed", "prepared", "cutover", "applied"
COMMITTING, COMMITTED = "committing", "committed"
ROLLING_BACK, ROLLED_BACK, ROLLBACK_FAILED = "rolling_back", "rolled_back", "rollback_failed"
STATES = (
    PLANNED, ARMED, PREPARED, CUTOVER, APPLIED, COMMITTING, COMMITTED, ROLLING_BACK, ROLLED_BACK, ROLLBACK_FAILED,
)  # fmt: skip
OPEN = tuple(state for state in STATES if state not in (COMMITTED, ROLLED_BACK))
"""States of a move that is not over: nobody else may change the node's bridges."""
UNCONFIRMED = (PLANNED, ARMED, PREPARED, CUTOVER, APPLIED)
"""States from which a move goes back, if nobody confirms it."""

MANAGERS = ("auto", "networkd", "netplan", "ifupdown", "networkmanager", "none")
CONFIRMERS = ("controller", "probe", "both", "none")
SHORTEST, LONGEST, TIMEOUT = 10, 600, 120
"""Seconds until a move that nobody confirms goes back."""

_TCP = re.compile(r"tcp://(?:\[([^\]]+)\]|([^:/\[\]]+)):(\d{1,5})")


@dataclass(frozen=True)
class Probe:
    """Something that must answer after the move: an echo, or with a port a TCP connection that is taken."""

    host: str
    port: int | None = None

    @classmethod
    def parse(cls, value: object, path: str) -> Probe:
        """`10.0.0.1`, `fd00::1`, `tcp://host:443` or `tcp://[fd00::1]:443`. Raises ConfigError."""
        text = value if isinstance(value, str) else ""
        found = _TCP.fullmatch(text)
        if found:
            port = int(found.group(3))
            if 0 < port < 65536:
                return cls(found.group(1) or found.group(2), port)
        try:
            return cls(str(ipaddress.ip_address(text)))
        except ValueError:
            raise ConfigError(path, f"{value!r} is not a probe", "an address, or tcp://HOST:PORT") from None


@dataclass(frozen=True)
class Request:
    """What is asked for. `bridge` is its declaration with this one uplink, and its own interface if declared."""

    direction: str
    nic: str
    bridge: Bridge
    ovsdb: str = OVSDB
    manager: str = "auto"
    confirm: str = "controller"
    timeout: int = TIMEOUT
    probes: tuple[str, ...] = ()

    @classmethod
    def parse(cls, value: object, path: str = "request") -> Request:
        """From JSON. Raises ConfigError with the path of the bad value."""
        if not isinstance(value, Mapping):
            raise ConfigError(path, f"a map with keys is wanted here, not {value!r}")
        table = dict(value)
        schema = table.pop("schema", SCHEMA)
        if schema != SCHEMA or isinstance(schema, bool):
            raise ConfigError(
                f"{path}.schema", f"{schema!r} is not known here, {SCHEMA} is", "use the release that wrote it"
            )
        refuse_unknown_keys(table, list(cls.__dataclass_fields__), path)
        request = cls(
            direction=_choice(table, "direction", DIRECTIONS, None, path),
            nic=parse_ifname(table.get("nic"), f"{path}.nic"),
            bridge=Bridge.parse(table.get("bridge"), f"{path}.bridge"),
            ovsdb=_endpoint(table.get("ovsdb"), f"{path}.ovsdb"),
            manager=_choice(table, "manager", MANAGERS, "auto", path),
            confirm=_choice(table, "confirm", CONFIRMERS, "controller", path),
            timeout=parse_timeout(table.get("timeout", TIMEOUT), f"{path}.timeout"),
            probes=_probes(table.get("probes"), f"{path}.probes"),
        )
        if request.nic == request.bridge.name:
            raise ConfigError(f"{path}.nic", f"{request.nic} is the bridge itself")
        return request

    def to_dict(self) -> dict[str, Any]:
        """What `parse` takes."""
        return {
            "schema": SCHEMA,
            "direction": self.direction,
            "nic": self.nic,
            "bridge": json.loads(Node(bridges=(self.bridge,)).to_json())["bridges"][0],
            "ovsdb": self.ovsdb,
            "manager": self.manager,
            "confirm": self.confirm,
            "timeout": self.timeout,
            "probes": list(self.probes),
        }

    @property
    def source(self) -> str:
        """The device that carries the node's addresses now."""
        return self.nic if self.direction == MOVE else self.bridge.name

    @property
    def target(self) -> str:
        """The device that shall carry them."""
        return self.bridge.name if self.direction == MOVE else self.nic

    def turned(self) -> Request:
        """The way back."""
        return replace(self, direction=UNBRIDGE if self.direction == MOVE else MOVE)


@dataclass(frozen=True)
class FileChange:
    """A file as it shall be. `text` None: it goes."""

    path: str
    text: str | None
    mode: int = 0o644

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` takes."""
        return {"path": self.path, "text": self.text, "mode": self.mode}

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> FileChange:
        """From a journal or a record."""
        return cls(str(value["path"]), value["text"], int(value["mode"]))


@dataclass(frozen=True)
class MovePlan:
    """What a move will do, before anything is touched.

    `effects`: outage ("none", "short"), dhcp, addresses, routes, services, vxlan. `files` are those that
    stay after the commit, `before` is what is there now by path. `hash` is the same for the same plan.
    """

    request: Request
    effects: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[FileChange, ...] = ()
    before: Mapping[str, str | None] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    hash: str = ""

    def to_dict(self) -> dict[str, Any]:
        """For a program's answer."""
        return {
            "request": self.request.to_dict(),
            "effects": dict(self.effects),
            "files": [change.to_dict() for change in self.files],
            "before": dict(self.before),
            "warnings": list(self.warnings),
            "hash": self.hash,
        }


def parse_timeout(value: object, path: str) -> int:
    """Seconds until an unconfirmed move goes back. Raises ConfigError."""
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if isinstance(number, bool) or not isinstance(number, int) or not SHORTEST <= number <= LONGEST:
        raise ConfigError(path, f"{value!r} is not a deadline", f"seconds, from {SHORTEST} to {LONGEST}")
    return number


def parse_probes(values: tuple[str, ...]) -> tuple[Probe, ...]:
    """The probes of a request. Raises ConfigError."""
    return tuple(Probe.parse(value, f"probes[{i}]") for i, value in enumerate(values))


def _probes(value: object, path: str) -> tuple[str, ...]:
    if value is None:
        return ()
    if not isinstance(value, (list, tuple)):
        raise ConfigError(path, f"a list is wanted here, not {value!r}")
    for i, item in enumerate(value):
        Probe.parse(item, f"{path}[{i}]")
    return tuple(value)


def _choice(table: Mapping[str, Any], key: str, choices: tuple[str, ...], default: str | None, path: str) -> str:
    value = table.get(key, default)
    if value not in choices:
        raise ConfigError(f"{path}.{key}", f"{value!r} is not known", f"one of {', '.join(choices)}")
    return str(value)


def _endpoint(value: object, path: str) -> str:
    if value is None:
        return OVSDB
    if not isinstance(value, str) or not value.startswith("unix:/"):
        raise ConfigError(path, f"{value!r} is not a local database", f"a unix socket, like {OVSDB}")
    return value
