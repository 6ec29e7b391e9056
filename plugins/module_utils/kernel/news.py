# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a process that stays for years needs to know of a few links.

It loads nothing but the standard library: pyroute2 would cost each node some 20 MB for as long as it runs.
"""

from __future__ import annotations

import errno
import select
import socket
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass

from ..errors import KernelError
from .rtnetlink import (
    ADDRESS,
    GETADDR,
    GETLINK,
    GROUP_IPV4_ADDRESS,
    GROUP_IPV6_ADDRESS,
    GROUP_LINK,
    LINK,
    ask,
    index_of,
    open_route,
    parse,
)

# linux/if_link.h, linux/if_addr.h
_IFF_UP = 1
_IFLA_MASTER = 10
_IFA_ADDRESS, _IFA_LOCAL, _IFA_FLAGS = 1, 2, 8
_IFA_F_TENTATIVE, _IFA_F_DADFAILED = 0x40, 0x08
_SECONDS = 5.0


@dataclass(frozen=True)
class Seen:
    """A link as it is: what it belongs to (""), and its usable addresses with prefix length, link-local ones too."""

    up: bool
    master: str
    addresses: frozenset[str]


class News:
    """Waits for changes of links and addresses of this network namespace. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        self._socket = open_route(GROUP_LINK | GROUP_IPV4_ADDRESS | GROUP_IPV6_ADDRESS)
        self._socket.setblocking(False)

    def __enter__(self) -> News:
        return self

    def __exit__(self, *_error: object) -> None:
        self._socket.close()

    def wait(self, seconds: float) -> bool:
        """Returns after that time, or as soon as something has changed; gives whether it has."""
        if not select.select([self._socket], [], [], max(seconds, 0.0))[0]:
            return False
        while True:
            try:
                self._socket.recv(1 << 16)
            except BlockingIOError:
                return True
            except OSError as error:
                if error.errno != errno.ENOBUFS:  # some were lost: that is news, too
                    raise KernelError(f"netlink: {error.strerror}") from error


def look(name: str) -> Seen | None:
    """The link of that name, None if there is none. Raises KernelError."""
    with closing(open_route()) as route:
        index = index_of(route, name)
        if index is None:
            return None
        found = ask(route, GETLINK, LINK.pack(0, 0, index, 0, 0), _SECONDS)
        if not found:
            return None
        flags = LINK.unpack_from(found[0])[3]
        master = parse(found[0][LINK.size :]).get(_IFLA_MASTER)
        return Seen(bool(flags & _IFF_UP), _name(master) if master else "", frozenset(_addresses(route, index)))


def _name(index: bytes) -> str:
    number = struct.unpack("=I", index)[0]
    try:
        return socket.if_indextoname(number)
    except OSError:
        return str(number)


def _addresses(route: socket.socket, wanted: int) -> Iterator[str]:
    for body in ask(route, GETADDR, ADDRESS.pack(0, 0, 0, 0, wanted), _SECONDS, dump=True):
        family, prefix, flags, _scope, index = ADDRESS.unpack_from(body)
        if index != wanted:
            continue
        values = parse(body[ADDRESS.size :])
        if _IFA_FLAGS in values:
            flags = struct.unpack("=I", values[_IFA_FLAGS])[0]
        address = values.get(_IFA_LOCAL) or values.get(_IFA_ADDRESS)
        if address and not flags & (_IFA_F_TENTATIVE | _IFA_F_DADFAILED):
            yield f"{socket.inet_ntop(family, address)}/{prefix}"
