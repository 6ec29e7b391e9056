# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a link leaves checksums to hardware."""

from __future__ import annotations

import array
import errno
import fcntl
import os
import socket
import struct

from ..errors import KernelError

SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
"""linux/sockios.h, linux/ethtool.h"""


def compute_checksums(sock: socket.socket, name: str) -> None:
    """Makes the kernel compute checksums before it sends on this link of the socket's namespace.

    A veth promises checksums that nobody computes, since a packet between two of them never meets a wire. A switch in
    userspace takes such packets to a wire: without its own offload TCP and UDP die, and Open vSwitch 3.5 with
    `userspace-tso-enable` still sends UDP over IPv6 with a wrong one. Raises KernelError.
    """
    value = array.array("I", [ETHTOOL_STXCSUM, 0])
    address, _length = value.buffer_info()
    request = struct.pack("16sP16x", os.fsencode(name), address)
    try:
        fcntl.ioctl(sock, SIOCETHTOOL, request)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise KernelError(f"cannot stop the checksum offload of {name}: {error.strerror}") from error
