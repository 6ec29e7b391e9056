# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pod's default routes."""

from __future__ import annotations

import socket
from collections.abc import Collection

from .fastpath import PodSpace
from .rtnetlink import DELROUTE, GETROUTE, ROUTE, Request, parse, u32

# linux/rtnetlink.h
_RTA_OIF, _RTA_TABLE = 4, 15
_RT_TABLE_MAIN = 254
_RTN_UNICAST = 1
_FAMILIES = {int(socket.AF_INET): 4, int(socket.AF_INET6): 6}


def remove_defaults(space: PodSpace, name: str, families: Collection[int]) -> None:
    """Takes the default routes of these families (4, 6) of an interface out of the main table. Raises KernelError."""
    index = space.index(name)
    requests: list[Request] = []
    for body in space.ask(GETROUTE, ROUTE.pack(*[0] * 9), dump=True):
        family, length, _source, _tos, table, _protocol, _scope, kind, _flags = ROUTE.unpack_from(body)
        columns = parse(body[ROUTE.size :])
        if length or kind != _RTN_UNICAST or _FAMILIES.get(family) not in families:
            continue
        if columns.get(_RTA_TABLE, u32(table)) == u32(_RT_TABLE_MAIN) and columns.get(_RTA_OIF) == u32(index or 0):
            requests.append((DELROUTE, 0, body, f"the default route of {name} stays"))
    if requests:
        space.talk(requests)
