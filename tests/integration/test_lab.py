# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lab does what its users rely on, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ansible_collections.podnet.ovs.tests.lab import (
    CommandFailed,
    Lab,
    LabError,
    Lan,
    Light,
    Nic,
    Node,
    Pair,
    until,
)
from ansible_collections.podnet.ovs.tests.lab.lab import all_labs, clear_abandoned
from ansible_collections.podnet.ovs.tests.lab.proc import LABS
from ansible_collections.podnet.ovs.tests.lab.space import processes_in

WAIT = 400
"""Seconds for an emulated machine to boot in, beside other work."""


def name_of(words: str) -> str:
    """A lab's name that no other run of this file uses."""
    return f"lab-{words}-{os.getpid()}"


def traces(lab: str) -> list[str]:
    """All that a lab of this name has left on the machine."""
    found = [str(path) for path in Path("/run/netns").glob(f"podnet.{lab}.*")]
    found += [str(path) for path in LABS.glob(f"{lab}*")]
    found += [line for line in Path("/proc/mounts").read_text().splitlines() if f"/{lab}/" in line]
    groups = [path for pattern in ("*", "*/*") for path in Path("/sys/fs/cgroup").glob(pattern)]
    found += [str(path) for path in groups if lab in path.name]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes()
        except OSError:
            continue
        if f"/{lab}/".encode() in words or f"podnet.{lab}.".encode() in words:
            found.append(f"{path}: {words!r}")
    return found


def bridge(node: Light, *uplinks: str) -> None:
    """A bridge with these uplinks, made by hand."""
    node.ovs.vsctl("add-br", "br0", "--", "set", "bridge", "br0", f"datapath_type={node.datapath}")
    for uplink in uplinks:
        node.ovs.vsctl("add-port", "br0", uplink)
        node.run("ip", "link", "set", uplink, "up")


def attach(node: Light, pod: str, vlan: int, address: str) -> None:
    """A pod on an access port, made by hand."""
    port = f"v-{pod}"
    node.netns(pod)
    node.sh(f"""
        ip link add {port} type veth peer name eth0 netns {pod}
        ip link set {port} up
        ip -n {pod} addr add {address} dev eth0
        ip -n {pod} link set eth0 up
        ovs-vsctl --timeout=10 add-port br0 {port} tag={vlan}
    """)


def ping(node: Node, pod: str, address: str) -> bool:
    """Whether an address answers a pod within a second."""
    words = ["ip", "netns", "exec", pod, "ping", "-q", "-c1", "-W1", address]
    return node.run(*words, check=False).returncode == 0


# --- light nodes


@pytest.fixture(scope="module")
def two(light_pair: Pair) -> tuple[Light, Light]:
    """Two light nodes with a pod on VLAN 100 and one on VLAN 200 each."""
    nodes = (light_pair.n1, light_pair.n2)
    for number, node in enumerate(nodes, start=1):
        bridge(node, "eth1")
        attach(node, "red", 100, f"10.0.0.{number}/24")
        attach(node, "blue", 200, f"10.0.0.{number + 10}/24")
    return nodes


def test_pods_of_one_vlan_reach_each_other(two: tuple[Light, Light]) -> None:
    assert ping(two[0], "red", "10.0.0.2")
    assert ping(two[0], "blue", "10.0.0.12")


def test_pods_of_two_vlans_do_not(two: tuple[Light, Light]) -> None:
    assert not ping(two[0], "red", "10.0.0.12")
    assert not ping(two[0], "red", "10.0.0.11"), "on the same node"


def test_a_pulled_cable_cuts_nodes_apart(two: tuple[Light, Light]) -> None:
    two[0].carrier("eth1", False)
    assert not ping(two[0], "red", "10.0.0.2")
    two[0].carrier("eth1", True)
    until(lambda: ping(two[0], "red", "10.0.0.2"), 10, "the path back")


def test_a_frozen_daemon_and_a_killed_one_come_back(two: tuple[Light, Light]) -> None:
    node = two[1]
    node.ovs.freeze("ovsdb-server")
    with pytest.raises(CommandFailed):
        node.run("ovs-vsctl", "--timeout=1", "show")
    node.ovs.thaw("ovsdb-server")
    node.ovs.kill("ovs-vswitchd")
    node.ovs.start("ovs-vswitchd")
    until(lambda: ping(two[0], "red", "10.0.0.2"), 10, "the path back")


def test_a_light_node_is_up_within_a_second_and_keeps_its_files_to_itself(lab: Lab, datapath: str) -> None:
    began = time.monotonic()
    node = lab.light("quick", datapath=datapath)
    took = time.monotonic() - began
    node.write("/etc/podnet/node.json", "{}")
    assert node.get("/etc/podnet/node.json") == b"{}"
    assert not Path("/etc/podnet/node.json").exists()
    assert node.run("hostname").stdout == "quick\n"
    node.down()
    if datapath == "netdev":
        assert took < 1, f"{took:.2f} s"


def test_the_runtime_lies_where_a_node_has_it(lab: Lab, datapath: str) -> None:
    node = lab.light("with-runtime", datapath=datapath, ovs=False)
    version = node.install_runtime()
    assert node.run("readlink", "/opt/podnet/current").stdout.strip() == version
    program = f"import sys; sys.path.insert(0, '/opt/podnet/{version}/lib'); import podnet.errors"
    node.run("/usr/bin/python3", "-IS", "-c", program)


# --- nothing is left


def test_an_error_leaves_nothing() -> None:
    name = name_of("error")
    with pytest.raises(ZeroDivisionError), Lab(name) as lab:
        node = lab.light("n1", nics=[Nic("eth1", lab.lan("lan", ipv4="10.99.0.0/24", dhcp=True, mirror=True))])
        node.netns("pod")
        node.popen("ip", "netns", "exec", "pod", "sleep", "1000")
        node.popen("setsid", "sleep", "1000")
        assert traces(name)
        raise ZeroDivisionError
    assert traces(name) == []


SLEEPER = """
import sys, time
from ansible_collections.podnet.ovs.tests.lab import Lab
with Lab(sys.argv[1]) as lab:
    lab.light("n1").netns("pod")
    print("up", flush=True)
    time.sleep(100)
"""


@pytest.fixture
def sleeper(request: pytest.FixtureRequest) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Another program that holds a lab."""
    name = name_of("sleeper")
    program = subprocess.Popen([sys.executable, "-c", SLEEPER, name], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert program.stdout is not None
    assert program.stdout.readline() == b"up\n"
    yield name, program
    program.kill()
    program.communicate()
    clear_abandoned()


def test_a_terminated_program_leaves_nothing(sleeper: tuple[str, subprocess.Popen[bytes]]) -> None:
    name, program = sleeper
    program.send_signal(signal.SIGTERM)
    program.wait(timeout=20)
    assert traces(name) == []


def test_a_killed_program_is_cleared_by_the_next_lab(sleeper: tuple[str, subprocess.Popen[bytes]]) -> None:
    name, program = sleeper
    with pytest.raises(LabError, match="in use"), Lab(name):
        pass
    program.kill()
    program.wait(timeout=20)
    assert processes_in(name, ["n1"])
    with Lab(name_of("next")):
        assert traces(name) == []
        assert name not in all_labs()


def test_labs_side_by_side_use_the_same_addresses() -> None:
    with Lab(name_of("left")) as left, Lab(name_of("right")) as right:
        nodes = []
        for lab in (left, right):
            lan = lab.lan("lan", ipv4="10.99.0.0/24")
            nodes.append(lab.light("n1", nics=[Nic("eth0", lan, "static")], ovs=False))
        assert nodes[0].address == nodes[1].address == "10.99.0.11"
        for lab, node in zip((left, right), nodes):
            assert lab.lans["lan"].run("ping", "-c1", "-W1", node.address)
        nodes[0].down()
        assert right.lans["lan"].run("ping", "-c1", "-W1", nodes[1].address)


# --- what a LAN does to its nodes


def test_a_port_and_the_gateway_can_fail(lab: Lab) -> None:
    lan = lab.lan("faults", ipv4="10.98.0.0/24")
    nodes = [lab.light(name, nics=[Nic("eth0", lan, "static")], ovs=False) for name in ("fails", "stays")]
    port = nodes[0].ports["eth0"]

    def reaches(address: str) -> bool:
        return nodes[0].run("ping", "-c1", "-W1", address, check=False).returncode == 0

    assert reaches(nodes[1].address)
    lan.drop(port)
    assert not reaches(nodes[1].address)
    assert nodes[0].get("/sys/class/net/eth0/carrier") == b"1\n"
    lan.drop(port, False)
    lan.vlan_port(port, untagged=False, tagged=[5])
    assert not reaches(nodes[1].address)
    lan.vlan_port(port)
    lan.gateway_down()
    assert not reaches(lan.gateway)
    assert reaches(nodes[1].address)
    assert reaches(str(lan.controllers[0].ip))
    lan.gateway_up()
    until(lambda: reaches(lan.gateway), 10, "the gateway's answer")  # the node may still wait for its ARP of before


def test_dhcp_knows_clients_by_their_identifier(lab: Lab) -> None:
    lan = lab.lan("dhcp", ipv4="10.97.0.0/24", dhcp=True, lease=20)
    node = lab.full("client", nics=[Nic("eth0", lan, "dhcp")])

    def address() -> str:
        return node.run("ip", "-4", "-o", "address", "show", "eth0").stdout

    until(lambda: node.address in address(), 10, "the first address")
    with lan.capture() as seen:
        node.write("/etc/systemd/network/10-eth0.network.d/id.conf", "[DHCPv4]\nClientIdentifier=mac\n")
        node.sh("networkctl reload; networkctl reconfigure eth0")
        until(lambda: "10.97.0.100/" in address(), 10, "another address")
    mac = node.ports["eth0"].mac
    assert node.ssh("hostname", address="10.97.0.100").stdout == "client\n"
    assert {message.yiaddr for message in seen.dhcp() if message.type == "ACK"} == {"10.97.0.100"}
    assert {message.mac for message in seen.dhcp()} == {mac}
    assert [lease.client for lease in lan.leases() if lease.address == "10.97.0.100"] == ["01" + mac.replace(":", "")]
    lan.dhcp_other("10.96.0.0/24")
    node.sh("networkctl reconfigure eth0")
    until(lambda: "10.96.0." in address(), 10, "an address of another network")
    lan.dhcp_off()
    node.down()


# --- full nodes


@pytest.fixture(scope="module")
def site(lab: Lab) -> Lan:
    """The LAN of a site."""
    return lab.lan("site", ipv4="10.99.0.0/24", ipv6="fd00:99::/64", dhcp=True, mirror=True)


@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_a_full_node(lab: Lab, site: Lan, suite: str) -> None:
    mode = {"bookworm": "static", "trixie": "dhcp"}[suite]
    node = lab.full(f"full-{suite}", suite=suite, nics=[Nic("eth0", site, mode), Nic("enp3s0", site)])
    until(lambda: site.run("ping", "-c1", "-W1", node.address, check=False).returncode == 0, 10, "the node's address")
    assert node.ssh("hostname").stdout == f"full-{suite}\n"
    assert "fd00:99:" in until(lambda: node.run("ip", "-6", "-o", "addr", "show", "eth0", "scope", "global").stdout, 10)
    assert "enp3s0" in node.run("ip", "-o", "link").stdout
    for absent in ("pip3", "ovs-vsctl"):
        assert node.run("which", absent, check=False).returncode != 0
    assert node.run("/usr/bin/python3", "-c", "import ensurepip", check=False).returncode != 0

    node.ssh("apt-get -q update && apt-get -q -y install openvswitch-switch", timeout=120)
    node.run("ovs-vsctl", "--timeout=10", "add-br", "br0", "--", "set", "bridge", "br0", "datapath_type=netdev")
    before = node.run("cat", "/proc/sys/kernel/random/boot_id").stdout
    node.reboot()
    assert node.run("cat", "/proc/sys/kernel/random/boot_id").stdout != before
    assert node.ssh("ovs-vsctl --timeout=10 list-br").stdout == "br0\n"
    assert node.run("ip", "-o", "link", "show", "br0").stdout
    node.power_cycle()
    assert node.ssh("hostname").stdout == f"full-{suite}\n"
    began = time.monotonic()
    node.down()
    assert time.monotonic() - began < 5


@pytest.mark.parametrize("manager", ["netplan", "ifupdown"])
def test_a_manager_other_than_networkd_configures_a_node(lab: Lab, site: Lan, manager: str) -> None:
    node = lab.full(
        f"by-{manager}",
        nics=[Nic("eth0", site, "dhcp")],
        manager=manager,
        packages=["openvswitch-switch"],
        runtime=True,
    )
    until(lambda: site.run("ping", "-c1", "-W1", node.address, check=False).returncode == 0, 10, "the node's address")
    active = node.run("systemctl", "is-active", "systemd-networkd", "networking", check=False).stdout.split()
    assert active == {"netplan": ["active", "inactive"], "ifupdown": ["inactive", "active"]}[manager]
    assert node.ssh("ovs-vsctl --timeout=10 list-br").stdout == ""
    assert node.ssh("podnet --version").stdout.startswith("podnet ")
    assert node.run("systemctl", "is-enabled", "podnet-agent.socket").stdout == "enabled\n"
    assert node.state() == "running"
    node.down()


def test_ansible_reaches_full_nodes(lab: Lab, site: Lan) -> None:
    node = lab.full("ansible", nics=[Nic("eth0", site, "static")])
    inventory = lab.inventory({"east": ["ansible"]})
    ansible = str(Path(sys.executable).with_name("ansible"))
    words = [ansible, "--inventory", str(inventory), "east", "-m", "ansible.builtin.command", "-a", "hostname"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert "CHANGED" in done.stdout, done.stdout + done.stderr
    node.down()


# --- machines


@pytest.mark.full
def test_a_machine_keeps_what_was_synced_and_loses_the_rest(lab: Lab, site: Lan) -> None:
    node = lab.machine("machine", nics=[Nic("eth0", site, "dhcp")], runtime=True, wait=False)
    node.wait(WAIT)
    assert node.ssh("hostname").stdout == "machine\n"
    assert node.run("systemctl", "--failed", "--no-legend").stdout == ""
    node.sh("modprobe -a openvswitch 8021q bonding vxlan mac80211_hwsim")
    node.run("ovs-vsctl", "--timeout=30", "add-br", "br0")
    assert "br0 (internal)" in node.run("ovs-dpctl", "show").stdout
    assert node.run("sh", "-c", "cat; exit 7", input="word", check=False).returncode == 7

    node.sh("cd /root; echo synced > a; sync; echo not > b")
    before = node.boot_id()
    node.power_cut()
    assert node.run("true", check=False).returncode == 255
    node.start()
    node.wait(WAIT)
    assert node.boot_id() != before
    assert node.sh("cat /root/a; cat /root/b || true").stdout == "synced\n"
    node.carrier("eth0", False)
    assert node.get("/sys/class/net/eth0/carrier") == b"0\n"
    node.carrier("eth0", True)
    node.reboot(WAIT)
    assert node.ssh("hostname").stdout == "machine\n"
    node.down()
