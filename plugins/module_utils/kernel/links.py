# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Links of this network namespace: what they are, up and down, MTU (bytes), addresses. Times are seconds."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Iterable
from typing import Any

from ..errors import DeadlineExceeded, KernelError
from ..model.state import Link
from .netlink import netlink

IFF_UP = 0x1
"""linux/if.h"""
IFA_F_PERMANENT = 0x80
IFA_F_TENTATIVE = 0x40
IFA_F_DADFAILED = 0x08
"""linux/if_addr.h"""
RT_TABLE_LOCAL = 255
ROUTE_TYPES = (1, 6, 7, 8, 9)
"""linux/rtnetlink.h: unicast, blackhole, unreachable, prohibit, throw. Local and broadcast ones come with addresses."""

_STACKED = ("vlan", "macvlan", "macvtap", "ipvlan", "ipvtap", "macsec")
_DAD_SECONDS = 3.0
_LINK_LOCAL = ipaddress.ip_network("fe80::/10")


def observe_links() -> dict[str, Link]:
    """Every link of this network namespace by name. Raises KernelError."""
    with netlink() as route:
        messages = list(route.get_links())
        addresses = list(route.get_addr())
        routes = [message for message in route.get_routes() if _is_of_interest(message)]
    names = {message["index"]: message.get_attr("IFLA_IFNAME") for message in messages}
    return {names[message["index"]]: _link(message, names, messages, addresses, routes) for message in messages}


def set_up(name: str, up: bool = True) -> None:
    """Puts a link up or down. Raises KernelError, for one that does not exist too."""
    with netlink() as route:
        route.link("set", index=_index(route, name), state="up" if up else "down")


def ignore_routers(name: str) -> None:
    """Lets no router advertisement give the link addresses and a default route (RFC 4861): any host can send one.

    Before it comes up. Raises KernelError.
    """
    try:
        with open(f"/proc/sys/net/ipv6/conf/{name}/accept_ra", "w", encoding="ascii") as file:
            file.write("0")
    except FileNotFoundError:
        return  # a kernel without IPv6
    except OSError as error:
        raise KernelError(f"cannot make {name} ignore router advertisements: {error}") from error


def set_mtu(name: str, mtu: int) -> None:
    """Raises KernelError if the link does not exist, or does not take this MTU."""
    with netlink() as route:
        route.link("set", index=_index(route, name), mtu=mtu)


def change_addresses(name: str, add: Iterable[str] = (), remove: Iterable[str] = ()) -> None:
    """Adds and removes addresses with prefix length; what is there, or gone, already is fine.

    Removing an IPv4 address takes the later ones of its network along; those are given back. Raises KernelError.
    """
    add, remove = list(add), list(remove)
    if not add and not remove:
        return
    with netlink() as route:
        index = _index(route, name)
        before = set(_address_states(route, index))
        for address in remove:
            if address in before:
                _address(route, "delete", index, address)
        wanted = (before | set(add)) - set(remove)
        present = set(_address_states(route, index)) if remove else before
        for address in sorted(wanted - present):
            _address(route, "add", index, address)


def wait_for_addresses(name: str, addresses: Iterable[str], timeout: float = _DAD_SECONDS) -> None:
    """Waits until the kernel has seen that no other host has these addresses (RFC 4862, 5.4).

    Raises KernelError naming one that another host has. A link without carrier is not waited for.
    """
    wanted = set(addresses)
    if not wanted:
        return
    deadline = time.monotonic() + timeout
    while True:
        with netlink() as route:
            index = _index(route, name)
            states = _address_states(route, index)
            carrier = route.get_links(index)[0].get_attr("IFLA_CARRIER")
        taken = sorted(address for address in wanted if states.get(address, 0) & IFA_F_DADFAILED)
        if taken:
            raise KernelError(f"another host on the link of {name} has {', '.join(taken)}", "give one of them another")
        waiting = [address for address in wanted if states.get(address, 0) & IFA_F_TENTATIVE]
        if not waiting or not carrier or time.monotonic() >= deadline:
            return
        time.sleep(0.1)


def wait_for_links(names: Iterable[str], timeout: float) -> None:
    """Waits until the kernel has all of these links. Raises DeadlineExceeded naming those it has not."""
    deadline = time.monotonic() + timeout
    while True:
        with netlink() as route:
            missing = sorted(name for name in names if not route.link_lookup(ifname=name))
        if not missing:
            return
        if time.monotonic() >= deadline:
            raise DeadlineExceeded(f"the kernel has no link {', '.join(missing)}")
        time.sleep(0.05)


def _link(message: Any, names: dict[int, str], messages: list[Any], addresses: list[Any], routes: list[Any]) -> Link:
    index = message["index"]
    own = {_cidr(item): _flags(item) for item in addresses if item["index"] == index and not _is_link_local(item)}
    master = message.get_attr("IFLA_MASTER")
    return Link(
        name=names[index],
        up=bool(message["flags"] & IFF_UP),
        addresses=frozenset(address for address, flags in own.items() if flags & IFA_F_PERMANENT),
        mtu=message.get_attr("IFLA_MTU") or 0,
        mac=message.get_attr("IFLA_ADDRESS") or "",
        kind=_kind(message),
        master=None if master is None else names.get(master, str(master)),
        children=tuple(sorted(names[item["index"]] for item in messages if _stands_on(item, index))),
        dynamic=tuple(sorted(address for address, flags in own.items() if not flags & IFA_F_PERMANENT)),
        duplicate=tuple(sorted(address for address, flags in own.items() if flags & IFA_F_DADFAILED)),
        routes=tuple(sorted({_route(item) for item in routes if index in _outputs(item)})),
    )


def _kind(message: Any) -> str:
    info = message.get_attr("IFLA_LINKINFO")
    return str(info.get_attr("IFLA_INFO_KIND") or "") if info else ""


def _stands_on(message: Any, index: int) -> bool:
    elsewhere = message.get_attr("IFLA_LINK_NETNSID") is not None
    return message.get_attr("IFLA_LINK") == index and not elsewhere and _kind(message) in _STACKED


def _cidr(message: Any) -> str:
    # IFA_LOCAL is the own address; on a point-to-point link IFA_ADDRESS is the peer's.
    address = message.get_attr("IFA_LOCAL") or message.get_attr("IFA_ADDRESS")
    return str(ipaddress.ip_interface(f"{address}/{message['prefixlen']}"))


def _flags(message: Any) -> int:
    flags = message.get_attr("IFA_FLAGS")
    return int(message["flags"] if flags is None else flags)


def _is_link_local(message: Any) -> bool:
    return bool(message["family"] == socket.AF_INET6 and ipaddress.ip_interface(_cidr(message)).ip in _LINK_LOCAL)


def _is_of_interest(message: Any) -> bool:
    """Whether losing the route would be a loss: not a local one, and not IPv6 link-local or multicast."""
    if message.get_attr("RTA_TABLE") == RT_TABLE_LOCAL or message["type"] not in ROUTE_TYPES:
        return False
    to = message.get_attr("RTA_DST")
    if message["family"] == socket.AF_INET6 and to:
        address = ipaddress.ip_address(to)
        return not (address in _LINK_LOCAL or address.is_multicast)
    return True


def _outputs(message: Any) -> set[int]:
    hops = message.get_attr("RTA_MULTIPATH") or ()
    return {message.get_attr("RTA_OIF"), *(hop["oif"] for hop in hops)} - {None}


def _route(message: Any) -> str:
    to = message.get_attr("RTA_DST")
    text = f"{to}/{message['dst_len']}" if to else "default"
    gateway = message.get_attr("RTA_GATEWAY")
    return f"{text} via {gateway}" if gateway else text


def _index(route: Any, name: str) -> int:
    found = route.link_lookup(ifname=name)
    if not found:
        raise KernelError(f"the kernel has no link {name}")
    return int(found[0])


def _address_states(route: Any, index: int) -> dict[str, int]:
    return {_cidr(message): _flags(message) for message in route.get_addr(index=index)}


def _address(route: Any, command: str, index: int, address: str) -> None:
    parsed = ipaddress.ip_interface(address)
    more = {}
    if command == "add" and isinstance(parsed, ipaddress.IPv4Interface) and parsed.network.prefixlen < 31:
        more["broadcast"] = str(parsed.network.broadcast_address)
    route.addr(command, index=index, address=str(parsed.ip), prefixlen=parsed.network.prefixlen, **more)
