# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From bare Debian 12 and 13 nodes to pods that talk, over ssh, from the built collection with the checkout away.

The tests of this file follow one another on the same two nodes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.tests.integration.controller import Controller, Run
from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Nic

PLACES = "/etc /opt /usr/local /var/lib/dpkg /var/lib/podnet"

VARIABLES = {
    "podnet_cni_aliases": ["ovs"],
    "podnet_metrics_listen": "127.0.0.1:9469",
    "podnet_bridges": [
        {
            "name": "br-pod",
            "datapath_type": "netdev",
            "uplinks": [{"name": "eth1", "vlans": "100,200,300"}],
            "interfaces": [{"name": "pods300", "vlan": 300}],
        }
    ],
    "podnet_networks": [
        {
            "name": "tenant-a",
            "bridge": "br-pod",
            "vlan": 100,
            "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.10.0.0/24"}]]},
        },
        {"name": "tenant-b", "bridge": "br-pod", "vlan": 200, "mtu": 1400, "namespaces": ["team-b"]},
        {"name": "tenant-c", "bridge": "br-pod", "trunk": "300"},
    ],
}


def of_host(number: int) -> dict[str, Any]:
    """The variables of one host."""
    addresses = [f"10.30.0.{number}/24", f"fd00:30::{number}/64"]
    return {"podnet_host_bridges": [{"name": "br-pod", "interfaces": [{"name": "pods300", "addresses": addresses}]}]}


@dataclass(frozen=True)
class Site:
    """Two nodes, and a controller that has the installed collection only."""

    lab: Lab
    n1: Full
    n2: Full
    controller: Controller

    @property
    def nodes(self) -> tuple[Full, Full]:
        """Both."""
        return self.n1, self.n2

    @property
    def folder(self) -> Path:
        """Where the controller works."""
        return self.controller.folder

    def play(self, playbook: str, *words: str) -> Run:
        """Runs a playbook of the collection."""
        return self.controller.play(playbook, *words)

    def good(self, playbook: str, *words: str) -> Run:
        """The same, and it must succeed."""
        return self.controller.good(playbook, *words)


@pytest.fixture(name="site", scope="module")
def _site(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Site:
    folder = tmp_path_factory.mktemp("controller")
    lan = lab.lan("lan", ipv4="10.99.0.0/24", ipv6="fd00:99::/64", dhcp=True, mirror=True)
    trunk = lab.lan("trunk")
    nodes = [
        lab.full(name, suite=suite, nics=[Nic("eth0", lan, "static"), Nic("eth1", trunk)], wait=False)
        for name, suite in (("n1", "bookworm"), ("n2", "trixie"))
    ]
    for node in nodes:
        node.wait()
    hosts = {"n1": of_host(11), "n2": of_host(12)}
    return Site(lab, nodes[0], nodes[1], Controller.make(folder, lab.inventory(), VARIABLES, hosts))


def files_of(node: Full) -> str:
    """Digests of the files that the product may write, and the node's links."""
    script = f"find {PLACES} -xdev -type f -exec sha256sum {{}} + 2>/dev/null | sort; find {PLACES} -type l 2>/dev/null"
    return node.run("sh", "-c", f"{script} | sort; ip -o link | cut -d: -f2").stdout


@pytest.fixture(name="predicted", scope="module")
def _predicted(site: Site) -> frozenset[tuple[str, str]]:
    before = [files_of(node) for node in site.nodes]
    run = site.good("site", "--check", "--diff")
    assert [files_of(node) for node in site.nodes] == before
    assert not (site.folder / "podnet-nads").exists()
    assert "+  br-pod:" in run.text
    return run.objects


@pytest.mark.holds("install from the built tarball with the checkout gone; node without pip and venv")
def test_the_collection_is_the_installed_one(site: Site) -> None:
    installed = site.folder / "collections" / "ansible_collections" / "podnet" / "ovs"
    assert (installed / "LICENSE").exists()
    assert not (installed / "tests").exists() and not (installed / "dev").exists()
    assert list((installed / "roles" / "runtime" / "files" / "wheels").glob("*.whl"))
    for node in site.nodes:
        assert node.run("python3", "-c", "import pip", check=False).returncode != 0
        assert node.run("python3", "-c", "import ensurepip", check=False).returncode != 0


def test_preflight_says_what_is_missing_and_blocks_the_nic_in_use(site: Site) -> None:
    assert "is not installed; the role openvswitch installs it" in site.good("preflight").text
    bridges = {"podnet_host_bridges": [{"name": "br-x", "datapath_type": "netdev", "uplinks": [{"name": "eth0"}]}]}
    run = site.play("preflight", "-e", json.dumps(bridges))
    assert run.code != 0
    assert re.search(r"blocking +uplink eth0 +it carries the address 10\.99\.0\.11", run.text)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"podnet_host_networks": [{"name": "c", "bridge": "br-pd", "vlan": 300}]}, r"networks\[3\]\.bridge.*br-pd"),
        (
            {"podnet_host_bridges": [{"name": "br-pod", "uplinks": [{"name": "eth0"}]}]},
            r"uplink eth0 +it carries the address 10\.99\.0\.1",
        ),
        (
            {"podnet_host_networks": [{"name": "c", "bridge": "br-pod", "vlan": "{{ ansible_host[-2:] | int }}"}]},
            "differently under one name: c",
        ),
        ({"podnet_metrics_listen": "9469"}, "podnet_metrics_listen: 9469 is no address and port"),
        ({"podnet_metrics_listen": "127.0.0.1:65536"}, "127.0.0.1:65536 is no address and port"),
        ({"podnet_cni_aliases": ["bridge"]}, "bridge"),
        ({"podnet_bridge": []}, r"podnet_bridge \(podnet_bridges\?\)"),
        ({"podnet_bridges": [], "podnet_networks": [], "podnet_host_bridges": []}, "No bridge is declared for n1"),
    ],
    ids=[
        "undeclared bridge",
        "the node's own NIC",
        "two networks of one name",
        "metrics without an address",
        "metrics at no port",
        "unknown peer",
        "misspelt variable",
        "no variables",
    ],
)
def test_what_cannot_work_ends_before_any_host_is_touched(site: Site, given: dict[str, Any], said: str) -> None:
    run = site.play("site", "-e", json.dumps(given))
    assert run.code != 0
    assert re.search(said, run.text), run.text
    assert "Prepare the nodes" not in run.text and run.changed() == 0


def test_a_peer_that_is_installed_is_found_before_any_host_is_touched(site: Site) -> None:
    site.n2.sh("mkdir -p /opt/cni/bin; echo theirs > /opt/cni/bin/ovs")
    run = site.play("site")
    assert run.code != 0 and "take ovs out of podnet_cni_aliases" in run.text, run.text
    assert "Prepare the nodes" not in run.text and run.changed() == 0
    assert site.n2.run("cat", "/opt/cni/bin/ovs").stdout == "theirs\n"
    site.n2.run("rm", "-r", "/opt/cni")


@pytest.mark.holds("`site --check --diff` on a fresh node")
def test_site_changes_what_check_mode_named(site: Site, predicted: frozenset[tuple[str, str]]) -> None:
    run = site.good("site")
    assert run.objects == predicted
    nads = site.folder / "podnet-nads" / "default"
    assert sorted(path.name for path in nads.iterdir()) == [
        "default-tenant-a.yml", "default-tenant-c.yml", "team-b-tenant-b.yml",
    ]  # fmt: skip


@pytest.mark.holds("`site` twice over SSH")
def test_a_second_run_changes_nothing(site: Site) -> None:
    run = site.good("site", "-e", "podnet_verify=false")
    assert run.changed() == 0, run.text


@pytest.mark.holds("node rebooted between, same")
def test_a_reboot_changes_nothing(site: Site) -> None:
    for node in site.nodes:
        node.reboot()
    for node, number in ((site.n1, 11), (site.n2, 12)):
        shown = node.run("ip", "-br", "address", "show", "pods300").stdout
        assert f"10.30.0.{number}/24" in shown and f"fd00:30::{number}/64" in shown
    assert site.n1.run("ping", "-c1", "-w10", "10.30.0.12").returncode == 0
    run = site.good("site", "-e", "podnet_verify=false")
    assert run.changed() == 0, run.text


def test_verify_names_what_passed(site: Site) -> None:
    text = site.good("verify").text
    for network, size in (("tenant-a", 1500), ("tenant-b", 1400)):
        passed = f"attach icmp tcp udp {size}-bytes icmp6 tcp6 udp6 {size}-bytes6 isolation"
        assert re.search(rf"n1 +{network} +to n2 +{passed}\"", text), text
        assert re.search(rf"n2 +{network} +to n1 +{passed}\"", text), text
    apart = "attach NOT PROBED: a trunk port of VLANs 300 passes no untagged frames, which a probe speaks"
    for node, peer in (("n1", "n2"), ("n2", "n1")):
        assert re.search(rf"{node} +tenant-c +to {peer} +{apart}\"", text), text
    for machine in site.nodes:
        assert machine.run("ip", "netns").stdout == ""
        assert "pn" not in machine.run("ovs-vsctl", "list-ports", "br-pod").stdout.split()


def test_the_agent_serves_its_metrics_and_the_plugin_a_peer_s_name(site: Site) -> None:
    fetch = "import urllib.request as r; print(r.urlopen('http://127.0.0.1:9469/metrics', timeout=10).read().decode())"
    for node in site.nodes:
        node.run("systemctl", "start", "podnet-agent.service")
        assert "podnet_build_info{" in node.run("python3", "-c", fetch).stdout
        said = node.run("/opt/cni/bin/ovs", env={"CNI_COMMAND": "VERSION"}, input='{"cniVersion": "1.0.0"}').stdout
        assert "1.1.0" in json.loads(said)["supportedVersions"]


def test_verify_says_what_does_not_pass(site: Site) -> None:
    site.n2.run("ovs-vsctl", "remove", "port", "eth1", "trunks", "200")
    try:
        run = site.play("verify", "-e", "podnet_verify_seconds=2")
    finally:
        site.good("site", "--tags", "node")
    assert run.code != 0
    assert "n1 to n2, tenant-b, icmp: no answer" in run.text
    assert "tenant-a, icmp: no answer" not in run.text
    assert all(node.run("ip", "netns").stdout == "" for node in site.nodes)


def test_show_prints_the_merged_state(site: Site) -> None:
    text = site.good("site", "--tags", "show").text
    assert "10.30.0.11/24" in text and "10.30.0.12/24" in text


def test_remove_is_the_way_back(site: Site) -> None:
    site.good("remove")
    for node in site.nodes:
        assert node.run("ovs-vsctl", "list-br").stdout == ""
        assert (
            node.run("sh", "-c", "ls /opt/cni/bin; ls -d /opt/podnet /etc/podnet 2>/dev/null", check=False).stdout == ""
        )
    assert site.good("remove").changed() == 0
    site.n1.run("ovs-vsctl", "--no-wait", "add-br", "theirs")
    run = site.play("remove", "-e", "podnet_remove_openvswitch=true", "--limit", "n1")
    assert run.code != 0 and "bridges that are not of podnet.ovs" in run.text and "theirs" in run.text
    assert site.n1.run("ovs-vsctl", "list-br").stdout == "theirs\n"
