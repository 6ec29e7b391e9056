# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What has gone wrong for users of other systems that put a node's NIC under a bridge: a test each, by its symptom.

On light nodes where the network manager does not matter, else on full ones. Each leaves its node with the NIC in use
as at the beginning, or with the bridge where that is said.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.fault.harness import Subject
from ansible_collections.podnet.ovs.tests.integration.test_move import BRIDGE, NIC, Move, Site
from ansible_collections.podnet.ovs.tests.lab import Nic, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Light

PROMISE = "field reports of single-NIC moves that can be set up here"
pytestmark = pytest.mark.holds(PROMISE)


@pytest.fixture(name="home", scope="module")
def _home(lab: Lab, datapath: str) -> Site:
    """A light node with two addresses of one network, and a second node."""
    lan = lab.lan("site", ipv4="10.88.0.0/24", ipv6="fd88::/64")
    node = lab.light("n1", nics=[Nic(NIC, lan, "static")], datapath=datapath)
    node.install_runtime()
    node.run("ip", "addr", "add", "10.88.0.77/24", "dev", NIC)
    return Site(lan, node)


@pytest.fixture(name="site")
def _site(home: Site) -> Iterator[Site]:
    """The node with its addresses on the NIC, whatever the test before has left."""
    yield home
    if home.attached():
        home.podnet("rollback")
    if home.attached():
        out_again(home)


@pytest.fixture(name="peer", scope="module")
def _peer(lab: Lab, home: Site, datapath: str) -> Light:
    return lab.light("n2", nics=[Nic(NIC, home.lan, "static")], datapath=datapath, ovs=False)


def out_again(site: Site) -> None:
    """The NIC leaves the bridge, and the bridge goes."""
    site.whole("unbridge")
    site.node.run("ovs-vsctl", "--timeout=10", "del-br", BRIDGE)


def read(node: Light | Full, path: str) -> str:
    """The text of a small file."""
    return node.run("cat", path).stdout.strip()


def identity(site: Site) -> list[str]:
    """What of a NIC must never change: index, MAC addresses, MTU, and how often its carrier was lost."""
    names = ("ifindex", "address", "mtu", "carrier_down_count")
    return [read(site.node, f"/sys/class/net/{NIC}/{name}") for name in names]


# On a light node


def test_nic_is_renamed_and_the_phy_port_is_missing_after_a_reboot(site: Site) -> None:
    """antrea 4122, 6301; kube-ovn 884: the NIC is never renamed, never down, and keeps its MAC address and its MTU."""
    before = identity(site)
    site.whole("move")
    assert identity(site) == before
    out_again(site)
    assert identity(site) == before


@pytest.mark.full
def test_second_run_looks_for_the_address_on_the_nic_and_fails(site: Site) -> None:
    """ovn-kubernetes 3534: it is told that nothing is to be moved, and nothing changes."""
    site.whole("move")
    carried = site.layer3(BRIDGE)
    code, answer = site.begin(Move("move"))
    assert code == 1 and answer["kind"] == "refused", answer
    assert "already" in answer["error"] and site.layer3(BRIDGE) == carried and site.reachable()
    out_again(site)


@pytest.mark.full
def test_bridge_has_a_random_mac_or_that_of_its_lowest_port_and_the_lease_is_lost(site: Site) -> None:
    """nmstate 733, nasty 127, harvester 11260: the bridge has the NIC's MAC address, whatever joins it later."""
    mac = read(site.node, f"/sys/class/net/{NIC}/address")
    site.whole("move")
    assert read(site.node, f"/sys/class/net/{BRIDGE}/address") == mac
    low = "set Interface low type=internal 'mac=\"02:00:00:00:00:01\"'"
    site.node.sh(f"ovs-vsctl --timeout=10 add-port {BRIDGE} low -- {low}; ip link set low up")
    assert read(site.node, f"/sys/class/net/{BRIDGE}/address") == mac
    site.node.run("ovs-vsctl", "--timeout=10", "del-port", "low")
    out_again(site)


def test_two_addresses_on_the_nic_and_the_routes_source_became_the_other_one(site: Site) -> None:
    """kube-ovn 2333: order, source address and primary address stay."""
    before, first = site.layer3(NIC), source(site)
    site.whole("move")
    assert site.layer3(BRIDGE) == before and source(site) == first == "10.88.0.11"
    out_again(site)
    assert site.layer3(NIC) == before and source(site) == first


def source(site: Site) -> str:
    """The address from which the node speaks."""
    return str(json.loads(site.node.run("ip", "-j", "route", "get", "198.51.100.1").stdout)[0]["prefsrc"])


@pytest.mark.full
def test_node_is_cut_off_from_its_api_server_and_stays_so(site: Site) -> None:
    """antrea 6448, kubernetes-nmstate 1063: what does not answer any more undoes the move; no state is for ever."""
    move = Move("move", more={"probes": ["tcp://10.88.0.1:6443"]})
    assert site.begin(move)[0] == 0
    found = site.wait(move, "rolled_back")
    assert "tcp://10.88.0.1:6443" in found["reason"] and site.reachable() and site.bridges() == []


@pytest.mark.full
def test_agent_is_killed_between_two_steps_and_can_never_start_again(site: Site) -> None:
    """antrea 8297: SIGKILL in the middle; the node is back by itself, and the same move succeeds."""
    before = site.layer3(NIC)
    move = Move("move", 20)
    assert site.begin(move)[0] == 0
    site.wait(move, "prepared", "cutover", "applied", seconds=20)
    worker = site.node.run("pgrep", "-f", f"bin/podnet uplink work {move.id}", check=False).stdout.split()
    for pid in map(int, worker):
        os.kill(pid, signal.SIGKILL)
    if site.state(move)["state"] == "applied":
        site.podnet("rollback", move.id)
    site.wait(move, "rolled_back", seconds=40)
    assert site.layer3(NIC) == before and site.reachable() and site.bridges() == []
    site.whole("move")
    out_again(site)


@pytest.mark.full
def test_armed_checkpoint_reverts_a_good_change_later(site: Site) -> None:
    """Olares 3727, vyos T870: after the confirmation nothing is left that could undo it."""
    move = site.applied("move", 10)
    assert site.podnet("confirm", move.id, move.nonce)[0] == 0
    site.wait(move, "committed")
    until(lambda: not site.workers(), 20, "the end of what watched over the move", 0.2)
    time.sleep(10)
    assert site.state(move)["state"] == "committed" and site.attached() and site.reachable()
    assert site.podnet("rollback", move.id)[0] == 1, "a confirmed move is not rolled back"
    out_again(site)


@pytest.mark.full
def test_slow_network_triggers_a_false_rollback(site: Site) -> None:
    """cockpit 14065, 13532: the deadline can be put off, and never comes nearer."""
    move = site.applied("move", 10)
    assert site.podnet("extend", move.id, "25")[1]["deadline_in"] > 20
    assert site.podnet("extend", move.id, "1")[1]["deadline_in"] > 20
    time.sleep(11)
    assert site.state(move)["state"] == "applied"
    assert site.podnet("confirm", move.id, move.nonce)[0] == 0
    site.wait(move, "committed")
    out_again(site)


@pytest.mark.full
def test_bridge_is_deleted_and_made_anew_and_its_ports_are_lost(site: Site) -> None:
    """systemd 6507: one bridge row lives through the confirmation and a restart of Open vSwitch."""

    def row() -> str:
        return site.node.run("ovs-vsctl", "--timeout=10", "get", "Bridge", BRIDGE, "_uuid").stdout

    move = site.applied("move")
    first = row()
    assert site.podnet("confirm", move.id, move.nonce)[0] == 0
    site.wait(move, "committed")
    assert row() == first
    out_again(site)


@pytest.mark.full
def test_restart_of_open_vswitch_cuts_the_node_off(site: Site) -> None:
    """crowbar 294, 742: the bridge forwards by itself, without a controller, before and after a restart."""
    site.whole("move")
    site.node.ovs.restart()
    site.node.run("ip", "link", "set", BRIDGE, "up")
    fail_mode = site.node.run("ovs-vsctl", "--timeout=10", "get", "Bridge", BRIDGE, "fail_mode").stdout
    assert "secure" not in fail_mode
    site.node.run("/opt/podnet/current/bin/podnet", "uplink", "repair", BRIDGE)
    until(site.reachable, 20, "the node", 0.5)
    out_again(site)


def test_vxlan_of_flannel_is_gone_or_stale_when_its_parent_changes(site: Site, peer: Light) -> None:
    """k3s 12436, flannel 1348: pods reach one another over the tunnel all the time."""
    for i, (node, remote) in enumerate(((site.node, peer), (peer, site.node)), 1):
        own, far = node.ports[NIC].ipv4(), remote.ports[NIC].ipv4()
        node.sh(
            f"ip link add flannel.1 type vxlan id 1 dev {NIC} local {own} remote {far} dstport 8472;"
            f"ip link set flannel.1 up; ip addr add 10.244.{i}.0/16 dev flannel.1"
        )

    def overlay() -> bool:
        return site.node.run("ping", "-nqc1", "-W2", "10.244.2.0", check=False).returncode == 0

    def parent() -> str:
        return str(
            json.loads(site.node.run("ip", "-d", "-j", "link", "show", "flannel.1").stdout)[0]["linkinfo"]["info_data"][
                "link"
            ]
        )

    try:
        until(overlay, 10, "the tunnel")
        site.whole("move")
        assert parent() == BRIDGE
        until(overlay, 10, "the tunnel after the move")
        out_again(site)
        assert parent() == NIC
        until(overlay, 10, "the tunnel after the way back")
    finally:
        site.node.run("ip", "link", "delete", "flannel.1", check=False)


# On a full node with systemd-networkd


ONLINE = """[Unit]
Wants=network-online.target
After=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'ip -br addr > /root/at-start'
[Install]
WantedBy=multi-user.target
"""
"""Starts where a kubelet does."""


def full_node(lab: Lab, name: str, mode: str, lease: int | None = None) -> Subject:
    """A node with one NIC, managed by systemd-networkd."""
    lan = lab.lan(f"lan-{name}", ipv4="10.77.0.0/24", ipv6="fd77::/64", dhcp=mode == "dhcp", lease=lease)
    node = lab.full(name, nics=[Nic(NIC, lan, mode)], packages=["openvswitch-switch"], runtime=True)
    subject = Subject(node, lan, "auto")
    until(lambda: answers(subject), 30, f"{name} on its address")
    return subject


def answers(subject: Subject) -> bool:
    """Whether the gateway gets an answer from its IPv4 address; the other one may be the node's own choice."""
    return subject.lan.run("ping", "-nqc1", "-W2", subject.addresses[0], check=False).returncode == 0


@pytest.fixture(name="static", scope="module")
def _static(lab: Lab) -> Subject:
    """Its NIC is matched by driver, as in some clouds."""
    subject = full_node(lab, "fixed", "static")
    path = f"/etc/systemd/network/10-{NIC}.network"
    text = subject.full.get(path).decode()
    subject.full.write(path, text.replace(f"Name={NIC}", "Driver=veth"))
    subject.full.sh("networkctl reload")
    return subject


@pytest.fixture(name="leased", scope="module")
def _leased(lab: Lab) -> Subject:
    return full_node(lab, "leased", "dhcp", 30)


def addresses(subject: Subject, device: str) -> list[str]:
    """The addresses of a device that others can reach."""
    links = json.loads(subject.full.run("ip", "-j", "addr", "show", "dev", device).stdout)
    return [item["local"] for item in links[0]["addr_info"] if item["scope"] == "global"]


@pytest.mark.full
def test_after_a_reboot_the_nic_is_in_the_bridge_and_the_address_on_the_nic(static: Subject) -> None:
    """ovn-kubernetes 5091, 5139, 2020, 281; MCO 3982: a power cut before the confirmation; no half files, no bridge."""
    files = static.full.run("sh", "-c", "cat /etc/systemd/network/*").stdout
    move, begun = static.begin("move", 60)
    assert begun.returncode == 0, begun.stdout
    static.wait_for(move, "applied", seconds=60)
    static.full.power_cycle()
    until(static.reachable, 60, "the node on its address")
    assert static.bridges() == [] and static.carries(NIC)
    assert static.full.run("ovs-vsctl", "--timeout=10", "list-br").stdout == ""
    assert static.full.run("sh", "-c", "cat /etc/systemd/network/*").stdout == files
    assert static.state(move) == "rolled_back"


@pytest.mark.full
def test_manager_wipes_foreign_routes_or_manages_the_port_again(static: Subject) -> None:
    """ovn-kubernetes 5823, doca-platform 30, antrea 5221, systemd 20241: after a restart of networkd all is there.

    Its files match by name. networkd neither fails for a port of Open vSwitch nor tries it again and again.
    """
    node = static.full
    static.run_whole("move")
    node.run("ip", "route", "add", "10.200.0.0/16", "via", static.lan.gateway, "proto", "188")
    node.run("systemctl", "restart", "systemd-networkd")
    time.sleep(5)
    assert static.reachable() and static.carries("br-x") and not addresses(static, NIC)
    assert "10.200.0.0/16" in node.run("ip", "route", "show", "proto", "188").stdout
    assert "failed" not in node.run("networkctl", "list", "--no-pager").stdout
    lines = node.run("journalctl", "-u", "systemd-networkd", "--since", "-4s", "--no-pager").stdout.splitlines()
    assert len(lines) < 30, "networkd tries something again and again"


@pytest.mark.full
def test_services_start_before_the_bridge_has_its_address(static: Subject) -> None:
    """kube-ovn 1964, 962; netplan 165; systemd's MACAddressPolicy: a reboot of the moved node, then the way out."""
    node = static.full
    assert static.bridges() == ["br-x"], "the test before this one moves the NIC"
    mac = read(node, "/sys/class/net/br-x/address")
    node.write("/etc/systemd/system/like-kubelet.service", ONLINE)
    node.run("systemctl", "unmask", "systemd-networkd-wait-online.service")  # the lab's nodes have no use for it
    node.run("systemctl", "enable", "like-kubelet.service", "systemd-networkd-wait-online.service")
    node.reboot()
    until(static.reachable, 60, "the node on its address")
    until(lambda: node.run("test", "-s", "/root/at-start", check=False).returncode == 0, 60, "what starts last")
    seen = next(line for line in read(node, "/root/at-start").splitlines() if line.startswith("br-x "))
    assert static.addresses[0] in seen
    assert read(node, "/sys/class/net/br-x/address") == mac
    assert node.run("systemctl", "--failed", "--plain", "--no-legend").stdout == ""
    static.run_whole("unbridge")
    assert static.carries(NIC)


@pytest.mark.full
def test_rollback_waits_for_dhcp_and_hangs(leased: Subject) -> None:
    """nmstate 2350; kubernetes-nmstate 474: with no DHCP server at all the node is back at once, and reached."""
    before = addresses(leased, NIC)
    move, begun = leased.begin("move", 60)
    assert begun.returncode == 0, begun.stdout
    leased.wait_for(move, "applied", seconds=60)
    leased.lan.dhcp_off()
    try:
        began = time.monotonic()
        assert leased.rollback(move).returncode == 0
        assert time.monotonic() - began < 15 and leased.state(move) == "rolled_back"
        assert answers(leased) and set(before) <= set(addresses(leased, NIC))
    finally:
        leased.lan.dhcp_on()


@pytest.mark.full
def test_lease_of_a_moved_address_is_never_renewed_or_the_client_adds_it_to_the_nic_again(leased: Subject) -> None:
    """ovn-kubernetes 5329, antrea 5192, kubernetes-nmstate 355, systemd 39922: also after a reboot; no release."""
    node, address = leased.full, leased.addresses[0]
    with leased.lan.capture() as seen:
        leased.run_whole("move")
        time.sleep(40)  # a lease and a third
    kinds = [message.type for message in seen.dhcp()]
    assert "REQUEST" in kinds and "RELEASE" not in kinds, kinds
    assert answers(leased) and addresses(leased, "br-x")[0] == address and not addresses(leased, NIC)
    node.reboot()
    until(lambda: answers(leased), 60, "the node on its address")
    assert addresses(leased, "br-x")[0] == address and not addresses(leased, NIC)
    leased.run_whole("unbridge")
    assert address in addresses(leased, NIC)
