# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What would take a node off its network is refused, whatever asks for it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import RefusedError
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Bridge, Interface, Node, Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_NODE, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.safety import check_safe
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import (
    INTERNAL,
    BridgeRow,
    InterfaceRow,
    Link,
    Moved,
    PortRow,
    State,
    Visit,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import (
    drop_bridge,
    drop_port,
    node_state,
    put_bridge,
    put_interface,
    put_uplink,
    without_leftovers,
)

MAC = "52:54:00:00:00:a1"
BARE = Bridge("br-ex", "netdev")
OURS = Mark(OWNER_NODE, addresses=("10.30.0.11/24",)).to_external_ids()


def home(**more: Any) -> State:
    """A node that lives on its NIC eth0."""
    eth0 = Link(
        "eth0",
        True,
        frozenset({"10.99.0.11/24"}),
        mtu=1500,
        mac=MAC,
        routes=("10.99.0.0/24", "default via 10.99.0.1"),
        dynamic=("fd00:99::b/64",),
    )
    lo = Link("lo", True, frozenset({"127.0.0.1/8"}))
    bridge = BridgeRow("br-p", ports={"br-p": PortRow("br-p", (InterfaceRow("br-p", INTERNAL),))})
    links = {"lo": lo, "eth0": eth0, "eth1": Link("eth1", mac="52:54:00:00:00:02"), "br-p": Link("br-p")}
    return State(bridges={"br-p": bridge}, links=links, **more)


def moved(local: PortRow | None = None, more: dict[str, Link] | None = None) -> State:
    """A node that lives on the bridge br-ex, with eth0 as its uplink, as others made it."""
    local = local or PortRow("br-ex", (InterfaceRow("br-ex", INTERNAL),))
    ports = {"br-ex": local, "eth0": PortRow("eth0", (InterfaceRow("eth0"),))}
    bridge = BridgeRow("br-ex", "netdev", other_config={"hwaddr": MAC}, ports=ports)
    routes = ("10.99.0.0/24", "default via 10.99.0.1")
    own = Link("br-ex", True, frozenset({"10.99.0.11/24"}), mtu=1500, mac=MAC, routes=routes)
    links = {"br-ex": own, "eth0": Link("eth0", True, mtu=1500, mac=MAC), "eth1": Link("eth1")}
    return State(bridges={"br-ex": bridge}, links={**links, **(more or {})})


def refused(before: State, wish: Callable[[State], State]) -> str:
    """The message of the refusal that must come."""
    with pytest.raises(RefusedError) as error:
        check_safe(before, wish(before))
    return str(error.value)


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("10.99.0.50/24", "10.99.0.0/24"),
        ("10.99.0.2/29", "10.99.0.0/24"),
        ("10.99.0.1/32", "gateway on eth0"),
        ("10.99.0.11/25", "eth0 has 10.99.0.11/24"),
        ("fd00:99::7/80", "fd00:99::/64"),
        ("127.0.0.5/30", "127.0.0.0/8"),
        ("192.0.2.200/24", "192.0.2.5"),
    ],
)
def test_an_address_that_covers_the_nodes_own_ways_is_refused(address: str, words: str) -> None:
    before = home(visit=Visit("192.0.2.5", "10.99.0.11"))
    assert words in refused(before, lambda state: put_interface(state, "br-p", Interface("v1", 5, (address,))))


@pytest.mark.parametrize("address", ["10.30.0.1/24", "10.0.0.1/8", "10.99.0.77/32", "fd00:30::1/64", "192.0.2.7/32"])
def test_an_address_beside_them_is_fine(address: str) -> None:
    before = home(visit=Visit("192.0.2.5", "10.99.0.11"))
    check_safe(before, put_interface(before, "br-p", Interface("v1", 5, (address,))))


def test_a_mac_address_of_a_nic_in_use_is_refused_and_that_of_the_own_uplink_is_not() -> None:
    before = home()
    assert "eth0" in refused(before, lambda state: put_bridge(state, Bridge("br-q", mac=MAC)))
    by_key = Bridge("br-q", other_config={"hwaddr": MAC.upper()})
    assert "eth0" in refused(before, lambda state: put_bridge(state, by_key))
    assert "eth0" in refused(before, lambda state: put_interface(state, "br-p", Interface("v1", 5, mac=MAC)))
    own = put_uplink(put_bridge(before, Bridge("br-p", mac="52:54:00:00:00:02")), "br-p", Uplink("eth1", ("eth1",)))
    check_safe(before, own)


@pytest.mark.parametrize(
    ("wish", "words"),
    [
        (lambda state: drop_bridge(state, "br-ex", force=True), "bridge br-ex is not removed"),
        (lambda state: drop_port(state, "br-ex", "eth0", ""), "eth0, its way out"),
        (lambda state: put_bridge(state, Bridge("br-ex")), "datapath_type stays netdev"),
        (lambda state: put_bridge(state, replace(BARE, fail_mode="secure")), "fail_mode"),
        (lambda state: put_bridge(state, replace(BARE, rstp=True)), "rstp stays false"),
        (lambda state: put_bridge(state, replace(BARE, mac="02:00:00:00:00:09")), f"mac stays {MAC}"),
        (lambda state: put_bridge(state, replace(BARE, mtu=9000)), "MTU stays 1500"),
        (lambda state: put_interface(state, "br-ex", Interface("br-ex", vlan=5)), "vlan"),
        (lambda state: put_uplink(state, "br-ex", Uplink("eth0", ("eth0",), native_vlan=7)), "untagged frames"),
        (lambda state: put_uplink(state, "br-ex", _trunk(100)), "untagged frames"),
    ],
)
def test_the_bridge_that_carries_the_node_keeps_what_it_is(wish: Callable[[State], State], words: str) -> None:
    assert words in refused(moved(), wish)


def _trunk(vlan: int) -> Uplink:
    return Uplink.parse({"name": "eth0", "vlans": vlan}, "")


def test_it_takes_what_does_no_harm() -> None:
    before = moved()
    wanted = put_bridge(before, replace(BARE, mtu=1400, external_ids={"a": "b"}))
    wanted = put_uplink(wanted, "br-ex", Uplink.parse({"name": "eth1", "vlans": 5}, ""))
    wanted = put_interface(wanted, "br-ex", Interface("v5", 5, ("10.5.0.1/24",)))
    check_safe(before, wanted)
    check_safe(wanted, drop_port(drop_port(wanted, "br-ex", "v5", INTERNAL), "br-ex", "eth1", ""))


def test_an_address_on_what_stands_on_the_bridge_counts() -> None:
    own = Link("br-ex.7", True, frozenset({"10.7.0.1/24"}), kind="vlan")
    before = moved(more={"br-ex": Link("br-ex", True, mac=MAC, mtu=1500, children=("br-ex.7",)), "br-ex.7": own})
    assert "br-ex.7" in refused(before, lambda state: drop_bridge(state, "br-ex", force=True))
    assert "its VLANs" in refused(before, lambda state: put_uplink(state, "br-ex", _trunk(7)))


def test_a_vlan_that_carries_the_node_stays_on_its_uplink() -> None:
    port = PortRow("br-ex", (InterfaceRow("br-ex", INTERNAL),), tag=7, vlan_mode="access")
    before = moved(port)
    wanted = put_uplink(before, "br-ex", _trunk(7))
    check_safe(before, wanted)
    assert "VLAN 7" in refused(wanted, lambda state: put_uplink(state, "br-ex", _trunk(8)))
    native = Uplink("eth0", ("eth0",), native_vlan=7)
    assert "VLAN 7" in refused(wanted, lambda state: put_uplink(state, "br-ex", native))


def ours(**more: Any) -> State:
    """A node with an interface of ours."""
    row = PortRow("v30", (InterfaceRow("v30", INTERNAL),), tag=30, vlan_mode="access", external_ids=OURS)
    link = Link("v30", True, frozenset({"10.30.0.11/24"}), mtu=1500, **more)
    state = home()
    return replace(state.with_port("br-p", row), links={**state.links, "v30": link})


def test_an_interface_of_ours_goes_unless_the_node_has_come_to_need_it() -> None:
    def gone(state: State) -> State:
        return drop_port(state, "br-p", "v30", INTERNAL)

    def other_address(state: State) -> State:
        return put_interface(state, "br-p", Interface("v30", 30, ("10.30.0.12/24",)))

    # a router on the pod network is not the node's only one
    advertised = ours(dynamic=("fd00:30::5/64",), routes=("default via fe80::1",))
    eth0 = replace(advertised.links["eth0"], routes=("default via fd00:99::1",))
    for before in (ours(), advertised.with_link(eth0)):
        check_safe(before, gone(before))
        check_safe(before, other_address(before))
    alone = ours(routes=("198.51.100.0/24 via 10.30.0.1",))
    assert "198.51.100.0/24" in refused(alone, gone) and "10.30.0.11/24" in refused(alone, other_address)
    visited = replace(ours(), visit=Visit("10.30.0.5", "10.30.0.11"))
    assert "this run reaches" in refused(visited, gone) and "this run reaches" in refused(visited, other_address)


def test_a_device_of_others_is_not_taken_for_a_new_interface() -> None:
    vpn = Link("vpn0", True, frozenset({"192.0.2.9/24"}), kind="tun")
    before = home().with_link(vpn)
    assert "192.0.2.9/24" in refused(before, lambda state: put_bridge(state, Bridge("vpn0")))
    assert "192.0.2.9/24" in refused(before, lambda state: put_interface(state, "br-p", Interface("vpn0", 5)))
    left_over = home().with_link(replace(vpn, addresses=frozenset()))
    check_safe(left_over, put_bridge(left_over, Bridge("vpn0")))


def test_a_nic_over_whose_link_local_address_this_run_came_is_not_taken() -> None:
    def taken(state: State) -> State:
        return put_uplink(state, "br-p", Uplink("eth1", ("eth1",)))

    before = home(visit=Visit("fe80::1%eth1", "fe80::2%eth1"))
    assert "fe80::2%eth1, through which this run" in refused(before, taken)
    check_safe(home(), taken(home()))


def test_a_nic_that_leaves_its_bridge_keeps_what_it_has() -> None:
    before = moved(more={"br-ex": Link("br-ex"), "eth0": Link("eth0", True, frozenset({"192.0.2.1/24"}))})
    check_safe(before, drop_bridge(before, "br-ex", force=True))


def test_the_visit_is_found_where_sudo_hides_it(tmp_path: Any) -> None:
    script = "from ansible_collections.podnet.ovs.plugins.module_utils.kernel.visit import *; print(current_visit())"
    kept = {key: value for key, value in os.environ.items() if key != "SSH_CONNECTION"}
    kept["PYTHONPATH"] = str(Path(__file__).resolve().parents[5])
    visited = {**kept, "SSH_CONNECTION": "192.0.2.5 50000 192.0.2.11 22"}
    command = ["env", "-u", "SSH_CONNECTION", sys.executable, "-c", script]
    shell = ["sh", "-c", '"$@"; exit $?', "sh", *command]
    done = subprocess.run(shell, env=visited, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=30)
    assert done.stdout == "Visit(peer='192.0.2.5', address='192.0.2.11')\n"
    bad = {**kept, "SSH_CONNECTION": "a b c d"}
    subprocess.run([sys.executable, "-c", script], env=bad, check=True, timeout=30, capture_output=True)


@pytest.mark.parametrize("kind", ["tun", "openvswitch"])
def test_what_a_switch_that_ended_left_in_the_kernel_stands_in_nobodys_way(kind: str) -> None:
    pods = {"name": "pods", "vlan": 100, "addresses": ["10.30.0.11/24"]}
    node = Node.parse({"bridges": [{"name": "br-p", "uplinks": [{"name": "eth1"}], "interfaces": [pods]}]})
    left = Link("pods", True, frozenset({"10.30.0.11/24"}), kind=kind)
    tap = Link("tap0", True, frozenset({"10.8.0.1/24"}), kind=kind)
    own = {"br-p": Link("br-p", kind=kind), "pods": left}
    links = {**home().links, **own, "tap0": tap}
    before = replace(home(), bridges={}, links=links, node_json=node.to_json())
    assert "pods carries" in refused(before, lambda state: node_state(state, node, node))
    before = before.with_link(Link("eth1", master="ovs-system"))
    assert "eth1 belongs to" in refused(before, lambda state: node_state(state, node, node))
    rest = without_leftovers(before)
    check_safe(rest, node_state(rest, node, node))
    assert rest.links["eth1"].master is None and rest.links["tap0"] == tap
    assert without_leftovers(replace(before, node_json=None)).links == before.links
    whole = node_state(rest, node, node)
    served = replace(before, bridges=whole.bridges)
    assert without_leftovers(served) == served
    nic = replace(left, kind="")
    assert without_leftovers(replace(before, links={**links, "pods": nic})).links["pods"] == nic
    brought = replace(before, moved=(Moved("eth1", "br-p"),))
    kept = {name: link for name, link in brought.links.items() if name != "pods"}
    assert without_leftovers(brought).links == kept  # the bridge may carry the node still
    rescued = replace(before, moved=(Moved("eth1", "br-p", rescued="there is no br-p"),))
    assert without_leftovers(rescued).links == rest.links
