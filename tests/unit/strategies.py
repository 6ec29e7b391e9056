# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Nodes, states and results of CNI by the thousand, for property tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.cni.merge import Part
from ansible_collections.podnet.ovs.plugins.module_utils.cni.result import Address, Interface, Result, Route
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


SANDBOX = "/run/netns/p"
IFNAMES = ("eth0", "net1", "net2")
"""What a pod's plugins are called with; the first is the primary's."""
_anything: st.SearchStrategy[Any] = st.sampled_from([1, "x", [1], {"a": None}])
foreign = st.dictionaries(st.sampled_from(["vendor", "example.org/key"]), _anything, max_size=2)
"""Keys that no version of the specification knows."""
nameservers: st.SearchStrategy[Any] = st.sampled_from(
    [{}, {"nameservers": []}, {"nameservers": ["10.0.0.53"]}, {"domain": "d", "vendor": 1}]
)
_cidrs = st.sampled_from(
    ["10.0.0.1/24", "10.0.0.2/24", "10.0.0.1/16", "10.0.1.1/32", "fd00::1/64", "fd00:0::1/64", "fd00::2/64"]
)  # fmt: skip
_via = st.sampled_from(["", "10.0.0.254", "fd00::fe", "fd00:0::fe"])
_metrics = st.dictionaries(st.sampled_from(["mtu", "advmss", "priority", "table", "scope"]), st.integers(0, 255))
_to = st.sampled_from(["0.0.0.0/0", "10.0.0.0/0", "::/0", "fd00::/0", "10.9.0.0/16", "10.9.1.0/16", "fd09::/32"])
_few = st.integers(0, 3)
_interface_extras: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {}, optional={"socketPath": st.just("/s"), "pciID": st.just("0000:01:00.0")}
)


@st.composite
def results(draw: st.DrawFn, names: Sequence[str] = ("eth0", "net1", "net2", "pn0", "br")) -> Result:
    """A result of ADD as version 1.1.0 has it, with the keys of a vendor on each level."""
    interfaces = tuple(
        Interface(
            draw(st.sampled_from(names)), draw(macs) or "", draw(st.sampled_from([SANDBOX, ""])), draw(mtus),
            {**draw(_interface_extras), **draw(foreign)},
        )
        for _number in range(draw(st.integers(0, 3)))
    )  # fmt: skip
    index = st.sampled_from([None, *range(len(interfaces))])
    addresses = [Address(draw(_cidrs), draw(_via), draw(index), draw(foreign)) for _number in range(draw(_few))]
    routes = [Route(draw(_to), draw(_via), draw(_metrics), draw(foreign)) for _number in range(draw(_few))]
    return Result(interfaces, tuple(addresses), tuple(routes), draw(nameservers), draw(foreign))


@st.composite
def parts(draw: st.DrawFn) -> list[Part]:
    """What the plugins of one pod gave, the primary's first. Each makes its own interface, or says of none; what they
    make on the node may be shared.
    """
    return [
        Part(draw(results(("br", ifname, "pn0", ifname))), ifname, SANDBOX)
        for ifname in IFNAMES[: draw(st.integers(1, len(IFNAMES)))]
    ]
