# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which queueing disciplines a link has: whether a limit that Open vSwitch was asked for is really there."""

from __future__ import annotations

import struct
from contextlib import closing

from .pod import index_of
from .rtnetlink import ask, open_route, parse

SHAPER, POLICER = "htb", "ingress"
_GETQDISC = 38
_TCM = struct.Struct("=BxxxiIII")
"""linux/rtnetlink.h, struct tcmsg: family, index, handle, parent, info."""
_TCA_KIND = 1
_SECONDS = 5.0


def kinds(name: str) -> frozenset[str]:
    """The kinds on a link of the calling thread's namespace; none if it is not there. Raises KernelError."""
    index = index_of(name)
    if index is None:
        return frozenset()
    with closing(open_route()) as route:
        found = ask(route, _GETQDISC, _TCM.pack(0, index, 0, 0, 0), _SECONDS, dump=True)
    return frozenset(
        parse(body[_TCM.size :]).get(_TCA_KIND, b"").rstrip(b"\0").decode()
        for body in found
        if _TCM.unpack_from(body)[1] == index
    )
