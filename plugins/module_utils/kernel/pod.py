# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's link: what it should be, and what it is. It is made and looked at in fastpath.py."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from ..errors import KernelError
from . import rtnetlink
from .rtnetlink import open_route


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
    """The interface's index in the calling thread's namespace, None if it is not there. Raises KernelError."""
    with closing(open_route()) as route:
        return rtnetlink.index_of(route, name)


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
