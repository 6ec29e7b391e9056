# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's default routes."""

from __future__ import annotations

import socket
import sys
from collections.abc import Collection, Iterator

from .fastpath import PodSpace
from .rtnetlink import DELROUTE, GETROUTE, ROUTE, Request, parse, u32

# linux/rtnetlink.h
_RTA_OIF, _RTA_TABLE = 4, 15
_RT_TABLE_MAIN = 254
_RTN_UNICAST = 1
_FAMILIES = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}


def remove_defaults(space: PodSpace, name: str, families: Collection[int]) -> None:
    """Takes the default routes of these families (4, 6) of an interface out of the main table. Raises KernelError."""
    index = space.index(name) or 0
    requests: list[Request] = [
        (DELROUTE, 0, body, f"the default route of {name} stays")
        for version, device, body in _defaults(space)
        if version in families and device == index
    ]
    if requests:
        space.talk(requests)


def default_families(space: PodSpace) -> set[int]:
    """The families (4, 6) of which the pod has a default route in its main table. Raises KernelError."""
    return {version for version, _device, _body in _defaults(space)}


def _defaults(space: PodSpace) -> Iterator[tuple[int, int, bytes]]:
    """Family, interface and the kernel's own words of each default route of the main table."""
    for body in space.ask(GETROUTE, ROUTE.pack(*[0] * 9), dump=True):
        family, length, _source, _tos, table, _protocol, _scope, kind, _flags = ROUTE.unpack_from(body)
        columns = parse(body[ROUTE.size :])
        in_main = columns.get(_RTA_TABLE, u32(table)) == u32(_RT_TABLE_MAIN)
        if in_main and length == 0 and kind == _RTN_UNICAST and family in _FAMILIES:
            yield _FAMILIES[family], int.from_bytes(columns.get(_RTA_OIF, b""), sys.byteorder), body
