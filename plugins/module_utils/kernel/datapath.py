# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's Open vSwitch datapath without ovs-vswitchd: it holds on to a NIC when the daemon is dead, and only it
can let go.
"""

from __future__ import annotations

import errno
from typing import Any

from ..errors import KernelError
from .netlink import MISSING

try:
    from pyroute2.netlink import NLM_F_ACK, NLM_F_REQUEST, genlmsg
    from pyroute2.netlink.exceptions import NetlinkError
    from pyroute2.netlink.generic import GenericNetlinkSocket
except ImportError:
    _Message: Any = object
else:
    _Message = genlmsg

_FAMILY, _VERSION = "ovs_vport", 1
_DELETE = 2
"""linux/openvswitch.h: OVS_VPORT_CMD_DEL"""


class _Port(_Message):
    """linux/openvswitch.h: struct ovs_header, enum ovs_vport_attr."""

    fields = (("cmd", "B"), ("version", "B"), ("reserved", "H"), ("dp_ifindex", "i"))
    nla_map = (
        ("OVS_VPORT_ATTR_UNSPEC", "none"),
        ("OVS_VPORT_ATTR_PORT_NO", "uint32"),
        ("OVS_VPORT_ATTR_TYPE", "uint32"),
        ("OVS_VPORT_ATTR_NAME", "asciiz"),
    )


def detach(nic: str) -> bool:
    """Takes a NIC out of the kernel's datapath, as `ovs-dpctl del-if` does; gives whether it was in.

    Without the kernel module it is in none. Raises KernelError.
    """
    if MISSING is not None:
        raise KernelError(f"the Python package pyroute2 is not there: {MISSING}", "run the role podnet.ovs.runtime")
    request = _Port()
    request["cmd"] = _DELETE
    request["version"] = _VERSION
    request["dp_ifindex"] = 0
    request["attrs"] = [("OVS_VPORT_ATTR_NAME", nic)]
    try:
        with GenericNetlinkSocket() as generic:
            generic.bind(_FAMILY, _Port)
            generic.nlm_request(request, msg_type=generic.prid, msg_flags=NLM_F_REQUEST | NLM_F_ACK)
    except NetlinkError as error:
        if error.code in (errno.ENOENT, errno.ENODEV):
            return False
        raise KernelError(f"the kernel's datapath does not let go of {nic}: {error}") from error
    return True
