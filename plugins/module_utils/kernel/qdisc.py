# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which limits of a link are really there: ovs-vswitchd only logs that the kernel has refused one."""

from __future__ import annotations

import struct
from contextlib import closing

from .pod import index_of
from .rtnetlink import ask, open_route, parse

SHAPER = "htb"
_GETQDISC, _GETTFILTER = 38, 46
_TCM = struct.Struct("=BxxxiIII")
"""linux/rtnetlink.h, struct tcmsg: family, index, handle, parent, info."""
_TCA_KIND = 1
_INGRESS = "ingress"
_ARRIVALS = 0xFFFFFFF2
"""linux/pkt_sched.h, TC_H_INGRESS and TC_H_MIN_INGRESS: the parent of filters of what arrives."""
_SECONDS = 5.0


def is_shaped(name: str) -> bool:
    """Whether what leaves by a link of the calling thread's namespace waits in a shaper. Raises KernelError."""
    return SHAPER in _kinds(name)


def is_policed(name: str) -> bool:
    """Whether what arrives at a link of the calling thread's namespace is policed. Raises KernelError.

    A kernel without the action `police` has the discipline all the same, but no filter in it.
    """
    index = index_of(name)
    if index is None or _INGRESS not in _kinds(name):
        return False
    with closing(open_route()) as route:
        return bool(ask(route, _GETTFILTER, _TCM.pack(0, index, 0, _ARRIVALS, 0), _SECONDS, dump=True))


def _kinds(name: str) -> frozenset[str]:
    """The kinds of queueing disciplines of a link; none if it is not there."""
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
