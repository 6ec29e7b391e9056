# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands on a link, in any network namespace of the machine: VLANs, tunnels, and the macvlans of pods.

A link that was moved into a pod still holds its parent there, and nothing in the parent's namespace shows it. Plain
rtnetlink (rtnetlink(7)), for a library takes longer to open in each namespace than all of this.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass

from ..errors import NetnsError
from .netns import visit

# linux/netlink.h, linux/rtnetlink.h, linux/if_link.h, linux/net_namespace.h
_REQUEST, _DUMP = 0x1, 0x300
_ERROR, _DONE, _NEWLINK, _GETLINK, _NEWNSID, _GETNSID = 2, 3, 16, 18, 88, 90
_IFLA_IFNAME, _IFLA_LINK, _IFLA_LINKINFO, _IFLA_EXT_MASK, _IFLA_LINK_NETNSID = 3, 5, 18, 29, 37
_INFO_KIND, _INFO_DATA = 1, 2
_IFLA_VXLAN_LINK = 3
_SKIP_STATISTICS = 8
_NETNSA_NSID, _NETNSA_FD = 1, 3
_ATTRIBUTE = 0x3FFF
"""The type of an attribute without its flags."""
_HEADER = struct.Struct("=IHHII")
_LINK = struct.Struct("=BxHiII")
_PAIRS = ("veth", "netkit", "vxcan")
"""Kinds whose link is the other end of a cable, which does not stand on it."""


@dataclass(frozen=True)
class Stacked:
    """A link that stands on another one. `netns`: where it is, "" for the namespace of this process."""

    name: str
    kind: str
    netns: str = ""

    def __str__(self) -> str:
        return f"{self.name} in {self.netns}" if self.netns else self.name


def stacked_on(index: int, seconds: float = 0.5) -> tuple[Stacked, ...]:
    """What stands on the link of this index here. Namespaces that are not reached within `seconds` are left out."""
    found = [Stacked(name, kind) for name, kind in _standing(_open(), index, -1)]
    deadline = time.monotonic() + seconds
    with suppress(OSError), open("/proc/self/ns/net", "rb") as home:
        for where, path in _namespaces():
            if time.monotonic() > deadline:
                break
            with suppress(OSError, NetnsError):
                found += _stacked_in(path, where, home.fileno(), index)
    return tuple(found)


def _stacked_in(path: str, where: str, home: int, index: int) -> list[Stacked]:
    with open(path, "rb") as other:
        route = visit(other.fileno(), _open)
    with closing(route):
        number = _number_of(route, home)
        if number < 0:
            return []  # nothing there knows this namespace
        return [Stacked(name, kind, where) for name, kind in _standing(route, index, number)]


def _standing(route: socket.socket, index: int, number: int) -> Iterator[tuple[str, str]]:
    for name, kind, parent, elsewhere in _links(route):
        if parent == index and elsewhere == number and kind not in _PAIRS:
            yield name, kind


def _namespaces() -> Iterator[tuple[str, str]]:
    """Name and path of each other network namespace, once."""
    seen = {_inode("/proc/self/ns/net")}
    for folder, name_of in (("/run/netns", "{}"), ("/proc", "the namespace of process {}")):
        with suppress(OSError):
            for entry in sorted(os.listdir(folder)):
                if folder == "/proc" and not entry.isdigit():
                    continue
                path = f"/proc/{entry}/ns/net" if folder == "/proc" else f"{folder}/{entry}"
                inode = _inode(path)
                if inode and inode not in seen:
                    seen.add(inode)
                    yield name_of.format(entry), path


def _inode(path: str) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open() -> socket.socket:
    route = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    route.bind((0, 0))
    route.settimeout(1.0)
    return route


def _links(route: socket.socket) -> Iterator[tuple[str, str, int, int]]:
    """Name, kind, index of the link below (0: none) and the number of that one's namespace (-1: the same one)."""
    extension = struct.pack("=HHI", 8, _IFLA_EXT_MASK, _SKIP_STATISTICS)
    body = _LINK.pack(0, 0, 0, 0, 0) + extension
    with closing(route):
        for kind, data in _ask(route, _GETLINK, _DUMP, body):
            if kind != _NEWLINK:
                continue
            fields = dict(_attributes(data[_LINK.size :]))
            info = dict(_attributes(fields.get(_IFLA_LINKINFO, b"")))
            parent = _number(fields.get(_IFLA_LINK)) or _vxlan_parent(info)
            elsewhere = _number(fields.get(_IFLA_LINK_NETNSID), -1)
            yield _text(fields.get(_IFLA_IFNAME, b"")), _text(info.get(_INFO_KIND, b"")), parent, elsewhere


def _vxlan_parent(info: dict[int, bytes]) -> int:
    if _text(info.get(_INFO_KIND, b"")) != "vxlan":
        return 0
    return _number(dict(_attributes(info.get(_INFO_DATA, b""))).get(_IFLA_VXLAN_LINK))


def _number_of(route: socket.socket, netns: int) -> int:
    """The number under which the socket's namespace knows that one; -1 if it does not."""
    body = struct.pack("=Bxxx", 0) + struct.pack("=HHI", 8, _NETNSA_FD, netns)
    for kind, data in _ask(route, _GETNSID, 0, body):
        if kind == _NEWNSID:
            return _number(dict(_attributes(data[4:])).get(_NETNSA_NSID), -1)
    return -1


def _ask(route: socket.socket, kind: int, flags: int, body: bytes) -> Iterator[tuple[int, bytes]]:
    """Type and content of each message of the answer."""
    route.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST | flags, 1, 0) + body)
    while True:
        data = route.recv(1 << 18)
        while len(data) >= _HEADER.size:
            length, answer, _flags, _sequence, _port = _HEADER.unpack_from(data)
            if answer in (_ERROR, _DONE):
                return
            yield answer, data[_HEADER.size : length]
            data = data[(length + 3) & ~3 :]
        if not flags:
            return


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & _ATTRIBUTE, data[4:length]
        data = data[(length + 3) & ~3 :]


def _number(value: bytes | None, default: int = 0) -> int:
    return int(struct.unpack_from("=i", value)[0]) if value and len(value) >= 4 else default


def _text(value: bytes) -> str:
    return value.split(b"\0", 1)[0].decode("utf-8", "replace")
