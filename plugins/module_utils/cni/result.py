# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of ADD: read from any version of the specification, written in any.

What a version cannot carry is left out on the way down: 0.2.0 has one address per family and no interfaces; before
1.1.0 an interface has no MTU and a route no metric, table, scope, MTU or MSS. Keys that no version knows are kept.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from ..errors import ConfigError, DecodeError
from .versions import at_least

T = TypeVar("T")

INTERFACE_EXTRAS = ("mtu", "socketPath", "pciID")
"""What 1.1.0 added."""
ROUTE_EXTRAS = ("mtu", "advmss", "priority", "table", "scope")
"""What 1.1.0 added."""
_RESULT_KEYS = ("cniVersion", "interfaces", "ips", "routes", "dns", "ip4", "ip6")
_ADDRESS_KEYS = ("version", "address", "interface", "gateway", "ip", "routes")
_MOST = (1 << 32) - 1
"""Of a number for the kernel, but for a scope, which is a byte there."""
_MOST_SCOPE = 255
_CIDR = re.compile(r"[0-9a-fA-F:.]+/[0-9]{1,3}")


@dataclass(frozen=True)
class Interface:
    """`sandbox` is the network namespace's path, empty on the host. `mtu` is bytes, None unknown. `extra` holds all
    other keys.
    """

    name: str
    mac: str = ""
    sandbox: str = ""
    mtu: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Address:
    """`address` is a CIDR; `interface` an index of the result's interfaces, None if it names none. `foreign` holds keys
    that no version knows.
    """

    address: str
    gateway: str = ""
    interface: int | None = None
    foreign: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_interface(self.address).version


@dataclass(frozen=True)
class Route:
    """`gateway` empty: by the gateway of an address of the same family. `extra` holds the keys that 1.1.0 added,
    `foreign` those that no version knows.
    """

    destination: str
    gateway: str = ""
    extra: Mapping[str, int] = field(default_factory=dict)
    foreign: Mapping[str, Any] = field(default_factory=dict)

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_network(self.destination, strict=False).version


@dataclass(frozen=True)
class Result:
    """A result, independent of a version. `foreign` holds keys that no version knows."""

    interfaces: tuple[Interface, ...] = ()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, Any] = field(default_factory=dict)
    foreign: Mapping[str, Any] = field(default_factory=dict)

    def extended(
        self,
        interfaces: Sequence[Interface],
        addresses: Iterable[Address],
        routes: Iterable[Route] = (),
        dns: Mapping[str, Any] | None = None,
        owner: int = 0,
    ) -> Result:
        """This result, whole, and behind it what another plugin has made: the addresses are those of its interface
        number `owner`.
        """
        index = len(self.interfaces) + owner
        mine = (replace(item, interface=index) for item in addresses)
        return Result(
            (*self.interfaces, *interfaces), (*self.addresses, *mine), (*self.routes, *routes),
            {**self.dns, **(dns or {})}, self.foreign,
        )  # fmt: skip


def parse_result(document: object, path: str = "result") -> Result:
    """Reads a result of any version, told by its keys. An index that is of no interface counts as not given.

    Raises DecodeError that names the key.
    """
    table = _table(document, path)
    dns = _table(table.get("dns") or {}, f"{path}.dns")
    foreign = _others(table, _RESULT_KEYS)
    if "ip4" in table or "ip6" in table:
        return replace(_parse_oldest(table, path), dns=dns, foreign=foreign)
    interfaces = _each(table, "interfaces", path, _parse_interface)
    addresses = (
        item if item.interface in range(len(interfaces)) else replace(item, interface=None)
        for item in _each(table, "ips", path, _parse_address)
    )
    return Result(interfaces, tuple(addresses), _each(table, "routes", path, _parse_route), dns, foreign)


def render(result: Result, version: str) -> dict[str, Any]:
    """The result as a version of the specification writes it. Raises ConfigError for 0.2.0 without an address."""
    document: dict[str, Any] = {"cniVersion": version, **result.foreign}
    if not at_least(version, "0.3.0"):
        return {**document, **_render_oldest(result)}
    newest = at_least(version, "1.1.0")
    if result.interfaces:
        document["interfaces"] = [_render_interface(item, newest) for item in result.interfaces]
    if result.addresses:
        document["ips"] = [
            _render_address(item, with_family=not at_least(version, "1.0.0")) for item in result.addresses
        ]
    if result.routes:
        document["routes"] = [_render_route(item, newest) for item in result.routes]
    document["dns"] = dict(result.dns)
    return document


def _parse_oldest(table: Mapping[str, Any], path: str) -> Result:
    addresses: list[Address] = []
    routes: list[Route] = []
    for key in ("ip4", "ip6"):
        if table.get(key):
            place = f"{path}.{key}"
            part = _table(table[key], place)
            addresses.append(_address(part, "ip", place))
            routes += _each(part, "routes", place, _parse_route)
    return Result((), tuple(addresses), tuple(routes))


def _parse_interface(item: object, path: str) -> Interface:
    table = _table(item, path)
    mtu = table.get("mtu")
    return Interface(
        _text(table.get("name"), f"{path}.name"),
        _text(table.get("mac") or "", f"{path}.mac"),
        _text(table.get("sandbox") or "", f"{path}.sandbox"),
        None if mtu is None else _number(mtu, f"{path}.mtu"),
        _others(table, ("name", "mac", "sandbox", "mtu")),
    )


def _parse_address(item: object, path: str) -> Address:
    table = _table(item, path)
    index = table.get("interface")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise _wrong(f"{path}.interface", index, "an index of an interface")
    return replace(_address(table, "address", path), interface=index)


def _parse_route(item: object, path: str) -> Route:
    table = _table(item, path)
    given = [key for key in ROUTE_EXTRAS if table.get(key) is not None]
    most = {"scope": _MOST_SCOPE}
    extra = {key: _number(table[key], f"{path}.{key}", most.get(key, _MOST)) for key in given}
    return Route(
        _cidr(table.get("dst"), f"{path}.dst"), _gateway(table, "gw", path), extra,
        _others(table, ("dst", "gw", *ROUTE_EXTRAS)),
    )  # fmt: skip


def _address(table: Mapping[str, Any], key: str, path: str) -> Address:
    return Address(
        _cidr(table.get(key), f"{path}.{key}"), _gateway(table, "gateway", path), None, _others(table, _ADDRESS_KEYS)
    )  # fmt: skip


def _each(table: Mapping[str, Any], key: str, path: str, parse: Callable[[object, str], T]) -> tuple[T, ...]:
    items = table.get(key) or []
    if not isinstance(items, list):
        raise _wrong(f"{path}.{key}", items, "a list")
    return tuple(parse(item, f"{path}.{key}[{index}]") for index, item in enumerate(items))


def _others(table: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in table.items() if key not in known}


def _table(value: object, path: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise _wrong(path, value, "an object")
    return value


def _cidr(value: object, path: str) -> str:
    """As runtimes read it: an address and the length of its prefix."""
    text = _text(value, path)
    try:
        ipaddress.ip_interface(text)
    except ValueError:
        text = ""
    if not _CIDR.fullmatch(text):
        raise _wrong(path, value, "an address with the length of its prefix")
    return text


def _gateway(table: Mapping[str, Any], key: str, path: str) -> str:
    text = _text(table.get(key) or "", f"{path}.{key}")
    try:
        if text:
            ipaddress.ip_address(text)
    except ValueError:
        raise _wrong(f"{path}.{key}", text, "an address") from None
    return text


def _number(value: object, path: str, most: int = _MOST) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise _wrong(path, value, f"a whole number, 0 to {most}")
    return value


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise _wrong(path, value, "a string")
    return value


def _wrong(path: str, value: object, wanted: str) -> DecodeError:
    return DecodeError(f"{path}: {wanted} is wanted, not {value!r}"[:200], "this is no result of a CNI plugin")


def _render_oldest(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, family in (("ip4", 4), ("ip6", 6)):
        first = next((item for item in result.addresses if item.family == family), None)
        if first is not None:
            routes = [_render_route(item, False) for item in result.routes if item.family == family]
            document[key] = {"ip": first.address, **_given(gateway=first.gateway, routes=routes), **first.foreign}
    if not document:
        raise ConfigError("cniVersion", "0.2.0 cannot express a result without an address", "use 0.3.1 or later")
    document["dns"] = dict(result.dns)
    return document


def _render_interface(item: Interface, newest: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": item.name, **_given(mac=item.mac)}
    if newest:
        document.update(_given(mtu=item.mtu))
    document.update(_given(sandbox=item.sandbox))
    document.update({key: value for key, value in item.extra.items() if newest or key not in INTERFACE_EXTRAS})
    return document


def _render_address(item: Address, with_family: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"version": str(item.family)} if with_family else {}
    document["address"] = item.address
    if item.gateway:
        document["gateway"] = item.gateway
    if item.interface is not None:
        document["interface"] = item.interface
    return {**document, **item.foreign}


def _render_route(item: Route, newest: bool) -> dict[str, Any]:
    return {"dst": item.destination, **_given(gw=item.gateway), **(item.extra if newest else {}), **item.foreign}


def _given(**pairs: Any) -> dict[str, Any]:
    return {key: value for key, value in pairs.items() if value not in (None, "", [])}
