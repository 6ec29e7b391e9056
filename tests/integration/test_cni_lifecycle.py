# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The life of an attachment in configuration lists on two nodes: one with the agent, one without.

Both are called alike, and must answer in the same bytes. What one plugin does by itself is in test_cni.py.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet, static
from ansible_collections.podnet.ovs.tests.integration.traffic import capture, mac_bytes, pings

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Pod

VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
ROUTES = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24", "gw": "10.10.0.9"}]
TUNING = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}}
BAD: dict[str, dict[str, Any]] = {
    "misspelt key": {"vlna": 1},
    "closed VLAN": {"vlan": cni.CLOSED},
    "VLAN as text": {"vlan": "100"},
    "no such bridge": {"bridge": "nobr"},
    "no such IPAM plugin": {"ipam": {"type": "nosuch"}},
    "IPAM plugin by path": {"ipam": {"type": "/bin/sh"}},
    "MAC": {"mac": "02:00"},
}


@dataclass(frozen=True)
class Site:
    """The node `resident` has the agent, `alone` has none; each has a pod p1, and a pod `ear` that is attached."""

    nodes: dict[str, Light]
    callers: dict[str, Caller]
    ears: dict[str, Pod]


@pytest.fixture(scope="module")
def site(lab: Lab, datapath: str) -> Iterator[Site]:
    """Two nodes whose uplinks lead to one switch."""
    from ansible_collections.podnet.ovs.tests.lab import Nic, Pod

    trunk = lab.lan("trunk")
    nodes = {name: lab.light(name, nics=[Nic("eth1", trunk)], datapath=datapath) for name in ("resident", "alone")}
    callers = {name: Caller(node) for name, node in nodes.items()}
    for node in nodes.values():
        cni.prepare(node, cni.node_document(datapath))
        node.netns("p1")
    with cni.agent(nodes["resident"]):
        for number, (name, node) in enumerate(nodes.items(), start=1):
            node.netns("ear")
            callers[name].add(ear(number), At(f"c-ear-{name}", "ear"))
        yield Site(nodes, callers, {name: Pod(node, "ear") for name, node in nodes.items()})


def ear(number: int) -> dict[str, Any]:
    """The network of the pods that stand all the while; its name is another one than that of the tests."""
    addresses = static(f"10.10.255.{number}/16", f"fd00:10::ff:{number}/64")
    return conflist(podnet(ipam=addresses), name="ears")


@pytest.fixture
def clean(site: Site) -> Iterator[Site]:
    """The nodes, and afterwards nothing of the test is left on them."""
    before = {name: cni.leftovers(node) for name, node in site.nodes.items()}
    yield site
    for name, node in site.nodes.items():
        left = cni.leftovers(node)
        node.run("rm", "-rf", cni.LEASES)
        assert left == before[name], name


def network(version: str = "1.0.0", *, chained: bool = False, **keys: Any) -> dict[str, Any]:
    """Two families from host-local with routes; with `chained`, Debian's tuning behind it."""
    own = podnet(**{"ipam": {**cni.ipam(), "routes": ROUTES}, **keys})
    return conflist(own, *([TUNING] if chained else []), version=version)


def answers(site: Site, verb: str, conflist_: dict[str, Any], **keys: Any) -> cni.Answer:
    """The answer of both nodes: the same bytes."""
    both = {name: caller.ask(verb, conflist_, At("c1", "p1"), **keys) for name, caller in site.callers.items()}
    assert (both["resident"].code, both["resident"].stdout) == (both["alone"].code, both["alone"].stdout)
    return both["alone"]


@pytest.mark.parametrize("version", VERSIONS)
def test_all_verbs_of_all_versions_answer_in_the_same_bytes(clean: Site, version: str) -> None:
    """The shape is that of the version. tuning of Debian 12 speaks up to 1.0.0."""
    chained = version != "1.1.0"
    result = answers(clean, "ADD", network(version, chained=chained)).document
    assert result["cniVersion"] == version
    if version == "0.2.0":
        assert set(result) <= {"cniVersion", "ip4", "ip6", "dns"}
        assert result["ip4"] == {"ip": "10.10.0.2/16", "gateway": "10.10.0.1", "routes": [ROUTES[0], ROUTES[2]]}
        assert result["ip6"] == {"ip": "fd00:10::2/64", "gateway": "fd00:10::1", "routes": [ROUTES[1]]}
    else:
        host, pod = result["interfaces"]
        assert pod["name"] == "eth0" and pod["sandbox"] == "/run/netns/p1" and "sandbox" not in host
        assert [item["interface"] for item in result["ips"]] == [1, 1]
        assert [item.get("version") for item in result["ips"]] == ([None, None] if version[0] == "1" else ["4", "6"])
        assert result["routes"] == ROUTES
        assert ("mtu" in pod) == (version == "1.1.0")
    if version not in ("0.2.0", "0.3.0", "0.3.1"):
        assert answers(clean, "CHECK", network(version, chained=chained)).code == 0
    if version == "1.1.0":
        assert answers(clean, "STATUS", network(version)).code == 0
        assert answers(clean, "GC", network(version), valid=[At("c1")]).code == 0
        assert answers(clean, "CHECK", network(version)).code == 0, "GC has kept what was listed"
    for _turn in range(2):
        done = answers(clean, "DEL", network(version, chained=chained))
        assert (done.code, done.stdout) == (0, "")


@pytest.mark.holds("bad inputs: CNI error JSON, nothing left, DEL of the same input succeeds; with and without agent")
@pytest.mark.parametrize("case", BAD)
def test_errors_are_the_same_bytes_and_del_succeeds(clean: Site, case: str) -> None:
    broken = network("1.1.0", **BAD[case])
    answer = answers(clean, "ADD", broken)
    assert answer.code == 1 and answer.document["code"] in (2, 7) and answer.document["details"], answer
    done = answers(clean, "DEL", broken)
    assert (done.code, done.stdout) == (0, "")


@pytest.mark.parametrize("name", ["resident", "alone"])
def test_neighbours_are_told(clean: Site, name: str) -> None:
    """Gratuitous ARP and unsolicited neighbour advertisement, repeated, arrive on the other node; the node's end of the
    pair says nothing, and neither passes to another VLAN.
    """
    other = "alone" if name == "resident" else "resident"
    with capture(clean.ears[other]) as frames:
        result = clean.callers[name].add(network(), At("c1", "p1"))
        time.sleep(1.0)
    host, pod = (mac_bytes(item["mac"]) for item in result["interfaces"])
    mine = [frame for frame in frames if frame[6:12] == pod]
    arp = [frame for frame in mine if frame[12:14] == b"\x08\x06"]
    address = bytes([10, 10, 0, 2])
    gratuitous = [frame for frame in arp if frame[:6] == b"\xff" * 6 and frame[28:32] == frame[38:42] == address]
    assert len(gratuitous) >= 2 and all(frame[22:28] == pod for frame in gratuitous), arp
    told = [frame for frame in mine if frame[12:14] == b"\x86\xdd" and frame[20] == 58 and frame[54] == 136]
    target = bytes.fromhex("fd000010000000000000000000000002")
    assert len(told) >= 2 and all(frame[62:78] == target and frame[80:86] == pod for frame in told), told
    assert all(frame[58] & 0x60 == 0x20 for frame in told), "overrides, and is no answer to a question"
    assert not [frame for frame in frames if frame[6:12] == host], "the node's end of the pair speaks"
    clean.callers[name].delete(network(), At("c1", "p1"))


def test_what_was_lost_while_the_database_stood_still_goes_with_gc(clean: Site) -> None:
    """DEL succeeds meanwhile: link and lease are gone, only the marked row waits. Pods of other networks stay."""
    node, caller = clean.nodes["alone"], clean.callers["alone"]
    standing = cni.leftovers(node)
    caller.add(network("1.1.0"), At("c1", "p1"))
    node.ovs.freeze("ovsdb-server")
    try:
        caller.delete(network("1.1.0"), At("c1", "p1"))
    finally:
        node.ovs.thaw("ovsdb-server")
    ports, links, leases = cni.leftovers(node)
    assert (links, leases) == standing[1:]
    # The delete was on its way when the server stood still: it may have come to it since.
    assert len(ports) in (len(standing[0]), len(standing[0]) + 1)
    done = caller.ask("GC", network("1.1.0"), valid=[])
    assert (done.code, done.stdout) == (0, ""), done
    assert cni.leftovers(node) == standing
    assert pings(clean.ears["alone"], "10.10.255.1")


@pytest.mark.parametrize("name", ["resident", "alone"])
def test_a_list_that_fails_behind_us_is_deleted_whole(clean: Site, name: str) -> None:
    """As a runtime does it: ADD of the second plugin fails, then comes DEL of the list, from its end."""
    broken = conflist(network()["plugins"][0], {"type": "tuning", "sysctl": {"net.ipv4.no.such": "1"}})
    answer = clean.callers[name].ask("ADD", broken, At("c1", "p1"))
    assert answer.code != 0 and "no" in json.dumps(answer.document)
    clean.callers[name].delete(broken, At("c1", "p1"))
