# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of ADD: read from any version of the specification, written in any.

What a version cannot carry is left out on the way down: 0.2.0 has one address per family and no interfaces; before
1.1.0 an interface has no MTU and a route no metric, table, scope, MTU or MSS.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import ConfigError, DecodeError
from .versions import at_least

_INTERFACE_EXTRAS = ("mtu", "socketPath", "pciID")
_ROUTE_EXTRAS = ("mtu", "advmss", "priority", "table", "scope")


@dataclass(frozen=True)
class Interface:
    """`sandbox` is the network namespace's path, empty on the host. `mtu` is bytes, None unknown."""

    name: str
    mac: str = ""
    sandbox: str = ""
    mtu: int | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Address:
    """`address` is a CIDR; `interface` an index of the result's interfaces, None if it names none."""

    address: str
    gateway: str = ""
    interface: int | None = None

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_interface(self.address).version


@dataclass(frozen=True)
class Route:
    """`gateway` empty: by the gateway of an address of the same family. `extra` holds the keys that 1.1.0 added."""

    destination: str
    gateway: str = ""
    extra: Mapping[str, int] = field(default_factory=dict)

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_network(self.destination, strict=False).version


@dataclass(frozen=True)
class Result:
    """A result, independent of a version."""

    interfaces: tuple[Interface, ...] = ()
    addresses: tuple[Address, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, Any] = field(default_factory=dict)

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
            {**self.dns, **(dns or {})},
        )  # fmt: skip


def parse_result(document: object, path: str = "result") -> Result:
    """Reads a result of any version, told by its keys. Raises DecodeError."""
    if not isinstance(document, Mapping):
        raise DecodeError(f"{path}: an object is wanted, not {document!r}")
    try:
        if "ip4" in document or "ip6" in document:
            return _parse_oldest(document)
        return Result(
            tuple(_parse_interface(item) for item in document.get("interfaces") or ()),
            tuple(_parse_address(item) for item in document.get("ips") or ()),
            tuple(_parse_route(item) for item in document.get("routes") or ()),
            dict(document.get("dns") or {}),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DecodeError(f"{path} is not a CNI result: {error!r}") from error


def render(result: Result, version: str) -> dict[str, Any]:
    """The result as a version of the specification writes it. Raises ConfigError for 0.2.0 without an address."""
    document: dict[str, Any] = {"cniVersion": version}
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


def _parse_oldest(document: Mapping[str, Any]) -> Result:
    addresses, routes = [], []
    for key in ("ip4", "ip6"):
        part = document.get(key)
        if part:
            addresses.append(Address(_cidr(part["ip"]), part.get("gateway") or ""))
            routes += [_parse_route(item) for item in part.get("routes") or ()]
    return Result((), tuple(addresses), tuple(routes), dict(document.get("dns") or {}))


def _parse_interface(item: Mapping[str, Any]) -> Interface:
    known = ("name", "mac", "sandbox", "mtu")
    extra = {key: value for key, value in item.items() if key not in known}
    return Interface(str(item["name"]), item.get("mac") or "", item.get("sandbox") or "", item.get("mtu"), extra)


def _parse_address(item: Mapping[str, Any]) -> Address:
    index = item.get("interface")
    if index is not None and (isinstance(index, bool) or not isinstance(index, int)):
        raise ValueError(f"interface {index!r} is not an index")
    return Address(_cidr(item["address"]), item.get("gateway") or "", index if index is None or index >= 0 else None)


def _parse_route(item: Mapping[str, Any]) -> Route:
    destination = _text(item["dst"])
    ipaddress.ip_network(destination, strict=False)
    extra = {key: int(item[key]) for key in _ROUTE_EXTRAS if item.get(key) is not None}
    return Route(destination, item.get("gw") or "", extra)


def _cidr(value: object) -> str:
    text = _text(value)
    ipaddress.ip_interface(text)
    return text


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


def _render_oldest(result: Result) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for key, family in (("ip4", 4), ("ip6", 6)):
        first = next((item for item in result.addresses if item.family == family), None)
        if first is not None:
            routes = [_render_route(item, False) for item in result.routes if item.family == family]
            document[key] = {"ip": first.address, **_given(gateway=first.gateway, routes=routes)}
    if not document:
        raise ConfigError("cniVersion", "0.2.0 cannot express a result without an address", "use 0.3.1 or later")
    document["dns"] = dict(result.dns)
    return document


def _render_interface(item: Interface, newest: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"name": item.name, **_given(mac=item.mac)}
    if newest:
        document.update(_given(mtu=item.mtu))
    document.update(_given(sandbox=item.sandbox))
    document.update({key: value for key, value in item.extra.items() if newest or key not in _INTERFACE_EXTRAS})
    return document


def _render_address(item: Address, with_family: bool) -> dict[str, Any]:
    document: dict[str, Any] = {"version": str(item.family)} if with_family else {}
    document["address"] = item.address
    if item.gateway:
        document["gateway"] = item.gateway
    if item.interface is not None:
        document["interface"] = item.interface
    return document


def _render_route(item: Route, newest: bool) -> dict[str, Any]:
    return {"dst": item.destination, **_given(gw=item.gateway), **(item.extra if newest else {})}


def _given(**pairs: Any) -> dict[str, Any]:
    return {key: value for key, value in pairs.items() if value not in (None, "", [])}
