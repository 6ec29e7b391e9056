# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Default routes that the kernel learnt from router advertisements, given to another device as the kernel's own.

The next advertisement would not find a route that came by netlink: the kernel then fails to add its own beside it,
and ignores the rest of the advertisement, so that the addresses expire (net/ipv6/ndisc.c, ndisc_router_discovery).
Only the older call can mark a route as the kernel's own. It then shows `proto boot`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import struct

from ..errors import KernelError
from . import l3_route as route
from .l3_plan import Work
from .l3_read import router_routes
from .l3_wire import attributes, number

_SIOCADDRT = 0x890B
_IN6_RTMSG = struct.Struct("@16s16s16sIHHILIi")
"""linux/ipv6_route.h: destination, source, gateway, type, lengths, metric, time, flags, device"""
_UP, _GATEWAY, _DEFAULT, _ADDRCONF, _EXPIRES = 0x1, 0x2, 0x10000, 0x40000, 0x400000
_PREFERENCE_SHIFT = 27
_TICKS = 100
"""USER_HZ"""


def give_router_routes(work: Work) -> None:
    """Makes those of the snapshot on the target that are not there. Raises KernelError."""
    wanted = [(entry, body) for entry, body in work.routes() if entry.router]
    there = router_routes(work.target) if wanted else set()
    for entry, body in wanted:
        if route.router_row(body) not in there:
            _make(body, work.target_index, entry.text)


def _make(body: bytes, index: int, text: str) -> None:
    attrs = dict(attributes(body, route.HEADER.size))
    seconds = number(attrs.get(route.EXPIRES))
    flags = _UP | _GATEWAY | _DEFAULT | _ADDRCONF | number(attrs.get(route.PREF)) << _PREFERENCE_SHIFT
    if seconds:
        flags |= _EXPIRES
    zero = b"\0" * 16
    message = _IN6_RTMSG.pack(
        zero, zero, attrs.get(route.GATEWAY, zero), 1, 0, 0, number(attrs.get(route.PRIORITY)),
        seconds * _TICKS, flags, index,
    )  # fmt: skip
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_DGRAM) as sock:
            fcntl.ioctl(sock, _SIOCADDRT, message)
    except OSError as error:
        if error.errno != errno.EEXIST:
            raise KernelError(f"route {text}: {os.strerror(error.errno or 0)}") from error
