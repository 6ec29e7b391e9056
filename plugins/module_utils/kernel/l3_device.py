# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A device before, after and beyond the move: its settings, whether it is up, how it makes IPv6 addresses."""

from __future__ import annotations

import ipaddress

from ..errors import KernelError
from ..model.l3 import L3, left
from . import l3_item as item, sysctls
from .l3_read import Seen, by_router_advertisement, links, now
from .l3_wire import NEWLINK, Change, Rtnetlink

_NO_ADDRESSES = "1"
"""addr_gen_mode: make no link-local address (IN6_ADDR_GEN_MODE_NONE)"""
_STABLE = ("2", "3")
_MEANWHILE = {sysctls.ADDR_GEN_MODE: _NO_ADDRESSES, sysctls.USE_TEMPADDR: "0", sysctls.ACCEPT_RA: "0"}
"""What a device that is staged has: a router advertisement would give it addresses of its own."""
_LAST = frozenset({*_MEANWHILE, sysctls.RP_FILTER})
"""Settings of the snapshot that hold when the move is over."""


def is_up(seen: Seen, device: str) -> bool:
    """Whether a device is there and up."""
    return device in seen.links and seen.links[device].up


def prepare(wire: Rtnetlink, l3: L3, device: str, up: bool) -> None:
    """Gives a device the settings of the snapshot and puts it up, in this order: with them it makes no address of its
    own before it has those of the snapshot. Raises KernelError.
    """
    link = links(wire).get(device)
    if link is None:
        raise KernelError(f"the kernel has no link {device}")
    sysctls.copy(l3.sysctls, device, leave=_LAST)
    for path, value in _MEANWHILE.items():
        sysctls.write(device, path, value)
    if device != l3.device:
        sysctls.loosen(l3.device)
    strict = l3.sysctls.get(sysctls.RP_FILTER) == sysctls.STRICT or sysctls.read("all", sysctls.RP_FILTER) == "1"
    if strict:
        sysctls.write(device, sysctls.RP_FILTER, sysctls.LOOSE)
    if up and not link.up:
        failures = wire.change([Change(NEWLINK, 0, item.up_message(link.index), f"{device} up")])
        if failures:
            raise KernelError(str(failures[0]))


def settle(wire: Rtnetlink, l3: L3, device: str) -> None:
    """Ends the move for the device that has everything now: it checks the way back, and makes addresses, as before."""
    link = links(wire)[device]
    token = l3.token
    mode = l3.sysctls.get(sysctls.ADDR_GEN_MODE)
    if mode in _STABLE and device != (l3.settings_of or l3.device):
        # the kernel would make other addresses of the same prefixes here: it is told the present one (RFC 7217, 5)
        mode, token = _NO_ADDRESSES, token or _identifier(l3)
    wanted = {path: l3.sysctls[path] for path in _LAST if path in l3.sysctls}
    if mode is not None:
        wanted[sysctls.ADDR_GEN_MODE] = mode
    for path in sorted(wanted, key=lambda path: path == sysctls.ACCEPT_RA):
        sysctls.write(device, path, wanted[path])
    if token != link.token:
        # refused without router advertisements, where it means nothing
        wire.change([Change(NEWLINK, 0, item.token_message(link.index, token), f"token of {device}")])


def retire(device: str) -> None:
    """Lets the device that gives everything away make no IPv6 addresses of its own any more."""
    sysctls.write(device, sysctls.ACCEPT_RA, "0")
    sysctls.write(device, sysctls.ADDR_GEN_MODE, _NO_ADDRESSES)


def _identifier(l3: L3) -> str:
    """The interface identifier of the first address that came from a router advertisement, as a token; "" for none."""
    age = now().seconds_since(l3.taken)
    for address in l3.addresses:
        usable = address.family == 6 and not (address.link_local or address.temporary) and address.cidr.endswith("/64")
        if usable and left(address.valid, age) != 0 and by_router_advertisement(bytes.fromhex(address.message)):
            return str(ipaddress.IPv6Address(b"\0" * 8 + ipaddress.IPv6Interface(address.cidr).ip.packed[8:]))
    return ""
