# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last look before a change: what would take a node off its network is refused, whoever asks for it. Pure.

A link carries the node if addresses or routes on it are not of this collection's making, or if somebody works on the
node through it at this moment. Such a link, its bridge and the bridge's uplinks keep what they are. `force` is about
ports of others and does not change that.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Union

from ..errors import RefusedError
from .ownership import OWNER_NODE, Mark
from .state import INTERNAL, BridgeRow, Link, PortRow, State

Address = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]
Host = Union[ipaddress.IPv4Address, ipaddress.IPv6Address]
Network = Union[ipaddress.IPv4Network, ipaddress.IPv6Network]

HWADDR = "hwaddr"
SMALLEST_IPV6_MTU = 1280
"""RFC 8200, section 5"""

_WAY_OUT = "the node could be lost: do this at the node's console, or move its addresses to another interface first"
_MOVE = "the node could be lost: say move: true on the uplink, and it moves with its addresses"
_UNBRIDGE = (
    "the node could be lost: say unbridge: true (module node, playbook podnet.ovs.remove), or move: true beside "
    "state: absent (module uplink), and the NIC gets the addresses back first"
)


def check_safe(before: State, after: State) -> None:
    """Raises RefusedError if the way from one state to the other could cost the node its addresses or its routes."""
    carriers = _carriers(before)
    for name, why in carriers.items():
        link, owner = before.links[name], before.port_of(name)
        if owner is not None and _is_internal(owner[1]):  # a NIC keeps its addresses when it leaves a bridge
            stacked = any(other in carriers for other in (*link.children, link.master))
            out = _UNBRIDGE if before.moved_to(owner[0].name) else _WAY_OUT
            _check_port(link, after, *owner, why, None if stacked else owner[1].tag or 0, out)
        elif owner is None and after.port_of(name) is not None:
            raise RefusedError(f"{name} {why}: it does not become a port of a bridge", _MOVE)
        _check_addresses_kept(before, after, name)
    for name, link in after.links.items():
        old = before.links.get(name)
        for address in sorted(link.addresses - (old.addresses if old else frozenset())):
            _check_address(before, after, name, ipaddress.ip_interface(address))
    _check_macs(before, after)
    _check_names(before, after)


def _carriers(state: State) -> dict[str, str]:
    """Links that carry the node, with the reason in words: "carries …"."""
    found: dict[str, str] = {}
    for name, link in state.links.items():
        why = _burden(state, link)
        if why:
            found[name] = why
    grown = True
    while grown:  # what stands on a link, or holds it, needs it
        grown = False
        for name, link in state.links.items():
            above = next((other for other in (*link.children, link.master or "") if other in found), None)
            if name not in found and above is not None and state.port_of(above) is None:
                found[name] = f"carries {above}, which {found[above]}"
                grown = True
    return found


def _burden(state: State, link: Link) -> str:
    mark = None if state.moved_to(link.name) else _mark_of(state, link.name)
    visit = state.visit
    served = [item for item in (*link.addresses, *link.dynamic) if visit and _ip(item) == _ip(visit.address)]
    if visit and link.name in (_zone(visit.address), _zone(visit.peer)):
        served.append(visit.address)  # a link-local address, which Link.addresses leaves out
    if served:
        return f"carries {served[0]}, through which this run reaches the node"
    foreign = sorted(link.addresses - frozenset(mark.addresses)) if mark else [*sorted(link.addresses), *link.dynamic]
    if foreign:
        return f"carries the addresses {', '.join(foreign)}"
    routes = [route for route in link.routes if " via " in route and (mark is None or _is_only(state, link, route))]
    return f"carries the routes {', '.join(routes)}" if routes else ""


def _is_only(state: State, link: Link, route: str) -> bool:
    """Whether no other link has a route to the same place. A router on a pod network may announce itself as well."""
    version = _gateway(route).version
    same = [
        item
        for other in state.links.values()
        if other.name != link.name
        for item in other.routes
        if " via " in item and item.split(" ", 1)[0] == route.split(" ", 1)[0] and _gateway(item).version == version
    ]
    return not same


def _check_port(
    link: Link, after: State, bridge: BridgeRow, port: PortRow, why: str, vlan: int | None, out: str
) -> None:
    """The port that carries the node, its bridge, and the way from it to the uplinks. `vlan` as in `_check_uplink`.

    `out`: the way out for somebody who wants to take the bridge or the uplink away.
    """
    name = link.name
    who = f"{name} on bridge {bridge.name} {why}"
    new_bridge = after.bridges.get(bridge.name)
    if new_bridge is None:
        raise RefusedError(f"{who}: bridge {bridge.name} is not removed", out)
    new_port = new_bridge.ports.get(port.name)
    new_row = new_port.interface(name) if new_port else None
    if new_port is None or new_row is None:
        raise _refused(who, f"{name} is not taken from it")
    settings = {
        "datapath_type": (bridge.datapath_type, new_bridge.datapath_type),
        "fail_mode": (bridge.fail_mode, new_bridge.fail_mode),
        "stp": (bridge.stp_enable, new_bridge.stp_enable),
        "rstp": (bridge.rstp_enable, new_bridge.rstp_enable),
        "vlan": (port.tag or None, new_port.tag or None),
        "mac": (_mac(bridge, port, name), _mac(new_bridge, new_port, name)),
    }
    for setting, (was, wish) in settings.items():
        if was != wish:
            raise _refused(who, f"{setting} stays {str(was).lower()}, and does not become {str(wish).lower()}")
    _check_mtu(link, new_row.mtu_request, who)
    for uplink in bridge.ports.values():
        if uplink.name != port.name and not _is_internal(uplink) and not _is_pods(uplink):
            _check_uplink(uplink, new_bridge.ports.get(uplink.name), vlan, who, out)


def _check_mtu(link: Link, wanted: int | None, who: str) -> None:
    if wanted is None or not link.mtu or wanted == link.mtu:
        return
    has_ipv6 = any(":" in address for address in (*link.addresses, *link.dynamic))
    if wanted > link.mtu or (has_ipv6 and wanted < SMALLEST_IPV6_MTU):
        raise _refused(who, f"its MTU stays {link.mtu}, and does not become {wanted}")


def _check_uplink(was: PortRow, wish: PortRow | None, vlan: int | None, who: str, out: str) -> None:
    """`vlan`: the one of the port that carries the node; 0 for untagged frames, None for several that are unknown."""
    if vlan is not None and not _on_the_wire(was, vlan):
        return
    if wish is None:
        raise RefusedError(f"{who}: {was.name}, its way out, is not removed", out)
    gone = sorted({row.name for row in was.interfaces} - {row.name for row in wish.interfaces})
    if gone:
        raise _refused(who, f"{', '.join(gone)}, its way out, is not removed")
    if (was.bond_mode, was.lacp) != (wish.bond_mode, wish.lacp):
        raise _refused(who, f"bond_mode and lacp of {was.name}, its way out, stay what they are")
    if vlan is None:
        same = (was.tag, was.vlan_mode) == (wish.tag, wish.vlan_mode)
        kept = same and (not wish.trunks or bool(was.trunks and was.trunks <= wish.trunks))
    else:
        kept = _on_the_wire(was, vlan) == _on_the_wire(wish, vlan)
    if not kept:
        frames = "its VLANs" if vlan is None else f"VLAN {vlan}" if vlan else "untagged frames"
        raise _refused(who, f"{was.name}, its way out, goes on carrying {frames}")


def _on_the_wire(port: PortRow, vlan: int) -> str:
    """How a port carries a VLAN, as ovs-vswitchd.conf.db(5) says of Port.vlan_mode: "tagged", "untagged" or ""."""
    mode = port.vlan_mode or ("trunk" if port.tag is None else "access")
    trunked = not port.trunks or vlan in port.trunks
    if mode == "access":
        return "untagged" if (port.tag or 0) == vlan else ""
    if mode == "trunk":
        return ("tagged" if vlan else "untagged") if trunked else ""
    if port.tag == vlan:
        return "tagged" if mode == "native-tagged" else "untagged"
    return "tagged" if trunked and vlan else ""


def _check_addresses_kept(before: State, after: State, name: str) -> None:
    """An address from which a gateway is reached stays, and that at which this run reaches the node.

    The kernel forgets a gateway when the last address of its network goes, even if another one follows.
    """
    link = before.links[name]
    kept = after.links[name].addresses if name in after.links else frozenset()
    for address in sorted(link.addresses - kept):
        if before.visit and _ip(address) == _ip(before.visit.address):
            raise _refused(f"{name} carries {address}, through which this run reaches the node", "it is not removed")
        for route in link.routes:
            if " via " not in route or not _is_only(before, link, route):
                continue
            gateway = _gateway(route)
            if _holds(_network(address), gateway) and not any(
                _holds(_network(other), gateway) for other in link.addresses & kept
            ):
                raise _refused(f"{name} carries the route {route}", f"{address}, which it stands on, is not removed")


def _check_address(before: State, after: State, name: str, new: Address) -> None:
    """A new address may not cover the way to a gateway, to the node's own networks, or to who works on it."""
    others = [link for link in before.links.values() if link.name != name and link.up and link.name in after.links]
    for link in others:
        for text in (*sorted(link.addresses & after.links[link.name].addresses), *link.dynamic):
            present = ipaddress.ip_interface(text)
            if present.ip == new.ip:
                raise RefusedError(f"{new} for {name}: {link.name} has {present} already", "give it another address")
            own = _mark_of(before, link.name) is None
            if own and _has_room(new.network) and _has_room(present.network) and _within(new.network, present.network):
                raise RefusedError(
                    f"{new} for {name} would cover the network {present.network} that the node reaches by {link.name}",
                    "use a network of its own for it",
                )
    here = before.links.get(name)
    ways = [network for link in (*others, *([here] if here else [])) for network in _ways(link)]
    for what, host in _critical(before, others):
        best = max([way.prefixlen for way in ways if _holds(way, host)] or [0])
        if host == new.ip or (_holds(new.network, host) and new.network.prefixlen >= best and _has_room(new.network)):
            raise RefusedError(
                f"{new} for {name} would cover the way to {host}, {what}", "use a network of its own for it"
            )


def _critical(before: State, others: Iterable[Link]) -> Iterator[tuple[str, Host]]:
    if before.visit:
        yield "from where this run reaches the node", _ip(before.visit.peer)
    for link in others:
        for route in link.routes:
            if " via " in route:
                yield f"a gateway on {link.name}", _gateway(route)


def _check_macs(before: State, after: State) -> None:
    """A MAC address of another NIC would make the site's switch send that one's frames elsewhere."""
    for name, bridge in after.bridges.items():
        old = before.bridges.get(name)
        mine = {row.name for port in bridge.ports.values() for row in port.interfaces}
        for port in bridge.ports.values():
            for row in port.interfaces:
                mac = _mac(bridge, port, row.name)
                old_port = old.ports.get(port.name) if old else None
                if row.type != INTERNAL or mac is None or (old and old_port and mac == _mac(old, old_port, row.name)):
                    continue
                for link in before.links.values():
                    if link.mac == mac and link.name not in mine and before.port_of(link.name) is None:
                        raise RefusedError(
                            f"{mac} for {row.name} is the MAC address of {link.name}",
                            f"give it another one, or make {link.name} an uplink of {name}",
                        )


def _check_names(before: State, after: State) -> None:
    """A new interface does not take over a device of others: for the userspace datapath it would be as good as any."""
    for name, bridge in after.bridges.items():
        for port in bridge.ports.values():
            link = before.links.get(port.name)
            if link is None or not _is_internal(port) or before.port_of(port.name) is not None:
                continue
            if link.addresses or link.dynamic or link.routes:
                why = _burden(before, link) or "is in use"
                raise RefusedError(
                    f"{port.name} for bridge {name}: a device of others has that name and {why}", "choose another name"
                )


def _mac(bridge: BridgeRow, port: PortRow, name: str) -> str | None:
    row = port.interface(name)
    own = row.mac if row else None
    found = own or (bridge.other_config.get(HWADDR) if name == bridge.name else None)
    return found.lower() if found else None


def _mark_of(state: State, name: str) -> Mark | None:
    """Our mark on the host interface of that name."""
    owner = state.port_of(name)
    mark = Mark.parse(owner[1].external_ids) if owner and _is_internal(owner[1]) else None
    return mark if mark and mark.owner == OWNER_NODE else None


def _is_internal(port: PortRow) -> bool:
    return any(row.type == INTERNAL for row in port.interfaces)


def _is_pods(port: PortRow) -> bool:
    mark = Mark.parse(port.external_ids)
    return mark is not None and mark.owner != OWNER_NODE


def _ways(link: Link) -> list[Network]:
    """Where a link leads to: the networks of its addresses, and its routes."""
    networks = [_network(text) for text in (*link.addresses, *link.dynamic)]
    for route in link.routes:
        to = route.split(" ", 1)[0]
        if to != "default":
            networks.append(ipaddress.ip_network(to, strict=False))
    return networks


def _gateway(route: str) -> Host:
    return _ip(route.rsplit(" via ", 1)[1])


def _ip(text: str) -> Host:
    return ipaddress.ip_address(text.split("/", 1)[0].split("%", 1)[0])


def _zone(text: str) -> str:
    """The link that a link-local address is meant on (RFC 4007), "" for all others."""
    return text.partition("%")[2]


def _network(text: str) -> Network:
    return ipaddress.ip_interface(text).network


def _holds(network: Network, host: Host) -> bool:
    return network.version == host.version and host in network


def _within(inner: Network, outer: Network) -> bool:
    if inner.version != outer.version or inner.prefixlen < outer.prefixlen:
        return False
    return inner.network_address in outer


def _has_room(network: Network) -> bool:
    """Whether an address of it brings a route: one with the full prefix length does not."""
    return network.prefixlen < network.max_prefixlen


def _refused(who: str, what: str) -> RefusedError:
    return RefusedError(f"{who}: {what}", _WAY_OUT)
