# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's link: what it should be, and what it is. It is made in fastpath.py.

Functions that speak of the container's end must run inside its namespace (`netns.inside`).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from ..errors import KernelError


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


def observe(name: str) -> Seen | None:
    """The interface as the kernel has it, None if it is not there."""
    from .netlink import netlink  # loading the library takes longer than an ADD may

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


def _destination(message: Any) -> str:
    zero = "0.0.0.0" if message["family"] == socket.AF_INET else "::"
    return f"{message.get_attr('RTA_DST') or zero}/{message['dst_len']}"


def set_sysctl(name: str, key: str, value: str) -> None:
    """Sets a value of IPv6 of an interface; a kernel without IPv6 has none. Raises KernelError."""
    path = f"/proc/sys/net/ipv6/conf/{name}/{key}"
    try:
        with open(path, "w", encoding="ascii") as file:
            file.write(value)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise KernelError(f"cannot write {path}: {error.strerror}") from error
