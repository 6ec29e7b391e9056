# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a result promised of an interface, held against what is: the part of CHECK that all plugins share."""

from __future__ import annotations

import ipaddress

from ..cni.result import Result, parse_result
from ..errors import INVALID_CONFIG, ConfigError, PodnetError
from ..kernel.fastpath import PodSpace
from .call import Call


def promised(call: Call) -> Result:
    """The result of ADD that CHECK is about. Raises ConfigError without one."""
    if call.conf.prev_result is None:
        raise ConfigError("prevResult", "CHECK needs the result of ADD")
    return parse_result(call.conf.prev_result, "prevResult")


def own_index(previous: Result, name: str, sandbox: str) -> int:
    """The index of the pod's interface of that name. Raises ConfigError if the result has none."""
    there = [index for index, item in enumerate(previous.interfaces) if item.name == name and item.sandbox]
    for index in there:
        if previous.interfaces[index].sandbox == sandbox:
            return index
    if not there:
        raise ConfigError("prevResult.interfaces", f"{name} of the container is not among them")
    return there[0]


def differs(what: str) -> PodnetError:
    """The error for what is not as it should be."""
    return PodnetError(what, "the attachment is damaged: delete the pod, so that it is made anew", INVALID_CONFIG)


def look(space: PodSpace, previous: Result, index: int) -> None:
    """Raises PodnetError unless interface `index` of the result is in the pod as it says, with addresses and routes."""
    wanted = previous.interfaces[index]
    seen = space.observe(wanted.name)
    if seen is None:
        raise differs(f"the container's interface {wanted.name} is gone")
    if wanted.mac and seen.mac.lower() != wanted.mac.lower():
        raise differs(f"{wanted.name} has the MAC {seen.mac}, not {wanted.mac}")
    if wanted.mtu and seen.mtu != wanted.mtu:
        raise differs(f"{wanted.name} has the MTU {seen.mtu}, not {wanted.mtu}")
    if not seen.up:
        raise differs(f"{wanted.name} is down")
    for item in previous.addresses:
        if item.interface == index and str(ipaddress.ip_interface(item.address)) not in seen.addresses:
            raise differs(f"{wanted.name} has not the address {item.address}")
    gateways = {item.gateway for item in previous.addresses if item.interface == index}
    routed = {destination for destination, _gateway in seen.routes}
    for route in previous.routes:
        mine = not route.gateway or route.gateway in gateways
        to = str(ipaddress.ip_network(route.destination, strict=False))
        if not mine or to in routed:
            continue
        # Without a gateway it may be another interface's of the same pod: a result does not say whose.
        if route.gateway or _is_alone(previous) or to not in space.destinations():
            raise differs(f"the route to {route.destination} by {wanted.name} is gone")


def _is_alone(previous: Result) -> bool:
    return sum(bool(item.sandbox) for item in previous.interfaces) < 2
