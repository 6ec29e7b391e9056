# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a NIC stands in the way of its move: its kind, what holds it, what stands on it. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..kernel.nic import ETHERNET, TYPES, Nic
from ..kernel.stacked import Stacked
from ..model.move import MOVE, Request
from ..model.obstacle import BLOCKING, INFO, WARNING, Obstacle
from ..model.state import Link, State

EXCLUSIVE = ("macvlan", "macvtap", "ipvlan", "ipvtap", "macsec")
"""Kinds that take a link's frames as a bridge does (rx_handler): the kernel lets only one of them."""
_ALB = ("balance-alb", "balance-tlb")


def of_nic(request: Request, state: State, nic: Nic) -> Iterator[Obstacle]:
    """Whether this link can be a port of a bridge at all."""
    link = state.links.get(nic.name, Link(nic.name))
    yield from _of_kind(nic, link)
    yield from _of_master(request, state, link)
    if nic.bond is not None:
        yield from _of_bond(nic)
    if not nic.carrier:
        text = f"{nic.name} has no carrier: after the move nothing could show that it works"
        yield Obstacle(BLOCKING, text, "plug in the cable, and see that the NIC is up")
    if nic.lro:
        text = f"{nic.name} joins packets in hardware (LRO), which the kernel switches off for a bridge"
        yield Obstacle(WARNING, text, f"some drivers reset the link then: ethtool -K {nic.name} lro off beforehand")
    if nic.functions:
        text = f"{nic.functions} virtual functions of {nic.name} are in use"
        yield Obstacle(WARNING, text, "what they send does not pass the bridge")


def of_stacked(request: Request, state: State, source: Nic) -> Iterator[Obstacle]:
    """What stands on the device that carries the node now."""
    link = state.links.get(source.name, Link(source.name))
    for item in source.stacked:
        if item.kind in EXCLUSIVE:
            what = f"{item.kind} {item} stands on {source.name}"
            if request.direction == MOVE:
                text = f"{what}, and the kernel lets only one of the two have its frames: the bridge or {item.kind}"
            else:
                text = f"{what} and would lose its way out"
            yield Obstacle(BLOCKING, text, f"end what uses {item.name}, or give it another NIC")
        elif item.kind == "vlan":
            yield from _of_vlan(request, state, link, item)
        elif item.kind == "vxlan":
            text = f"VXLAN {item} sends by {source.name}"
            yield (
                Obstacle(BLOCKING, f"{text} from another network namespace", "end what uses it, or give it another NIC")
                if item.netns
                else Obstacle(INFO, f"{text}; the move makes it send by {request.target}")
            )
        elif item.kind:
            text = f"{item.kind} {item} is bound to {source.name} and would not work after the move"
            yield Obstacle(BLOCKING, text, f"bind it to an address instead, or remove it: ip link delete {item.name}")


def is_rescued(request: Request, state: State) -> bool:
    """Whether the NIC was on this bridge before, and has its addresses back since something broke."""
    return any((item.nic, item.bridge) == (request.nic, request.bridge.name) and item.rescued for item in state.moved)


def _of_kind(nic: Nic, link: Link) -> Iterator[Obstacle]:
    other = "use a wired Ethernet NIC as the uplink"
    if nic.wireless or nic.devtype == "wlan":
        yield Obstacle(BLOCKING, f"{nic.name} is Wi-Fi: an access point drops frames of other senders", other)
    elif nic.devtype == "wwan":
        yield Obstacle(BLOCKING, f"{nic.name} is a mobile modem, which carries no Ethernet frames of others", other)
    elif nic.type != ETHERNET:
        yield Obstacle(BLOCKING, f"{nic.name} is {TYPES.get(nic.type, f'of type {nic.type}')} and not Ethernet", other)
    elif link.kind == "vlan":
        text = (
            f"{nic.name} is a VLAN interface: its frames have lost their tag, and the bridge would have no other VLAN"
        )
        yield Obstacle(BLOCKING, text, _without_tag(nic.name, "the NIC below it"))
    elif link.kind in EXCLUSIVE or link.kind in ("bridge", "team", "tun", "vxlan", "dummy", "wireguard"):
        yield Obstacle(BLOCKING, f"{nic.name} is no NIC, but a {link.kind}", "name the NIC or the bond below it")


def _of_master(request: Request, state: State, link: Link) -> Iterator[Obstacle]:
    owner = state.port_of(link.name)
    if owner is not None:
        if is_rescued(request, state):
            return
        bridge = owner[0].name
        text = f"{link.name} is a port of the Open vSwitch bridge {bridge} already"
        where = f"ovs-vsctl del-port {bridge} {link.name}, if nobody needs it there"
        yield Obstacle(BLOCKING, text, "nothing is to be moved" if bridge == request.bridge.name else where)
    elif link.master:
        above = state.links.get(link.master, Link(link.master))
        text = f"{link.name} belongs to {link.master}{f', a {above.kind}' if above.kind else ''}, already"
        bond = above.kind in ("bond", "team")
        way = f"name {link.master} as the uplink" if bond else f"take it out: ip link set {link.name} nomaster"
        yield Obstacle(BLOCKING, text, way)


def _of_bond(nic: Nic) -> Iterator[Obstacle]:
    bond = nic.bond
    if bond is None:
        return
    if bond.mode in _ALB:
        text = f"bond {nic.name} is {bond.mode}, which rewrites the MAC addresses that a bridge needs"
        yield Obstacle(BLOCKING, text, "active-backup or 802.3ad")
    if bond.fail_over_mac != "none":
        text = f"bond {nic.name} changes its MAC address with its NIC (fail_over_mac {bond.fail_over_mac})"
        yield Obstacle(BLOCKING, text, "fail_over_mac none")
    if bond.arp:
        text = f"bond {nic.name} watches its NICs by ARP, for which it needs the addresses that the move takes away"
        yield Obstacle(BLOCKING, text, "watch the links: miimon 100 instead of arp_interval")
    if not bond.settled:
        text = f"bond {nic.name} speaks LACP and no partner takes its frames yet"
        yield Obstacle(BLOCKING, text, f"see /proc/net/bonding/{nic.name} and the switch, then run it again")


def _of_vlan(request: Request, state: State, link: Link, item: Stacked) -> Iterator[Obstacle]:
    name = item.name
    child = state.links.get(name, Link(name))
    carries = bool(child.addresses or child.dynamic or child.routes)
    own = bool(link.addresses or link.dynamic)
    if request.direction != MOVE:
        text = f"the VLAN interface {item} stands on {link.name} and would lose its way out"
        yield Obstacle(BLOCKING, text, f"remove it, or put it on {request.nic}")
    elif carries and not own:
        text = f"{name} carries the node, and {link.name} itself has no address that could move"
        yield Obstacle(BLOCKING, text, _without_tag(name, link.name))
    else:
        text = f"the VLAN interface {item} stands on {link.name} and goes on working there"
        hint = "the kernel gives it the frames of its VLAN before the bridge sees them: no pod can use that VLAN"
        yield Obstacle(WARNING, text, hint)


def _without_tag(name: str, nic: str) -> str:
    return (
        f"reach the node by another NIC or its console, take the addresses off {name}, and declare them as an "
        f"interface with that VLAN on a bridge whose uplink is {nic}"
    )
