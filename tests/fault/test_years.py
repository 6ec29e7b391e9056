# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What may happen to a node in the years after its NIC moved: its old address answers ssh again, whatever is broken.

Full nodes with systemd, one NIC, static or DHCP. What was rescued is moved again by the same command as at first.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.fault.years import (
    CRASH,
    DB,
    FILL_THE_DISK,
    LIMIT,
    begin,
    bridge_state,
    reached,
    story,
    wait_for_state,
)

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Full, Lab

KINDS = [
    "bookworm-static",
    *(pytest.param(kind, marks=pytest.mark.full) for kind in ("trixie-static", "bookworm-dhcp")),
]


def stays(node: Full, wanted: str, seconds: float = 30.0) -> None:
    """The node stays so, and reachable."""
    time.sleep(seconds)
    assert bridge_state(node)[0] == wanted, story(node)
    assert reached(node, 10) < 10


@pytest.fixture(scope="module", params=KINDS)
def machine(lab: Lab, request: pytest.FixtureRequest) -> Full:
    """A node that was moved."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    suite, mode = str(request.param).split("-")
    number = len(lab.lans)
    lan = lab.lan(
        f"lan{number}", ipv4=f"10.6{number}.0.0/24", ipv6=f"fd6{number}::/64", dhcp=mode == "dhcp", mirror=True
    )
    node = lab.full(
        f"y{number}", suite=suite, nics=[Nic("eth0", lan, mode)], packages=["openvswitch-switch"], runtime=True
    )
    journal = begin(node)
    assert journal["state"] == "committed", journal["reason"] or journal["log"]
    return node


@pytest.fixture
def node(machine: Full) -> Iterator[Full]:
    """The node with its bridge in order; whatever the test before left is repaired by one more move."""
    if bridge_state(machine)[0] == "rescued":
        machine.run("systemctl", "start", "openvswitch-switch", timeout=120)
        journal = begin(machine)
        assert journal["state"] == "committed", journal["reason"] or journal["log"]
    wait_for_state(machine, "ok")
    reached(machine, 30)
    yield machine


@pytest.mark.full
def test_open_vswitch_is_restarted(node: Full) -> None:
    node.run("systemctl", "restart", "openvswitch-switch", timeout=120)
    reached(node)
    wait_for_state(node, "ok")
    stays(node, "ok")


@pytest.mark.full
@pytest.mark.parametrize("size", ["0", "100", "8000", "-3", "-400", "gone", "noise"])
def test_the_database_is_damaged_and_the_node_reboots(node: Full, size: str) -> None:
    damage = {"gone": f"rm {DB}", "noise": f"dd if=/dev/urandom of={DB} bs=1k count=16"}
    node.sh(damage.get(size, f"truncate -s {size} {DB}"))
    node.power_cycle()
    reached(node)
    wait_for_state(node, "ok")


@pytest.mark.full
def test_the_disk_is_full_and_the_node_reboots(node: Full) -> None:
    node.sh(FILL_THE_DISK)
    try:
        node.power_cycle()
        assert node.run("sh", "-c", "echo x > /etc/openvswitch/x", check=False).returncode, "the disk is not full"
        reached(node)
        node.run("systemctl", "stop", "--no-block", "ovs-vswitchd")
        wait_for_state(node, "rescued")
        reached(node)
    finally:
        node.run("systemctl", "disable", "full-disk.service")
        node.power_cycle()
    reached(node)
    wait_for_state(node, "ok")


def test_the_switch_is_stopped_for_good(node: Full) -> None:
    node.run("systemctl", "stop", "ovs-vswitchd", timeout=120)
    began = time.monotonic()
    why = wait_for_state(node, "rescued")
    reached(node, LIMIT - (time.monotonic() - began))
    assert "ovs-vswitchd does not run" in why or "br-x" in why
    node.run("systemctl", "start", "ovs-vswitchd", timeout=120)
    stays(node, "rescued", 5)


@pytest.mark.full
def test_the_switch_crashes_again_and_again(node: Full) -> None:
    node.write("/etc/systemd/system/ovs-vswitchd.service.d/crash.conf", CRASH)
    try:
        node.run("systemctl", "daemon-reload")
        node.run("systemctl", "kill", "--signal=KILL", "ovs-vswitchd")
        wait_for_state(node, "rescued")
        reached(node)
        node.power_cycle()
        reached(node)
        wait_for_state(node, "rescued")
        stays(node, "rescued", 20)
    finally:
        node.run("rm", "/etc/systemd/system/ovs-vswitchd.service.d/crash.conf")
        node.run("systemctl", "daemon-reload")


@pytest.mark.full
def test_the_database_server_cannot_start(node: Full) -> None:
    node.write("/etc/systemd/system/ovsdb-server.service.d/crash.conf", CRASH)
    try:
        node.power_cycle()
        reached(node)
        wait_for_state(node, "rescued")
    finally:
        node.run("rm", "/etc/systemd/system/ovsdb-server.service.d/crash.conf")
        node.run("systemctl", "daemon-reload")


@pytest.mark.full
def test_the_packages_are_installed_again(node: Full) -> None:
    node.run("apt-get", "-q", "update", timeout=120)
    node.run("apt-get", "-q", "-y", "install", "--reinstall", "openvswitch-switch", "openvswitch-common", timeout=300)
    reached(node)
    stays(node, "ok", 40)


@pytest.mark.full
def test_the_packages_are_removed(node: Full) -> None:
    node.run("apt-get", "-q", "-y", "remove", "openvswitch-switch", timeout=300)
    reached(node)
    wait_for_state(node, "rescued")
    node.power_cycle()
    reached(node)
    node.run("apt-get", "-q", "update", timeout=120)
    node.run("apt-get", "-q", "-y", "install", "openvswitch-switch", timeout=300)
    wait_for_state(node, "rescued", 10)


@pytest.mark.full
def test_out_of_the_bridge_again_after_all_that(node: Full) -> None:
    journal = begin(node, "unbridge")
    assert journal["state"] == "committed", journal["reason"] or journal["log"]
    assert reached(node) < LIMIT
    units = node.sh("systemctl list-units --all --plain --no-legend 'podnet-bridge@*' 'podnet-rescue@*'").stdout
    assert units.strip() == ""
    node.reboot()
    reached(node)
