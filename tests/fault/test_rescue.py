# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The rescue itself, whatever of Open vSwitch is dead; on light nodes, in the vm on the kernel's datapath too."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.fault.years import PODNET, begin, bridge_state, wait_for_state

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

GATEWAYS = ("10.71.0.1", "fd71::1")
WATCH = "/opt/podnet/current/bin/podnet-watch"
DAEMONS = ("ovs-vswitchd", "ovsdb-server")


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node whose only NIC carries it."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    lan = lab.lan("lan", ipv4="10.71.0.0/24", ipv6="fd71::/64")
    node = lab.light("n1", nics=[Nic("eth0", lan, "static")], datapath=datapath)
    node.install_runtime()
    return node


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node on its bridge; afterwards Open vSwitch runs again."""
    if not bridges(machine) or bridge_state(machine)[0] == "rescued":
        journal = begin(machine)
        assert journal["state"] == "committed", journal["reason"] or journal["log"]
    assert bridge_state(machine) == ("ok", "")
    answers(machine)
    yield machine
    for daemon in reversed(DAEMONS):
        if not alive(machine, daemon):
            machine.ovs.start(daemon)


def bridges(node: Light) -> list[str]:
    """The bridges that carry the node."""
    done = node.run(PODNET, "uplink", "status", "--json", check=False)
    assert done.stdout, done.stderr
    return [item["bridge"] for item in json.loads(done.stdout)["bridges"]]


def alive(node: Light, daemon: str) -> bool:
    """Whether a daemon of the node runs."""
    done = node.run("sh", "-c", f"kill -0 $(cat /run/openvswitch/{daemon}.pid)", check=False)
    return done.returncode == 0


def answers(node: Light) -> None:
    """The node's old addresses reach the gateways, and are reached by them."""
    for gateway in GATEWAYS:
        node.run("ping", "-nqc", "1", "-W", "2", "-w", "6", gateway)


def on_the_nic(node: Light) -> None:
    """The NIC carries the node, and belongs to nobody."""
    (link,) = json.loads(node.run("ip", "-json", "address", "show", "eth0").stdout)
    assert "master" not in link
    there = {item["local"] for item in link["addr_info"] if item["scope"] == "global"}
    assert there == {str(address.ip) for address in node.ports["eth0"].addresses}
    assert bridge_state(node)[0] == "rescued"
    answers(node)


@pytest.mark.parametrize(
    "dead",
    [("ovs-vswitchd",), *(pytest.param(dead, marks=pytest.mark.full) for dead in ((), DAEMONS, ("ovsdb-server",)))],
    ids="+".join,
)
def test_whatever_is_dead_the_nic_gets_its_addresses_back(node: Light, dead: tuple[str, ...]) -> None:
    for daemon in dead:
        node.ovs.kill(daemon)
    began = time.monotonic()
    node.run(PODNET, "uplink", "rescue", "br-x", timeout=60)
    assert time.monotonic() - began < 45
    on_the_nic(node)
    said = node.run(PODNET, "uplink", "ensure", "br-x").stdout
    assert "rescued" in said
    for daemon in reversed(dead):
        node.ovs.start(daemon)
    time.sleep(2)
    on_the_nic(node)


@pytest.mark.full
def test_a_database_that_could_not_be_changed_does_not_take_the_nic_back(node: Light) -> None:
    """The disk is full or broken while the NIC is rescued, and mended before Open vSwitch starts again."""
    for daemon in DAEMONS:
        node.ovs.kill(daemon)
    node.sh("mount --bind /etc/openvswitch /etc/openvswitch; mount -o remount,bind,ro /etc/openvswitch")
    try:
        node.run(PODNET, "uplink", "rescue", "br-x", timeout=60)
        on_the_nic(node)
    finally:
        node.run("umount", "/etc/openvswitch")
    for daemon in reversed(DAEMONS):
        node.ovs.start(daemon)
    assert "eth0" in node.ovs.vsctl("list-ports", "br-x").stdout.split()
    assert "rescued" in node.run(PODNET, "uplink", "ensure", "br-x").stdout
    assert "eth0" not in node.ovs.vsctl("list-ports", "br-x").stdout.split()
    time.sleep(2)
    on_the_nic(node)


@pytest.mark.full
def test_a_switch_that_hangs(node: Light) -> None:
    node.ovs.signal("ovs-vswitchd", signal.SIGSTOP)
    try:
        node.run(PODNET, "uplink", "rescue", "br-x", timeout=60)
        on_the_nic(node)
    finally:
        node.ovs.signal("ovs-vswitchd", signal.SIGCONT)
    time.sleep(1)
    on_the_nic(node)


def test_a_bridge_that_is_lost_comes_back(node: Light) -> None:
    node.ovs.vsctl("--no-wait", "del-br", "br-x")
    time.sleep(1)
    said = node.run(PODNET, "uplink", "repair", "br-x").stdout
    assert "br-x create" in said and "eth0 create" in said
    assert bridge_state(node) == ("ok", "")
    answers(node)
    assert "is there, with eth0" in node.run(PODNET, "uplink", "ensure", "br-x").stdout


@pytest.mark.full
def test_the_watcher_repairs_what_can_be_repaired_and_rescues_the_rest(node: Light) -> None:
    watcher = node.popen(WATCH, "br-x", stdout=None, stderr=None)
    try:
        node.ovs.restart()
        time.sleep(3)
        wait_for_state(node, "ok", 30)
        answers(node)
        node.ovs.kill("ovs-vswitchd")
        assert wait_for_state(node, "rescued", 60) == "ovs-vswitchd does not run" or "br-x" in bridge_state(node)[1]
        time.sleep(3)
        on_the_nic(node)
    finally:
        watcher.kill()
        watcher.wait()
