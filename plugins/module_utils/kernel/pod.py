# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's link: the veth pair, and the container's end with its addresses and routes (pyroute2).

Functions that speak of the container's end must run inside its namespace (`netns.inside`).
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..errors import KernelError, RefusedError
from .netlink import netlink

_SYSCTL = "/proc/sys/net/ipv6/conf/{}/{}"
_NODAD = 0x02
_ONLINK = 4
_LOOPBACK = "lo"
_METRICS = ("mtu", "advmss")


@dataclass(frozen=True)
class PodRoute:
    """A route of a pod. Without `gateway` the destination is on the link. `mtu`, `advmss` in bytes, 0: not given."""

    destination: str
    gateway: str = ""
    priority: int = 0
    table: int = 0
    scope: int | None = None
    mtu: int = 0
    advmss: int = 0


@dataclass(frozen=True)
class Seen:
    """What an interface really is."""

    mac: str
    mtu: int
    up: bool
    addresses: frozenset[str]
    routes: frozenset[tuple[str, str]]
    """Destination (`default` as `0.0.0.0/0` or `::/0`) and gateway."""


def exists(name: str) -> bool:
    """Whether the calling thread's namespace has an interface of that name."""
    return index_of(name) is not None


def index_of(name: str) -> int | None:
    """The interface's index in the calling thread's namespace, None if it is not there."""
    try:
        return socket.if_nametoindex(name)
    except OSError:
        return None


def make_veth(host: str, name: str, mac: str, mtu: int | None, netns_fd: int) -> None:
    """A veth pair made in one step with its ends where they belong; the host's end is up and speaks no IPv6.

    Raises RefusedError if the container has an interface `name` already, KernelError.
    """
    peer: dict[str, Any] = {"ifname": name, "net_ns_fd": netns_fd, "address": mac}
    if mtu is not None:
        peer["mtu"] = mtu
    with netlink() as route:
        arguments: dict[str, Any] = {"ifname": host, "kind": "veth", "peer": peer}
        if mtu is not None:
            arguments["mtu"] = mtu
        route.link("add", **arguments)
        _disable_ipv6(host)
        route.link("set", index=socket.if_nametoindex(host), state="up")


def remove_link(name: str) -> bool:
    """Removes a link with its peer; False if it was not there. Raises KernelError."""
    index = index_of(name)
    if index is None:
        return False
    with netlink() as route:
        try:
            route.link("del", index=index)
        except Exception as error:
            if index_of(name) is None:
                return False
            raise KernelError(f"cannot remove {name}: {error}") from error
    return True


def refuse_existing(name: str) -> None:
    """Raises RefusedError if the namespace has an interface of that name (specification, section "ADD")."""
    if exists(name):
        raise RefusedError(
            f"the container has an interface {name} already", "DEL that attachment first, or take another CNI_IFNAME"
        )


def configure(name: str, addresses: Iterable[str], routes: Iterable[PodRoute]) -> None:
    """Brings the container's end and its loopback up, with addresses and routes.

    IPv6 addresses skip duplicate address detection: the IPAM plugin has given each to one pod, and a pod that waits a
    second or more for its address is refused connections meanwhile. Raises KernelError.
    """
    addresses = list(addresses)
    index = socket.if_nametoindex(name)
    if any(":" in address for address in addresses):
        _write(_SYSCTL.format(name, "disable_ipv6"), "0")
    with netlink() as route:
        route.link("set", index=socket.if_nametoindex(_LOOPBACK), state="up")
        route.link("set", index=index, state="up")
        networks = []
        for text in addresses:
            interface = ipaddress.ip_interface(text)
            networks.append(interface.network)
            flags: dict[str, Any] = {"flags": _NODAD} if interface.version == 6 else {}
            if interface.version == 4 and interface.network.prefixlen < 31:
                flags["broadcast"] = str(interface.network.broadcast_address)
            route.addr("add", index=index, address=str(interface.ip), prefixlen=interface.network.prefixlen, **flags)
        for wanted in routes:
            _add_route(route, index, wanted, networks)


def observe(name: str) -> Seen | None:
    """The interface as the kernel has it, None if it is not there."""
    index = index_of(name)
    if index is None:
        return None
    with netlink() as route:
        link = route.link("get", index=index)[0]
        addresses = frozenset(
            f"{message.get_attr('IFA_ADDRESS')}/{message['prefixlen']}" for message in route.get_addr(index=index)
        )
        routes = frozenset(
            (_destination(message), message.get_attr("RTA_GATEWAY") or "")
            for family in (socket.AF_INET, socket.AF_INET6)
            for message in route.get_routes(family=family, oif=index)
        )
    return Seen(link.get_attr("IFLA_ADDRESS"), link.get_attr("IFLA_MTU"), bool(link["flags"] & 1), addresses, routes)


def _add_route(route: Any, index: int, wanted: PodRoute, networks: Iterable[Any]) -> None:
    destination = ipaddress.ip_network(wanted.destination, strict=False)
    arguments: dict[str, Any] = {
        "dst": str(destination), "oif": index,
        "family": socket.AF_INET if destination.version == 4 else socket.AF_INET6,
    }  # fmt: skip
    if wanted.gateway:
        gateway = ipaddress.ip_address(wanted.gateway)
        arguments["gateway"] = wanted.gateway
        if not gateway.is_link_local and not any(gateway in network for network in networks):
            arguments["flags"] = _ONLINK
    elif destination.version == 4:
        arguments["scope"] = 253
    if wanted.scope is not None:
        arguments["scope"] = wanted.scope
    for key in ("priority", "table"):
        if getattr(wanted, key):
            arguments[key] = getattr(wanted, key)
    metrics = {key: getattr(wanted, key) for key in _METRICS if getattr(wanted, key)}
    if metrics:
        arguments["metrics"] = metrics
    route.route("replace", **arguments)


def _destination(message: Any) -> str:
    zero = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    return f"{message.get_attr('RTA_DST') or zero}/{message['dst_len']}"


def _disable_ipv6(name: str) -> None:
    """A host's end that spoke IPv6 would answer the pod on its link-local address, past any VLAN."""
    _write(_SYSCTL.format(name, "disable_ipv6"), "1")


def _write(path: str, value: str) -> None:
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(value)
    except FileNotFoundError:
        pass  # a kernel without IPv6
    except OSError as error:
        raise KernelError(f"cannot write {path}: {error.strerror}") from error
