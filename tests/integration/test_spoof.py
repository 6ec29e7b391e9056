# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The spoof check: a pod speaks as itself alone, whatever became of the switch meanwhile, and no flow outlives its pod.

Frames are put on the wire by hand (spoken.py). Runs on the userspace datapath and with `--datapath=system` on a stock
kernel (test_vm.py).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac, host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import static
from ansible_collections.podnet.ovs.tests.integration.spoken import (
    ADDRESS4,
    ADDRESS6,
    FALSE,
    ON_A_TRUNK,
    OWN,
    Spoken,
    link_local,
)  # fmt: skip
from ansible_collections.podnet.ovs.tests.integration.traffic import pings
from ansible_collections.podnet.ovs.tests.integration.wire import Tap, await_all, frame, tags_of
from ansible_collections.podnet.ovs.tests.lab import until
from ansible_collections.podnet.ovs.tests.lab.proc import PATIENCE

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Pod

RESTORED_SECONDS = 3.0
"""From the start of ovs-vswitchd until the agent has put the flows back."""
COOKIES = "cookie=0x706f646e00000000/0xffffffff00000000"
RESTORE = ("/opt/podnet/current/bin/podnet", "node", "restore")
OWN_ADDRESSES = (f"{ADDRESS4}/16", f"{ADDRESS6}/64")
SHAPES: dict[str, dict[str, Any]] = {
    "trunk": {"vlan": None, "trunk": "100,200"}, "untagged": {"vlan": None, "untagged": True},
}  # fmt: skip
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def site(lab: Lab, datapath: str) -> Iterator[tuple[Light, Tap]]:
    """A node whose policy opens VLANs 100 and 200 and untagged frames, and who hears at the uplink's other end."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    lan = lab.lan("trunk")
    node = lab.light("n1", nics=[Nic("eth1", lan)], datapath=datapath)
    document = cni.node_document(datapath)
    document["policy"] = [{"bridge": cni.BRIDGE, "vlans": "100,200", "untagged": True}]
    cni.prepare(node, document)
    with Tap(lan.enter(), node.ports["eth1"].switch_port) as wire:
        yield node, wire


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(site: tuple[Light, Tap], request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, and without one."""
    node, _wire = site
    with cni.serving(node, request.param):
        yield node


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node with pods p1 to p3. Each test takes away what it makes, every flow too."""
    with cni.tidy(served, "p1", "p2", "p3"):
        yield served
    assert flows(served) == []


def flows(node: Light) -> list[str]:
    """The flows of spoof checks on the bridge."""
    printed = node.run("ovs-ofctl", "-OOpenFlow14", "--no-stats", "dump-flows", cni.BRIDGE, COOKIES).stdout
    return sorted(line.strip() for line in printed.splitlines() if "cookie=" in line)


def pod_of(node: Light, name: str) -> Pod:
    """The namespace of a pod."""
    from ansible_collections.podnet.ovs.tests.lab import Pod

    return Pod(node, name)


def checked(*addresses: str, **keys: Any) -> cni.Json:
    """A configuration with the check."""
    ipam = static(*addresses) if addresses else None
    return cni.configuration(**{"spoof_check": True, "ipam": ipam, **keys})


def passed(pod: Pod, wire: Tap, spoken: Mapping[str, Spoken], wanted: Mapping[str, bool]) -> dict[str, str]:
    """Which of these frames come out of the uplink, and with which tags, when the pod sends all of them.

    Twice: what the datapath has kept of the first ones must not decide otherwise.
    """
    rounds = []
    with Tap(pod.enter(), "eth0") as tap:
        for _round in range(2):
            numbers = {name: next(_numbers) for name in spoken}
            tap.send(
                frame(numbers[name], one.source, one.tags, one.packet[0], one.packet[1]) for name, one in spoken.items()
            )
            await_all([(wire, [numbers[name] for name in spoken if wanted[name]])])
            heard = wire.heard()
            rounds.append({name: tags_of(heard[number][0]) for name, number in numbers.items() if number in heard})
    assert rounds[0] == rounds[1]
    return rounds[1]


@pytest.mark.holds("spoof check: MAC, ARP, ND, IP")
@pytest.mark.parametrize("kind", ["access", "L2 only", "trunk", "untagged"])
def test_a_checked_pod_speaks_as_itself_alone(node: Light, site: tuple[Light, Tap], kind: str) -> None:
    more = SHAPES.get(kind, {})
    conf = checked(*(() if kind == "L2 only" else OWN_ADDRESSES), **more)
    cni.add(node, conf)
    spoken = ON_A_TRUNK if kind == "trunk" else OWN | FALSE
    wanted = {name: one.l2 if kind == "L2 only" and one.l2 is not None else one.passes for name, one in spoken.items()}
    seen = passed(pod_of(node, "p1"), site[1], spoken, wanted)
    assert sorted(seen) == sorted(name for name in spoken if wanted[name])
    assert set(seen.values()) == {"" if kind == "untagged" else "100"}
    cni.delete(node, conf)


@pytest.mark.holds("spoof check: the pod's own traffic, both families, passes")
def test_a_checked_pod_talks_with_others(node: Light) -> None:
    """Neighbour discovery of both families, a link-local address, and full frames, between two pods under the check."""
    mine, theirs = checked(*OWN_ADDRESSES), checked("10.10.0.6/16", "fd00:10::6/64")
    cni.add(node, mine)
    cni.add(node, theirs, "c2", "p2")
    for address in ("10.10.0.6", "fd00:10::6", link_local(derived_mac("c2", "eth0")) + "%eth0"):
        until(partial(pings, pod_of(node, "p1"), address), 10, f"an answer of {address}")
    assert pings(pod_of(node, "p2"), ADDRESS4, "-M", "do", "-s", "1472")
    cni.delete(node, mine)
    cni.delete(node, theirs, "c2", "p2")


def test_without_the_check_frames_pass(node: Light, site: tuple[Light, Tap]) -> None:
    """What the tests above show to be dropped would come through; in a tag of VLAN 0 even out of the pod's VLAN."""
    conf = cni.configuration(ipam=static(*OWN_ADDRESSES))
    cni.add(node, conf)
    spoken = {name: one for name, one in (OWN | FALSE).items() if not one.tags}
    assert sorted(passed(pod_of(node, "p1"), site[1], spoken, dict.fromkeys(spoken, True))) == sorted(spoken)
    cni.delete(node, conf)
    conf = cni.configuration(ipam=None, **SHAPES["untagged"])
    cni.add(node, conf)
    name = "another VLAN in a tag of VLAN 0"
    assert passed(pod_of(node, "p1"), site[1], {name: FALSE[name]}, {name: True}) == {name: "300"}
    cni.delete(node, conf)


# What keeps the flows, and what leaves none


def number_of_port(node: Light, name: str) -> int:
    """Its OpenFlow number."""
    return int(node.ovs.vsctl("get", "Interface", name, "ofport").stdout)


def falsehoods(node: Light, site: tuple[Light, Tap], pod: str = "p1") -> list[str]:
    """The false frames of a pod that come through."""
    return sorted(passed(pod_of(node, pod), site[1], FALSE, dict.fromkeys(FALSE, False)))


@pytest.mark.holds("spoof check: the flows come back after ovs-vswitchd is killed, within 3 s by the agent")
def test_flows_come_back_after_the_switch_was_killed(
    node: Light, site: tuple[Light, Tap], request: pytest.FixtureRequest
) -> None:  # fmt: skip
    confs = {"c1": checked(*OWN_ADDRESSES), "c2": checked()}
    for number, (container, conf) in enumerate(confs.items(), 1):
        cni.add(node, conf, container, f"p{number}")
    before = flows(node)
    assert before
    for _turn in range(3):
        node.ovs.kill("ovs-vswitchd")
        node.ovs.start("ovs-vswitchd")
        began = time.monotonic()
        if "in-process" in request.node.name:
            assert flows(node) == []
            assert "spoof checks" in node.run(*RESTORE).stdout
        until(lambda: flows(node) == before, RESTORED_SECONDS * PATIENCE, "the flows")
        assert time.monotonic() - began < RESTORED_SECONDS * PATIENCE
    assert falsehoods(node, site) == []
    assert node.run(*RESTORE).stdout == "", "nothing is left to do"
    for number, (container, conf) in enumerate(confs.items(), 1):
        cni.delete(node, conf, container, f"p{number}")


def test_restore_puts_right_what_is_wrong_and_nothing_else(node: Light, request: pytest.FixtureRequest) -> None:
    """Flows that are missing, those of a port that is gone, and of a number that is another's; others' flows stay."""
    conf = checked(*OWN_ADDRESSES)
    cni.add(node, conf)
    before = flows(node)
    port = number_of_port(node, host_name("c1", "eth0"))
    node.run("ovs-ofctl", "add-flow", cni.BRIDGE, "cookie=0x5,table=0,priority=7,in_port=4242,actions=drop")
    cookie = before[0].partition("cookie=")[2].partition(",")[0]
    for script in (
        f"ovs-ofctl -OOpenFlow14 --strict del-flows {cni.BRIDGE} priority=20000,in_port={port}",
        f"ovs-ofctl -OOpenFlow14 del-flows {cni.BRIDGE} {COOKIES}",
        f"ovs-ofctl add-flow {cni.BRIDGE} cookie=0x706f646e00000001,priority=20000,in_port=4243,actions=drop",
        f"ovs-ofctl add-flow {cni.BRIDGE} cookie={cookie},priority=20000,in_port=4244,actions=drop",
    ):
        node.sh(script)
        assert flows(node) != before, script
        printed = node.run(*RESTORE).stdout
        if "in-process" in request.node.name:  # an agent may have come first
            assert "spoof checks" in printed
        assert flows(node) == before, script
    printed = node.run("ovs-ofctl", "dump-flows", cni.BRIDGE, "cookie=0x5/-1").stdout
    assert "in_port=4242" in printed
    node.run("ovs-ofctl", "del-flows", cni.BRIDGE, "cookie=0x5/-1")
    cni.delete(node, conf)


def test_a_port_that_a_call_is_at_work_on_gets_its_flows_soon_after(
    node: Light, request: pytest.FixtureRequest
) -> None:  # fmt: skip
    if "in-process" in request.node.name:
        pytest.skip("it is the agent that looks again")
    conf = checked(*OWN_ADDRESSES)
    cni.add(node, conf)
    before = flows(node)
    turn = hashlib.sha256(b"c1/eth0").hexdigest()[:3]
    held = node.popen("flock", f"/run/podnet/turns/{turn}", "sleep", str(RESTORED_SECONDS * PATIENCE))
    until(lambda: node.run("flock", "-n", f"/run/podnet/turns/{turn}", "true", check=False).returncode, 5, "the turn")
    node.ovs.kill("ovs-vswitchd")
    node.ovs.start("ovs-vswitchd")
    assert held.wait(timeout=30) == 0 and flows(node) == []
    until(lambda: flows(node) == before, RESTORED_SECONDS * PATIENCE, "the flows")
    cni.delete(node, conf)


@pytest.mark.holds("spoof check: DEL and GC leave no flow")
def test_gc_takes_the_flows_with_the_ports(node: Light) -> None:
    conf = checked(*OWN_ADDRESSES, cniVersion="1.1.0")
    other = checked("10.10.0.6/16", cniVersion="1.1.0")
    cni.add(node, conf)
    cni.add(node, other, "c2", "p2")
    keep = {"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}
    assert cni.call(node, "GC", {**conf, **keep}, "", "", env={"CNI_IFNAME": ""}).code == 0
    ports = set(re.findall(r"in_port=(\d+)", "".join(flows(node))))
    assert ports == {str(number_of_port(node, host_name("c2", "eth0")))}, "those of the pod that stays"
    cni.delete(node, other, "c2", "p2")
    assert flows(node) == []


@pytest.mark.holds("spoof check: a later port with the same number is not caught by old flows")
def test_a_later_port_with_the_same_number_is_free(node: Light, site: tuple[Light, Tap]) -> None:
    number = 40000
    conf = checked(*OWN_ADDRESSES, ofport_request=number)
    cni.add(node, conf)
    assert number_of_port(node, host_name("c1", "eth0")) == number and len(flows(node)) > 10
    cni.delete(node, conf)
    free = cni.configuration(ipam=static("10.10.0.6/16"), ofport_request=number)
    cni.add(node, free, "c2", "p2")
    assert number_of_port(node, host_name("c2", "eth0")) == number
    spoken = {"another MAC": FALSE["another MAC"], "ARP of another address": FALSE["ARP of another address"]}
    assert len(passed(pod_of(node, "p2"), site[1], spoken, dict.fromkeys(spoken, True))) == 2
    cni.delete(node, free, "c2", "p2")


def test_flows_that_could_not_go_go_later(node: Light, request: pytest.FixtureRequest) -> None:
    """ovs-vswitchd takes none while a DEL needs it; the DEL does not wait for long, and does not fail."""
    conf = checked(*OWN_ADDRESSES)
    cni.add(node, conf)
    node.ovs.freeze("ovs-vswitchd")
    try:
        answer = cni.call(node, "DEL", conf)
    finally:
        node.ovs.thaw("ovs-vswitchd")
    assert answer.code == 0 and answer.seconds < 5 * PATIENCE
    if "in-process" in request.node.name:
        valid: cni.Json = {"cniVersion": "1.1.0", "cni.dev/valid-attachments": []}
        until(lambda: not cni.call(node, "GC", {**conf, **valid}, "", "", env={"CNI_IFNAME": ""}).code, 10, "GC")
    until(lambda: (flows(node), cni.ports(node)) == ([], []), 8 * PATIENCE, "the end of the flows")


# Who is under it, and where it cannot be


@pytest.mark.holds("spoof check: demanded by policy, whatever the configuration says")
def test_policy_demands_the_check(node: Light, site: tuple[Light, Tap], datapath: str) -> None:
    document = cni.node_document(datapath)
    before = node.run("cat", "/etc/podnet/node.json").stdout
    document["policy"] = [{"bridge": cni.BRIDGE, "vlans": "100", "namespaces": ["default"], "spoof_check": True}]
    conf = cni.configuration(ipam=static(*OWN_ADDRESSES), spoof_check=False)
    node.write("/etc/podnet/node.json", json.dumps(document))
    try:
        cni.add(node, conf)
        assert falsehoods(node, site) == []
        cni.delete(node, conf)
    finally:
        node.write("/etc/podnet/node.json", before)


@pytest.mark.holds("spoof check: refused with words on a bridge with a controller or fail_mode secure")
@pytest.mark.parametrize(
    ("command", "undo", "word"),
    [
        ("set-controller {} ptcp:6640:127.0.0.1", "del-controller {}", "controller"),
        ("set-fail-mode {} secure", "del-fail-mode {}", "fail mode secure"),
    ],
)
def test_where_somebody_else_rules_there_is_no_check(node: Light, command: str, undo: str, word: str) -> None:
    node.ovs.vsctl(*command.format(cni.BRIDGE).split())
    try:
        error = cni.call(node, "ADD", checked(*OWN_ADDRESSES)).document
        assert error["code"] == 7 and "spoof_check" in error["msg"] and word in error["msg"] and error["details"]
        assert cni.leftovers(node) == cni.NOTHING
    finally:
        node.ovs.vsctl(*undo.format(cni.BRIDGE).split())


def test_who_asks_for_the_number_of_a_checked_pod_does_not_get_it(node: Light, site: tuple[Light, Tap]) -> None:
    """Open vSwitch would give the number to who asks, and another one to the pod whose flows are for the old one."""
    conf = checked(*OWN_ADDRESSES)
    cni.add(node, conf)
    host = host_name("c1", "eth0")
    number = number_of_port(node, host)
    error = cni.call(node, "ADD", cni.configuration(ipam=None, ofport_request=number), "c2", "p2").document
    assert error["code"] == 7 and f"port {number}" in error["msg"] and host in error["msg"]
    assert number_of_port(node, host) == number and falsehoods(node, site) == []
    cni.delete(node, conf)


@pytest.mark.holds("CHECK finds missing flows")
def test_check_finds_missing_flows(node: Light) -> None:
    conf = checked(*OWN_ADDRESSES, cniVersion="1.1.0")
    conf["prevResult"] = cni.add(node, conf)
    assert cni.call(node, "CHECK", conf).code == 0
    port = number_of_port(node, host_name("c1", "eth0"))
    node.run("ovs-ofctl", "-OOpenFlow14", "--strict", "del-flows", cni.BRIDGE, f"priority=20000,in_port={port}")
    answer = cni.call(node, "CHECK", conf)
    assert answer.code == 1 and "flows of the spoof check" in answer.document["msg"]
    node.run(*RESTORE)
    assert cni.call(node, "CHECK", conf).code == 0
    cni.delete(node, conf)


def test_more_addresses_than_flows_can_check(node: Light) -> None:
    """An advertisement has a source and a target: flows for it grow with the square of the addresses."""
    many = [f"fd00:10::{number:x}/64" for number in range(1, 34)]
    conf = checked(*many)
    answer = cni.call(node, "ADD", conf)
    assert answer.document["code"] == 7 and "33 IPv6 addresses" in answer.document["msg"], answer
    assert cni.leftovers(node) == cni.NOTHING
    cni.add(node, checked(*many[1:]))
    assert len(flows(node)) > 2000
    cni.delete(node, conf)
