# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's routes, rules and neighbours of layer-3 attachments, on a plain socket (rtnetlink(7)).

A pod's call may not wait for the library, as in fastpath.py.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

from ..errors import KernelError
from ..model.routing import (
    MAIN,
    UNICAST,
    UNREACHABLE,
    HostRoute,
    HostRule,
    Proxy,
    Seen,
    is_ours,
    is_uplinks,
    words,
)
from .rtnetlink import (
    ANSWER_SECONDS,
    CREATE,
    DELNEIGH,
    DELROUTE,
    DELRULE,
    EXCL,
    GETNEIGH,
    GETROUTE,
    GETRULE,
    NEIGHBOUR,
    NEWNEIGH,
    NEWROUTE,
    NEWRULE,
    REPLACE,
    ROUTE,
    Request,
    ask,
    attributes,
    open_route,
    outcomes,
    parse,
    talk,
    u32,
)

PROTOCOL = 2
"""linux/rtnetlink.h, RTPROT_KERNEL: see model/routing.py."""

# linux/rtnetlink.h, linux/fib_rules.h, linux/neighbour.h
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_TABLE = 1, 4, 5, 6, 15
_RTN_UNICAST, _RTN_UNREACHABLE, _SCOPE_LINK = 1, 7, 253
_RTN_OWN = (2, 3, 4, 5)
"""Local, broadcast, anycast, multicast."""
_FRA_DST, _FRA_SRC, _FRA_PRIORITY, _FRA_TABLE, _FRA_PROTOCOL = 1, 2, 6, 15, 21
_FRA_SUPPRESS_LENGTH = 14
_FRA_PLAIN = {_FRA_DST, _FRA_SRC, _FRA_PRIORITY, _FRA_TABLE, _FRA_PROTOCOL, _FRA_SUPPRESS_LENGTH}
"""What a rule about one address has. The kernel always tells which prefixes are suppressed: none (-1)."""
_TO_TABLE = 1
_NDA_DST, _NDA_LLADDR, _NDA_PROTOCOL = 1, 2, 12
_NTF_PROXY, _NUD_PERMANENT = 0x08, 0x80
_FAMILIES = {4: int(socket.AF_INET), 6: int(socket.AF_INET6)}
_VERSIONS = {number: version for version, number in _FAMILIES.items()}
_KINDS = {_RTN_UNICAST: UNICAST, _RTN_UNREACHABLE: UNREACHABLE}
_GONE = (0, errno.ENOENT, errno.ESRCH, errno.ENODEV, errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


def families() -> tuple[int, ...]:
    """The address families that this kernel has: a node may have been started without IPv6."""
    return (4, 6) if os.path.isdir("/proc/sys/net/ipv6") else (4,)


class Routing:
    """The calling thread's namespace. Close it, or use it as a context manager."""

    def __init__(self) -> None:
        self._route = open_route()

    def __enter__(self) -> Routing:
        return self

    def __exit__(self, *_error: object) -> None:
        self._route.close()

    def look(self) -> Seen:
        """What is there of ours. Raises KernelError."""
        seen = Seen()
        for version in families():
            family = _FAMILIES[version]
            # The protocol in the request: a router's table may have a million routes of others.
            for body in self._dump(GETROUTE, ROUTE.pack(family, 0, 0, 0, 0, PROTOCOL, 0, 0, 0)):
                seen.routes.update(_routes_in(body))
            for body in self._dump(GETRULE, ROUTE.pack(family, *[0] * 8)):
                seen.rules.update(rule for rule in _rules_in(body) if is_ours(rule))
            for body in self._dump(GETNEIGH, NEIGHBOUR.pack(family, 0, 0, _NTF_PROXY, 0)):
                seen.proxies.update(_proxies_in(body))
        return seen

    def table(self, number: int) -> frozenset[HostRoute]:
        """The routes in the table of an uplink, none if there is no such table."""
        found: set[HostRoute] = set()
        for version in families():
            body = ROUTE.pack(_FAMILIES[version], *[0] * 8) + attributes([(_RTA_TABLE, u32(number))])
            with suppress(KernelError):  # the kernel's word for a table that is not there
                for answer in self._dump(GETROUTE, body):
                    found.update(item for item in _routes_in(answer) if item.table == number)
        return frozenset(found)

    def is_own(self, address: str) -> bool:
        """Whether an address is the node's itself, or that of all on a network of it. Raises DeadlineExceeded."""
        packed = _packed(address)
        body = ROUTE.pack(_family(address), len(packed) * 8, *[0] * 7) + attributes([(_RTA_DST, packed)])
        with suppress(KernelError):  # the kernel's word for what no route leads to
            kinds = [ROUTE.unpack_from(answer)[7] for answer in ask(self._route, GETROUTE, body, ANSWER_SECONDS)]
            return any(kind in _RTN_OWN for kind in kinds)
        return False

    def add(self, things: Iterable[HostRoute | HostRule | Proxy]) -> None:
        """Makes them, in this order. Raises KernelError that names the first that the kernel refused: a route that is
        there and somebody else's, too.
        """
        requests = [_new(thing) for thing in things]
        for code, (_kind, _flags, _body, what) in zip(outcomes(self._route, requests), requests):
            if code:
                raise KernelError(f"{what}: {os.strerror(code)}", "what is there already? ip route, ip rule")

    def drop(self, things: Iterable[HostRoute | HostRule | Proxy]) -> int:
        """Takes them away, each once; those that are gone are done. Gives how many there were. Raises KernelError."""
        requests = [_gone(thing) for thing in things]
        codes = outcomes(self._route, requests)
        for code, (_kind, _flags, _body, what) in zip(codes, requests):
            if code not in _GONE:
                raise KernelError(f"{what}: {os.strerror(code)}")
        return codes.count(0)

    def know(self, index: int, mac: str, addresses: Iterable[str]) -> None:
        """Permanent neighbours on a link. Raises KernelError."""
        talk(self._route, [neighbour(index, mac, address) for address in addresses])

    def _dump(self, request: int, body: bytes) -> list[bytes]:
        return ask(self._route, request, body, ANSWER_SECONDS, dump=True)


def neighbour(index: int, mac: str, address: str) -> Request:
    """The request for a permanent neighbour."""
    head = NEIGHBOUR.pack(_family(address), index, _NUD_PERMANENT, 0, 0)
    pairs = [(_NDA_DST, _packed(address)), (_NDA_LLADDR, bytes.fromhex(mac.replace(":", "")))]
    return NEWNEIGH, CREATE | REPLACE, head + attributes(pairs), f"cannot make {address} a neighbour"


def _new(thing: HostRoute | HostRule | Proxy) -> Request:
    if isinstance(thing, HostRoute):
        # The uplink's are shared by its pods: there already is fine.
        flags = CREATE | (REPLACE if is_uplinks(thing.table) else EXCL)
        return NEWROUTE, flags, _route(thing), f"cannot make {words(thing)}"
    if isinstance(thing, HostRule):
        return NEWRULE, CREATE | EXCL, _rule(thing), f"cannot make {words(thing)}"
    return NEWNEIGH, CREATE | REPLACE, _proxy(thing), f"cannot answer for {thing.address} on the uplink"


def _gone(thing: HostRoute | HostRule | Proxy) -> Request:
    if isinstance(thing, HostRoute):
        return DELROUTE, 0, _route(thing), f"cannot remove {words(thing)}"
    if isinstance(thing, HostRule):
        return DELRULE, 0, _rule(thing), f"cannot remove {words(thing)}"
    return DELNEIGH, 0, _proxy(thing), f"cannot remove {words(thing)}"


def _route(item: HostRoute) -> bytes:
    to = ipaddress.ip_network(item.destination)
    pairs = [(_RTA_DST, to.network_address.packed)] if to.prefixlen else []
    if item.device:
        pairs.append((_RTA_OIF, u32(item.device)))
    if item.gateway:
        pairs.append((_RTA_GATEWAY, _packed(item.gateway)))
    if item.metric:
        pairs.append((_RTA_PRIORITY, u32(item.metric)))
    pairs.append((_RTA_TABLE, u32(item.table)))
    scope = _SCOPE_LINK if to.version == 4 and item.device and not item.gateway else 0
    kind = next(number for number, name in _KINDS.items() if name == item.kind)
    head = ROUTE.pack(
        _FAMILIES[to.version], to.prefixlen, 0, 0, item.table if item.table < 256 else 0, PROTOCOL, scope, kind, 0
    )
    return head + attributes(pairs)


def _rule(item: HostRule) -> bytes:
    packed = _packed(item.address)
    bits = len(packed) * 8
    to = item.table == MAIN
    head = ROUTE.pack(
        _family(item.address), bits if to else 0, 0 if to else bits, 0, item.table if item.table < 256 else 0, 0, 0,
        _TO_TABLE, 0,
    )  # fmt: skip
    return head + attributes([
        (_FRA_DST if to else _FRA_SRC, packed), (_FRA_PRIORITY, u32(item.priority)), (_FRA_TABLE, u32(item.table)),
        (_FRA_PROTOCOL, bytes([PROTOCOL])),
    ])  # fmt: skip


def _proxy(item: Proxy) -> bytes:
    head = NEIGHBOUR.pack(_family(item.address), item.device, 0, _NTF_PROXY, 0)
    return head + attributes([(_NDA_DST, _packed(item.address)), (_NDA_PROTOCOL, bytes([PROTOCOL]))])


def _routes_in(body: bytes) -> Iterator[HostRoute]:
    family, length, _src, _tos, table, protocol, _scope, kind, _flags = ROUTE.unpack_from(body)
    columns = parse(body[ROUTE.size :])
    table = _number(columns.get(_RTA_TABLE)) or table
    bits = 32 if family == socket.AF_INET else 128
    if protocol != PROTOCOL or kind not in _KINDS:
        return
    if not (is_uplinks(table) and length in (0, bits)) and not (table == MAIN and length == bits):
        return
    to, gateway = columns.get(_RTA_DST) or bytes(bits // 8), columns.get(_RTA_GATEWAY)
    name = _KINDS[kind]
    yield HostRoute(
        f"{socket.inet_ntop(family, to)}/{length}",
        table,
        # IPv6 says the loopback's index for what leads nowhere.
        _number(columns.get(_RTA_OIF)) if name == UNICAST else 0,
        socket.inet_ntop(family, gateway) if gateway else "",
        name,
        _number(columns.get(_RTA_PRIORITY)),
    )


def _rules_in(body: bytes) -> Iterator[HostRule]:
    """A rule about one address and nothing else."""
    family, to_length, from_length, tos, table, _res1, _res2, action, flags = ROUTE.unpack_from(body)
    columns = parse(body[ROUTE.size :])
    if columns.get(_FRA_PROTOCOL) != bytes([PROTOCOL]) or action != _TO_TABLE or tos or flags:
        return
    if not set(columns) <= _FRA_PLAIN or columns.get(_FRA_SUPPRESS_LENGTH, _NONE) != _NONE:
        return
    bits = 32 if family == socket.AF_INET else 128
    table = _number(columns.get(_FRA_TABLE)) or table
    packed = columns.get(_FRA_DST if table == MAIN else _FRA_SRC)
    if packed and (to_length, from_length) == ((bits, 0) if table == MAIN else (0, bits)):
        yield HostRule(_number(columns.get(_FRA_PRIORITY)), socket.inet_ntop(family, packed), table)


def _proxies_in(body: bytes) -> Iterator[Proxy]:
    family, index, _state, flags, _kind = NEIGHBOUR.unpack_from(body)
    columns = parse(body[NEIGHBOUR.size :])
    packed = columns.get(_NDA_DST)
    if family in _VERSIONS and flags & _NTF_PROXY and packed and columns.get(_NDA_PROTOCOL) == bytes([PROTOCOL]):
        yield Proxy(socket.inet_ntop(family, packed), index)


_NONE = struct.pack("=i", -1)


def _number(value: bytes | None) -> int:
    return int(struct.unpack("=I", value)[0]) if value else 0


def _packed(address: str) -> bytes:
    return ipaddress.ip_address(address).packed


def _family(address: str) -> int:
    return _FAMILIES[ipaddress.ip_address(address).version]
