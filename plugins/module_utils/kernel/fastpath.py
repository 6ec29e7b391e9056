# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way to the kernel for a pod's link: rtnetlink messages (rtnetlink(7)) on a plain socket.

pyroute2 takes longer to load, and to open, than an ADD may. tests/integration/test_fastpath.py shows that what is
made here is what the library makes.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing

from ..errors import INVALID_CONFIG, DeadlineExceeded, KernelError
from ..model.names import InterfaceAddress
from . import rtnetlink
from .netns import visit
from .offload import compute_checksums
from .pod import PodRoute, Seen, index_of, set_sysctl
from .podroutes import add_routes, routes_of
from .rtnetlink import (
    ACK,
    ADDRESS,
    ANSWER_SECONDS,
    CREATE,
    DELLINK,
    ERROR,
    EXCL,
    GETADDR,
    GETLINK,
    GROUP_LINK,
    LINK,
    NEWADDR,
    NEWLINK,
    REPLACE,
    NoIpv6,
    Request,
    answers,
    ask,
    attributes,
    error_of,
    family_of,
    message,
    one_at_a_time,
    open_route,
    parse,
    talk,
    talk_in_bulk,
    u32,
)

# linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h, linux/veth.h
_IFF_UP = 1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_IFA_F_NODAD = 0x02
_SCOPE_UNIVERSE = 0
_LOOPBACK = 1
"""The loopback interface is the first of every namespace (net/core/dev.c, LOOPBACK_IFINDEX)."""


class PodSpace:
    """A pod's network namespace, worked in from outside: a socket stays in the namespace where it was opened.

    For one thread. Raises NetnsError if the descriptor is of none. Close it, or use it as a context manager.
    """

    def __init__(self, netns_fd: int) -> None:
        self.netns_fd = netns_fd
        self._route, self._plain = visit(netns_fd, _open_both)
        self._known: dict[str, int] = {}

    def __enter__(self) -> PodSpace:
        return self

    def __exit__(self, *_error: object) -> None:
        self._route.close()
        self._plain.close()

    def talk(self, requests: Sequence[Request]) -> None:
        """See `rtnetlink.talk`."""
        talk(self._route, requests)

    def talk_in_bulk(self, requests: Sequence[Request]) -> dict[int, tuple[int, str]]:
        """See `rtnetlink.talk_in_bulk`."""
        return talk_in_bulk(self._route, requests)

    def ask(self, request: int, body: bytes, dump: bool = False) -> list[bytes]:
        """See `rtnetlink.ask`."""
        return ask(self._route, request, body, ANSWER_SECONDS, dump)

    def index(self, name: str) -> int | None:
        """The interface's index, None if it is not there. Raises KernelError."""
        found = self._known.get(name) or rtnetlink.index_of(self._route, name)
        if found is not None:
            self._known[name] = found
        return found

    def compute_checksums(self, name: str) -> None:
        """See `offload.compute_checksums`."""
        with one_at_a_time:
            compute_checksums(self._plain, name)

    def bring_up(self, name: str) -> None:
        """Brings the interface and the loopback up. Raises KernelError."""
        requests = [
            (NEWLINK, 0, _up(_LOOPBACK), "cannot bring the loopback up"),
            (NEWLINK, 0, _up(self.index(name) or 0), f"cannot bring {name} up"),
        ]
        self.talk(requests)

    def configure(self, name: str, addresses: Iterable[str], routes: Iterable[PodRoute]) -> None:
        """Gives the interface, which is up, addresses and routes.

        IPv6 addresses skip duplicate address detection: the IPAM plugin has given each to one pod, and a pod that
        waits a second or more for its address is refused connections meanwhile. Raises KernelError (code 7) that names
        what failed.
        """
        try:
            self._configure(name, [ipaddress.ip_interface(text) for text in addresses], list(routes))
        except KernelError as error:  # somebody asked for what the kernel does not do
            error.code = INVALID_CONFIG
            raise

    def _configure(self, name: str, wanted: Sequence[InterfaceAddress], routes: Sequence[PodRoute]) -> None:
        if not wanted and not routes:
            return
        index = self.index(name) or 0
        requests = [
            (NEWADDR, CREATE | EXCL, _address(index, item), f"{name} does not take the address {item}")
            for item in wanted
        ]
        if requests:
            try:
                self.talk(requests)
            except NoIpv6:
                visit(self.netns_fd, lambda: set_sysctl(name, "disable_ipv6", "0"))
                self.talk([(kind, CREATE | REPLACE, body, what) for kind, _flags, body, what in requests])
        add_routes(self._route, name, index, routes, [item.network for item in wanted])

    def observe(self, name: str) -> Seen | None:
        """The interface as the kernel has it, None if it is not there. Raises KernelError."""
        index = self.index(name)
        if index is None:
            return None
        found = ask(self._route, GETLINK, LINK.pack(0, 0, index, 0, 0), ANSWER_SECONDS)
        if not found:
            return None
        link = found[0]
        columns = parse(link[LINK.size :])
        return Seen(
            mac=columns.get(_IFLA_ADDRESS, b"").hex(":"),
            mtu=int.from_bytes(columns.get(_IFLA_MTU, b""), sys.byteorder),
            up=bool(LINK.unpack_from(link)[3] & _IFF_UP),
            addresses=frozenset(_addresses_of(self._route, index)),
            routes=frozenset(routes_of(self._route, index)),
        )

    def destinations(self) -> frozenset[str]:
        """Where routes of any interface lead to. Raises KernelError."""
        return frozenset(destination for destination, _gateway in routes_of(self._route))


def make_veth(host: str, host_mac: str, name: str, mac: str, mtu: int, netns_fd: int) -> None:
    """A veth pair made in one step with its ends where they belong; the host's end is up. `silence` is to follow.

    Raises LinkExists, KernelError; nothing is left then.
    """
    ends = [(_IFLA_IFNAME, _text(name)), (_IFLA_ADDRESS, _mac(mac)), (_IFLA_MTU, u32(mtu))]
    peer = LINK.pack(0, 0, 0, 0, 0) + attributes([*ends, (_IFLA_NET_NS_FD, u32(netns_fd))])
    data = attributes([(_VETH_PEER, peer)])
    info = attributes([(_INFO_KIND, _text("veth")), (_INFO_DATA, data)])
    mine = [(_IFLA_IFNAME, _text(host)), (_IFLA_ADDRESS, _mac(host_mac)), (_IFLA_MTU, u32(mtu))]
    body = LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + attributes([*mine, (_IFLA_LINKINFO, info)])
    with closing(open_route()) as route:
        talk(route, [(NEWLINK, CREATE | EXCL, body, f"cannot make the link pair {host} and {name}")])


def silence(host: str) -> None:
    """The host's end speaks no IPv6: else it would answer the pod on its link-local address, past any VLAN.

    It has none yet while the pod's end is down. Raises KernelError.
    """
    with one_at_a_time:
        set_sysctl(host, "disable_ipv6", "1")


def remove_link(name: str) -> bool:
    """Removes a link with its peer; False if it was not there. Raises KernelError, DeadlineExceeded."""
    return LinkRemoval(name).wait()


class LinkRemoval:
    """The removal of a link with its peer, begun when this is made.

    `wait` returns when the kernel has announced it: the names are free and nothing passes any more. Its acknowledgement
    comes some 15 ms later, when no processor can still look at the link; a thread of its own waits for that.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._index = index_of(name)
        self._sent, self._read = threading.Event(), threading.Event()
        if self._index is not None:
            self._route = open_route(GROUP_LINK)
            threading.Thread(target=self._send, name="remove-link", daemon=True).start()

    def wait(self) -> bool:
        """False if the link was not there. Raises KernelError, DeadlineExceeded."""
        if self._index is None:
            return False
        try:
            return self._removed(self._index)
        finally:
            self._read.set()

    def _send(self) -> None:
        with closing(self._route):
            try:
                self._route.send(message(DELLINK, ACK, 1, LINK.pack(0, 0, self._index, 0, 0)))
            finally:
                self._sent.set()
            self._read.wait(ANSWER_SECONDS)

    def _removed(self, index: int) -> bool:
        for kind, number, body in answers(self._route, time.monotonic() + ANSWER_SECONDS):
            if kind == DELLINK and LINK.unpack_from(body)[2] == index:
                return True
            if kind == ERROR and number == 1:
                code = error_of(body)
                if code in (errno.ENODEV, 0):
                    return code == 0
                raise KernelError(f"cannot remove {self._name}: {os.strerror(code)}")
            if self._sent.is_set() and index_of(self._name) is None:
                return True
        raise DeadlineExceeded(f"the kernel did not remove {self._name} in time", "try again")


def _addresses_of(route: socket.socket, index: int) -> Iterator[str]:
    for body in ask(route, GETADDR, ADDRESS.pack(0, 0, 0, 0, index), ANSWER_SECONDS, dump=True):
        family, prefix, _flags, _scope, there = ADDRESS.unpack_from(body)
        columns = parse(body[ADDRESS.size :])
        address = columns.get(_IFA_LOCAL) or columns.get(_IFA_ADDRESS)
        if there == index and address:
            yield f"{socket.inet_ntop(family, address)}/{prefix}"


def _open_both() -> tuple[socket.socket, socket.socket]:
    return open_route(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)


def _up(index: int) -> bytes:
    return LINK.pack(0, 0, index, _IFF_UP, _IFF_UP)


def _address(index: int, item: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> bytes:
    pairs = [(_IFA_LOCAL, item.ip.packed), (_IFA_ADDRESS, item.ip.packed)]
    if item.version == 4 and item.network.prefixlen < 31:
        pairs.append((_IFA_BROADCAST, item.network.broadcast_address.packed))
    flags = _IFA_F_NODAD if item.version == 6 else 0
    head = ADDRESS.pack(family_of(item.version), item.network.prefixlen, flags, _SCOPE_UNIVERSE, index)
    return head + attributes(pairs)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))
