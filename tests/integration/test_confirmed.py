# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with a single NIC is put under a bridge by real Ansible, over the ssh that runs on that NIC, and out again.

The tests of this file follow one another on the same node.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.tests.integration.controller import Controller, Run, end_all
from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Nic, until

BRIDGE = {
    "name": "br-x",
    "datapath_type": "netdev",
    "uplinks": [{"name": "eth0", "vlans": "100,200", "move": True}],
    "interfaces": [{"name": "pods100", "vlan": 100, "addresses": ["10.30.0.11/24"]}],
}
VARIABLES = {"podnet_bridges": [BRIDGE], "podnet_move_timeout": 40, "podnet_verify": False}


@dataclass(frozen=True)
class Home:
    """A node that lives on its one NIC, and who works on it."""

    lab: Lab
    node: Full
    controller: Controller

    def __iter__(self) -> Any:
        return iter((self.node, self.controller))


@pytest.fixture(name="home", scope="module")
def _home(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Home:
    lan = lab.lan("lan", ipv4="10.99.0.0/24", ipv6="fd00:99::/64", dhcp=True, mirror=True)
    node = lab.full("n1", nics=[Nic("eth0", lan, "static")], packages=["openvswitch-switch"])
    controller = Controller.make(tmp_path_factory.mktemp("controller"), lab.inventory(), VARIABLES, {"n1": {}})
    return Home(lab, node, controller)


def carried(node: Full, device: str) -> dict[str, list[str]]:
    """Addresses and routes of a device, without what the kernel makes by itself."""
    links = json.loads(node.run("ip", "-j", "address", "show", "dev", device, check=False).stdout or "[]")
    addresses = [
        f"{item['local']}/{item['prefixlen']}"
        for link in links
        for item in link["addr_info"]
        if item["scope"] == "global"
    ]
    routes = []
    for version in ("-4", "-6"):
        for row in json.loads(
            node.run("ip", version, "-j", "route", "show", "dev", device, check=False).stdout or "[]"
        ):
            if not row["dst"].startswith(("fe80", "ff00")):
                to = row["dst"] if row["dst"] == "default" else str(ipaddress.ip_network(row["dst"]))
                routes.append(to + (f" via {row['gateway']}" if "gateway" in row else ""))
    return {"addresses": sorted(addresses), "routes": sorted(routes)}


def files_of(node: Full) -> dict[str, str]:
    """The text of the files of the node's network configuration."""
    places = "/etc/systemd /etc/netplan /etc/network /etc/cloud"
    found = node.sh(f"find {places} -type f -not -path '/etc/systemd/system/*' 2>/dev/null || true").stdout
    return {name: node.get(name).decode() for name in found.split()}


def result_of(run: Run) -> Mapping[str, Any]:
    """The result of the task that makes the node so."""
    (result,) = (
        row["result"] for row in run.rows if "Make the node so" in row["task"] or "Remove bridges" in row["task"]
    )
    assert isinstance(result, Mapping)
    return result


def check_as_predicted(node: Full, before: Mapping[str, Any], predicted: Run, run: Run) -> None:
    """A node was moved by `run`, and addresses, routes and files are those that the run in check mode told."""
    told, done = result_of(predicted), result_of(run)
    assert [move["result"] for move in done["moves"]] == ["committed"]
    assert [step for step in told["operations"] if step["kind"] != "move"] == [
        step for step in done["operations"] if step["kind"] != "move"
    ]
    (move,) = (step for step in told["operations"] if step["kind"] == "move")
    now = carried(node, "br-x")
    if node.suite == "trixie":  # each start of its systemd-networkd adds a router's default route anew (docs/move.md)
        now["routes"] = sorted(set(now["routes"]))
    assert now == before["l3"] and not any(carried(node, "eth0").values())
    assert sorted(item for item in move["detail"]["addresses"] if not item.startswith("fe80:")) == now["addresses"]
    assert told["after"]["links"]["br-x"] == now
    texts = {part["after_header"]: part["after"] for part in told["diff"] if part["after_header"].startswith("/")}
    after = files_of(node)
    changed = {name: text for name, text in after.items() if before["files"].get(name) != text}
    gone = {name: "" for name in before["files"] if name not in after}
    assert {name: text for name, text in texts.items() if name != "/etc/podnet/node.json"} == {**changed, **gone}
    trunks = node.run("ovs-vsctl", "get", "port", "eth0", "trunks").stdout.strip()
    assert trunks == "[0, 100, 200]"


def bridges(node: Full) -> list[str]:
    """The bridges of the node's switch."""
    return node.run("ovs-vsctl", "list-br").stdout.split()


def with_bridge(**changes: Any) -> list[str]:
    """Words for a playbook that changes the declared bridge."""
    return ["-e", json.dumps({"podnet_bridges": [{**BRIDGE, **changes}]})]


@pytest.fixture(name="before", scope="module")
def _before(home: Home) -> dict[str, Any]:
    return {"l3": carried(home.node, "eth0"), "files": files_of(home.node)}


@pytest.fixture(name="predicted", scope="module")
def _predicted(home: Home, before: dict[str, Any]) -> Run:
    run = home.controller.good("site", "--check", "--diff")
    assert {"l3": carried(home.node, "eth0"), "files": files_of(home.node)} == before
    assert bridges(home.node) == []
    return run


def test_without_consent_the_nic_is_refused_and_the_way_is_named(home: Home) -> None:
    run = home.controller.play("site", *with_bridge(uplinks=[{"name": "eth0"}]))
    assert run.code != 0 and "move: true" in run.text and run.changed() == 0


def test_the_way_back_comes_by_itself_and_says_why(home: Home, before: dict[str, Any], predicted: Run) -> None:
    """The bridge's own interface is on a VLAN that leads nowhere."""
    own = {"name": "br-x", "vlan": 100}
    run = home.controller.play("site", *with_bridge(interfaces=[own]))
    assert run.code != 0
    assert '"result": "rolled_back"' in run.text, run.text
    (reason,) = set(re.findall(r'"reason": "([^"]+)", "result": "rolled_back"', run.text))
    assert "10.99.0.1" in reason, reason
    assert carried(home.node, "eth0") == before["l3"] and files_of(home.node) == before["files"]
    assert bridges(home.node) == []


@pytest.mark.full
@pytest.mark.holds("controller vanishes")
def test_a_killed_controller_leaves_the_node_as_it_was(home: Home, before: dict[str, Any]) -> None:
    controller = home.controller.start("site", "-e", "podnet_move_timeout=15")
    try:
        until(lambda: "br-x" in bridges(home.node), 120, "the move", 0.05)
    finally:
        end_all(controller)
    until(lambda: bridges(home.node) == [], 40, "the way back")
    until(lambda: carried(home.node, "eth0") == before["l3"], 5, "the addresses on eth0")
    assert home.node.ssh("true").returncode == 0 and files_of(home.node) == before["files"]
    moves = json.loads(home.node.run("/opt/podnet/current/bin/podnet", "uplink", "status", "--json").stdout)["moves"]
    assert moves[-1]["state"] == "rolled_back"


@pytest.mark.holds("`site --check --diff`, then `site`: predicted addresses and files are those changed")
def test_site_moves_the_nic_as_check_mode_said(home: Home, before: dict[str, Any], predicted: Run) -> None:
    check_as_predicted(home.node, before, predicted, home.controller.good("site"))


@pytest.mark.full
def test_a_second_run_changes_nothing(home: Home) -> None:
    run = home.controller.good("site")
    assert run.changed() == 0, run.text


@pytest.mark.full
def test_the_bridge_goes_on_living(home: Home) -> None:
    uplink = {"name": "eth0", "vlans": "100,200,300", "move": True}
    more = with_bridge(uplinks=[uplink], interfaces=[{"name": "pods300", "vlan": 300, "addresses": ["10.40.0.11/24"]}])
    assert home.controller.good("site", "--tags", "node", *more).changed() == 1
    assert home.node.run("ovs-vsctl", "get", "port", "eth0", "trunks").stdout.strip() == "[0, 100, 200, 300]"
    refused = home.controller.play("site", "--tags", "node", *with_bridge(uplinks=[]))
    assert refused.code != 0 and "unbridge: true" in refused.text
    assert home.controller.good("site", "--tags", "node").changed() == 1


@pytest.mark.holds("reboot after commit, next run `changed=0`")
def test_a_reboot_changes_nothing(home: Home, before: dict[str, Any]) -> None:
    home.node.reboot()
    until(lambda: carried(home.node, "br-x") == before["l3"], 30, "the addresses on br-x")
    run = home.controller.good("site")
    assert run.changed() == 0, run.text


def test_remove_gives_the_nic_back(home: Home, before: dict[str, Any]) -> None:
    told = result_of(home.controller.good("remove", "--check", "--diff"))
    done = result_of(home.controller.good("remove"))
    assert [move["direction"] for move in done["moves"]] == ["unbridge"]
    assert told["operations"] == done["operations"]
    assert carried(home.node, "eth0") == before["l3"] and files_of(home.node) == before["files"]
    assert bridges(home.node) == [] and home.node.ssh("true").returncode == 0
    left = home.node.sh("ls -d /opt/podnet /etc/podnet /var/lib/podnet /run/podnet 2>/dev/null || true").stdout
    assert left == "" and "podnet" not in home.node.run("ls", "/etc/systemd/system").stdout


@pytest.mark.full
def test_nothing_of_it_comes_back(home: Home, before: dict[str, Any]) -> None:
    assert home.controller.good("remove").changed() == 0
    home.node.reboot()
    assert home.node.ssh("true").returncode == 0 and carried(home.node, "eth0") == before["l3"]


@pytest.mark.full
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
@pytest.mark.holds("`site --check --diff`, then `site`, with DHCP: predicted addresses and files are those changed")
def test_site_moves_a_node_with_dhcp_as_check_mode_said(lab: Lab, tmp_path: Path, suite: str) -> None:
    number = len(lab.lans)
    lan = lab.lan(f"lan{number}", ipv4=f"10.98.{number}.0/24", ipv6=f"fd00:98:{number}::/64", dhcp=True, mirror=True)
    node = lab.full(suite, suite=suite, nics=[Nic("eth0", lan, "dhcp")], packages=["openvswitch-switch"])
    try:
        controller = Controller.make(tmp_path, lab.inventory(), VARIABLES, {suite: {}})
        controller.extra[:] = ["--limit", suite]
        until(lambda: len(carried(node, "eth0")["addresses"]) == 2, 30, "an address of each family")
        before = {"l3": carried(node, "eth0"), "files": files_of(node)}
        predicted = controller.good("site", "--check", "--diff")
        assert {"l3": carried(node, "eth0"), "files": files_of(node)} == before and bridges(node) == []
        check_as_predicted(node, before, predicted, controller.good("site"))
        again = controller.good("site")
        assert again.changed() == 0, again.text
    finally:
        node.down()
