# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`subinterfaces` of `podnet-ovs`: VLAN interfaces in a pod on its trunk, a few and hundreds.

Needs a kernel with 802.1Q: test_vm.py runs it in the virtual machine.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, static
from ansible_collections.podnet.ovs.tests.integration.test_vlan import by_interface, links, stands_on
from ansible_collections.podnet.ovs.tests.integration.traffic import pings
from ansible_collections.podnet.ovs.tests.integration.wire import Tap, await_all, frame, tags_of
from ansible_collections.podnet.ovs.tests.lab import Pod
from ansible_collections.podnet.ovs.tests.lab.proc import PATIENCE

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

pytestmark = pytest.mark.skipif(not Path("/proc/net/vlan").exists(), reason="this kernel has no 802.1Q")

FIRST, MANY = 1000, 200
SLOWER = 1.5
"""How many times what one batch of iproute2 takes they may add to an ADD."""


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Iterator[Light]:
    """A node with its agent; VLANs 10 to 30 and 1000 to 1999 are open, 20 to 29 under the spoof check alone."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    document = cni.node_document(datapath)
    document["policy"] = [
        {"bridge": cni.BRIDGE, "vlans": "10-19,30,1000-1999", "untagged": True},
        {"bridge": cni.BRIDGE, "vlans": "20-29", "spoof_check": True},
    ]
    cni.prepare(made, document)
    with cni.agent(made):
        yield made


@pytest.fixture
def caller(node: Light) -> Iterator[Caller]:
    """A runtime with pods p1 and p2; each test takes away what it makes."""
    with cni.tidy(node, "p1", "p2"):
        yield Caller(node)
    node.sh("for pod in p1 p2; do ip netns delete $pod; done")


def trunk(*entries: dict[str, Any], name: str = "trunk", version: str = "1.0.0", **keys: Any) -> dict[str, Any]:
    """A list with subinterfaces on a trunk of all that is open without a spoof check."""
    vlans = "10-19,30,1000-1999"
    plain = {"type": "podnet-ovs", "bridge": cni.BRIDGE, "trunk": vlans, "subinterfaces": list(entries)}
    return conflist({**plain, **keys}, name=name, version=version)


def addresses(vlan: int, pod: int = 1) -> dict[str, Any]:
    """An IPAM plugin that gives an address of each family."""
    return static(f"10.{vlan}.0.{pod}/24", f"fd00:{vlan}::{pod}/64")


def test_vlan_interfaces_on_one_trunk(node: Light, caller: Caller) -> None:
    """Addresses on the trunk and on two VLANs, none on a third: result, wire, traffic, CHECK, DEL."""
    made = {}
    for number, name in enumerate(("p1", "p2"), 1):
        network = trunk(
            {"vlan": 10, "ipam": addresses(10, number)}, {"vlan": "11", "ipam": addresses(11, number), "mtu": 1400},
            {"vlan": "30", "protocol": "802.1ad"}, ipam=static(f"10.9.0.{number}/24"), untagged=True, version="1.1.0",
        )  # fmt: skip
        made[name] = (network, At(f"c-{name}", name), caller.add(network, At(f"c-{name}", name)))
    pod = Pod(node, "p1")
    network, at, result = made["p1"]
    assert stands_on(pod) == {
        "eth0.10": "eth0 802.1Q 10", "eth0.11": "eth0 802.1Q 11", "eth0.30": "eth0 802.1ad 30",
    }  # fmt: skip
    assert [(item["name"], item["mtu"]) for item in result["interfaces"]] == [
        (host_name("c-p1", "eth0"), 1500), ("eth0", 1500), ("eth0.10", 1500), ("eth0.11", 1400), ("eth0.30", 1500),
    ]  # fmt: skip
    assert {item["mac"] for item in result["interfaces"][1:]} == {item["address"] for item in links(pod).values()}
    assert by_interface(result) == {
        "eth0": ["10.9.0.1/24"], "eth0.10": ["10.10.0.1/24", "fd00:10::1/64"],
        "eth0.11": ["10.11.0.1/24", "fd00:11::1/64"], "eth0.30": [],
    }  # fmt: skip
    for to in ("10.9.0.2", "10.10.0.2", "fd00:10::2", "10.11.0.2", "fd00:11::2"):
        assert pings(pod, to), to
    with Tap(pod.enter(), "eth0.10") as inner, Tap(node.enter(), host_name("c-p1", "eth0")) as outer:
        inner.send([frame(7, "02:00:00:00:00:77")])
        await_all([(outer, [7])])
        assert [tags_of(data) for data in outer.heard()[7]] == ["10"]
    recorded = node.ovs.vsctl("get", "Port", host_name("c-p1", "eth0"), "external_ids").stdout
    assert 'podnet_subinterfaces="10-11,30"' in recorded and "fd00:11::1/64" in recorded
    for network, at, _result in made.values():
        assert caller.ask("CHECK", network, at).code == 0
    pod.run("ip", "link", "delete", "eth0.11")
    answer = caller.ask("CHECK", *made["p1"][:2])
    assert answer.code == 1 and "eth0.11 is gone" in answer.document["msg"]
    for network, at, _result in made.values():
        caller.delete(network, at)
    assert links(pod) == {}


@pytest.mark.parametrize(
    ("keys", "entry", "words"),
    [
        ({"trunk": "10-15"}, {"vlan": 16}, ["subinterfaces[0].vlan: VLAN 16", "10-15"]),
        ({"trunk": None, "vlan": 10}, {"vlan": 10}, ["VLAN 10", "access port", '"trunk"']),
        ({"trunk": "10-15", "vlan": 12, "vlan_mode": "native-untagged"}, {"vlan": 12}, ["VLAN 12", "10-11,13-15"]),
        ({}, {"vlan": 10, "mtu": 1501}, ["subinterfaces[0].mtu: 1501"]),
        ({}, {"vlan": 10, "ipam": {"type": "nosuch"}}, ["nosuch"]),
        ({}, {"vlan": 10, "vlans": 3}, ["subinterfaces[0].vlans: unknown key"]),
        ({}, {"vlan": ""}, ["subinterfaces[0].vlan: the set is empty"]),
    ],
)
def test_what_cannot_be_leaves_nothing(
    node: Light, caller: Caller, keys: dict[str, Any], entry: dict[str, Any], words: list[str]
) -> None:
    network, at = trunk({"vlan": "17-19", "ipam": cni.ipam()}, entry, **keys), At("c1", "p1")
    if "trunk" in keys:
        network = trunk(entry, **{key: value for key, value in keys.items() if value is not None})
        if keys["trunk"] is None:
            del network["plugins"][0]["trunk"]
    else:
        words = [word.replace("[0]", "[1]") for word in words]
    answer = caller.ask("ADD", network, at)
    assert answer.code == 1
    for word in words:
        assert word in answer.document["msg"] + answer.document.get("details", ""), answer
    assert links(Pod(node, "p1")) == {} and cni.leftovers(node) == cni.NOTHING
    caller.delete(network, at)


def test_each_has_a_lease_and_del_and_gc_know_them(node: Light, caller: Caller) -> None:
    network = trunk({"vlan": "10-19", "ipam": cni.ipam()}, ipam=cni.ipam(), version="1.1.0")
    at = At("c1", "p1")
    result = caller.add(network, at)
    assert len({item["address"] for item in result["ips"]}) == 22 == len(cni.leases(node))
    caller.delete(network, at)
    assert cni.leftovers(node) == cni.NOTHING
    for known in (network, trunk({"vlan": "10", "ipam": cni.ipam()}, ipam=cni.ipam(), version="1.1.0")):
        caller.add(network, at)
        assert caller.ask("GC", known, valid=[at]).code == 0
        assert len(cni.leases(node)) == 22, "a live attachment keeps its leases"
        Pod(node, "p1").delete()
        assert caller.ask("GC", known, valid=[]).code == 0
        assert cni.leftovers(node) == cni.NOTHING, (
            "those that the port recorded go, whatever the configuration says now"
        )
        node.netns("p1")


@pytest.mark.parametrize("state", ["whole", "namespace gone", "link gone"])
def test_del_in_any_state(node: Light, caller: Caller, state: str) -> None:
    network, at = trunk({"vlan": "10-12", "ipam": cni.ipam()}, ipam=cni.ipam()), At("c1", "p1")
    caller.add(network, at)
    if state == "namespace gone":
        Pod(node, "p1").delete()
    elif state == "link gone":
        node.run("ip", "link", "delete", host_name("c1", "eth0"))
    for _turn in range(2):
        Caller(node).delete(network, At("c1", "" if state == "namespace gone" else "p1"))
        assert cni.leftovers(node) == cni.NOTHING
    if state == "namespace gone":
        node.netns("p1")


def test_the_spoof_check_lets_the_addresses_of_all_through(node: Light, caller: Caller) -> None:
    pods = {}
    for number, name in enumerate(("p1", "p2"), 1):
        network = trunk({"vlan": "20", "ipam": addresses(20, number)}, {"vlan": "21", "ipam": addresses(21, number)},
                        trunk="20-29")  # fmt: skip
        caller.add(network, At(f"c-{name}", name))
        pods[name] = network
    one = Pod(node, "p1")
    for to in ("10.20.0.2", "fd00:20::2", "10.21.0.2", "fd00:21::2"):
        assert pings(one, to), to
    one.run("ip", "addr", "add", "10.20.0.66/24", "dev", "eth0.20")
    assert not pings(one, "10.20.0.2", "-I", "10.20.0.66", wait=1)
    for name, network in pods.items():
        assert caller.ask("CHECK", network, At(f"c-{name}", name)).code == 0
        caller.delete(network, At(f"c-{name}", name))


@pytest.mark.holds("200 VLANs in one pod: the result complete, the time near that of one ip -batch, DEL clean")
def test_two_hundred_vlans_in_one_pod(node: Light, caller: Caller) -> None:
    """What they add to an ADD, beside one batch of iproute2 that makes the same links, up, in another namespace."""
    vlans = range(FIRST, FIRST + MANY)
    network, plain = trunk({"vlan": f"{vlans[0]}-{vlans[-1]}"}, version="1.1.0"), trunk(name="plain", version="1.1.0")
    at, pod = At("c1", "p1"), Pod(node, "p1")
    lines = "".join(f"link add link eth0 name eth0.{number} up type vlan id {number}\n" for number in vlans)
    times: dict[str, list[float]] = {"ip": [], "ADD": [], "ADD without": []}

    def timed(what: str, work: Callable[[], Any]) -> Any:
        time.sleep(PATIENCE / 2)  # the kernel is busy with links for a while after they came or went
        began = time.monotonic()
        done = work()
        times[what].append(time.monotonic() - began)
        return done

    for _turn in range(3):
        node.sh("ip netns add other; ip link add other0 type veth peer eth0 netns other; ip link set other0 up")
        node.run("ip", "-n", "other", "link", "set", "eth0", "up")
        timed("ip", lambda: node.run("ip", "-n", "other", "-batch", "-", input=lines))
        node.sh("ip link delete other0; ip netns delete other")
        timed("ADD without", lambda: caller.add(plain, at))
        caller.delete(plain, at)
        result = timed("ADD", lambda: caller.add(network, at))
        assert [item["name"] for item in result["interfaces"][1:]] == ["eth0", *(f"eth0.{number}" for number in vlans)]
        assert stands_on(pod) == {f"eth0.{number}": f"eth0 802.1Q {number}" for number in vlans}
        assert all("UP" in item["flags"] for item in links(pod).values())
        assert caller.ask("CHECK", network, at).code == 0
        caller.delete(network, at)
        assert links(pod) == {} and cni.leftovers(node) == cni.NOTHING
    print(json.dumps({key: [round(value, 3) for value in values] for key, values in times.items()}))
    assert min(times["ADD"]) - min(times["ADD without"]) <= SLOWER * min(times["ip"]), times


def test_sixty_four_with_leases(node: Light, caller: Caller) -> None:
    """More than IPAM plugins run at once; all that they gave is on the links and in the result."""
    network, at = trunk({"vlan": "1000-1063", "ipam": cni.ipam()}), At("c1", "p1")
    result = caller.add(network, at)
    there = links(Pod(node, "p1"))
    for name, given in by_interface(result).items():
        seen = [f"{e['local']}/{e['prefixlen']}" for e in there[name]["addr_info"] if e["scope"] == "global"]
        assert sorted(seen) == sorted(given) and len(given) == (0 if name == "eth0" else 2)
    caller.delete(network, at)
    assert cni.leftovers(node) == cni.NOTHING
