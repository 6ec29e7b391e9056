# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way to the kernel for a pod's link: rtnetlink messages (rtnetlink(7)) on a plain socket.

pyroute2 takes longer to load, and to open, than an ADD may. tests/integration/test_fastpath.py shows that what is
made here is what the library makes.
"""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing

from ..errors import DeadlineExceeded, KernelError
from .netns import visit
from .offload import compute_checksums
from .pod import PodRoute, index_of, set_sysctl

_ANSWER_SECONDS = 10.0
"""How long the kernel may take: its lock may be held by others."""

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/if_addr.h, linux/veth.h
_NETLINK_ROUTE = 0
_SIOCGIFINDEX = 0x8933
"""linux/sockios.h"""
_RTMGRP_LINK = 1
_ERROR, _NEWLINK, _DELLINK, _NEWADDR, _NEWROUTE = 2, 16, 17, 20, 24
_REQUEST, _ACK, _REPLACE, _EXCL, _CREATE = 0x1, 0x4, 0x100, 0x200, 0x400
_IFF_UP = 1
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MTU, _IFLA_LINKINFO, _IFLA_NET_NS_FD = 1, 3, 4, 18, 28
_INFO_KIND, _INFO_DATA, _VETH_PEER = 1, 2, 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST = 1, 2, 4
_IFA_F_NODAD = 0x02
_RTA_DST, _RTA_OIF, _RTA_GATEWAY, _RTA_PRIORITY, _RTA_METRICS, _RTA_TABLE = 1, 4, 5, 6, 8, 15
_RTAX_MTU, _RTAX_ADVMSS = 2, 8
_RTN_UNICAST, _RTPROT_STATIC, _RTNH_F_ONLINK = 1, 4, 4
_RT_TABLE_MAIN, _SCOPE_UNIVERSE, _SCOPE_LINK = 254, 0, 253
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_LOOPBACK = 1
"""The loopback interface is the first of every namespace (net/core/dev.c, LOOPBACK_IFINDEX)."""


class PodSpace:
    """A pod's network namespace, worked in from outside: a socket stays in the namespace where it was opened.

    For one thread. Raises NetnsError if the descriptor is of none. Close it, or use it as a context manager.
    """

    def __init__(self, netns_fd: int) -> None:
        self.netns_fd = netns_fd
        self._route, self._plain, self._packet = visit(netns_fd, _open_all)

    def __enter__(self) -> PodSpace:
        return self

    def __exit__(self, *_error: object) -> None:
        self._route.close()
        self._plain.close()
        self._packet.close()

    def index(self, name: str) -> int | None:
        """The interface's index, None if it is not there."""
        request = struct.pack("16sI20x", os.fsencode(name), 0)
        try:
            return int(struct.unpack_from("16xI", fcntl.ioctl(self._plain, _SIOCGIFINDEX, request))[0])
        except OSError:
            return None

    def compute_checksums(self, name: str) -> None:
        """See `offload.compute_checksums`."""
        compute_checksums(self._plain, name)

    def configure(self, name: str, addresses: Iterable[str], routes: Iterable[PodRoute]) -> None:
        """Brings the interface and the loopback up, with addresses and routes.

        IPv6 addresses skip duplicate address detection: the IPAM plugin has given each to one pod, and a pod that
        waits a second or more for its address is refused connections meanwhile. Raises KernelError that names what
        failed.
        """
        wanted = [ipaddress.ip_interface(text) for text in addresses]
        index = self.index(name) or 0
        if any(item.version == 6 for item in wanted):
            visit(self.netns_fd, lambda: set_sysctl(name, "disable_ipv6", "0"))
        requests = [
            (_NEWLINK, 0, _up(_LOOPBACK), "cannot bring the loopback up"),
            (_NEWLINK, 0, _up(index), f"cannot bring {name} up"),
        ]
        requests += [
            (_NEWADDR, _CREATE | _EXCL, _address(index, item), f"{name} does not take the address {item}")
            for item in wanted
        ]
        networks = [item.network for item in wanted]
        requests += [
            (_NEWROUTE, _CREATE | _REPLACE, _route(index, to, networks), f"{name} does not take the route {_words(to)}")
            for to in routes
        ]
        _talk(self._route, requests)

    def take_packet_socket(self, name: str) -> socket.socket:
        """A packet socket on the interface, the caller's from now on."""
        self._packet.bind((name, 0))
        return self._packet.dup()


class LinkExists(KernelError):
    """One of the two names is taken."""


def make_veth(host: str, host_mac: str, name: str, mac: str, mtu: int, netns_fd: int) -> None:
    """A veth pair made in one step with its ends where they belong; the host's end is up and speaks no IPv6.

    Raises LinkExists, KernelError; nothing is left then.
    """
    ends = [(_IFLA_IFNAME, _text(name)), (_IFLA_ADDRESS, _mac(mac)), (_IFLA_MTU, _u32(mtu))]
    peer = _LINK.pack(0, 0, 0, 0, 0) + _attributes([*ends, (_IFLA_NET_NS_FD, _u32(netns_fd))])
    data = _attributes([(_VETH_PEER, peer)])
    info = _attributes([(_INFO_KIND, _text("veth")), (_INFO_DATA, data)])
    mine = [(_IFLA_IFNAME, _text(host)), (_IFLA_ADDRESS, _mac(host_mac)), (_IFLA_MTU, _u32(mtu))]
    body = _LINK.pack(0, 0, 0, 0, 0) + _attributes([*mine, (_IFLA_LINKINFO, info)])
    with closing(_open()) as route:
        _talk(route, [(_NEWLINK, _CREATE | _EXCL, body, f"cannot make the link pair {host} and {name}")])
        try:
            # A host's end that spoke IPv6 would answer the pod on its link-local address, past any VLAN.
            set_sysctl(host, "disable_ipv6", "1")
            _talk(route, [(_NEWLINK, 0, _up(index_of(host) or 0), f"cannot bring {host} up")])
        except KernelError:
            remove_link(host)
            raise


def remove_link(name: str) -> bool:
    """Removes a link with its peer; False if it was not there. Raises KernelError, DeadlineExceeded.

    Returns when the kernel has announced it: the names are free and nothing passes any more. Its acknowledgement
    comes some 15 ms later, when no processor can still look at the link; a thread of its own waits for that.
    """
    index = index_of(name)
    if index is None:
        return False
    route = _open(_RTMGRP_LINK)
    request = _message(_DELLINK, _REQUEST | _ACK, 1, _LINK.pack(0, 0, index, 0, 0))
    sent, read = threading.Event(), threading.Event()

    def send() -> None:
        with closing(route):
            try:
                route.send(request)
            finally:
                sent.set()
            read.wait()

    threading.Thread(target=send, name="remove-link", daemon=True).start()
    try:
        return _removed(route, index, name, sent)
    finally:
        read.set()


def _removed(route: socket.socket, index: int, name: str, sent: threading.Event) -> bool:
    deadline = time.monotonic() + _ANSWER_SECONDS
    for kind, number, body in _answers(route, deadline):
        if kind == _DELLINK and _LINK.unpack_from(body)[2] == index:
            return True
        if kind == _ERROR and number == 1:
            code = -struct.unpack_from("=i", body)[0]
            if code in (errno.ENODEV, 0):
                return code == 0
            raise KernelError(f"cannot remove {name}: {os.strerror(code)}")
        if sent.is_set() and index_of(name) is None:
            return True
    raise DeadlineExceeded(f"the kernel did not remove {name} in time", "try again")


def _talk(route: socket.socket, requests: list[tuple[int, int, bytes, str]]) -> None:
    """Sends all at once; the kernel does one after the other. Raises KernelError for the first that it refuses."""
    messages = [
        _message(kind, _REQUEST | _ACK | flags, number, body)
        for number, (kind, flags, body, _what) in enumerate(requests, 1)
    ]
    route.send(b"".join(messages))
    codes: dict[int, int] = {}
    for kind, number, body in _answers(route, time.monotonic() + _ANSWER_SECONDS):
        if kind == _ERROR:
            codes[number] = -struct.unpack_from("=i", body)[0]
        if len(codes) == len(requests):
            break
    else:
        raise DeadlineExceeded("the kernel did not answer in time", "try again")
    for number, (_kind, _flags, _body, what) in enumerate(requests, 1):
        if codes[number]:
            refusal = LinkExists if codes[number] == errno.EEXIST else KernelError
            raise refusal(f"{what}: {os.strerror(codes[number])}")


def _answers(route: socket.socket, deadline: float) -> Iterator[tuple[int, int, bytes]]:
    """Kind, number and content of each message until the deadline."""
    while True:
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([route], [], [], left)[0]:
            return
        try:
            data = route.recv(1 << 16)
        except OSError as error:
            if error.errno != errno.ENOBUFS:
                raise KernelError(f"netlink: {error.strerror}") from error
            yield 0, 0, b""  # news was lost: the reader looks for itself
            continue
        while len(data) >= _HEADER.size:
            length, kind, _flags, number, _port = _HEADER.unpack_from(data)
            yield kind, number, data[_HEADER.size : length]
            data = data[_align(length) :]


def _open_all() -> tuple[socket.socket, socket.socket, socket.socket]:
    return (
        _open(),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC),
        socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0),
    )


def _open(groups: int = 0) -> socket.socket:
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_ROUTE)
    route.bind((0, groups))
    return route


def _message(kind: int, flags: int, number: int, body: bytes) -> bytes:
    return _padded(_HEADER.pack(_HEADER.size + len(body), kind, flags, number, 0) + body)


def _attributes(pairs: Iterable[tuple[int, bytes]]) -> bytes:
    return b"".join(_padded(struct.pack("=HH", 4 + len(value), kind) + value) for kind, value in pairs)


def _padded(data: bytes) -> bytes:
    return data.ljust(_align(len(data)), b"\0")


def _align(length: int) -> int:
    return length + 3 & ~3


def _up(index: int) -> bytes:
    return _LINK.pack(0, 0, index, _IFF_UP, _IFF_UP)


def _address(index: int, item: ipaddress.IPv4Interface | ipaddress.IPv6Interface) -> bytes:
    pairs = [(_IFA_LOCAL, item.ip.packed), (_IFA_ADDRESS, item.ip.packed)]
    if item.version == 4 and item.network.prefixlen < 31:
        pairs.append((_IFA_BROADCAST, item.network.broadcast_address.packed))
    flags = _IFA_F_NODAD if item.version == 6 else 0
    head = struct.pack("=BBBBI", _family(item.version), item.network.prefixlen, flags, _SCOPE_UNIVERSE, index)
    return head + _attributes(pairs)


def _route(index: int, item: PodRoute, networks: Iterable[ipaddress.IPv4Network | ipaddress.IPv6Network]) -> bytes:
    to = ipaddress.ip_network(item.destination, strict=False)
    flags, scope = 0, _SCOPE_UNIVERSE
    pairs = [(_RTA_DST, to.network_address.packed)] if to.prefixlen else []
    pairs.append((_RTA_OIF, _u32(index)))
    if item.gateway:
        gateway = ipaddress.ip_address(item.gateway)
        pairs.append((_RTA_GATEWAY, gateway.packed))
        # A gateway outside of the pod's own networks is on the link nevertheless: this is its only one.
        if not gateway.is_link_local and not any(gateway in network for network in networks):
            flags = _RTNH_F_ONLINK
    elif to.version == 4:
        scope = _SCOPE_LINK
    table = item.table or _RT_TABLE_MAIN
    pairs.append((_RTA_TABLE, _u32(table)))
    if item.priority:
        pairs.append((_RTA_PRIORITY, _u32(item.priority)))
    metrics = [(kind, _u32(value)) for kind, value in ((_RTAX_MTU, item.mtu), (_RTAX_ADVMSS, item.advmss)) if value]
    if metrics:
        pairs.append((_RTA_METRICS, _attributes(metrics)))
    scope = scope if item.scope is None else item.scope
    head = struct.pack(
        "=BBBBBBBBI", _family(to.version), to.prefixlen, 0, 0, min(table, 255) if table < 256 else 0, _RTPROT_STATIC,
        scope, _RTN_UNICAST, flags,
    )  # fmt: skip
    return head + _attributes(pairs)


def _words(item: PodRoute) -> str:
    return f"to {item.destination}" + (f" by {item.gateway}" if item.gateway else "")


def _family(version: int) -> int:
    return int(socket.AF_INET if version == 4 else socket.AF_INET6)


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _mac(value: str) -> bytes:
    return bytes.fromhex(value.replace(":", ""))


def _u32(value: int) -> bytes:
    return struct.pack("=I", value)
