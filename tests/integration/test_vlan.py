# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""VLAN interfaces inside pods: `podnet-vlan` in lists with real plugins, tags seen on the wire.

Needs a kernel with 802.1Q: test_vm.py runs it in the virtual machine. What needs none is in test_vlan_errors.py.

plugins #82 #87 #781 #989   a VLAN on an interface of an earlier plugin whose name is not known beforehand
plugins #993                several VLANs of a list share one IPAM key
plugins #903 #901           the result is extended, not replaced
plugins #243; multus #569   the same VLAN on one parent: an unclear error
plugins #953; DEL of vlan   DEL needs master or namespace
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet, static
from ansible_collections.podnet.ovs.tests.integration.traffic import pings
from ansible_collections.podnet.ovs.tests.integration.wire import Tap, await_all, frame, tags_of
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

pytestmark = pytest.mark.skipif(not Path("/proc/net/vlan").exists(), reason="this kernel has no 802.1Q")

BRIDGE = {"type": "bridge", "bridge": "cni0", "ipam": {}}
"""Debian's, which carries frames of any VLAN."""
UNCHECKED = ("bridge",)
"""That one's CHECK wants an IPAM plugin, and all addresses of the result on CNI_IFNAME."""
SETTING = "log_martians"
IPV4, IPV6 = "10.{}.0.{}", "fd00:{}::{}"


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Iterator[Light]:
    """A node with its agent; eth1 is its uplink, eth2 is opened to pods' VLANs 40 to 49."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk")), Nic("eth2", lab.lan("side"))], datapath=datapath)
    document = cni.node_document(datapath)
    document["policy"] = [
        {"bridge": cni.BRIDGE, "vlans": "10-30"}, {"interface": "eth2", "vlans": "40-49", "namespaces": ["default"]},
    ]  # fmt: skip
    cni.prepare(made, document)
    made.sh("ip link set eth2 up")
    with cni.agent(made):
        yield made


@pytest.fixture
def caller(node: Light) -> Iterator[Caller]:
    """A runtime with pods p1 and p2; each test takes away what it makes."""
    node.sh("for pod in p1 p2; do [ -e /run/netns/$pod ] || ip netns add $pod; ip -n $pod link set lo up; done")
    yield Caller(node)
    left = cni.leftovers(node)
    for pod in ("p1", "p2"):
        node.run("ip", "netns", "delete", pod, check=False)
    node.run("ip", "link", "delete", "cni0", check=False)
    node.run("rm", "-rf", cni.LEASES)
    assert left == cni.NOTHING


def vlan(number: int, pod: int = 1, **keys: Any) -> dict[str, Any]:
    """A VLAN in a list, with an address of each family that tells it and the pod."""
    addresses = static(IPV4.format(number, pod) + "/24", IPV6.format(number, pod) + "/64")
    plain = {"type": "podnet-vlan", "vlanId": number, "ipam": addresses, **keys}
    return {key: value for key, value in plain.items() if value is not None}


def tuning(ifname: str) -> dict[str, Any]:
    """Debian's; the setting is that of the interface with this name."""
    return {"type": "tuning", "sysctl": {f"net.ipv4.conf.{ifname}.{SETTING}": "1"}}


def tuned(pod: Pod) -> set[str]:
    """The interfaces that have the setting."""
    return {name for name in links(pod) if pod.run("cat", f"/proc/sys/net/ipv4/conf/{name}/{SETTING}").stdout == "1\n"}


def links(pod: Pod) -> dict[str, dict[str, Any]]:
    """The pod's links by name, less the loopback."""
    found = json.loads(pod.run("ip", "-j", "-d", "addr").stdout)
    return {item["ifname"]: item for item in found if item.get("ifname", "lo") != "lo"}


def state(pod: Pod) -> list[Any]:
    """The pod's links with their addresses, less the link-local ones, which come by themselves."""
    return [
        (name, item["address"], item["mtu"], item["flags"], item.get("ifalias"),
         [entry["local"] for entry in item["addr_info"] if entry["scope"] == "global"])
        for name, item in links(pod).items()
    ]  # fmt: skip


def stands_on(pod: Pod) -> dict[str, str]:
    """The VLAN links with their parents and tags, `eth0 802.1Q 3`."""
    found = {}
    for name, item in links(pod).items():
        info = item.get("linkinfo", {})
        if info.get("info_kind") == "vlan":
            data = info["info_data"]
            found[name] = f"{item.get('link', '-')} {data['protocol']} {data['id']}"
    return found


def by_interface(result: Mapping[str, Any]) -> dict[str, list[str]]:
    """The addresses of a result under their interfaces' names."""
    found: dict[str, list[str]] = {item["name"]: [] for item in result["interfaces"] if item.get("sandbox")}
    for item in result.get("ips", []):
        found[result["interfaces"][item["interface"]]["name"]].append(item["address"])
    return found


def tags_from(pod: Pod, ifname: str, node: Light, port: str) -> str:
    """The tags with which a frame that the pod sends on an interface comes out at the node's end of its link."""
    with Tap(pod.enter(), ifname) as inner, Tap(node.enter(), port) as outer:
        inner.send([frame(7, "02:00:00:00:00:77")])
        await_all([(outer, [7])])
        (data,) = outer.heard()[7]
    return tags_of(data)


def two_pods(
    caller: Caller, name: str, *plugins: Callable[[int], dict[str, Any]]
) -> dict[str, tuple[dict[str, Any], At, dict[str, Any]]]:
    """A list for each of two pods, and its ADD; `plugins` make one from the pod's number."""
    made = {}
    for number, pod in enumerate(("p1", "p2"), 1):
        network = conflist(*[make(number) for make in plugins], name=f"{name}-{pod}", version="1.0.0")
        at = At(f"c-{pod}", pod)
        made[pod] = (network, at, caller.add(network, at))
    return made


def test_vlans_of_a_list_stand_side_by_side(node: Light, caller: Caller) -> None:
    """Debian's bridge, VLAN 3, VLAN 4, and Debian's tuning, which acts on CNI_IFNAME."""
    made = two_pods(
        caller, "side", lambda n: BRIDGE, lambda n: vlan(3, n), lambda n: vlan(4, n), lambda n: tuning("eth0")
    )
    pod = Pod(node, "p1")
    network, at, result = made["p1"]
    assert stands_on(pod) == {"eth0.3": "eth0 802.1Q 3", "eth0.4": "eth0 802.1Q 4"}
    assert [item["name"] for item in result["interfaces"]] == [
        "cni0", result["interfaces"][1]["name"], "eth0", "eth0.3", "eth0.4",
    ]  # fmt: skip
    assert by_interface(result) == {
        "eth0": [], "eth0.3": ["10.3.0.1/24", "fd00:3::1/64"], "eth0.4": ["10.4.0.1/24", "fd00:4::1/64"],
    }  # fmt: skip
    assert tuned(pod) == {"eth0"}
    port = result["interfaces"][1]["name"]
    assert {name: tags_from(pod, name, node, port) for name in ("eth0", "eth0.3", "eth0.4")} == {
        "eth0": "", "eth0.3": "3", "eth0.4": "4",
    }  # fmt: skip
    for number in (3, 4):
        for form in (IPV4, IPV6):
            assert pings(pod, form.format(number, 2))
    for network, at, _result in made.values():
        assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
    for network, at, _result in made.values():
        caller.delete(network, at)
    assert stands_on(pod) == {} and "eth0" not in links(pod)


def test_addresses_are_announced_with_their_tags(node: Light, caller: Caller) -> None:
    """A pod that had another one's addresses is not spoken to any more: gratuitous ARP and neighbour advertisement."""
    ear = two_pods(caller, "old", lambda n: BRIDGE, lambda n: vlan(3, n))
    one, two = Pod(node, "p1"), Pod(node, "p2")
    assert pings(one, IPV4.format(3, 2)) and pings(one, IPV6.format(3, 2))
    network, at, _result = ear["p2"]
    caller.delete(network, at)
    time.sleep(1.2)  # net.ipv4.neigh.default.locktime
    result = caller.add(network, At("c-new", "p2"))
    new = links(two)["eth0.3"]["address"]
    assert new != ear["p2"][2]["interfaces"][-1]["mac"]

    def known() -> set[str]:
        found = json.loads(one.run("ip", "-j", "neigh", "show", "dev", "eth0.3").stdout or "[]")
        return {item.get("lladdr", "") for item in found if not item["dst"].startswith("fe80")}

    until(lambda: known() == {new}, 10, "the neighbour to learn")
    assert result["interfaces"][-1]["mac"] == new
    caller.delete(network, At("c-new", "p2"))
    caller.delete(*ear["p1"][:2])


def test_nested_vlans_carry_both_tags(node: Light, caller: Caller) -> None:
    """802.1ad outside, and a list in one plugin says the same as two plugins."""
    lists: dict[str, list[dict[str, Any]]] = {
        "two": [BRIDGE, vlan(100, protocol="802.1ad", ipam=None), vlan(7, parent="previous"), tuning("eth0")],
        "one": [
            BRIDGE,
            {"type": "podnet-vlan", "parent": "previous", "vlans": [
                {"id": 100, "protocol": "802.1ad"}, {"id": 7, "ipam": vlan(7)["ipam"]},
            ]},
            tuning("eth0"),
        ],
    }  # fmt: skip
    pod, at = Pod(node, "p1"), At("c1", "p1")
    for name, plugins in lists.items():
        network = conflist(*plugins, name=name)
        result = caller.add(network, at)
        assert stands_on(pod) == {"eth0.100": "eth0 802.1ad 100", "eth0.100.7": "eth0.100 802.1Q 7"}
        assert by_interface(result)["eth0.100.7"] == ["10.7.0.1/24", "fd00:7::1/64"]
        assert tags_from(pod, "eth0.100.7", node, result["interfaces"][1]["name"]) == "s100+7"
        assert tuned(pod) == {"eth0"}
        assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
        caller.delete(network, at)
        assert links(pod) == {}


def test_a_second_list_puts_a_vlan_on_the_interface_of_the_first(node: Light, caller: Caller) -> None:
    first = conflist({"type": "podnet-ovs", "bridge": cni.BRIDGE, "trunk": "10-30"}, name="trunk", version="1.1.0")
    pod, eth0, net1 = Pod(node, "p1"), At("c1", "p1"), At("c1", "p1", "net1")
    before = caller.add(first, eth0)
    was = state(pod)
    adopt = {"type": "podnet-adopt"}
    lists = {
        "named": ("1.0.0", [{**adopt, "interface": "eth0"}, vlan(10), vlan(11), tuning("net1")]),
        "by network": ("1.1.0", [{**adopt, "network": "trunk"}, vlan(10)]),
    }
    for name, (version, plugins) in lists.items():
        second = conflist(*plugins, name="upper", version=version)
        result = caller.add(second, net1)
        beside = {"eth0.11": "eth0 802.1Q 11"} if name == "named" else {}
        assert stands_on(pod) == {"net1": "eth0 802.1Q 10", **beside}
        assert by_interface(result)["net1"] == ["10.10.0.1/24", "fd00:10::1/64"]
        assert by_interface(result)["eth0"] == []
        assert {item.get("mtu") for item in result["interfaces"]} == {1500 if version == "1.1.0" else None}
        assert tuned(pod) == ({"net1"} if name == "named" else set())
        assert tags_from(pod, "net1", node, before["interfaces"][0]["name"]) == "10"
        assert caller.ask("CHECK", second, net1).code == 0 and caller.ask("CHECK", first, eth0).code == 0
        caller.delete(second, net1)
        assert state(pod) == was
    caller.delete(first, eth0)


def test_vlans_on_a_trunk_in_one_list(node: Light, caller: Caller) -> None:
    """Behind podnet-ovs, with addresses on all three, and CHECK of the whole list."""
    base = {"type": "podnet-ovs", "bridge": cni.BRIDGE, "trunk": "10-30", "ipam": static("10.9.0.1/24", "fd00:9::1/64")}
    network = conflist(base, vlan(10), vlan(11, mtu=1400), tuning("eth0"), name="trunk")
    pod, at = Pod(node, "p1"), At("c1", "p1")
    result = caller.add(network, at)
    assert {name: (item["mtu"], item["operstate"]) for name, item in links(pod).items()} == {
        "eth0": (1500, "UP"), "eth0.10": (1500, "UP"), "eth0.11": (1400, "UP"),
    }  # fmt: skip
    assert by_interface(result) == {
        "eth0": ["10.9.0.1/24", "fd00:9::1/64"], "eth0.10": ["10.10.0.1/24", "fd00:10::1/64"],
        "eth0.11": ["10.11.0.1/24", "fd00:11::1/64"],
    }  # fmt: skip
    assert caller.ask("CHECK", network, at).code == 0
    caller.delete(network, at)
    assert links(pod) == {}


def test_a_configuration_of_the_reference_plugin_needs_another_type_alone(node: Light, caller: Caller) -> None:
    conf: dict[str, Any] = {
        "master": "eth0",
        "vlanId": 5,
        "mtu": 1450,
        "linkInContainer": True,
        "ipam": vlan(5)["ipam"],
        "dns": {},
    }
    pod, base = Pod(node, "p1"), conflist(BRIDGE, name="base")
    caller.add(base, At("c1", "p1"))
    seen = []
    for kind in ("vlan", "podnet-vlan"):
        network, at = conflist({"type": kind, **conf}, name="five"), At("c1", "p1", "net1")
        if kind == "vlan" and not debian_knows_link_in_container(node):
            continue
        result = caller.add(network, at)
        assert stands_on(pod) == {"net1": "eth0 802.1Q 5"}
        seen.append(([(item["address"], item["interface"]) for item in result["ips"]], result["interfaces"][0]["name"],
                     links(pod)["net1"]["mtu"]))  # fmt: skip
        assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
        caller.delete(network, at)
    assert all(item == ([("10.5.0.1/24", 0), ("fd00:5::1/64", 0)], "net1", 1450) for item in seen)
    caller.delete(base, At("c1", "p1"))


def debian_knows_link_in_container(node: Light) -> bool:
    """It came with the reference plugins' version 1.3."""
    return node.run("grep", "-q", "linkInContainer", f"{cni.PEERS}/vlan", check=False).returncode == 0


def test_an_interface_of_the_node_only_with_a_rule(node: Light, caller: Caller) -> None:
    pod, at = Pod(node, "p1"), At("c1", "p1")
    for master, number in (("eth1", 40), ("eth2", 50), (cni.BRIDGE, 40)):
        answer = caller.ask("ADD", conflist(vlan(number, master=master), name="host"), at)
        assert answer.document["code"] == 7 and f"VLAN {number}" in answer.document["msg"]
        assert master in answer.document["msg"] and "podnet_policy" in answer.document["details"]
        assert links(pod) == {}
    network = conflist(vlan(40, master="eth2"), tuning("eth0"), name="host")
    result = caller.add(network, at)
    info = links(pod)["eth0"]["linkinfo"]
    assert (info["info_kind"], info["info_data"]["id"]) == ("vlan", 40)
    assert by_interface(result) == {"eth0": ["10.40.0.1/24", "fd00:40::1/64"]} and tuned(pod) == {"eth0"}
    assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
    with Tap(pod.enter(), "eth0") as inner, Tap(*switch_end(node)) as outer:
        inner.send([frame(9, "02:00:00:00:00:77")])
        await_all([(outer, [9])])
        assert [tags_of(data) for data in outer.heard()[9]] == ["40"]
    two = {"type": "podnet-vlan", "master": "eth2", "vlans": [{"id": 41}, {"id": 40}, {"id": 42}]}
    again = caller.ask("ADD", conflist(two, name="host"), At("c2", "p2"))
    assert again.document["code"] == 7 and "eth2 has that VLAN already" in again.document["msg"], again
    assert links(Pod(node, "p2")) == {}, "none of a batch is left if the kernel refuses one"
    caller.delete(network, at)
    assert links(pod) == {}


def switch_end(node: Light) -> tuple[list[str], str]:
    """Where the frames of eth2 arrive."""
    port = node.ports["eth2"]
    return port.nic.lan.enter(), port.switch_port


def test_the_same_vlan_on_one_parent_says_so(node: Light, caller: Caller) -> None:
    at = At("c1", "p1")
    caller.add(conflist(BRIDGE, name="base"), at)
    first = conflist(vlan(3, master="eth0", linkInContainer=True), name="first")
    caller.add(first, At("c1", "p1", "net1"))
    second = conflist(vlan(3, master="eth0", linkInContainer=True), name="second")
    answer = caller.ask("ADD", second, At("c1", "p1", "net2"))
    assert answer.document["code"] == 7 and "eth0 has VLAN 3 already, as net1" in answer.document["msg"]
    assert set(links(Pod(node, "p1"))) == {"eth0", "net1"}
    caller.delete(second, At("c1", "p1", "net2"))
    assert set(links(Pod(node, "p1"))) == {"eth0", "net1"}, "what another list made stays"
    caller.delete(first, At("c1", "p1", "net1"))
    caller.delete(conflist(BRIDGE, name="base"), at)


def test_several_vlans_do_not_share_one_ipam_key(node: Light, caller: Caller) -> None:
    """Each has its own lease, and all go with DEL; more than are asked for at once."""
    entries = [{"id": number, "ipam": cni.ipam()} for number in range(3, 14)]
    network = conflist(BRIDGE, {"type": "podnet-vlan", "vlans": entries}, name="many")
    at = At("c1", "p1")
    result = caller.add(network, at)
    assert sorted(stands_on(Pod(node, "p1"))) == sorted(f"eth0.{number}" for number in range(3, 14))
    assert all(len(addresses) == 2 for name, addresses in by_interface(result).items() if name != "eth0")
    assert len({item["address"] for item in result["ips"]}) == 22 == len(cni.leases(node))
    for address in cni.leases(node):
        assert node.run("sed", "-n", "2p", f"{cni.LEASES}/{address}").stdout.startswith("eth0.")
    assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
    caller.delete(network, at)
    assert cni.leases(node) == {}


def test_the_result_is_extended_not_replaced(node: Light, caller: Caller) -> None:
    """Addresses, routes and dns of the plugin before stay, with their indices."""
    routes = [{"dst": "0.0.0.0/0", "gw": "10.9.0.254"}, {"dst": "198.51.100.0/24"}]
    own = {**static("10.9.0.1/24"), "routes": routes}
    second = {**static("10.3.0.1/24"), "routes": [{"dst": "203.0.113.0/24"}, {"dst": "192.0.2.0/24", "gw": "10.3.0.9"}]}
    for version in ("0.3.1", "0.4.0", "1.0.0"):
        network = conflist(
            {**BRIDGE, "ipam": own, "dns": {"nameservers": ["10.9.0.53"]}},
            vlan(3, ipam=second),
            name="kept",
            version=version,
        )
        at = At("c1", "p1")
        result = caller.add(network, at)
        assert by_interface(result) == {"eth0": ["10.9.0.1/24"], "eth0.3": ["10.3.0.1/24"]}
        assert [item["dst"] for item in result["routes"]] == [
            "0.0.0.0/0", "198.51.100.0/24", "203.0.113.0/24", "192.0.2.0/24",
        ]  # fmt: skip
        assert result["dns"] == {"nameservers": ["10.9.0.53"]} and result["cniVersion"] == version
        got = Pod(node, "p1").run("ip", "route", "show", "dev", "eth0.3").stdout
        assert "203.0.113.0/24 proto static scope link" in got and "192.0.2.0/24 via 10.3.0.9" in got
        if version != "0.3.1":
            assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
        caller.delete(network, at)


def broken(pod: Pod, what: str) -> None:
    """Damages the VLAN link eth0.3 of a pod."""
    words = {
        "gone": "ip link delete eth0.3",
        "down": "ip link set eth0.3 down",
        "MAC": "ip link set eth0.3 address 02:00:00:00:00:99",
        "MTU": "ip link set eth0.3 mtu 1300",
        "address": "ip addr del 10.3.0.1/24 dev eth0.3",
        "address6": "ip addr del fd00:3::1/64 dev eth0.3",
        "id": "m=$(ip -j link show eth0.3 | sed 's/.*ifalias\":\"\\([^\"]*\\).*/\\1/'); ip link delete eth0.3; "
              "ip link add link eth0 name eth0.3 type vlan id 33; ip link set eth0.3 up alias $m",
        "parent": "m=$(ip -j link show eth0.3 | sed 's/.*ifalias\":\"\\([^\"]*\\).*/\\1/'); ip link delete eth0.3; "
                  "ip link add dm0 type veth peer dm1; ip link add link dm0 name eth0.3 type vlan id 3; "
                  "ip link set dm0 up; ip link set eth0.3 up alias $m",
    }  # fmt: skip
    pod.sh(words[what])


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("gone", "VLAN 3 is gone"), ("down", "eth0.3 is down"), ("MAC", "MAC 02:00:00:00:00:99"), ("MTU", "MTU 1300"),
        ("address", "10.3.0.1/24"), ("address6", "fd00:3::1/64"), ("id", "not of VLAN 3"),
        ("parent", "does not stand on eth0"),
    ],
)  # fmt: skip
def test_check_names_what_is_damaged(node: Light, caller: Caller, what: str, words: str) -> None:
    network, at = conflist(BRIDGE, vlan(3, mtu=1400), vlan(4), name="checked"), At("c1", "p1")
    caller.add(network, at)
    assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
    broken(Pod(node, "p1"), what)
    answer = caller.ask("CHECK", network, at, skip=UNCHECKED)
    assert answer.code == 1 and words in answer.document["msg"], answer
    caller.delete(network, at)


@pytest.mark.parametrize("state", ["whole", "links gone", "parent gone", "namespace gone", "without prevResult"])
def test_del_needs_neither_master_nor_namespace(node: Light, caller: Caller, state: str) -> None:
    inner = {
        "type": "podnet-vlan",
        "parent": "previous",
        "vlans": [{"id": 5, "ipam": cni.ipam("10.10.9.1")}, {"id": 6}],
    }
    lower = {**vlan(3), "ipam": cni.ipam()}
    network, at = conflist(BRIDGE, lower, inner, name="going"), At("c1", "p1")
    caller.add(network, at)
    assert set(stands_on(Pod(node, "p1"))) == {"eth0.3", "eth0.3.5", "eth0.3.5.6"} and len(cni.leases(node)) == 4
    pod = Pod(node, "p1")
    if state == "links gone":
        pod.sh("ip link delete eth0.3")
    elif state == "parent gone":
        pod.sh("ip link delete eth0")
    elif state == "namespace gone":
        pod.delete()
    elif state == "without prevResult":
        caller.cache_file(network, at).unlink()
    for _turn in range(2):
        for plugin in (inner, lower):
            one = conflist(plugin, name="going")
            caller.delete(one, At("c1", "" if state == "namespace gone" else "p1"))
        assert cni.leases(node) == {}
        if state != "namespace gone":
            assert stands_on(pod) == {}
    if state != "namespace gone":
        assert state == "parent gone" or "eth0" in links(pod), "the parent is another plugin's"
        caller.delete(network, at)


def test_what_fails_leaves_nothing(node: Light, caller: Caller) -> None:
    """The last of several leases, an address that the kernel does not take, a name that is taken."""
    pod, at, base = Pod(node, "p1"), At("c1", "p1"), conflist(BRIDGE, name="base")
    caller.add(base, at)
    was = set(links(pod))
    many = [{"id": number, "ipam": cni.ipam()} for number in range(3, 13)]
    for last, words in (
        ({"id": 20, "ipam": {"type": "nosuch"}}, "nosuch"),
        ({"id": 20, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/99"}]]}}, "host-local"),
        ({"id": 20, "ipam": static("10.20.0.1/24", "10.20.0.1/24")}, "10.20.0.1/24"),
        ({"id": 20, "name": "eth0"}, "eth0"),
        ({"id": 20, "mtu": 9000}, "9000"),
    ):
        plugin = {"type": "podnet-vlan", "master": "eth0", "linkInContainer": True, "vlans": [*many, last]}
        answer = caller.ask("ADD", conflist(plugin, name="failing"), At("c1", "p1", "net1"))
        assert answer.code == 1 and words in answer.document["msg"], answer
        assert set(links(pod)) == was and cni.leases(node) == {}
    pod.sh("ip link set eth0 down")
    answer = caller.ask(
        "ADD", conflist(vlan(3, master="eth0", linkInContainer=True), name="down"), At("c1", "p1", "n1")
    )
    assert answer.document["code"] == 7 and "eth0 is down" in answer.document["msg"]
    loop = conflist(vlan(3, master="lo", linkInContainer=True), name="loop")
    answer = caller.ask("ADD", loop, At("c1", "p1", "n1"))
    assert answer.code == 1 and "cannot make n1 for VLAN 3" in answer.document["msg"], answer
    assert "modprobe" not in answer.stdout, "the kernel has VLANs, the loopback takes none"
    caller.delete(base, at)


def test_a_mac_and_addresses_that_the_runtime_asks_for(node: Light, caller: Caller) -> None:
    declared: dict[str, Any] = {"capabilities": {"mac": True, "ips": True}, "ipam": {"type": "static"}}
    network, at = conflist(BRIDGE, vlan(3, **declared), name="asked"), At("c1", "p1")
    runtime = {"mac": "02:00:00:00:00:42", "ips": ["10.3.0.7/24", "fd00:3::7/64"]}
    result = caller.add(network, at, runtime=runtime)
    link = links(Pod(node, "p1"))["eth0.3"]
    assert link["address"] == result["interfaces"][-1]["mac"] == "02:00:00:00:00:42"
    assert by_interface(result)["eth0.3"] == runtime["ips"]
    caller.delete(network, at)


def test_a_vlan_in_a_process_of_its_own(lab: Lab, datapath: str) -> None:
    """Without an agent."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("alone", nics=[Nic("eth1", lab.lan("lan-alone"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    node.netns("p1")
    caller, at = Caller(node), At("c1", "p1")
    network = conflist(BRIDGE, vlan(3), name="alone")
    caller.add(network, at)
    assert stands_on(Pod(node, "p1")) == {"eth0.3": "eth0 802.1Q 3"}
    assert caller.ask("CHECK", network, at, skip=UNCHECKED).code == 0
    caller.delete(network, at)
    assert links(Pod(node, "p1")) == {}


ASK = "/tmp/ask-for-module"
ASKED = f"{ASK}.log"


def test_nobody_has_the_kernel_look_for_a_module_of_a_links_name(node: Light, caller: Caller) -> None:
    """Asked for the index of a link that it does not have, the kernel may start modprobe, which takes milliseconds."""
    network, at = conflist(podnet(ipam=cni.ipam()), name="green"), At("c1", "p1")
    before = node.run("cat", "/proc/sys/kernel/modprobe").stdout.strip()
    node.sh(f"printf '#!/bin/sh\necho \"$@\" >> {ASKED}\n' > {ASK}; chmod +x {ASK}; : > {ASKED}")
    try:
        node.sh(f"echo {ASK} > /proc/sys/kernel/modprobe")
        python = "import socket; socket.if_nametoindex('nosuch')"
        node.run("/usr/bin/python3", "-c", python, check=False)
        assert "netdev-nosuch" in node.run("cat", ASKED).stdout, "what this is about"
        node.sh(f": > {ASKED}")
        caller.add(network, at)
        assert caller.ask("CHECK", network, at).code == 0
        caller.delete(network, at)
        assert "netdev-" not in node.run("cat", ASKED).stdout
    finally:
        node.sh(f"echo {before} > /proc/sys/kernel/modprobe; rm {ASK} {ASKED}")
