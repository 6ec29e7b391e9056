# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From a node's state and a wish to the state that fulfils it, or to a refusal. Pure.

`put_*` and `drop_*` change one thing and leave the rest; `node_state` is all of them together. What lacks the owner
mark is changed only if the wish names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TypeVar

from ..errors import ConfigError, DecodeError, RefusedError
from .node import Bridge, Interface, Node, Uplink
from .ownership import OWNER_NODE, Mark, foreign
from .state import INTERNAL, SYSTEM_INTERFACE, BridgeRow, InterfaceRow, Link, PortRow, State
from .vlan import HIGHEST, LOWEST, VlanSet

T = TypeVar("T")

MERGED, REPLACED, DELETED = "merged", "replaced", "deleted"
OVS_LINK_KINDS = ("openvswitch", "tun")
"""Kernel kinds of an internal port: of the kernel datapath, of the userspace one."""
_DATAPATH = "ovs-system"
"""The device that every NIC in the kernel's datapath has as its master."""
VLAN_LIMIT = "vlan-limit"
HWADDR = "hwaddr"

_NAMES_SHOWN = 20


@dataclass(frozen=True)
class Options:
    """How far a wish goes. The modes are of maps: `merged` leaves foreign keys, `replaced` removes them."""

    purge: bool = False
    force: bool = False
    other_config: str = MERGED
    external_ids: str = MERGED


def node_state(state: State, node: Node, previous: Node | None = None, options: Options | None = None) -> State:
    """The state in which the whole node is as declared.

    `previous` is what was declared last: keys, MTUs and MACs that it had and `node` has not are given up. With `purge`,
    marked things that are not declared are removed. Raises RefusedError, ConfigError.
    """
    options = options or Options()
    if options.purge:
        state = _purged(state, node, options.force)
    state = _freed(state, node)
    for bridge in node.bridges:
        old = previous.bridge(bridge.name) if previous else None
        state = put_bridge(state, bridge, old, options)
        for uplink in bridge.uplinks:
            state = put_uplink(state, bridge.name, uplink, old.uplink(uplink.name) if old else None)
        for interface in bridge.interfaces:
            state = put_interface(state, bridge.name, interface, old.interface(interface.name) if old else None)
    state = put_vlan_limit(state, node.vlan_limit, previous.vlan_limit if previous else None)
    return replace(state, node_json=node.to_json())


def declared(state: State) -> Node | None:
    """What node.json declares; None if there is none that can be read. Raises ConfigError for a newer release's."""
    if state.node_json is None:
        return None
    try:
        return Node.from_json(state.node_json)
    except DecodeError:
        return None


def without_leftovers(state: State) -> State:
    """Less what the switch left in the kernel when it ended, or lost its database: devices that node.json declares.

    They stay there with their addresses, and NICs in its datapath; it takes them again as soon as it has their ports.
    A bridge that a move brought the node to is none of them before the node was rescued from it: it may still carry it.
    """
    try:
        node = declared(state)
    except ConfigError:
        return state  # of a newer release: refused by whoever makes a plan
    bridges = node.bridges if node else ()
    free = [bridge for bridge in bridges if state.moved_to(bridge.name) is None]
    own = {bridge.name for bridge in free} | {item.name for bridge in bridges for item in bridge.interfaces}
    nics = {nic for bridge in free for uplink in bridge.uplinks for nic in uplink.nics}
    links = dict(state.links)
    for name, link in state.links.items():
        if state.port_of(name) is not None:
            continue
        if name in own and link.kind in OVS_LINK_KINDS:
            del links[name]
        elif name in nics and link.master == _DATAPATH:
            links[name] = replace(link, master=None)
    return replace(state, links=links)


def warnings_of(node: Node) -> tuple[str, ...]:
    """What is declared and cannot work as somebody might hope."""
    found = [text for bridge in node.bridges for text in _loops(bridge)]
    for bridge in node.bridges:
        if not bridge.uplinks or any(uplink.vlans is None for uplink in bridge.uplinks):
            continue
        natives = VlanSet.of(uplink.native_vlan for uplink in bridge.uplinks if uplink.native_vlan)
        carried = VlanSet.union([natives, *(uplink.vlans or VlanSet() for uplink in bridge.uplinks)])
        users = [(f"network {item.name}", item.port.vlans) for item in node.networks if item.bridge == bridge.name]
        users += [(f"interface {item.name}", VlanSet.of([item.vlan])) for item in bridge.interfaces if item.vlan]
        found += [
            f"{user} is on VLAN {vlans - carried} of {bridge.name}, which none of its uplinks carries"
            for user, vlans in users
            if vlans - carried
        ]
    return tuple(found)


def _loops(bridge: Bridge) -> Iterable[str]:
    if bridge.stp or bridge.rstp:
        return
    for first, second in combinations(bridge.uplinks, 2):
        shared = _carried(first) & _carried(second)
        if shared:
            yield (
                f"uplinks {first.name} and {second.name} of {bridge.name} both carry VLANs {VlanSet.of(shared)}: if "
                "they lead to one switch, frames circle and the site stands still; make them a bond, or say rstp: true"
            )


def _carried(uplink: Uplink) -> set[int]:
    vlans = set(range(LOWEST, HIGHEST + 1)) if uplink.vlans is None else set(uplink.vlans)
    return vlans if uplink.native_vlan is None else vlans | {uplink.native_vlan}


def put_bridge(state: State, bridge: Bridge, previous: Bridge | None = None, options: Options | None = None) -> State:
    """With this bridge, without its uplinks and interfaces, and without the limit that is the whole switch's."""
    options = options or Options()
    present = state.bridges.get(bridge.name)
    if present is None:
        _check_free(state, bridge.name)
    row = present or BridgeRow(bridge.name)
    local = row.ports.get(bridge.name) or PortRow(bridge.name, (InterfaceRow(bridge.name, INTERNAL),))
    mtu = _kept(bridge.mtu, previous.mtu if previous else None, local.interfaces[0].mtu_request)
    local = replace(local, interfaces=(replace(local.interfaces[0], mtu_request=mtu), *local.interfaces[1:]))
    wanted = dict(bridge.other_config)
    if bridge.mac is not None:
        wanted[HWADDR] = bridge.mac
    elif state.moved_to(bridge.name) and HWADDR in row.other_config:
        wanted.setdefault(HWADDR, row.other_config[HWADDR])  # the site knows the node by it
    given_up = set(previous.other_config) | ({HWADDR} if previous.mac else set()) if previous else set()
    ids = _merged(
        foreign(row.external_ids), bridge.external_ids, previous.external_ids if previous else (), options.external_ids
    )
    row = replace(
        row,
        datapath_type=bridge.datapath_type,
        fail_mode=bridge.fail_mode,
        stp_enable=bridge.stp,
        rstp_enable=bridge.rstp,
        other_config=_merged(row.other_config, wanted, given_up, options.other_config),
        external_ids={**ids, **_mark(row.external_ids, mtu=mtu)},
        ports={**row.ports, bridge.name: local},
    )
    return state.with_bridge(row)


def put_vlan_limit(state: State, limit: int | None, previous: int | None = None) -> State:
    """With this limit of VLAN headers, which is the whole switch's. `previous` is what was declared before."""
    wanted = _kept(_text(limit), _text(previous), state.switch.get(VLAN_LIMIT))
    rest = {key: value for key, value in state.switch.items() if key != VLAN_LIMIT}
    return replace(state, switch=rest if wanted is None else {**rest, VLAN_LIMIT: wanted})


def put_uplink(state: State, bridge_name: str, uplink: Uplink, previous: Uplink | None = None) -> State:
    """With this uplink on the bridge. Refuses a NIC that the node itself, or somebody else, uses.

    One that was moved there, with the node's addresses, goes on carrying the node's own frames.
    """
    bridge = _bridge(state, bridge_name)
    port = bridge.ports.get(uplink.name) or PortRow(uplink.name)
    _check_port(state, bridge_name, uplink.name, SYSTEM_INTERFACE)
    rows = []
    for nic in sorted(uplink.nics):
        row = port.interface(nic)
        if row is None and not _is_moved(state, bridge_name, nic):
            check_nic(state, nic, uplink.move)
        row = row or InterfaceRow(nic)
        mtu = _kept(uplink.mtu, previous.mtu if previous else None, row.mtu_request)
        rows.append(replace(row, mtu_request=mtu, external_ids=_marked(row.external_ids, mtu=mtu)))
    bond = len(rows) > 1
    port = replace(
        port,
        interfaces=tuple(rows),
        tag=uplink.native_vlan,
        trunks=_trunks(state, bridge, uplink),
        vlan_mode=_uplink_mode(uplink),
        bond_mode=(uplink.bond_mode or "active-backup") if bond else None,
        lacp=uplink.lacp if bond else None,
        other_config=_merged(port.other_config, uplink.other_config, previous.other_config if previous else (), MERGED),
        external_ids=_marked(port.external_ids),
    )
    state = state.with_port(bridge_name, port)
    for nic in uplink.nics:
        link = state.links.get(nic)
        if link is not None:
            state = state.with_link(replace(link, up=True))
    return state


def put_interface(state: State, bridge_name: str, interface: Interface, previous: Interface | None = None) -> State:
    """With this host interface on the bridge; it is up and has its addresses, besides those of others.

    The bridge's own one is, unless told, on the VLAN that a moved uplink sends untagged.
    """
    bridge = _bridge(state, bridge_name)
    local = interface.name == bridge_name
    if local and interface.vlan is None:
        interface = replace(interface, vlan=_native_vlan(state, bridge))
    port = bridge.ports.get(interface.name)
    if port is None:
        _check_free(state, interface.name)
    _check_port(state, bridge_name, interface.name, INTERNAL)
    port = port or PortRow(interface.name, (InterfaceRow(interface.name, INTERNAL),))
    link = state.links.get(interface.name) or Link(interface.name, kind=OVS_LINK_KINDS[0])
    mark = Mark.parse(port.external_ids)
    ours = frozenset(mark.addresses) if mark else frozenset()
    wanted = ours if interface.addresses is None else frozenset(interface.addresses)
    _check_addresses(state, interface.name, wanted)
    row = port.interfaces[0]
    mtu = _kept(interface.mtu, previous.mtu if previous else None, row.mtu_request)
    row = replace(
        row,
        mac=_kept(interface.mac, previous.mac if previous else None, row.mac),
        mtu_request=mtu,
        external_ids=_marked(row.external_ids, mtu=mtu),
    )
    # Tag 0 is an access port for untagged frames; without a tag it would hear every VLAN. The local port stays bare.
    bare = local and interface.vlan is None
    port = replace(
        port,
        interfaces=(row, *port.interfaces[1:]),
        tag=None if bare else interface.vlan or 0,
        trunks=frozenset(),
        vlan_mode=None if bare else "access",
        external_ids=_marked(port.external_ids, addresses=tuple(sorted(wanted)), mtu=mtu),
    )
    state = state.with_port(bridge_name, port)
    return state.with_link(replace(link, up=True, addresses=(link.addresses - ours) | wanted))


def drop_bridge(state: State, name: str, force: bool = False) -> State:
    """Without the bridge and what is on it. Refuses ports that are not of the node's own state, unless forced."""
    bridge = state.bridges.get(name)
    if bridge is None:
        return state
    strangers = sorted(port.name for port in bridge.ports.values() if port.name != name and not _is_ours(port))
    if strangers and not force:
        raise RefusedError(
            f"bridge {name} carries ports of pods or of others: {_listed(strangers)}",
            "`podnet attachments` on the node says whose: drain it, or say force: true (playbook: podnet_force)",
        )
    return state.without_bridge(name)


def drop_port(state: State, bridge_name: str, name: str, kind: str) -> State:
    """Without an uplink (`kind` SYSTEM_INTERFACE) or an interface (INTERNAL) of a bridge that the user named."""
    bridge = state.bridges.get(bridge_name)
    if bridge is None or name not in bridge.ports:
        return state
    _check_port(state, bridge_name, name, kind)
    return _bare_local(state, bridge_name) if name == bridge_name else state.without_port(bridge_name, name)


def marked_interfaces(state: State) -> tuple[str, ...]:
    """The NICs of the node's uplinks and its host interfaces, by the owner marks."""
    ports = [port for bridge in state.bridges.values() for port in bridge.ports.values() if _is_ours(port)]
    return tuple(sorted(row.name for port in ports for row in port.interfaces))


def restored(state: State) -> State:
    """The state in which what the marks say holds in the kernel too. A link that is not there is passed over."""
    for bridge in state.bridges.values():
        for port in bridge.ports.values():
            mark = Mark.parse(port.external_ids)
            if mark is None or mark.owner != OWNER_NODE:
                continue
            for row in port.interfaces:
                link = state.links.get(row.name)
                if link is not None:
                    ours = () if _is_rescued(state, row.name) else mark.addresses  # the NIC may have them now
                    addresses = link.addresses | frozenset(ours)
                    state = state.with_link(replace(link, up=True, addresses=addresses))
    return state


def check_nic(state: State, name: str, move: bool = False) -> None:
    """Raises RefusedError, or ConfigError, if a NIC cannot become part of a bridge without a loss.

    `move`: whether there is consent to move its addresses along, which only changes the advice.
    """
    link = state.links.get(name)
    if link is None:
        known = sorted(key for key, item in state.links.items() if key != "lo" and item.kind not in OVS_LINK_KINDS)
        raise ConfigError("", f"there is no NIC {name}", f"this node has: {_listed(known) or 'none'}")
    owner = state.port_of(name)
    if owner:
        raise RefusedError(
            f"{name} is in bridge {owner[0].name} already, as port {owner[1].name}",
            "remove it there first: podnet.ovs.uplink with state: absent",
        )
    if name == "lo":
        raise RefusedError("lo is the loopback interface, not a NIC")
    addresses = [*sorted(link.addresses), *link.dynamic]
    if addresses or link.routes:
        carried = [f"the addresses {_listed(addresses)}"] if addresses else []
        carried += [f"the routes {_listed(link.routes)}"] if link.routes else []
        raise RefusedError(
            f"{name} carries {' and '.join(carried)}: under a bridge the node would lose them",
            "the modules podnet.ovs.uplink and podnet.ovs.node move it: run the playbook podnet.ovs.site"
            if move
            else "name another NIC, or say move: true on the uplink: it then moves with its addresses",
        )
    if link.master:
        raise RefusedError(f"{name} belongs to {link.master}", f"take it out of {link.master} first, or name that one")
    if link.children:
        raise RefusedError(f"{_listed(link.children)} on {name} would lose their traffic", "remove them first")


def merge_vlans(present: PortRow | None, given: VlanSet, mode: str) -> VlanSet | None:
    """The VLANs of an uplink after `given` was merged, replaced or deleted. None is all of them."""
    if present is None or mode == REPLACED:
        return given
    if mode == MERGED:
        return VlanSet.of(_vlans(present)) | given if present.trunks else None
    rest = (VlanSet.of(_vlans(present)) if present.trunks else VlanSet(((LOWEST, HIGHEST),))) - given
    if not rest:
        raise RefusedError(
            f"uplink {present.name} would carry no VLAN, which Open vSwitch reads as all of them",
            "leave one, or remove the uplink: state: absent",
        )
    return rest


def declaration_of_bridge(row: BridgeRow) -> dict[str, object]:
    """What a wish that is silent about them keeps, in the words of `Bridge.parse`."""
    return {
        "datapath_type": row.datapath_type,
        "fail_mode": row.fail_mode,
        "stp": row.stp_enable,
        "rstp": row.rstp_enable,
    }


def declaration_of_uplink(port: PortRow) -> dict[str, object]:
    """What a wish that is silent about them keeps, in the words of `Uplink.parse`."""
    return {
        "nics": [row.name for row in port.interfaces],
        "bond_mode": port.bond_mode,
        "lacp": port.lacp,
        "vlans": VlanSet.of(_vlans(port)) if port.trunks else None,
        "native_vlan": port.tag,
    }


def _purged(state: State, node: Node, force: bool) -> State:
    wanted = {
        bridge.name: {uplink.name for uplink in bridge.uplinks} | {interface.name for interface in bridge.interfaces}
        for bridge in node.bridges
    }
    for bridge in list(state.bridges.values()):
        if bridge.name not in wanted and Mark.parse(bridge.external_ids):
            state = drop_bridge(state, bridge.name, force)
            continue
        for port in bridge.ports.values():
            if _is_ours(port) and port.name not in wanted.get(bridge.name, ()):
                local = port.name == bridge.name
                state = _bare_local(state, bridge.name) if local else state.without_port(bridge.name, port.name)
    return state


def _freed(state: State, node: Node) -> State:
    """Without the NICs and addresses that declared things give up: another one may get them in the same plan."""
    for bridge in node.bridges:
        for uplink in bridge.uplinks:
            row = state.bridges.get(bridge.name)
            port = row.ports.get(uplink.name) if row else None
            if port and _is_ours(port):
                kept = tuple(item for item in port.interfaces if item.name in uplink.nics)
                state = state.with_port(bridge.name, replace(port, interfaces=kept))
        for interface in bridge.interfaces:
            row = state.bridges.get(bridge.name)
            port = row.ports.get(interface.name) if row else None
            link = state.links.get(interface.name)
            mark = Mark.parse(port.external_ids) if port else None
            if link and mark and interface.addresses is not None:
                given_up = frozenset(mark.addresses) - frozenset(interface.addresses)
                state = state.with_link(replace(link, addresses=link.addresses - given_up))
    return state


def _bare_local(state: State, name: str) -> State:
    """The bridge's own port without what `put_interface` gave it."""
    port = state.bridges[name].ports[name]
    mark = Mark.parse(port.external_ids)
    if mark is None:
        return state
    rows = tuple(replace(row, external_ids=foreign(row.external_ids)) for row in port.interfaces)
    bare = replace(port, interfaces=rows, tag=None, vlan_mode=None, external_ids=foreign(port.external_ids))
    state = state.with_port(name, bare)
    link = state.links.get(name)
    return state.with_link(replace(link, addresses=link.addresses - frozenset(mark.addresses))) if link else state


def _bridge(state: State, name: str) -> BridgeRow:
    bridge = state.bridges.get(name)
    if bridge is None:
        known = _listed(sorted(state.bridges)) or "none"
        raise ConfigError("", f"there is no bridge {name}", f"make it with podnet.ovs.bridge; this node has: {known}")
    return bridge


def _check_free(state: State, name: str) -> None:
    """A name that a new internal port can have: no other link, no port of another kind."""
    owner = state.port_of(name)
    if owner:
        raise RefusedError(f"{name} is a port of bridge {owner[0].name}", "choose another name")
    link = state.links.get(name)
    if link is not None and link.kind not in OVS_LINK_KINDS:
        kind = f"of kind {link.kind}" if link.kind else "a NIC"
        raise RefusedError(f"{name} is there already, {kind}, and not of Open vSwitch", "choose another name")


def _check_port(state: State, bridge_name: str, name: str, kind: str) -> None:
    """A port of that name, if there is one, must be on this bridge, of that kind, and not a pod's."""
    for bridge in state.bridges.values():
        port = bridge.ports.get(name)
        if port is None:
            continue
        mark = Mark.parse(port.external_ids)
        if mark and mark.owner != OWNER_NODE:
            pod = f"{mark.pod_namespace}/{mark.pod_name}" if mark.pod_name else mark.container_id
            raise RefusedError(f"port {name} is the attachment of pod {pod}", "it goes with its pod")
        if bridge.name != bridge_name:
            raise RefusedError(f"{name} is in bridge {bridge.name} already", "remove it there first: state: absent")
        internal = any(row.type == INTERNAL for row in port.interfaces)
        if internal != (kind == INTERNAL):
            is_a, module = ("a host interface", "interface") if internal else ("an uplink", "uplink")
            raise RefusedError(f"{name} on bridge {bridge_name} is {is_a}", f"use podnet.ovs.{module}")


def _check_addresses(state: State, name: str, wanted: Iterable[str]) -> None:
    for address in sorted(wanted):
        for link in state.links.values():
            if link.name != name and (address in link.addresses or address in link.dynamic):
                raise RefusedError(
                    f"{address} is an address of {link.name} already", f"give {name} another one, or remove it there"
                )


def _is_moved(state: State, bridge: str, nic: str) -> bool:
    moved = state.moved_to(bridge)
    return moved is not None and moved.nic == nic


def _is_rescued(state: State, name: str) -> bool:
    return any(item.rescued and name in (item.bridge, item.nic) for item in state.moved)


def _native_vlan(state: State, bridge: BridgeRow) -> int | None:
    """The VLAN of the node's own frames, if a moved uplink sends them untagged."""
    moved = state.moved_to(bridge.name)
    port = bridge.ports.get(moved.nic) if moved else None
    return port.tag if port else None


def _trunks(state: State, bridge: BridgeRow, uplink: Uplink) -> frozenset[int]:
    """Of a moved uplink with 0, for frames without a tag, as long as the bridge's own interface is on no VLAN."""
    trunks = frozenset(uplink.vlans or ())
    local = bridge.ports.get(bridge.name)
    own = any(_is_moved(state, bridge.name, nic) for nic in uplink.nics) and not (local and local.tag)
    return trunks | {0} if trunks and own and uplink.native_vlan is None else trunks


def _uplink_mode(uplink: Uplink) -> str | None:
    if uplink.native_vlan is not None:
        return "native-untagged"
    return None if uplink.vlans is None else "trunk"


def _vlans(port: PortRow) -> list[int]:
    return [number for number in port.trunks if LOWEST <= number <= HIGHEST]


def _is_ours(port: PortRow) -> bool:
    mark = Mark.parse(port.external_ids)
    return mark is not None and mark.owner == OWNER_NODE


def _mark(external_ids: Mapping[str, str], addresses: tuple[str, ...] = (), mtu: int | None = None) -> dict[str, str]:
    Mark.parse(external_ids)  # one that a newer release wrote is not overwritten
    return Mark(OWNER_NODE, addresses=addresses, mtu=mtu).to_external_ids()


def _marked(external_ids: Mapping[str, str], addresses: tuple[str, ...] = (), mtu: int | None = None) -> dict[str, str]:
    return {**foreign(external_ids), **_mark(external_ids, addresses, mtu)}


def _merged(old: Mapping[str, str], new: Mapping[str, str], given_up: Iterable[str], mode: str) -> dict[str, str]:
    kept = {} if mode == REPLACED else {key: value for key, value in old.items() if key not in set(given_up)}
    return {**kept, **new}


def _kept(wanted: T | None, previous: T | None, present: T | None) -> T | None:
    """What is wanted; else nothing if it was declared before and is no longer; else what is there."""
    if wanted is not None:
        return wanted
    return None if previous is not None else present


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)


def _listed(names: Iterable[str]) -> str:
    names = list(names)
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
