# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the bridge, of the node's routes and of who works on it stands in the way of a move. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..kernel.addresses import temporary
from ..model.move import MOVE, Request
from ..model.obstacle import BLOCKING, INFO, Obstacle
from ..model.ownership import OWNER_NODE, Mark
from ..model.state import Link, State
from .obstacles_nic import is_rescued

if TYPE_CHECKING:
    from ..model.l3 import L3

_LINK_LOCAL = ipaddress.ip_network("fe80::/10")
_BY_CONTROLLER = ("controller", "both")


def of_bridge(request: Request, state: State) -> Iterator[Obstacle]:
    """Whether the bridge can carry the node."""
    wanted, name = request.bridge, request.bridge.name
    row, link = state.bridges.get(name), state.links.get(name)
    stp = wanted.stp or bool(row and row.stp_enable)
    if stp or wanted.rstp or (row and row.rstp_enable):
        text = f"bridge {name} runs a spanning tree, and forwards nothing for seconds after the NIC joins it"
        yield Obstacle(BLOCKING, text, f"{'stp' if stp else 'rstp'}: false")
    if wanted.fail_mode == "secure":
        text = f"bridge {name} is to be fail_mode secure, and forwards nothing before somebody gives it flows"
        yield Obstacle(BLOCKING, text, "fail_mode: standalone")
    nic = state.links.get(request.nic, Link(request.nic))
    own = wanted.interface(name)
    for mac in (wanted.mac, own.mac if own else None):
        if mac and nic.mac and mac.lower() != nic.mac.lower():
            text = f"bridge {name} is to have the MAC address {mac}, not {nic.mac} of {nic.name}"
            yield Obstacle(BLOCKING, text, "leave mac away: the bridge takes the NIC's, as DHCP and the switch know it")
    if len(wanted.uplinks[0].nics if wanted.uplinks else ()) > 1:
        text = f"{request.nic} is one of several NICs of {wanted.uplinks[0].name}: one NIC is moved at a time"
        yield Obstacle(BLOCKING, text, "let the operating system make the bond, and name that one")
    if row is None:
        if link is not None and not is_rescued(request, state):
            kind = f"a {link.kind}" if link.kind else "a device"
            yield Obstacle(BLOCKING, f"there is {kind} {name} of others", "give the bridge another name, or remove it")
        return
    mark = Mark.parse(row.external_ids)
    if (mark is None or mark.owner != OWNER_NODE) and not is_rescued(request, state):
        text = f"the Open vSwitch bridge {name} was made by others"
        way = "give the bridge another name, or take it over first: podnet.ovs.bridge with its name"
        yield Obstacle(BLOCKING, text, way)
    if link is not None and (link.addresses or link.dynamic) and not is_rescued(request, state):
        held = ", ".join(sorted({*link.addresses, *link.dynamic}))
        yield Obstacle(INFO, f"bridge {name} has {held}, and gets the addresses of {request.nic} beside that")


def of_visit(request: Request, state: State) -> Iterator[Obstacle]:
    """How who works on the node reaches it."""
    visit, source = state.visit, request.source
    if visit is None:
        return
    address, _percent, zone = visit.address.partition("%")
    host = ipaddress.ip_address(address)
    link = state.links.get(source, Link(source))
    stable = sorted(item for item in link.addresses if not item.startswith("fe80:"))
    other = f"reach it at {stable[0].split('/')[0]}" if stable else "reach it at another address"
    if host.version == 6 and host in _LINK_LOCAL:
        if zone in ("", source) or visit.peer.endswith(f"%{source}"):
            text = f"this run reaches the node at {visit.address}, an address that means something on {source} only"
            yield Obstacle(BLOCKING, text, other)
        return
    held = {item.split("/")[0] for item in (*link.addresses, *link.dynamic)}
    if str(host) not in held:
        name = next((key for key, item in state.links.items() if _has(item, str(host))), "another way")
        text = f"this run reaches the node at {address} by {name}, not by {source}"
        if request.confirm in _BY_CONTROLLER:
            way = f"the confirmation comes that way too, and shows nothing of {source}: add probes"
            yield Obstacle(INFO, text, way)
        else:
            yield Obstacle(INFO, text)
    elif str(host) in temporary(source):
        text = f"this run reaches the node at {address}, a temporary address (RFC 8981) that ends in hours"
        yield Obstacle(BLOCKING, text, other)


def of_route(request: Request, state: State, l3: L3 | None) -> Iterator[Obstacle]:
    """Whether the node has an address to move, and a way out that can be tried."""
    link = state.links.get(request.source, Link(request.source))
    there = l3 is not None and bool(l3.addresses)
    if request.direction == MOVE and state.port_of(request.nic) is not None and not is_rescued(request, state):
        return  # which is an obstacle of its own
    if not (link.addresses or link.dynamic or there):
        vlans = [name for name in link.children if _carries(state, name)]
        if not vlans:
            text = f"{request.source} has no addresses: there is nothing to move"
            back = request.direction == MOVE
            yield Obstacle(BLOCKING, text, "leave move: true away: it is an uplink as any other" if back else "")
        return
    if not any(route.split(" ")[0] == "default" for route in link.routes):
        by = next((name for name, item in state.links.items() if _is_way_out(item)), "")
        text = f"no default route goes by {request.source}{f', but by {by}' if by else ''}"
        way = "" if request.probes else "no gateway can be asked after the move: probes may name another host"
        yield Obstacle(INFO, text, way)


def _carries(state: State, name: str) -> bool:
    link = state.links.get(name, Link(name))
    return bool(link.addresses or link.dynamic)


def _is_way_out(link: Link) -> bool:
    return any(route.split(" ")[0] == "default" for route in link.routes)


def _has(link: Link, address: str) -> bool:
    return any(item.split("/")[0] == address for item in (*link.addresses, *link.dynamic))
