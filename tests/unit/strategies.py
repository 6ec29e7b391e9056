# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes and states by the thousand, for property tests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import (
    INTERNAL,
    BridgeRow,
    InterfaceRow,
    Link,
    PortRow,
    State,
)

vlan_ids = st.integers(1, 4094)
vlan_sets = st.sets(st.integers(1, 40), min_size=1).map(sorted)
mtus = st.none() | st.integers(1280, 9000)
macs = st.none() | st.integers(0, 255).map(lambda last: f"02:00:00:00:00:{last:02x}")
keys = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(["1", "2"]), max_size=2)

BRIDGES = ("br-a", "br-b")
NICS = ("eth1", "eth2", "eth3", "eth4", "eth5", "eth6")
INTERFACES = ("if1", "if2", "if3", "if4")
ADDRESSES = ("10.0.0.1/24", "10.0.1.1/24", "fd00::1/64", "fd00:1::1/64", "10.0.2.1/24", "fd00:2::1/64")


def any_of(*values: Any) -> tuple[Any, ...]:
    """Values of every kind, for a table of bad ones."""
    return values


@st.composite
def nodes(draw: st.DrawFn) -> Node:
    """A declared node that is valid, on the NICs `NICS`."""
    nics, names, addresses = list(NICS), list(INTERFACES), list(ADDRESSES)
    bridges = []
    for name in draw(st.lists(st.sampled_from(BRIDGES), unique=True)):
        bridge: dict[str, Any] = {
            "name": name,
            "datapath_type": draw(st.sampled_from(["system", "netdev"])),
            "fail_mode": draw(st.sampled_from(["standalone", "secure"])),
            "stp": draw(st.booleans()),
            "mtu": draw(mtus),
            "mac": draw(macs),
            "vlan_limit": draw(st.sampled_from([None, 2])),
            "other_config": draw(keys),
            "external_ids": draw(keys),
            "uplinks": [_uplink(draw, name, number, nics) for number in range(draw(st.integers(0, 2)))],
            "interfaces": [_interface(draw, names, addresses) for _number in range(draw(st.integers(0, 2)))],
        }
        if draw(st.booleans()):
            bridge["interfaces"].append({"name": name, "addresses": [addresses.pop()], "mtu": bridge["mtu"]})
        bridges.append(bridge)
    networks = [
        {"name": f"n{vlan}", "bridge": draw(st.sampled_from(bridges))["name"], "vlan": vlan, "mtu": draw(mtus)}
        for vlan in (draw(st.sets(vlan_ids, max_size=2)) if bridges else ())
    ]
    return Node.parse({"bridges": bridges, "networks": networks})


def _uplink(draw: st.DrawFn, bridge: str, number: int, nics: list[str]) -> dict[str, Any]:
    uplink: dict[str, Any] = {
        "vlans": draw(st.none() | vlan_sets),
        "native_vlan": draw(st.none() | vlan_ids),
        "mtu": draw(mtus),
        "other_config": draw(keys),
    }
    if len(nics) > 4 and draw(st.booleans()):
        return {"name": f"bond-{bridge}{number}", "nics": [nics.pop(), nics.pop()], "lacp": "active", **uplink}
    return {"name": nics.pop(), **uplink}


def _interface(draw: st.DrawFn, names: list[str], addresses: list[str]) -> dict[str, Any]:
    given = [addresses.pop() for _number in range(draw(st.integers(0, max(0, min(2, len(addresses) - 2)))))]
    return {
        "name": names.pop(),
        "vlan": draw(st.none() | vlan_ids),
        "addresses": given,
        "mtu": draw(mtus),
        "mac": draw(macs),
    }


@st.composite
def fresh_states(draw: st.DrawFn) -> State:
    """A machine with all NICs, free, and perhaps bridges and ports of others."""
    links = {name: Link(name, up=draw(st.booleans())) for name in NICS}
    links["eth0"] = Link("eth0", up=True, addresses=frozenset({"192.0.2.1/24"}), routes=("default via 192.0.2.254",))
    state = State(links=links, switch=draw(st.sampled_from([{}, {"theirs": "1"}, {"vlan-limit": "0"}])))
    for name in draw(st.lists(st.sampled_from([*BRIDGES, "theirs"]), unique=True)):
        state = state.with_bridge(BridgeRow(name, "netdev", other_config=draw(keys), external_ids=draw(keys)))
        state = state.with_port(name, PortRow(name, (InterfaceRow(name, INTERNAL),)))
        state = state.with_link(Link(name, kind="tun", addresses=frozenset(draw(st.sets(st.just("10.9.9.9/24"))))))
        port = f"vm-{name}"
        if draw(st.booleans()):
            mark = draw(st.sampled_from([{}, Mark("podnet-ovs", container_id="c").to_external_ids()]))
            state = state.with_port(name, PortRow(port, (InterfaceRow(port),), tag=5, external_ids=mark))
            state = state.with_link(Link(port, up=True, kind="veth"))
    return state
