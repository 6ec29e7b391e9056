# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All layer-3 state of a device as values: what moves from a NIC to a bridge and back. Pure.

Each address, route, rule, neighbour and nexthop keeps the kernel's own message, in hexadecimal, so that no attribute
is lost that this code does not know; what stands beside it is for people and for decisions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ..errors import DecodeError

SCHEMA = 1


@dataclass(frozen=True)
class Moment:
    """When a snapshot was taken: the boot, seconds since boot (suspend included) and seconds of the epoch."""

    boot_id: str
    boottime: float
    time: float

    def seconds_since(self, earlier: Moment) -> float:
        """Seconds from an earlier moment to this one; by the wall clock if the machine was booted in between."""
        if self.boot_id == earlier.boot_id:
            return max(0.0, self.boottime - earlier.boottime)
        return max(0.0, self.time - earlier.time)


@dataclass(frozen=True)
class Address:
    """An address: `cidr` is the device's own, `peer` the other end's if there is one; `valid` and `preferred` are
    seconds from the moment of the snapshot, None: forever.
    """

    message: str
    cidr: str
    family: int
    dynamic: bool
    valid: int | None
    preferred: int | None
    link_local: bool
    temporary: bool
    flags: int
    label: str = ""
    peer: str = ""


@dataclass(frozen=True)
class Route:
    """A route, or a multipath route one of whose hops is on the device.

    `rank` orders them: 0 connected, 1 on the link, 2 by a gateway. `expires`: seconds from the snapshot, None: never.
    `router`: the kernel made it from a router advertisement and must know it as its own (RFC 4861, 6.3.4).
    """

    message: str
    family: int
    text: str
    gateway: str
    table: int
    metric: int
    rank: int
    expires: int | None = None
    nexthop: int = 0
    router: bool = False


@dataclass(frozen=True)
class Rule:
    """A policy rule that names the device as iif or oif."""

    message: str
    family: int
    text: str


@dataclass(frozen=True)
class Neighbour:
    """A neighbour with a link-layer address (`permanent` or learnt), or one answered for (`proxy`)."""

    message: str
    family: int
    address: str
    permanent: bool
    proxy: bool


@dataclass(frozen=True)
class Nexthop:
    """A nexthop object on the device; groups and routes name it by its number."""

    message: str
    number: int
    text: str
    rank: int


@dataclass(frozen=True)
class Vxlan:
    """A VXLAN link whose lower device is the device."""

    name: str
    index: int
    vni: int


@dataclass(frozen=True)
class L3:
    """All layer-3 state of a device.

    `sysctls`: values by path below /proc/sys/net with `%s` for the device, such as `ipv4/conf/%s/rp_filter`.
    `settings_of`: the device that sysctls and token are those of, if it is another one.
    `others`: names of the other devices that multipath routes lead to, by the index that the messages have.
    """

    device: str
    index: int
    mac: str
    mtu: int
    up: bool
    token: str
    taken: Moment
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    rules: tuple[Rule, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()
    nexthops: tuple[Nexthop, ...] = ()
    vxlan: tuple[Vxlan, ...] = ()
    sysctls: Mapping[str, str] = field(default_factory=dict)
    others: Mapping[str, str] = field(default_factory=dict)
    settings_of: str = ""

    def to_dict(self) -> dict[str, Any]:
        """As JSON, with a schema number."""
        return {"schema": SCHEMA, **asdict(replace(self, sysctls=dict(self.sysctls), others=dict(self.others)))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> L3:
        """From JSON. Keys of a later minor version are passed over. Raises DecodeError for what is no snapshot."""
        if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
            found = data.get("schema") if isinstance(data, Mapping) else type(data).__name__
            raise DecodeError(f"a layer-3 snapshot of schema {found!r}, where {SCHEMA} is known")
        parts = {
            "addresses": Address,
            "routes": Route,
            "rules": Rule,
            "neighbours": Neighbour,
            "nexthops": Nexthop,
            "vxlan": Vxlan,
        }
        values = {key: tuple(_load(kind, item) for item in data.get(key) or ()) for key, kind in parts.items()}
        loaded: L3 = _load(cls, {**data, **values, "taken": _load(Moment, data.get("taken") or {})})
        return loaded

    def configured_as(self, other: L3) -> L3:
        """This state with the link settings (sysctls, token) of another snapshot: those of the device it returns to."""
        return replace(
            self,
            sysctls=other.sysctls,
            token=other.token,
            settings_of=other.settings_of or other.device,
        )

    def lasting(self, seconds: int, now: Moment) -> L3:
        """This state with at least so many seconds left for each limited lifetime, for one that is restored late."""
        age = round(now.seconds_since(self.taken))

        def least(value: int | None) -> int | None:
            return None if value is None else max(value, age + seconds)

        addresses = tuple(
            replace(item, valid=least(item.valid), preferred=least(item.preferred)) for item in self.addresses
        )
        routes = tuple(replace(item, expires=least(item.expires)) for item in self.routes)
        return replace(self, addresses=addresses, routes=routes)


def left(value: int | None, age: float) -> int | None:
    """What is left of a lifetime after `age` seconds: None for one without end, 0 when it is over."""
    return None if value is None else max(0, round(value - age))


def _load(kind: Any, data: Any) -> Any:
    if not isinstance(data, Mapping):
        raise DecodeError(f"a layer-3 snapshot with a {type(data).__name__} where a {kind.__name__} belongs")
    names = {item.name for item in fields(kind)}
    try:
        return kind(**{key: value for key, value in data.items() if key in names})
    except TypeError as error:
        raise DecodeError(f"a layer-3 snapshot with an incomplete {kind.__name__}: {error}") from error
