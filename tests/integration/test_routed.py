# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-routed` on a node with several uplinks, by where packets go, and what users of others suffered:

cilium #18179 #45137            a rule limited to destinations loses replies
cilium #34779 #38249            IPv6 a year after IPv4
cilium #41598                   a link-local gateway without its device
cilium #11041 #19162 #39839     DEL builds other rules than ADD, and a used address leaves by the wrong uplink
cilium #8313                    DEL fails without the namespace
plugins #478 #581 #623          tables that clash, lost routes, trouble when repeated
cni #1121 #1137                 an IPAM plugin that names interfaces
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac, host_mac, host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.routing import (
    DEVICES,
    LANS,
    NICS,
    Bench,
    address,
    by_hint,
    configuration,
    hinting,
    ipam,
)
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab

both_families = pytest.mark.parametrize("family", ["-4", "-6"])


@pytest.fixture(scope="module")
def made(lab: Lab, datapath: str) -> Bench:
    """The node and its LANs."""
    return Bench(lab, datapath)


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(made: Bench, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """With the agent at work, and without one."""
    with cni.serving(made.node, request.param):
        yield made


@pytest.fixture
def bench(served: Bench) -> Iterator[Bench]:
    """With pods p1 and p2. Each test leaves the node as it was."""
    served.lay_eth2()
    with cni.tidy(served.node, "p1", "p2"):
        before = served.state()
        yield served
        for pod in ("p1", "p2"):
            served.node.run("ip", "netns", "delete", pod, check=False)
        served.lay_eth2()
        after = served.state()
        for container in ("c1", "c2", "c3"):
            served.call("DEL", configuration("a"), container, "")
    assert {key: after[key] for key in after if "routes" not in key} == {
        key: before[key] for key in before if "routes" not in key
    }
    assert all("unreachable" not in line for family in ("-4", "-6") for line in after[f"routes {family}"])


# The way out and in


@pytest.mark.parametrize("lan", LANS)
def test_a_pod_leaves_by_its_uplink_and_is_found_by_it(bench: Bench, lan: str) -> None:
    """Of two NICs, and of one that is a port of a bridge; replies too, whatever the main table says (cilium #18179)."""
    before = bench.state()
    conf = configuration(lan)
    result = bench.add(conf)
    host = host_name("c1", "eth0")
    assert result["interfaces"] == [
        {"name": host, "mac": host_mac("c1", "eth0"), "mtu": 1500},
        {"name": "eth0", "mac": derived_mac("c1", "eth0"), "mtu": 1500, "sandbox": "/run/netns/p1"},
    ]
    assert result["ips"] == [
        {"address": f"{address(lan, 100, 4)}/32", "gateway": address(lan, 1, 4), "interface": 1},
        {"address": f"{address(lan, 100, 6)}/128", "gateway": address(lan, 1, 6), "interface": 1},
    ]
    assert result["routes"] == [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    assert bench.is_heard(lan)
    assert bench.leaves_by() == {lan: (1, 1)}
    assert bench.answers()
    assert bench.node.run("ping", "-c", "1", "-W", "1", address(lan, 100, 4)).returncode == 0
    assert bench.node.run("ping", "-c", "1", "-W", "1", address(lan, 100, 6)).returncode == 0
    checked = bench.call("CHECK", {**conf, "prevResult": result})
    assert checked.code == 0, checked
    bench.delete({**conf, "prevResult": result})
    assert bench.state() == before
    bench.delete(conf)


def test_what_the_node_has_for_an_address(bench: Bench) -> None:
    bench.add(configuration("b"))
    host = host_name("c1", "eth0")
    assert bench.table("eth2") == [
        "default via 10.2.0.1 dev eth2 proto kernel",
        "unreachable default proto kernel metric 4294967295",
        "10.2.0.1 dev eth2 proto kernel scope link",
    ]
    assert [line.split(" pref")[0] for line in bench.table("eth2", "-6")] == [
        "fd00:2::1 dev eth2 proto kernel metric 1024",
        "default via fd00:2::1 dev eth2 proto kernel metric 1024",
        "unreachable default dev lo proto kernel metric 4294967295",
    ]
    index = json.loads(bench.node.run("ip", "-j", "link", "show", "eth2").stdout)[0]["ifindex"]
    for family, own in (("-4", "10.2.0.100"), ("-6", "fd00:2::100")):
        mine = [line.replace("\t", " ") for line in bench.rules(family) if own in line]
        assert mine == [
            f"2010: from all to {own} lookup main", f"2110: from {own} lookup {20000 + index}"
        ]  # fmt: skip
        assert f"{own} dev {host} proto kernel" in bench.node.run("ip", family, "route").stdout
        assert f"{own} dev eth2 proxy" in bench.node.run("ip", family, "neigh", "show", "proxy").stdout
    settings = bench.node.sh(f"cd /proc/sys/net; cat ipv6/conf/{host}/accept_ra ipv4/conf/{host}/proxy_arp").stdout
    assert settings.split() == ["0", "0"]
    assert "inet" not in bench.node.run("ip", "addr", "show", host).stdout
    bench.delete(configuration("b"))


def test_pods_of_one_node_meet_on_it(bench: Bench) -> None:
    bench.add(configuration("a"), "c1", "p1")
    bench.add(configuration("b"), "c2", "p2")
    for pod, lan in (("p1", "b"), ("p2", "a")):
        for family in (4, 6):
            done = Pod(bench.node, pod).run("ping", "-c", "1", "-W", "1", address(lan, 100, family))
            assert f"ttl={64 - 1}" in done.stdout, "one router is between them, and it is the node"
    bench.delete(configuration("a"), "c1", "p1")
    assert bench.leaves_by("p2") == {"b": (1, 1)}
    bench.delete(configuration("b"), "c2", "p2")


def test_addresses_that_no_lan_knows_are_routed_and_not_answered_for(bench: Bench) -> None:
    plugin = {
        "type": "static",
        "addresses": [
            {"address": "10.50.0.7/24", "gateway": "10.2.0.1"}, {"address": "fd00:50::7/64", "gateway": "fd00:2::1"},
        ],
    }  # fmt: skip
    lan = bench.lans["b"]
    for family, prefix, host in (("-4", "10.50.0.0/24", 4), ("-6", "fd00:50::/64", 6)):
        lan.run("ip", family, "route", "replace", prefix, "via", address("b", 11, host))
    bench.add(configuration("b", ipam=plugin))
    assert "10.50" not in bench.node.run("ip", "neigh", "show", "proxy").stdout
    assert bench.leaves_by() == {"b": (1, 1)} and bench.answers()
    bench.delete(configuration("b", ipam=plugin))


def test_both_families_from_the_start(bench: Bench) -> None:
    for families, seen in (((4,), (1, 0)), ((6,), (0, 1))):
        conf = configuration("b", ipam=ipam("b", families=families))
        result = bench.add(conf)
        assert bench.leaves_by(families=families) == {"b": seen} and bench.answers(families=families)
        assert bench.call("CHECK", {**conf, "prevResult": result}).code == 0
        other = "-6" if families == (4,) else "-4"
        assert not any(line.startswith(("2010:", "2110:")) for line in bench.rules(other))
        bench.delete(conf)


def test_a_link_local_gateway_has_its_device(bench: Bench) -> None:
    lan = bench.lans["b"]
    own = json.loads(lan.run("ip", "-6", "-j", "addr", "show", "dev", "br0").stdout)[0]["addr_info"]
    gateway = next(item["local"] for item in own if item.get("scope") == "link")
    plugin = {"type": "static", "addresses": [{"address": "fd00:2::100/64", "gateway": gateway}]}
    conf = configuration("b", ipam=plugin)
    result = bench.add(conf)
    assert [line.split(" pref")[0] for line in bench.table("eth2", "-6")] == [
        f"default via {gateway} dev eth2 proto kernel metric 1024",
        "unreachable default dev lo proto kernel metric 4294967295",
    ]
    assert bench.leaves_by(families=(6,)) == {"b": (0, 1)} and bench.answers(families=(6,))
    assert bench.call("CHECK", {**conf, "prevResult": result}).code == 0
    bench.delete(conf)


def test_without_a_gateway_only_if_all_are_neighbours(bench: Bench) -> None:
    plugin = {"type": "static", "addresses": [{"address": "10.2.0.100/24"}, {"address": "fd00:2::100/64"}]}
    code, words = bench.fails(configuration("b", ipam=plugin))
    assert code == 7 and "no gateway for 10.2.0.100" in words and "onLink" in words
    conf = configuration("b", ipam=plugin, onLink=True)
    bench.add(conf)
    assert "default dev eth2 proto kernel scope link" in bench.table("eth2")
    for family in (4, 6):
        assert Pod(bench.node, "p1").run("ping", "-c", "3", "-W", "2", address("b", 1, family)).returncode == 0
    bench.delete(conf)


# Routes of the pod


def test_routes_that_the_ipam_plugin_gives_are_the_pods(bench: Bench) -> None:
    routes = [{"dst": "198.51.100.0/24"}, {"dst": "203.0.113.0/24", "gw": "10.2.0.1"}]
    conf = configuration("b", ipam=ipam("b", routes=routes))
    result = bench.add(conf)
    printed = Pod(bench.node, "p1").run("ip", "route").stdout
    assert "default" not in printed and "198.51.100.0/24 via 169.254.1.1 dev eth0" in printed
    assert "203.0.113.0/24 via 169.254.1.1" in printed
    assert "default via fe80::1 dev eth0" in Pod(bench.node, "p1").run("ip", "-6", "route").stdout
    assert result["routes"] == [*routes, {"dst": "::/0"}]
    assert bench.leaves_by() == {"b": (1, 1)}
    assert bench.call("CHECK", {**conf, "prevResult": result}).code == 0
    bench.delete(conf)
    code, words = bench.fails(configuration("b", ipam=ipam("b", routes=[{"dst": "192.0.2.0/24", "gw": "10.2.0.9"}])))
    assert code == 7 and "192.0.2.0/24 has the gateway 10.2.0.9" in words


def test_a_default_route_of_the_pod_is_not_replaced(bench: Bench) -> None:
    bench.add(configuration("a"), "c1")
    code, words = bench.fails({**configuration("b")}, "c1", CNI_IFNAME="net1")
    assert code == 7 and "a default route already" in words and "routes in ipam" in words
    routed = configuration("b", ipam=ipam("b", routes=[{"dst": "203.0.113.0/24"}, {"dst": "2001:db8:98::/64"}]))
    answer = bench.call("ADD", routed, env={"CNI_IFNAME": "net1"})
    assert answer.code == 0, answer
    assert bench.leaves_by() == {"a": (1, 1)}
    done = Pod(bench.node, "p1").run("ping", "-c", "1", "-W", "1", "-I", "net1", address("b", 1, 4), check=False)
    assert done.returncode == 1, "it has no route to there by that interface"
    bench.delete(routed, CNI_IFNAME="net1")
    bench.delete(configuration("a"))


# The uplink that the IPAM plugin names


@pytest.mark.parametrize("lan", LANS)
@pytest.mark.parametrize("how", ["name", "mac", "both", "renamed"])
def test_the_hint_by_name_or_mac(bench: Bench, lan: str, how: str) -> None:
    nic, mac = NICS[lan], bench.node.ports[NICS[lan]].mac
    hint = {"name": {"name": nic}, "mac": {"name": "", "mac": mac}, "both": {"name": nic, "mac": mac},
            "renamed": {"name": "enp9s0", "mac": mac.upper()}}[how]  # fmt: skip
    conf = by_hint(hinting(ipam(lan), hint))
    result = bench.add(conf)
    assert [item["name"] for item in result["interfaces"]] == [host_name("c1", "eth0"), "eth0"]
    assert [item["interface"] for item in result["ips"]] == [1, 1]
    assert bench.table(DEVICES[lan])[0] == f"default via {address(lan, 1, 4)} dev {DEVICES[lan]} proto kernel"
    assert bench.leaves_by() == {lan: (1, 1)}
    assert bench.call("CHECK", {**conf, "prevResult": result}).code == 0
    bench.delete(conf)


def test_each_address_by_the_interface_that_it_names(bench: Bench) -> None:
    plugin = ipam("a")
    plugin["addresses"][1] = ipam("b")["addresses"][1]
    pod = {"name": "eth0", "sandbox": "/run/netns/p1"}
    conf = by_hint(hinting(plugin, pod, {"name": "eth1"}, {"name": "eth2"}, indices=(0, 2)))
    bench.add(conf)
    assert bench.leaves_by() == {"a": (1, 0), "b": (0, 1)}, "an index that names the pod's own: the first of the host"
    bench.delete(conf)


def test_hints_that_cannot_be_followed(bench: Bench) -> None:
    bench.node.run("ip", "link", "add", "link", "eth1", "name", "mv0", "type", "macvlan", check=False)
    for plugin, code, words in (
        (ipam("a"), 7, "named no interface of the host"),
        (hinting(ipam("a"), {"name": "eth0", "sandbox": "/run/netns/p1"}), 7, "named no interface of the host"),
        (hinting(ipam("a"), {"name": "eth1"}, indices=(3,)), 7, "interface 3, of 1"),
        (hinting(ipam("a"), {"name": "eth7"}), 11, "no link eth7"),
        (hinting(ipam("a"), {"name": "", "mac": "02:00:5e:00:00:99"}), 11, "no link 02:00:5e:00:00:99"),
        (hinting(ipam("a"), {"name": ""}), 7, "neither name nor MAC"),
        (hinting(ipam("a"), {"name": "../../etc"}), 7, "cannot be an interface name"),
        (hinting(ipam("a"), {"name": "lo"}), 7, "no packets are routed by lo"),
    ):
        found, said = bench.fails(by_hint(plugin))
        assert found == code and words in said, said
    code, said = bench.fails(configuration("a", uplinkFromIPAM=True, ipam=hinting(ipam("a"), {"name": "eth2"})))
    assert code == 7 and "eth1 is given" in said and "names eth2" in said


def test_two_links_of_one_mac(bench: Bench) -> None:
    mac = bench.node.ports["eth1"].mac
    bench.node.sh(f"ip link add twin type veth peer name twin2; ip link set twin address {mac} up")
    try:
        code, said = bench.fails(by_hint(hinting(ipam("a"), {"name": "", "mac": mac})))
        assert code == 7 and "several links" in said and "eth1, twin" in said
        bench.add(by_hint(hinting(ipam("a"), {"name": "eth1", "mac": mac})))
        bench.delete(by_hint(hinting(ipam("a"), {"name": "eth1", "mac": mac})))
    finally:
        bench.node.run("ip", "link", "delete", "twin")


def test_interfaces_of_an_ipam_plugin_change_nothing_unasked(bench: Bench) -> None:
    conf = configuration("b", ipam=hinting(ipam("b"), {"name": "eth1"}, indices=(0, 0)))
    result = bench.add(conf)
    assert bench.leaves_by() == {"b": (1, 1)} and [item["interface"] for item in result["ips"]] == [1, 1]
    bench.delete(conf)


# What fails closed


def test_an_uplink_that_is_down_is_no_reason_to_leave_by_another(bench: Bench) -> None:
    conf = configuration("b")
    result = bench.add(conf)
    bench.node.run("ip", "link", "set", "eth2", "down")
    assert bench.leaves_by() == {}
    checked = bench.call("CHECK", {**conf, "prevResult": result})
    assert checked.document["code"] == 7 and "uplink eth2" in checked.document["msg"]
    bench.lay_eth2()
    repaired(bench, conf)
    assert bench.call("CHECK", {**conf, "prevResult": result}).code == 0
    bench.wait_for_addresses()
    assert bench.leaves_by() == {"b": (1, 1)} and bench.answers()
    bench.delete(conf)


def test_an_uplink_that_is_made_anew(bench: Bench) -> None:
    before = bench.state()
    conf = configuration("b")
    result = bench.add(conf)
    bench.make_eth2_anew()
    assert bench.leaves_by() == {}, "closed while it is new and nobody has given it anything"
    bench.lay_eth2()
    repaired(bench, conf)
    bench.wait_for_addresses()
    assert bench.leaves_by() == {"b": (1, 1)} and bench.is_heard("b")
    checked = bench.call("CHECK", {**conf, "prevResult": result})
    assert checked.code == 0, checked
    bench.delete(conf)
    after = bench.state()
    assert {key: after[key] for key in after if "routes" not in key} == {
        key: before[key] for key in before if "routes" not in key
    }
    assert not bench.table_lines("unreachable default"), "the old table, too"


def test_a_nic_that_is_put_on_a_bridge_later_and_taken_off_again(bench: Bench) -> None:
    conf, node = configuration("b"), bench.node
    result = bench.add(conf)
    node.ovs.vsctl("add-br", "br-late", "--", "set", "bridge", "br-late", f"datapath_type={node.datapath}")
    try:
        node.ovs.vsctl("add-port", "br-late", "eth2")
        bench.lay_eth2("br-late")
        repaired(bench, conf, "br-late")
        bench.wait_for_addresses()
        assert bench.leaves_by() == {"b": (1, 1)} and bench.answers() and bench.is_heard("b")
        assert bench.table("eth2") == []
        checked = bench.call("CHECK", {**conf, "prevResult": result})
        assert checked.code == 0, checked
    finally:
        node.ovs.vsctl("del-br", "br-late")
        bench.lay_eth2()
    repaired(bench, conf)
    assert bench.leaves_by() == {"b": (1, 1)} and bench.answers() and bench.is_heard("b")
    bench.delete(conf)
    assert not bench.table_lines("unreachable default")


def repaired(bench: Bench, conf: cni.Json, device: str = "eth2") -> None:
    """The agent sees it itself; without one it is GC that does it."""
    if bench.node.run("test", "-S", cni.SOCKET, check=False).returncode:
        bench.collect(conf, ("c1", "eth0"))
    until(lambda: f"default via 10.2.0.1 dev {device} proto kernel" in bench.table(device), 10, "the repair")
    until(lambda: any("default via fd00:2::1" in line for line in bench.table(device, "-6")), 5, "the repair")


def test_an_uplink_that_is_gone_refuses_new_pods(bench: Bench) -> None:
    bench.node.run("ip", "link", "set", "eth2", "down")
    code, said = bench.fails(configuration("b"))
    assert code == 11 and "eth2 is down" in said
    code, said = bench.fails(configuration("b", uplink="eth9"))
    assert code == 11 and "uplink: there is no link eth9" in said


@pytest.mark.parametrize("family", [4, 6])
def test_a_node_that_does_not_forward_says_what_to_set(bench: Bench, family: int) -> None:
    setting = "net.ipv4.ip_forward" if family == 4 else "net.ipv6.conf.all.forwarding"
    bench.node.run("sysctl", "-qw", f"{setting}=0")
    try:
        code, said = bench.fails(configuration("b"))
        assert code == 50 and f"sysctl -w {setting}=1" in said
    finally:
        bench.node.run("sysctl", "-qw", f"{setting}=1")


def test_a_layer_3_attachment_is_closed_unless_the_node_opens_it(bench: Bench) -> None:
    closed = {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=green"}
    code, said = bench.fails(configuration("b"), **closed)
    assert code == 7 and "no packets are routed by eth2 for pods of namespace green" in said
    assert "interface: eth2, routed: true" in said
    code, said = bench.fails(by_hint(hinting(ipam("b"), {"name": "eth2"})), **closed)
    assert code == 7 and "routed by eth2" in said
    answer = bench.call("ADD", configuration("b"), env={"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=blue"})
    assert answer.code == 0, answer
    bench.delete(configuration("b"))


def test_bad_configurations_leave_nothing(bench: Bench) -> None:
    for keys, code, words in (
        ({"uplink": None}, 7, "uplink: none is given"),
        ({"uplink": 7}, 7, "uplink"),
        ({"ipam": None}, 7, "ipam: a layer-3 attachment needs addresses"),
        ({"uplnk": "eth1"}, 2, "did you mean uplink?"),
        ({"vlan": 100}, 2, "vlan: unknown key"),
        ({"mtu": 12}, 7, "mtu"),
        ({"mtu": 9000}, 7, "mtu: 9000 bytes are more than the 1500 of the uplink"),
        ({"mtu": 1200}, 7, "mtu: 1200 is too little for IPv6"),
        ({"onLink": "yes"}, 7, "onLink"),
        ({"uplinkFromIPAM": 1}, 7, "uplinkFromIPAM"),
        ({"ipam": {"type": "static", "addresses": [{"address": "169.254.7.7/16", "gateway": "169.254.7.1"}]}}, 7,
         "cannot be routed"),
        ({"ipam": {"type": "static", "addresses": [{"address": "10.2.0.1/24", "gateway": "10.2.0.1"}]}}, 7,
         "the gateway 10.2.0.1"),
        ({"runtimeConfig": {"bandwidth": {"ingressRate": 1}}}, 7, "runtimeConfig.bandwidth"),
        ({"mac": "01:00:00:00:00:01"}, 7, "multicast"),
    ):  # fmt: skip
        found, said = bench.fails(configuration("b", **keys))
        assert found == code and words in said, said


@pytest.mark.parametrize("given", ["10.1.0.11/24", "10.2.0.11/24", "10.2.0.255/24", "fd00:2::11/64", "fd00:3::11/64"])
def test_a_pod_does_not_get_an_address_of_the_node(bench: Bench, given: str) -> None:
    """What the node itself sends from there would leave by the pod's uplink: the node would be cut off."""
    gateway = "fd00:2::1" if ":" in given else "10.2.0.1"
    conf = configuration("b", ipam={"type": "static", "addresses": [{"address": given, "gateway": gateway}]})
    code, said = bench.fails(conf)
    assert code == 7 and f"{given.partition('/')[0]} is an address of the node itself" in said
    bench.delete(conf)


def test_an_interface_that_is_there_is_refused_before_anything(bench: Bench) -> None:
    bench.add(configuration("b"))
    code, said = bench.fails(configuration("b", 101))
    assert code == 7 and "has an interface eth0 already" in said
    assert bench.leaves_by() == {"b": (1, 1)}
    bench.delete(configuration("b"))


def test_mac_addresses_and_mtu_that_are_asked_for(bench: Bench) -> None:
    wanted = {"mac": "02:00:5e:10:00:07"}
    conf = configuration("b", mtu=1400, runtimeConfig=wanted)
    result = bench.add(conf)
    assert result["interfaces"][1]["mac"] == wanted["mac"] and result["interfaces"][1]["mtu"] == 1400
    assert bench.leaves_by() == {"b": (1, 1)} and bench.answers()
    bench.delete(conf)


def test_the_gateway_of_an_uplink_is_one(bench: Bench) -> None:
    bench.add(configuration("b"), "c1", "p1")
    other = ipam("b", 101)
    other["addresses"][0]["gateway"] = "10.2.0.2"
    code, said = bench.fails(configuration("b", ipam=other), "c2", "p2")
    assert code == 7 and "10.2.0.2 is given" in said and "10.2.0.1" in said
    bench.delete(configuration("b"), "c1", "p1")
    bench.add(configuration("b", ipam=other), "c2", "p2")
    assert "default via 10.2.0.2 dev eth2 proto kernel" in bench.table("eth2")
    bench.delete(configuration("b", ipam=other), "c2", "p2")


def test_somebody_elses_route_is_not_taken(bench: Bench) -> None:
    bench.node.run("ip", "route", "add", "10.2.0.100/32", "dev", "eth1")
    try:
        _code, said = bench.fails(configuration("b"))
        assert "10.2.0.100/32" in said and "File exists" in said
    finally:
        bench.node.run("ip", "route", "delete", "10.2.0.100/32", "dev", "eth1")


# DEL, GC, CHECK


def test_del_and_add_build_the_same_rules(bench: Bench) -> None:
    """Whatever the configuration says by the time of DEL."""
    before = bench.state()
    for _turn in range(2):
        bench.add(configuration("b"))
        bench.delete({"cniVersion": "1.0.0", "name": "routed-b", "type": "podnet-routed", "uplink": "eth1"})
        assert bench.state() == before


@pytest.mark.parametrize("lan", ["b", "c"])
def test_del_without_the_namespace(bench: Bench, lan: str) -> None:
    before = bench.state()
    conf = configuration(lan)
    bench.add(conf)
    bench.node.run("ip", "netns", "delete", "p1")
    until(lambda: cni.links(bench.node) == [], 5, "the end of the link")
    assert any("2110" in line for line in bench.rules())
    for _turn in range(2):
        bench.delete(conf, "c1", "")
        assert bench.state() == before


def test_del_without_record_uplink_or_database(bench: Bench) -> None:
    before = bench.state()
    bench.add(configuration("b"))
    bench.node.run("rm", "-r", "/run/podnet/routed")
    bench.delete(configuration("b"))
    assert bench.state() == before, "the link's routes say which addresses it had"
    bench.add(configuration("b"))
    bench.node.run("ip", "link", "delete", "eth2")
    bench.node.ovs.stop()
    try:
        bench.delete(configuration("b"))
        assert not any("2010" in line or "2110" in line for line in (*bench.rules(), *bench.rules("-6")))
        assert not bench.table_lines("unreachable default")
    finally:
        bench.node.ovs.start()
        lan = bench.lans["b"]
        lan.run(
            "ip", "-batch", "-", input="\n".join(lan.link_commands(bench.node.ports["eth2"], bench.node.netns_name))
        )


def test_del_brings_no_configuration(bench: Bench) -> None:
    before = bench.state()
    bench.add(configuration("b"))
    env = {**cni.environment("DEL", "c1", "p1")}
    done = bench.node.run("/opt/cni/bin/podnet-routed", input="{", env=env, check=False)
    assert json.loads(done.stdout)["code"] == 6, "its lease may still be there"
    assert bench.state() == before
    assert bench.node.run("/opt/cni/bin/podnet-routed", input="{", env=env, check=False).returncode == 0


def test_a_reused_address_does_not_leave_by_the_old_uplink(bench: Bench) -> None:
    """The first pod's DEL never came, and comes late."""
    before = bench.state()
    first = bench.add(configuration("b"), "c1", "p1")
    again = configuration("a", ipam=ipam("b") | {"addresses": [
        {"address": item["address"], "gateway": address("a", 1, family)}
        for item, family in zip(ipam("b")["addresses"], (4, 6))
    ]})  # fmt: skip
    result = bench.add(again, "c2", "p2")
    assert bench.leaves_by("p2") == {"a": (1, 1)}
    assert bench.table("eth2") == []
    late = bench.call("CHECK", {**configuration("b"), "prevResult": first}, "c1", "p1")
    assert late.document["code"] == 7 and "another attachment may have it by now" in late.document["msg"]
    bench.collect(again, ("c1", "eth0"), ("c2", "eth0"))
    assert bench.leaves_by("p2") == {"a": (1, 1)}, "a repair does not give it back"
    bench.delete(configuration("b"), "c1", "p1")
    assert bench.leaves_by("p2") == {"a": (1, 1)}, "the new pod's rules are not the old one's"
    checked = bench.call("CHECK", {**again, "prevResult": result}, "c2", "p2")
    assert checked.code == 0, checked
    bench.delete(again, "c2", "p2")
    assert bench.state() == before


def test_many_at_once_on_one_uplink(bench: Bench) -> None:
    """Each comes and goes while another one stays: none takes the table away that others use."""
    before = bench.state()
    bench.add(configuration("b", 99), "c-stays", "p1")
    bench.node.sh("for i in $(seq 8); do ip netns add q$i; done")
    try:

        def turn(number: int) -> None:
            conf = configuration("b", 110 + number)
            for _turn in range(3):
                bench.add(conf, f"c-q{number}", f"q{number}")
                bench.delete(conf, f"c-q{number}", f"q{number}")

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(turn, range(1, 9)))
        assert bench.leaves_by("p1") == {"b": (1, 1)} and bench.answers("p1")
        bench.delete(configuration("b", 99), "c-stays", "p1")
        assert bench.state() == before
    finally:
        bench.node.sh("for i in $(seq 8); do ip netns delete q$i; done")


def test_gc_takes_what_is_not_listed_and_rules_that_nobody_has(bench: Bench) -> None:
    before = bench.state()
    bench.add(configuration("b"), "c1", "p1")
    bench.add(configuration("b", 101), "c2", "p2")
    few = [{"dst": "203.0.113.0/24"}, {"dst": "2001:db8:98::/64"}]
    another = configuration("a", name="another", ipam=ipam("a", routes=few))
    assert bench.call("ADD", another, "c3", "p1", {"CNI_IFNAME": "net1"}).code == 0
    foreign = [
        "pref 2110 from 10.77.0.0/24 lookup 20099 proto kernel", "pref 2110 from 10.77.0.7 lookup 99 proto kernel",
        "pref 2110 from 10.77.0.8 lookup 20099 proto static", "pref 2111 from 10.77.0.9 lookup 20099 proto kernel",
        "pref 2110 from 10.77.0.10 iif lo lookup 20099 proto kernel",
    ]  # fmt: skip
    for rule in foreign:
        bench.node.run("ip", "rule", "add", *rule.split())
    lost = ["pref 2110 from 10.2.0.200 lookup 20099 proto kernel", "pref 2010 to 10.2.0.200 lookup main proto kernel"]
    for rule in lost:
        bench.node.run("ip", "rule", "add", *rule.split())
    bench.node.run("ip", "route", "add", "unreachable", "default", "table", "20099", "proto", "kernel")
    bench.collect(configuration("b"), ("c1", "eth0"))
    rules = "\n".join(bench.rules())
    assert "10.2.0.100" in rules and "10.2.0.101" not in rules and "10.2.0.200" not in rules
    assert rules.count("10.77.0") == len(foreign), "what is not ours stays"
    assert "10.1.0.100" in rules, "of another network"
    bench.delete(another, "c3", "p1", CNI_IFNAME="net1")
    assert bench.leaves_by("p1") == {"b": (1, 1)}
    for rule in foreign:
        bench.node.run("ip", "rule", "delete", *rule.split())
    bench.collect(configuration("b"))
    bench.node.run("ip", "route", "flush", "table", "20099", check=False)
    assert bench.state() == before


def test_gc_does_not_touch_a_live_pod_whose_record_is_lost(bench: Bench) -> None:
    bench.add(configuration("b"))
    bench.node.run("rm", "-r", "/run/podnet/routed")
    bench.collect(configuration("b"), ("c1", "eth0"))
    assert bench.leaves_by() == {"b": (1, 1)}
    bench.delete(configuration("b"))


DAMAGES = [
    ("ip route delete 10.2.0.100", "10.2.0.100/32"),
    ("ip -6 route delete fd00:2::100", "fd00:2::100/128"),
    ("ip rule delete pref 2010", "rule to 10.2.0.100"),
    ("ip -6 rule delete pref 2110", "rule from fd00:2::100"),
    ("ip rule add pref 2110 from 10.2.0.100 lookup 20999 proto kernel", "table 20999 is there, and should not be"),
    ("ip route delete default dev eth2 table $T", "0.0.0.0/0 via 10.2.0.1"),
    ("ip route replace default via 10.2.0.2 dev eth2 table $T proto kernel onlink", "0.0.0.0/0 via 10.2.0.1"),
    ("ip -6 route delete unreachable default table $T metric 4294967295", "unreachable ::/0"),
    ("ip neigh delete proxy 10.2.0.100 dev eth2", "proxy entry of 10.2.0.100"),
    ("ip link set $H down", "is down"),
    ("sysctl -qw net.ipv4.conf.eth2.forwarding=0", "net.ipv4.conf.eth2.forwarding is not 1"),
    ("rm -r /run/podnet/routed", "no record"),
    ("ip -n p1 addr delete 10.2.0.100/32 dev eth0", "has not the address 10.2.0.100/32"),
    ("ip -n p1 -6 route delete default", "the route to ::/0"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES, ids=[damage[:40] for damage, _words in DAMAGES])
def test_check_names_what_is_damaged(made: Bench, damage: str, words: str) -> None:
    with cni.tidy(made.node, "p1"):
        made.lay_eth2()
        conf = configuration("b")
        result = made.add(conf)
        index = json.loads(made.node.run("ip", "-j", "link", "show", "eth2").stdout)[0]["ifindex"]
        try:
            for _try in range(8):  # an agent that is there may have repaired it before the call
                made.node.sh(f"T={20000 + index} H={host_name('c1', 'eth0')}; {damage} || true")
                answer = made.call("CHECK", {**conf, "prevResult": result})
                if answer.code:
                    break
            assert answer.code == 1 and words in answer.document["msg"], answer
        finally:
            made.node.sh("sysctl -qw net.ipv4.conf.eth2.forwarding=1; ip rule delete pref 2110 lookup 20999 || true")
            made.delete(conf)


def test_status(bench: Bench) -> None:
    conf = configuration("b")
    assert bench.call("STATUS", conf, "", "").code == 0
    answer = bench.call("STATUS", {**conf, "uplink": "eth9"}, "", "")
    assert answer.document["code"] == 50 and "eth9" in answer.document["msg"]


def test_an_add_that_fails_late_takes_all_back(bench: Bench) -> None:
    """At the last thing of all, a route that the kernel does not take."""
    plugin = hinting(ipam("b"), {"name": "eth2"})
    conf = configuration("b", ipam={**plugin, "more": {"routes": [{"dst": "0.0.0.0/0", "scope": 254}]}})
    _code, said = bench.fails(conf)
    assert "eth0 does not take the route to 0.0.0.0/0" in said
    bench.delete(conf)
