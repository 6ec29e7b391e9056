# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which device this node reaches an address, and whether a neighbour on it answers. Times are seconds."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from .netlink import netlink
from .reach import answering

NUD_REACHABLE = 0x02
NUD_PROBE = 0x10
"""linux/neighbour.h. A neighbour that is put into the state `probe` is asked at once, by ARP (RFC 826) or neighbour
solicitation (RFC 4861)."""

_FIXED = 0x40 | 0x80
"""NUD_NOARP, NUD_PERMANENT: somebody has set it, and nobody is asked."""
_DISCARD = 9
"""RFC 863"""
_AGAIN = 0.2


def device_to(address: str, source: str | None = None) -> str | None:
    """The device by which packets to an address leave, from this address of the node; None without a route."""
    with netlink() as route:
        more = {"src": source} if source else {}
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        found = list(route.route("get", family=family, dst=address, **more))
        index = next((message.get_attr("RTA_OIF") for message in found if message.get_attr("RTA_OIF")), None)
        return None if index is None else _name(route, int(index))


def silent(device: str, addresses: Iterable[str], timeout: float) -> list[str]:
    """Those of the addresses, which are neighbours on the device, that answer neither ARP, ND nor an echo in time.

    What the kernel knew of them before does not count.
    """
    left = list(dict.fromkeys(addresses))
    deadline = time.monotonic() + timeout
    known = NUD_REACHABLE
    while left:
        heard = _asked(device, left, known)
        heard |= set(answering([item for item in left if item not in heard and not _is_link_local(item)], 2 * _AGAIN))
        left = [address for address in left if address not in heard]
        known = 0
        if time.monotonic() >= deadline:
            break
    return left


def _asked(device: str, addresses: list[str], known: int) -> set[str]:
    """Asks each neighbour, also those in the states `known`, and gives those that have answered by now."""
    with netlink() as route:
        found = route.link_lookup(ifname=device)
        if not found:
            return set()
        index = int(found[0])
        states = _states(route, index)
        for address in addresses:
            state, mac = states.get(address, (0, None))
            if mac and not state & (_FIXED | NUD_PROBE | NUD_REACHABLE & ~known):
                route.neigh("replace", dst=address, lladdr=mac, ifindex=index, state=NUD_PROBE, family=_family(address))
            elif not mac:
                _nudge(address, index)
        time.sleep(_AGAIN)
        states = _states(route, index)
        return {address for address in addresses if states.get(address, (0, None))[0] & NUD_REACHABLE}


def _nudge(address: str, index: int) -> None:
    """Makes the kernel look for a neighbour."""
    family = _family(address)
    where: Any = (address, _DISCARD, 0, index if _is_link_local(address) else 0) if ":" in address else (
        address, _DISCARD)  # fmt: skip
    with socket.socket(family, socket.SOCK_DGRAM) as sock, suppress(OSError):
        sock.sendto(b"", where)


def _states(route: Any, index: int) -> dict[str, tuple[int, str | None]]:
    found = {}
    for message in route.get_neighbours(ifindex=index):
        found[message.get_attr("NDA_DST")] = (message["state"], message.get_attr("NDA_LLADDR"))
    return found


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _is_link_local(address: str) -> bool:
    return ipaddress.ip_address(address).is_link_local


def _name(route: Any, index: int) -> str | None:
    links = route.get_links(index)
    return str(links[0].get_attr("IFLA_IFNAME")) if links else None
