# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLAN links of a pod: many made at once, all links read back, removed by index; rtnetlink(7) on a plain socket."""

from __future__ import annotations

import errno
import os
import struct
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

from ..errors import UNAVAILABLE, KernelError
from .fastpath import PodSpace
from .rtnetlink import (
    ANSWER_SECONDS,
    CREATE,
    DELLINK,
    EXCL,
    GETLINK,
    LINK,
    NEWLINK,
    LinkExists,
    Request,
    ask,
    attributes,
    index_of,
    open_route,
    parse,
    talk_in_bulk,
    u32,
)

DOT1Q, DOT1AD = 0x8100, 0x88A8
"""Tag protocols: IEEE 802.1Q-2018, table 9-1."""

# linux/if.h, linux/if_link.h, linux/rtnetlink.h
_IFF_UP = 1
_ADDRESS, _IFNAME, _MTU, _LINK, _LINKINFO, _IFALIAS = 1, 3, 4, 5, 18, 20
_NET_NS_FD, _EXT_MASK, _LINK_NETNSID = 28, 29, 37
_INFO_KIND, _INFO_DATA = 1, 2
_VLAN_ID, _VLAN_PROTOCOL = 1, 5
_SKIP_STATISTICS = 1 << 3
NEEDED = "modprobe 8021q on the node, or take a kernel that has it"
_MODULE_LISTS = ("modules.dep", "modules.builtin")
_NOT_SUPPORTED_THERE = "not supported on device"
"""The kernel's words for a parent that takes no VLANs; without them it has no VLANs at all."""


@dataclass(frozen=True)
class NewVlan:
    """A VLAN link to be made, up. `parent` is an index in the pod, or with `on_host` in the caller's own namespace; or
    the name of a link that comes before in the same batch. `mtu` None, `mac` empty: the parent's. `alias` empty: none.
    """

    name: str
    parent: int | str
    vlan: int
    protocol: int
    alias: str
    mtu: int | None = None
    mac: str = ""
    on_host: bool = False


@dataclass(frozen=True)
class Link:
    """A link as the kernel has it. `parent` 0: none. `elsewhere`: the parent is in another namespace, where its index
    counts. `vlan` and `protocol` are 0 for what is no VLAN.
    """

    index: int
    name: str
    kind: str = ""
    parent: int = 0
    vlan: int = 0
    protocol: int = 0
    mtu: int = 0
    mac: str = ""
    up: bool = False
    alias: str = ""
    elsewhere: bool = False


def links_of(space: PodSpace) -> list[Link]:
    """All links of the pod. Raises KernelError, DeadlineExceeded."""
    return [_link(body) for body in space.ask(GETLINK, _EVERYTHING, dump=True)]


def host_link(name: str) -> Link | None:
    """A link of the caller's own namespace, None if it is not there. Raises KernelError, DeadlineExceeded."""
    with closing(open_route()) as route:
        index = index_of(route, name)
        if index is None:
            return None
        found = ask(route, GETLINK, LINK.pack(0, 0, index, 0, 0), ANSWER_SECONDS)
    return _link(found[0]) if found else None


def make(space: PodSpace, wanted: Sequence[NewVlan]) -> None:
    """Makes them in the pod, in order, or none of them. None of the names may be taken.

    Raises KernelError that names the one that failed, LinkExists if its name or its VLAN is taken meanwhile.
    """
    made: list[str] = []
    try:
        for wave in _waves(wanted):
            _make(space, wave, made)
    except BaseException:
        remove_named(space, made)
        raise


def remove(space: PodSpace, indices: Iterable[int]) -> None:
    """Removes links of the pod, in order; one that is gone already is done. Raises KernelError for the first failure,
    after all were tried.
    """
    requests: list[Request] = [
        (DELLINK, 0, LINK.pack(0, 0, index, 0, 0), f"cannot remove link {index}") for index in indices
    ]
    refused = space.talk_in_bulk(requests)
    failed = {number: code for number, (code, _words) in refused.items() if code != errno.ENODEV}
    if failed:
        number = min(failed)
        raise KernelError(f"{requests[number][3]} of the container: {os.strerror(failed[number])}")


def remove_named(space: PodSpace, names: Sequence[str]) -> None:
    """Removes links of the pod by their names, the last one first. Raises KernelError."""
    indices = [space.index(name) for name in reversed(names)]
    remove(space, [index for index in indices if index is not None])


def is_lacking() -> bool:
    """Whether the kernel certainly has no VLANs: they are not in use, and the list of its modules has not got them."""
    if os.path.exists("/proc/net/vlan"):
        return False
    folder = f"/lib/modules/{os.uname().release}"
    try:
        return not any(_mentions(f"{folder}/{name}", "/8021q.ko") for name in _MODULE_LISTS)
    except OSError:
        return False


def depth(link: Link, links: Mapping[int, Link]) -> int:
    """How many links of the pod a link stands on, by their indices."""
    steps = 0
    while not link.elsewhere and link.parent in links and steps < len(links):
        link, steps = links[link.parent], steps + 1
    return steps


def _waves(wanted: Sequence[NewVlan]) -> Iterator[list[NewVlan]]:
    """What can be made at once: a link that stands on another one comes after that."""
    wave: list[NewVlan] = []
    for item in wanted:
        if wave and (item.on_host != wave[0].on_host or any(item.parent == other.name for other in wave)):
            yield wave
            wave = []
        wave.append(item)
    if wave:
        yield wave


def _make(space: PodSpace, wave: Sequence[NewVlan], made: list[str]) -> None:
    requests = [(NEWLINK, CREATE | EXCL, _creation(space, item), _what(item)) for item in wave]
    if wave[0].on_host:
        with closing(open_route()) as route:
            refused = talk_in_bulk(route, requests)
    else:
        refused = space.talk_in_bulk(requests)
    made += [item.name for number, item in enumerate(wave) if number not in refused]
    if refused:
        number = min(refused)
        raise _refusal(wave[number], *refused[number])
    # On its own: an alias is nothing that a link can be made with, and one that was not made is not to be marked.
    marks: list[Request] = [(NEWLINK, 0, _marking(item), f"cannot mark {item.name}") for item in wave if item.alias]
    unmarked = space.talk_in_bulk(marks)
    if unmarked:
        number = min(unmarked)
        raise KernelError(f"{marks[number][3]}: {os.strerror(unmarked[number][0])}")


def _marking(item: NewVlan) -> bytes:
    return LINK.pack(0, 0, 0, 0, 0) + attributes([(_IFNAME, _text(item.name)), (_IFALIAS, item.alias.encode())])


def _creation(space: PodSpace, item: NewVlan) -> bytes:
    parent = item.parent if isinstance(item.parent, int) else space.index(item.parent) or 0
    data = attributes([
        (_VLAN_ID, struct.pack("=H", item.vlan)), (_VLAN_PROTOCOL, struct.pack("!H", item.protocol)),
    ])  # fmt: skip
    pairs = [(_IFNAME, _text(item.name)), (_LINK, u32(parent))]
    if item.on_host:
        pairs.append((_NET_NS_FD, u32(space.netns_fd)))
    if item.mtu is not None:
        pairs.append((_MTU, u32(item.mtu)))
    if item.mac:
        pairs.append((_ADDRESS, bytes.fromhex(item.mac.replace(":", ""))))
    pairs.append((_LINKINFO, attributes([(_INFO_KIND, _text("vlan")), (_INFO_DATA, data)])))
    return LINK.pack(0, 0, 0, _IFF_UP, _IFF_UP) + attributes(pairs)


def _refusal(item: NewVlan, code: int, words: str) -> KernelError:
    if code == errno.EOPNOTSUPP and _NOT_SUPPORTED_THERE not in words:
        return KernelError(f"{_what(item)}: this kernel has no 802.1Q VLANs", NEEDED, UNAVAILABLE)
    if code == errno.ENETDOWN:
        return KernelError(f"{_what(item)}: its parent is down", "who made the parent has to bring it up")
    kind = LinkExists if code == errno.EEXIST else KernelError
    return kind(f"{_what(item)}: {words or os.strerror(code)}")


def _what(item: NewVlan) -> str:
    return f"cannot make {item.name} for VLAN {item.vlan}"


def _link(body: bytes) -> Link:
    _family, _type, index, flags, _mask = LINK.unpack_from(body)
    columns = parse(body[LINK.size :])
    info = parse(columns.get(_LINKINFO, b""))
    kind = _word(info.get(_INFO_KIND, b""))
    data = parse(info.get(_INFO_DATA, b"")) if kind == "vlan" else {}
    return Link(
        index=index,
        name=_word(columns.get(_IFNAME, b"")),
        kind=kind,
        parent=_number(columns.get(_LINK, b"")),
        vlan=_number(data.get(_VLAN_ID, b"")),
        protocol=int.from_bytes(data.get(_VLAN_PROTOCOL, b""), "big"),
        mtu=_number(columns.get(_MTU, b"")),
        mac=columns.get(_ADDRESS, b"").hex(":"),
        up=bool(flags & _IFF_UP),
        alias=_word(columns.get(_IFALIAS, b"")),
        elsewhere=_LINK_NETNSID in columns,
    )


def _mentions(path: str, word: str) -> bool:
    with open(path, encoding="utf-8", errors="replace") as file:
        return any(word in line for line in file)


def _number(data: bytes) -> int:
    return int.from_bytes(data, sys.byteorder)


def _word(data: bytes) -> str:
    return os.fsdecode(data.rstrip(b"\0"))


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


_EVERYTHING = LINK.pack(0, 0, 0, 0, 0) + attributes([(_EXT_MASK, u32(_SKIP_STATISTICS))])
