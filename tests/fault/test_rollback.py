# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What is wrong around a node while its only NIC moves: it goes back by itself, says why, and ssh works as before.

The controller is a process that speaks to the node over ssh alone, each step on a connection of its own.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, GRACE, NIC, PODNET, Move, Subject
from ansible_collections.podnet.ovs.tests.lab import Lab, Nic, until
from ansible_collections.podnet.ovs.tests.lab.proc import run

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Full

TIMEOUT = 20
CONTROLLER = Path(__file__).with_name("controller.py")
PROMISE = (
    "wrong VLAN, dead uplink, gateway gone, other DHCP server, firewall drops SSH on the bridge, controller vanishes"
)


def make(lab: Lab, mode: str, lease: int | None = None) -> Subject:
    """A node with one NIC, and all that a move needs."""
    lan = lab.lan(f"lan-{mode}", ipv4="10.77.0.0/24", ipv6="fd77::/64", dhcp=mode == "dhcp", lease=lease)
    node = lab.full(mode, nics=[Nic(NIC, lan, mode)], packages=["openvswitch-switch"], runtime=True)
    subject = Subject(node, lan, "auto")
    until(lambda: logs_in(node), 30, "ssh to the node")
    until(subject.reachable if mode == "static" else lambda: len(carried(node, NIC)[0]) == 2, 30, "both families")
    return subject


@pytest.fixture(name="static", scope="module")
def _static(lab: Lab) -> Subject:
    return make(lab, "static")


@pytest.fixture(name="leased", scope="module")
def _leased(lab: Lab) -> Subject:
    return make(lab, "dhcp", lease=40)


def logs_in(node: Full) -> bool:
    """Whether ssh works, on a new connection."""
    words = [*node.ssh_words()[:-1], "-o", "ConnectTimeout=3", node.name, "true"]
    return subprocess.run(words, capture_output=True, timeout=30, check=False).returncode == 0


def carried(node: Full, device: str) -> tuple[list[str], list[str]]:
    """Addresses and routes of a device, without what counts down."""
    links = json.loads(node.run("ip", "-j", "addr", "show", "dev", device).stdout)
    addresses = [f"{item['local']}/{item['prefixlen']}" for item in links[0]["addr_info"] if item["scope"] == "global"]
    rows = [
        f"{row['dst']} {row.get('gateway', '')} {row.get('metric', '')}"
        for version in ("-4", "-6")
        for row in json.loads(node.run("ip", version, "-j", "route", "show", "dev", device).stdout or "[]")
        if not row["dst"].startswith(("fe80", "ff00"))
    ]
    return addresses, sorted(rows)


def nft(subject: Subject, script: str) -> None:
    """Rules for the node's network, by the machine's own tool: the node has none."""
    run(["nsenter", f"--net={subject.node.netns_path}", "nft", "-f", "-"], input=script)


@contextmanager
def controlled(subject: Subject, move: Move, **declared: Any) -> Iterator[subprocess.Popen[str]]:
    """A controller that carries the move out; `declared`: keys of the bridge."""
    document = subject.begin_document(move, BRIDGE)
    document["request"]["bridge"].update(declared)
    told = {"ssh": subject.full.ssh_words(), "begin": document, "nonce": move.nonce}
    process = subprocess.Popen(
        [sys.executable, str(CONTROLLER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(told))
    process.stdin.close()
    try:
        yield process
    finally:
        process.kill()
        process.wait()


class Once:
    """Calls something the first time that it is asked to, once it is wanted."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work = work
        self.wanted = False

    def __call__(self) -> None:
        if self.wanted:
            self.wanted = False
            self.work()


def goes_back(
    subject: Subject, meanwhile: Callable[[Move], None], said: str, after: Callable[[], None], **bridge: Any
) -> None:
    """The move goes back by itself within its time, the node says why, and nothing else is as it was not."""
    node = subject.full
    before = carried(node, NIC)
    assert before[0]
    move = Move("move", TIMEOUT)
    try:
        with controlled(subject, move, **bridge) as controller:
            until(lambda: subject.state(move) or controller.poll() is not None, 20, "the beginning of the move")
            assert controller.stdout is not None
            assert controller.poll() is None, controller.stdout.read()
            move.began = time.monotonic()
            meanwhile(move)
            subject.wait_for(move, "rolled_back", seconds=TIMEOUT + GRACE + 5)
            took = time.monotonic() - move.began
            after()
            told = json.loads(controller.stdout.readline())
    finally:
        after()
    assert took <= TIMEOUT + GRACE, f"{took:.0f} s"
    # a controller that has lost the node for good says so, and the node keeps the reason
    assert told["result"] in ("rolled_back", "unreachable"), told
    until(lambda: logs_in(node), 10, "ssh as before")
    answer = json.loads(node.ssh(PODNET, "uplink", "status", move.id, "--json").stdout)
    assert answer["state"] == "rolled_back" and re.search(said, answer["reason"]), answer["reason"]
    addresses, routes = carried(node, NIC)
    if node.ports[NIC].nic.mode == "dhcp":  # whose client may have asked the other server by now, move or not
        assert set(before[0]) <= set(addresses) and set(before[1]) <= set(routes), (addresses, routes)
    else:
        assert (addresses, routes) == before
    assert node.ssh(PODNET, "uplink", "confirm", move.id, move.nonce, check=False).returncode == 1
    assert node.run("ovs-vsctl", "list-br").stdout == ""
    left = node.run("systemctl", "list-units", "--all", "--plain", "--no-legend", f"*{move.id}*").stdout
    assert not left, left


def nothing() -> None:
    """Nothing has to be put right again."""


@pytest.mark.holds(PROMISE)
def test_the_gateway_is_gone(static: Subject) -> None:
    lan = static.lan
    up = Once(lan.gateway_up)

    def down(move: Move) -> None:
        static.wait_for(move, "prepared", "cutover", seconds=15)
        lan.gateway_down()
        up.wanted = True

    # the controller has an address of its own on the LAN, and still reaches the node
    goes_back(static, down, "gateway 10.77.0.1", up)


@pytest.mark.holds(PROMISE)
def test_a_firewall_drops_ssh_on_the_bridge(static: Subject) -> None:
    table = "add table inet lab\nadd chain inet lab in { type filter hook input priority 0; }"
    nft(static, f"{table}\nadd rule inet lab in iifname {BRIDGE} tcp dport 22 drop")
    try:
        goes_back(static, lambda move: None, "nobody confirmed it", nothing)
    finally:
        nft(static, "delete table inet lab")


@pytest.mark.full
@pytest.mark.holds(PROMISE)
def test_the_uplink_is_dead(static: Subject) -> None:
    lan, port = static.lan, static.node.ports[NIC]
    back = Once(lambda: lan.drop(port, False))

    def dead(move: Move) -> None:
        static.wait_for(move, "prepared", "cutover", seconds=15)
        lan.drop(port)
        back.wanted = True

    goes_back(static, dead, "gateway 10.77.0.1", back)


@pytest.mark.full
@pytest.mark.holds(PROMISE)
def test_the_cable_is_pulled_after_the_cutover(static: Subject) -> None:
    """All was well on the node itself; nobody can confirm it, and the cable is back after it has gone back."""
    lan, port = static.lan, static.node.ports[NIC]
    back = Once(lambda: lan.carrier(port, True))

    def pull(move: Move) -> None:
        static.wait_for(move, "cutover", "applied", seconds=15)
        lan.carrier(port, False)
        back.wanted = True

    goes_back(static, pull, "", back)


@pytest.mark.full
@pytest.mark.holds(PROMISE)
def test_the_vlan_is_wrong(static: Subject) -> None:
    goes_back(static, lambda move: None, "gateway 10.77.0.1", nothing, interfaces=[{"name": BRIDGE, "vlan": 100}])


@pytest.mark.full
@pytest.mark.holds(PROMISE)
def test_the_controller_vanishes(static: Subject) -> None:
    before = carried(static.full, NIC)
    move = Move("move", TIMEOUT)
    with controlled(static, move) as controller:
        until(lambda: static.state(move), 20, "the beginning of the move")
        controller.kill()
    static.wait_for(move, "rolled_back", seconds=TIMEOUT + GRACE)
    until(lambda: logs_in(static.full), 10, "ssh as before")
    assert carried(static.full, NIC) == before
    shown = static.full.ssh(PODNET, "uplink", "status", move.id).stdout
    assert "rolled_back: nobody confirmed it" in shown


@pytest.mark.full
@pytest.mark.holds(PROMISE)
@pytest.mark.parametrize("network", [None, "10.78.0.0/24"], ids=["another address", "another network"])
def test_another_dhcp_server_answers(leased: Subject, network: str | None) -> None:
    lan = leased.lan
    lan.dhcp_other(network)
    try:
        goes_back(leased, lambda move: None, "DHCP", nothing)
    finally:
        lan.dhcp_on()
