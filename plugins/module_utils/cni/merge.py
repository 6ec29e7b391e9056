# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The results of several plugins that were called for one pod as one result, and what a version cannot carry of it.

The primary's come first: a runtime takes the pod's address from what is there of its interface, and refuses a pod
without.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .result import INTERFACE_EXTRAS, Address, Interface, Result, Route
from .versions import at_least


@dataclass(frozen=True)
class Part:
    """What a plugin gave, and the interface name and the path of the namespace that it was called with.

    `leads`: the pod leaves by its default routes, though it is not the primary one.
    """

    result: Result
    ifname: str
    sandbox: str
    leads: bool = False


def merge(primary: Part, others: Sequence[Part]) -> Result:
    """One result of all: interfaces, addresses and routes in order, each once, indices where the interfaces now are.

    A plugin that gives addresses and no interface has made the one that it was called for. An index that is of no
    interface counts as not given. Of two that are the same the first has its way, and gets what only the second says.
    Default routes are the primary's, and those of a part that leads; the DNS is that of the first plugin that has one.
    """
    results = [_whole(part) for part in (primary, *others)]
    same: dict[tuple[str, str], list[Interface]] = {}
    for result in results:
        for item in result.interfaces:
            same.setdefault((item.name, item.sandbox), []).append(item)
    places = {key: number for number, key in enumerate(same)}
    own = {number for (name, sandbox), number in places.items() if name == primary.ifname and sandbox}
    addresses = [[_moved(item, result, places) for item in result.addresses] for result in results]
    addresses[0].sort(key=lambda item: item.interface not in own)
    return Result(
        tuple(_one_interface(items) for items in same.values()),
        _addresses(item for given in addresses for item in given),
        _routes(
            [
                *results[0].routes,
                *(
                    item
                    for part, result in zip(others, results[1:])
                    for item in result.routes
                    if part.leads or not _is_all(item)
                ),
            ]
        ),
        next((result.dns for result in results if any(result.dns.values())), results[0].dns),
        _joined(result.foreign for result in results),
    )


def lost(result: Result, version: str) -> list[str]:
    """What `render` leaves out of a result in a version, in words."""
    if at_least(version, "1.1.0"):
        return []
    if at_least(version, "0.3.0"):
        extras = (words for item in result.interfaces for words in _extras_of(item))
        return [*extras, *_metrics(result.routes)]
    return list(_lost_before_interfaces(result))


def _whole(part: Part) -> Result:
    result = part.result
    if result.interfaces or not result.addresses:
        return result
    addresses = tuple(replace(item, interface=0) for item in result.addresses)
    return replace(result, interfaces=(Interface(part.ifname, "", part.sandbox),), addresses=addresses)


def _moved(item: Address, result: Result, places: Mapping[tuple[str, str], int]) -> Address:
    if item.interface is None or item.interface not in range(len(result.interfaces)):
        return replace(item, interface=None)
    interface = result.interfaces[item.interface]
    return replace(item, interface=places[interface.name, interface.sandbox])


def _one_interface(items: Sequence[Interface]) -> Interface:
    return replace(
        items[0],
        mac=next((item.mac for item in items if item.mac), ""),
        mtu=next((item.mtu for item in items if item.mtu is not None), None),
        extra=_joined(item.extra for item in items),
    )


def _addresses(items: Iterable[Address]) -> tuple[Address, ...]:
    """Each once on an interface; of one that names no interface nobody can say that it is the same."""
    same: dict[Hashable, list[Address]] = {}
    for number, item in enumerate(items):
        there = number if item.interface is None else (item.interface, ipaddress.ip_interface(item.address))
        same.setdefault(there, []).append(item)
    return tuple(
        replace(
            items[0],
            gateway=next((item.gateway for item in items if item.gateway), ""),
            foreign=_joined(item.foreign for item in items),
        )
        for items in same.values()
    )


def _routes(items: Iterable[Route]) -> tuple[Route, ...]:
    same: dict[Hashable, list[Route]] = {}
    for item in items:
        gateway = item.gateway and ipaddress.ip_address(item.gateway)
        same.setdefault((_network(item), gateway, frozenset(item.extra.items())), []).append(item)
    return tuple(replace(items[0], foreign=_joined(item.foreign for item in items)) for items in same.values())


def _is_all(item: Route) -> bool:
    """A default route, in whatever spelling."""
    return _network(item).prefixlen == 0


def _network(item: Route) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    return ipaddress.ip_network(item.destination, strict=False)


def _joined(tables: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    joined: dict[str, Any] = {}
    for table in tables:
        joined = {**joined, **{key: value for key, value in table.items() if key not in joined}}
    return joined


def _lost_before_interfaces(result: Result) -> Iterator[str]:
    for interface in result.interfaces:
        yield f"interface {interface.name}"
    families = set()
    for address in result.addresses:
        if address.family in families:
            yield f"address {address.address}"
        families.add(address.family)
    for route in result.routes:
        if route.family not in families:
            yield f"the route to {route.destination}"
    yield from _metrics(route for route in result.routes if route.family in families)


def _extras_of(item: Interface) -> Iterator[str]:
    for key in INTERFACE_EXTRAS:
        if key in item.extra or (key == "mtu" and item.mtu is not None):
            yield f"{key} of interface {item.name}"


def _metrics(routes: Iterable[Route]) -> Iterator[str]:
    return (f"{key} of the route to {item.destination}" for item in routes for key in item.extra)
