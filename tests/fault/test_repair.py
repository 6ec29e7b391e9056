# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever broke in the years, one run of `podnet.ovs.site` makes the node as declared, and the next changes nothing.

A full node with one NIC, which `site` moved at first; each test breaks something else of Open vSwitch.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ansible_collections.podnet.ovs.tests.fault.years import (
    CRASH,
    DB,
    FILL_THE_DISK,
    bridge_state,
    reached,
    story,
    wait_for_state,
)
from ansible_collections.podnet.ovs.tests.integration.controller import Controller
from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Nic, until

BRIDGE = {
    "name": "br-x",
    "datapath_type": "netdev",
    "uplinks": [{"name": "eth0", "vlans": "100,200", "move": True}],
    "interfaces": [{"name": "pods100", "vlan": 100, "addresses": ["10.30.0.11/24", "fd00:30::11/64"]}],
}
VARIABLES = {"podnet_bridges": [BRIDGE], "podnet_verify": False, "podnet_ovs_timeout": 10}
PORTS = {"br-x": (0, []), "eth0": (0, [0, 100, 200]), "pods100": (100, [])}
"""Tag and trunks of each port of the bridge."""


@dataclass(frozen=True)
class Home:
    """A node that lives on its bridge, who works on it, and the addresses that it always had."""

    node: Full
    controller: Controller
    addresses: frozenset[str]

    def check(self) -> None:
        """Everything is as declared."""
        node = self.node
        wait_for_state(node, "ok", 10)
        assert addresses(node, "br-x") == self.addresses and not addresses(node, "eth0"), story(node)
        assert addresses(node, "pods100") == {"10.30.0.11/24", "fd00:30::11/64"}, story(node)
        found = json.loads(node.run("ovs-vsctl", "--format=json", "--columns=name,tag,trunks", "list", "Port").stdout)
        ports = {name: (_set(tag)[0] if _set(tag) else 0, _set(trunks)) for name, tag, trunks in found["data"]}
        assert ports == PORTS and node.run("ovs-vsctl", "list-br").stdout.split() == ["br-x"]
        reached(node, 10)

    def repair(self, check: bool = False) -> None:
        """One run of `site` repairs, the next changes nothing; with `check` the one before tells of the move."""
        if check:
            told = self.controller.good("site", "--check")
            assert "move eth0 move" in " ".join(thing for _host, thing in told.objects), told.text
        self.controller.good("site")
        self.check()
        again = self.controller.good("site")
        assert again.changed() == 0, again.text
        self.check()


def _set(value: object) -> list[int]:
    """A column of small numbers, as ovs-vsctl writes it in JSON."""
    return sorted(value[1]) if isinstance(value, list) else [int(str(value))]


def addresses(node: Full, device: str) -> frozenset[str]:
    """The addresses of a device that other networks reach, without those that a router gave."""
    links = json.loads(node.run("ip", "-j", "address", "show", "dev", device, check=False).stdout or "[]")
    found = [item for link in links for item in link["addr_info"] if item["scope"] == "global"]
    return frozenset(f"{item['local']}/{item['prefixlen']}" for item in found)


def on_the_nic(home: Home, limit: float = 90.0) -> None:
    """The node was rescued, and stays reachable."""
    began = time.monotonic()
    wait_for_state(home.node, "rescued", limit)
    reached(home.node, max(limit - (time.monotonic() - began), 1.0))
    assert addresses(home.node, "eth0") == home.addresses, story(home.node)


@pytest.fixture(scope="module", params=["static", pytest.param("dhcp", marks=pytest.mark.full)])
def moved(lab: Lab, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A node that `site` moved, of each kind."""
    number, mode = len(lab.lans), str(request.param)
    lan = lab.lan(
        f"lan{number}", ipv4=f"10.7{number}.0.0/24", ipv6=f"fd7{number}::/64", dhcp=mode == "dhcp", mirror=True
    )
    name = f"r{number}"
    node = lab.full(name, nics=[Nic("eth0", lan, mode)], packages=["openvswitch-switch"])
    inventory = lab.inventory()
    folder = tmp_path_factory.mktemp("controller")
    controller = Controller.make(folder, inventory, VARIABLES, {name: {}})
    controller.extra[:] = ["--limit", name]
    until(lambda: len(addresses(node, "eth0")) > 1, 30, "the node's addresses")
    home = Home(node, controller, addresses(node, "eth0"))
    controller.good("site")
    home.check()
    yield home
    node.down()


@pytest.fixture
def home(moved: Home) -> Home:
    """The node in order."""
    moved.check()
    return moved


@pytest.mark.full
@pytest.mark.parametrize("size", ["nothing", "half"])
@pytest.mark.holds("conf.db truncated, then a loss of power: one run of `site` repairs, the next `changed=0`")
def test_the_database_is_truncated(home: Home, size: str) -> None:
    home.node.sh(f"truncate -s {'0' if size == 'nothing' else f'$(($(stat -c %s {DB}) / 2))'} {DB}")
    home.node.power_cycle()
    reached(home.node)
    wait_for_state(home.node, "ok")
    home.repair()


@pytest.mark.full
@pytest.mark.holds("ovs-vswitchd in a crash loop: rescued; with the cause gone one run of `site` repairs")
def test_the_switch_crashes_again_and_again(home: Home) -> None:
    node = home.node
    drop_in = "/etc/systemd/system/ovs-vswitchd.service.d/crash.conf"
    node.write(drop_in, CRASH)
    try:
        node.run("systemctl", "daemon-reload")
        node.run("systemctl", "kill", "--signal=KILL", "ovs-vswitchd")
        on_the_nic(home)
        run = home.controller.play("site")
        assert run.code != 0 and "Open vSwitch does not start" in run.text, run.text
        assert "systemctl status ovsdb-server.service ovs-vswitchd.service" in run.text and run.changed() == 0, run.text
        on_the_nic(home, 10)
    finally:
        node.run("rm", drop_in)
        node.run("systemctl", "daemon-reload")
    home.repair()


@pytest.mark.holds("Open vSwitch stopped and disabled: rescued; one run of `site` starts it and moves the node back")
def test_the_switch_is_stopped_for_good(home: Home) -> None:
    home.node.run("systemctl", "disable", "--now", "openvswitch-switch", timeout=120)
    on_the_nic(home)
    home.repair()
    assert home.node.run("systemctl", "is-enabled", "openvswitch-switch").stdout.strip() == "enabled"


@pytest.mark.full
@pytest.mark.holds("Open vSwitch stopped: check mode tells what the repair will do")
def test_check_mode_tells_of_the_repair(home: Home) -> None:
    home.node.run("systemctl", "stop", "openvswitch-switch", timeout=120)
    on_the_nic(home)
    home.repair(check=True)


@pytest.mark.full
@pytest.mark.holds("ovs-vswitchd ended by hand, its service still active: rescued; one run of `site` repairs")
def test_the_switch_ends_by_itself(home: Home) -> None:
    home.node.run("ovs-appctl", "exit")
    on_the_nic(home)
    assert home.node.run("systemctl", "is-active", "openvswitch-switch").stdout.strip() == "active"
    home.repair(check=True)


@pytest.mark.full
@pytest.mark.parametrize("verb", ["remove", "purge"])
@pytest.mark.holds("package openvswitch-switch removed: rescued; one run of `site` installs it and moves the node back")
def test_the_package_is_gone(home: Home, verb: str) -> None:
    home.node.run("apt-get", "-q", "-y", verb, "openvswitch-switch", timeout=300)
    if verb == "purge":
        home.node.run("rm", "-rf", "/etc/openvswitch", "/var/lib/openvswitch")
    on_the_nic(home)
    home.repair()


@pytest.mark.full
@pytest.mark.holds("disk full, switch stopped: rescued; with room again one run of `site` repairs")
def test_the_disk_is_full(home: Home) -> None:
    node = home.node
    node.sh(FILL_THE_DISK)
    try:
        node.power_cycle()
        for folder in ("openvswitch", "podnet"):
            assert node.run("sh", "-c", f"echo x > /var/lib/{folder}/x", check=False).returncode, "there is room"
        reached(node)
        node.run("systemctl", "stop", "--no-block", "ovs-vswitchd")
        on_the_nic(home)
        run = home.controller.play("site")
        assert run.code != 0 and "make room on that disk" in run.text and run.changed() == 0, run.text
        on_the_nic(home, 10)
    finally:
        node.run("systemctl", "disable", "full-disk.service")
        node.run("systemctl", "stop", "openvswitch-switch", timeout=120)
        node.run("umount", "--lazy", "/etc/openvswitch", "/var/lib/openvswitch", "/var/lib/podnet", "/run/disk")
    on_the_nic(home, 10)
    home.repair()


@pytest.mark.full
@pytest.mark.holds("the bridge is deleted by hand: it comes back, and one run of `site` restores the rest")
def test_the_bridge_is_deleted_by_hand(home: Home) -> None:
    home.node.run("ovs-vsctl", "--no-wait", "del-br", "br-x")
    until(lambda: bridge_state(home.node)[0] != "broken", 60, "the bridge, or the rescue")
    reached(home.node)
    home.repair()
