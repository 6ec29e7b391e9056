# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that opens a netlink socket through pyroute2."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import KernelError

try:
    from pyroute2 import IPRoute
    from pyroute2.netlink.exceptions import NetlinkError
except ImportError as _error:
    MISSING: str | None = str(_error)
else:
    MISSING = None


@contextmanager
def netlink() -> Iterator[Any]:
    """An `IPRoute` in the network namespace of the calling thread, closed at the end by the same thread.

    A socket that another thread closes leaks a descriptor, and `IPRoute(netns=...)` forks: enter the namespace first
    instead. Raises KernelError for what the kernel refuses inside the block, in its own words.
    """
    if MISSING is not None:
        raise KernelError(f"the Python package pyroute2 is not there: {MISSING}", "run the role podnet.ovs.runtime")
    try:
        with IPRoute() as route:
            yield route
    except NetlinkError as error:
        raise KernelError(f"the kernel refused: {os.strerror(error.code)}", _hint(error.code)) from error


def _hint(code: int) -> str:
    return "run as root (become: true)" if code in (errno.EPERM, errno.EACCES) else ""
