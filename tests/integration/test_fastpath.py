# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way for pods leaves the kernel and the database as the libraries would leave them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

HOST, HOST_MAC, MAC = "pn0123456789ab", "02:00:00:00:00:01", "02:00:00:00:00:02"

BEGIN = """
import ipaddress, json, os, socket, sys
from dataclasses import replace
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.kernel import fastpath
from podnet.kernel.netns import inside
from podnet.kernel.pod import PodRoute, observe, set_sysctl
from podnet.model.ownership import OWNER_OVS, Mark
wish = json.load(sys.stdin)
host, host_mac, mac, mtu, vlan = wish["host"], wish["host_mac"], wish["mac"], wish["mtu"], wish["vlan"]
addresses, routes = wish["addresses"], [PodRoute(**route) for route in wish["routes"]]
mark = Mark(OWNER_OVS, "c1", "eth0", "green", "shop", "web-0", "uid", tuple(addresses), mtu)
ENDPOINT = "unix:/run/openvswitch/db.sock"
netns = os.open("/run/netns/p1", os.O_RDONLY)
"""

SHORT = """
from podnet.vswitch.fastpath import open_switch
fastpath.make_veth(host, host_mac, "eth0", mac, mtu, netns)
with fastpath.PodSpace(netns) as space, open_switch(ENDPOINT, 5) as switch:
    switch.attach("br-pod", host, vlan, replace(mark, addresses=()))
    space.configure("eth0", addresses, routes)
    switch.settle(host, mark, 5)
"""

SHORT_END = """
from podnet.vswitch.fastpath import open_switch
with open_switch(ENDPOINT, 5) as switch:
    (item,) = switch.look("c1", "eth0").mine
    seen = [item.port, item.bridge, item.tag, item.vlan_mode, item.ofport, item.error]
    print(json.dumps([*seen, list(item.mark.addresses)]))
    fastpath.remove_link(host)
    switch.detach([item])
    switch.wait_for_switch(5)
"""

LIBRARY = """
from podnet.kernel.netlink import netlink
from podnet.vswitch.session import Session
with netlink() as route:
    peer = {"ifname": "eth0", "net_ns_fd": netns, "address": mac, "mtu": mtu}
    route.link("add", ifname=host, address=host_mac, kind="veth", mtu=mtu, peer=peer)
    set_sysctl(host, "disable_ipv6", "1")
    route.link("set", index=socket.if_nametoindex(host), state="up")
with Session.open(ENDPOINT) as session:
    ids = mark.to_external_ids()
    session.transact([
        session.api.add_port("br-pod", host, may_exist=False),
        session.api.db_set("Port", host, ("tag", vlan or 0), ("vlan_mode", "access"), ("external_ids", ids)),
        session.api.db_set("Interface", host, ("external_ids", ids)),
    ])
    session.ports_ready([host])

def add_route(route, index, wanted, networks):
    destination = ipaddress.ip_network(wanted.destination)
    arguments = {"dst": str(destination), "oif": index, "proto": 4,
                 "family": socket.AF_INET if destination.version == 4 else socket.AF_INET6}
    if wanted.gateway:
        gateway = ipaddress.ip_address(wanted.gateway)
        arguments["gateway"] = wanted.gateway
        if not gateway.is_link_local and not any(gateway in network for network in networks):
            arguments["flags"] = 4
    elif destination.version == 4:
        arguments["scope"] = 253
    if wanted.scope is not None:
        arguments["scope"] = wanted.scope
    arguments.update({key: getattr(wanted, key) for key in ("priority", "table") if getattr(wanted, key)})
    metrics = {key: getattr(wanted, key) for key in ("mtu", "advmss") if getattr(wanted, key)}
    if metrics:
        arguments["metrics"] = metrics
    route.route("replace", **arguments)

def configure():
    index = socket.if_nametoindex("eth0")
    with netlink() as route:
        route.link("set", index=1, state="up")
        route.link("set", index=index, state="up")
        given = [ipaddress.ip_interface(text) for text in addresses]
        for item in given:
            more = {"flags": 2} if item.version == 6 else {}
            if item.version == 4 and item.network.prefixlen < 31:
                more["broadcast"] = str(item.network.broadcast_address)
            route.addr("add", index=index, address=str(item.ip), prefixlen=item.network.prefixlen, **more)
        for wanted in routes:
            add_route(route, index, wanted, [item.network for item in given])

inside(netns, configure)
"""

LIBRARY_END = """
from podnet.kernel.netlink import netlink
from podnet.vswitch.session import Session
with Session.open(ENDPOINT) as session, netlink() as route:
    route.link("del", index=socket.if_nametoindex(host))
    session.transact([session.api.del_port(host)])
"""

WISHES: dict[str, dict[str, Any]] = {
    "both families": {
        "addresses": ["10.10.0.2/16", "fd00:10::2/64"],
        "routes": [
            {"destination": "0.0.0.0/0", "gateway": "10.10.0.1"},
            {"destination": "::/0", "gateway": "fd00:10::1"},
            {"destination": "192.0.2.0/24"},
            {"destination": "2001:db8::/32"},
        ],
    },
    "odd lengths, untagged": {"vlan": None, "addresses": ["10.0.0.1/31", "10.0.1.1/32", "fd00::1/127", "fd01::1/128"]},
    "no address": {"mtu": 9000},
    "gateways outside": {
        "addresses": ["10.10.0.2/32", "fd00:10::2/128"],
        "routes": [
            {"destination": "0.0.0.0/0", "gateway": "10.10.0.1"},
            {"destination": "::/0", "gateway": "fd00:10::1"},
            {"destination": "2001:db8::/32", "gateway": "fe80::1"},
        ],
    },
    "all that a route can be": {
        "addresses": ["10.10.0.2/16"],
        "routes": [
            {"destination": "192.0.2.0/24", "gateway": "10.10.0.1", "priority": 77, "mtu": 1300, "advmss": 1200},
            {"destination": "198.51.100.0/24", "gateway": "10.10.0.1", "table": 100},
            {"destination": "203.0.113.0/24", "gateway": "10.10.0.1", "table": 1000, "scope": 0},
        ],
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with one bridge."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    return made


def state(node: Light) -> dict[str, Any]:
    """Kernel and database, without the numbers that each new thing gets and the counters."""
    kernel = "\n".join(
        node.run(*words).stdout
        for words in (
            ["ip", "-d", "addr", "show", HOST],
            ["ip", "-n", "p1", "-d", "addr", "show", "eth0"],
            ["ip", "-n", "p1", "-d", "addr", "show", "lo"],
            ["ip", "-n", "p1", "-d", "route", "show", "table", "all"],
            ["ip", "-n", "p1", "-d", "-6", "route", "show", "table", "all"],
            ["sysctl", "-n", f"net.ipv6.conf.{HOST}.disable_ipv6"],
        )
    )
    for pattern in (r"^\d+: ", r"@if\d+", r"link-netns(id)? \S+", r"\bstate \w+"):
        kernel = re.sub(pattern, "", kernel, flags=re.MULTILINE)
    rows = {}
    for table, columns in (
        ("Port", "name,tag,trunks,vlan_mode,external_ids,other_config,bond_mode,lacp,mac,qos,fake_bridge,cvlans"),
        ("Interface", "name,type,external_ids,other_config,options,mac,mtu_request,ofport_request,error"),
    ):
        printed = node.ovs.vsctl("--format=json", f"--columns={columns}", "find", table, f"name={HOST}").stdout
        rows[table] = json.loads(printed)["data"]
    return {"kernel": [line.rstrip() for line in kernel.splitlines()], **rows}


def run(node: Light, script: str, wish: dict[str, Any]) -> str:
    """What a script prints, run by the node's own Python."""
    plain = {"host": HOST, "host_mac": HOST_MAC, "mac": MAC, "mtu": 1400, "vlan": 100, "addresses": [], "routes": []}
    stdin = json.dumps({**plain, **wish})
    return node.run("/usr/bin/python3", "-I", "-c", BEGIN + script, input=stdin).stdout


@pytest.mark.parametrize("name", WISHES)
def test_both_ways_leave_the_same(node: Light, name: str) -> None:
    wish = WISHES[name]
    seen = []
    for script in (SHORT, LIBRARY):
        node.netns("p1")
        run(node, script, wish)
        seen.append(state(node))
        run(node, SHORT_END, wish)
        node.sh("ip netns delete p1")
    short, library = seen
    assert short["kernel"] == library["kernel"]
    assert short == library
    assert short["Port"] and short["Interface"], "there was something to compare"


def test_both_ways_see_and_remove_the_same(node: Light) -> None:
    wish = WISHES["both families"]
    for script in (SHORT, LIBRARY):
        node.netns("p1")
        run(node, script, wish)
        printed = run(node, SHORT_END, wish)
        port, bridge, tag, mode, ofport, error, addresses = json.loads(printed)
        assert (port, bridge, tag, mode, error) == (HOST, cni.BRIDGE, 100, "access", "")
        assert ofport > 0 and addresses == wish["addresses"]
        assert cni.leftovers(node) == cni.NOTHING
        run(node, script, wish)
        run(node, LIBRARY_END, wish)
        assert cni.leftovers(node) == cni.NOTHING
        node.sh("ip netns delete p1")


REFUSED: dict[str, tuple[str, str]] = {
    "link is there": ('fastpath.make_veth("lo", host_mac, "eth0", mac, mtu, netns)', "File exists"),
    "no namespace": (
        'fastpath.make_veth(host, host_mac, "eth0", mac, mtu, os.open("/etc/hostname", os.O_RDONLY))',
        "cannot make the link pair",
    ),
    "MTU": ('fastpath.make_veth(host, host_mac, "eth0", mac, 70000, netns)', "cannot make the link pair"),
    "bridge is gone": (
        'from podnet.vswitch.fastpath import open_switch\n'
        'with open_switch(ENDPOINT, 5) as switch: switch.attach("nobr", host, 1, mark)',
        "not there any more",
    ),
    "value out of range": (
        'from podnet.vswitch.fastpath import open_switch\n'
        'with open_switch(ENDPOINT, 5) as switch: switch.attach("br-pod", host, 5000, mark)',
        "5000",
    ),
    "name is taken": (
        'from podnet.vswitch.fastpath import open_switch\n'
        'with open_switch(ENDPOINT, 5) as switch: switch.attach("br-pod", "eth1", 1, mark)',
        "eth1",
    ),
    "no device": (
        'from podnet.vswitch.fastpath import open_switch\n'
        'with open_switch(ENDPOINT, 5) as switch:\n'
        '    switch.attach("br-pod", host, 1, mark)\n'
        '    try: switch.settle(host, mark, 5)\n'
        '    finally: switch.detach(switch.look("c1", "eth0").mine)',
        "No such device",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_every_refusal_is_an_error_in_words(node: Light, case: str) -> None:
    script, word = REFUSED[case]
    node.netns("p1")
    body = "\n".join("    " + line for line in script.splitlines())
    wrapped = f"from podnet.errors import PodnetError\ntry:\n{body}\nexcept PodnetError as error:\n    print(error)\n"
    assert word in run(node, wrapped, {}), "the error's text"
    assert cni.leftovers(node) == cni.NOTHING
    node.sh("ip netns delete p1")
