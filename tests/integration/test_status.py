# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What `podnet status`, `metrics` and `attachments` say of a node: with its agent, without one, with one that hangs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

PODNET = "/opt/podnet/current/bin/podnet"


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with one bridge and two pod networks, declared as by the role."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    made.run("mkdir", "-p", "/etc/podnet")
    made.run("cp", "/run/node.json", "/etc/podnet/node.json")
    return made


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node with pods p1 and p2. Each test takes away what it makes."""
    machine.sh("for pod in p1 p2; do [ -e /run/netns/$pod ] || ip netns add $pod; done")
    yield machine
    left = cni.leftovers(machine)
    if left != cni.NOTHING:
        cni.clear(machine)
    assert left == cni.NOTHING


def report(node: Light, *, good: bool) -> Any:
    """The report of `podnet status`, whose exit status says whether something was found."""
    done = node.run(PODNET, "status", "--json", check=False)
    assert done.returncode == (0 if good else 1), done
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout)


def test_a_node_that_is_ready(node: Light) -> None:
    with cni.agent(node) as process:
        cni.add(node, cni.configuration())
        found = report(node, good=True)
        assert found["findings"] == [] and found["node"]
        assert (found["attachments"], found["broken"], found["stale"]) == (1, 0, 0)
        assert found["attachments_by_bridge"] == {cni.BRIDGE: 1}
        agent = found["agent"]
        assert (agent["version"], agent["pid"]) == (found["version"], process.pid)
        assert agent["uptime_seconds"] > 0 and agent["calls_total"] >= 1
        said = node.run(PODNET, "status").stdout
        assert f"agent {found['version']}" in said and f"{cni.BRIDGE}: 1 attachments" in said and "ready" in said
        cni.delete(node, cni.configuration())


def test_the_metrics(node: Light) -> None:
    with cni.agent(node):
        text = node.run(PODNET, "metrics").stdout
        assert "# TYPE podnet_call_seconds histogram" in text and "\npodnet_build_info{" in text
    done = node.run(PODNET, "metrics", check=False)
    assert done.returncode == 1 and done.stdout == "" and "podnet-agent.socket" in done.stderr


def test_no_agent(node: Light) -> None:
    found = report(node, good=False)
    assert found["agent"] is None
    (finding,) = found["findings"]
    assert "socket is not there" in finding and "systemctl start podnet-agent.socket" in finding


def test_another_folder_for_plugins(node: Light) -> None:
    """As on k3s: the role was told, and the node remembers."""
    with cni.agent(node):
        node.sh("mv /opt/cni/bin /opt/cni/elsewhere; ln -sfn /opt/cni/elsewhere /opt/podnet/plugins")
        assert report(node, good=True)["findings"] == []
        node.sh("mv /opt/cni/elsewhere /opt/cni/bin")
        (finding,) = report(node, good=False)["findings"]
        assert "no podnet-ovs in /opt/cni/elsewhere" in finding
        node.run("ln", "-sfn", "/opt/cni/bin", "/opt/podnet/plugins")


def test_an_agent_that_hangs_and_a_socket_that_nobody_reads(node: Light) -> None:
    with cni.agent(node) as process:
        process.send_signal(signal.SIGSTOP)
        try:
            began = time.monotonic()
            (finding,) = report(node, good=False)["findings"]
            assert "answer" in finding and "systemctl restart podnet-agent" in finding
            assert time.monotonic() - began < 4.5
        finally:
            process.send_signal(signal.SIGCONT)
    node.sh(f"mkdir -p /run/podnet; /usr/bin/python3 -c 'import socket; socket.socket(1).bind(\"{cni.SOCKET}\")'")
    (finding,) = report(node, good=False)["findings"]
    assert "does not answer" in finding and "systemctl restart podnet-agent" in finding
    node.run("rm", cni.SOCKET)


def test_an_agent_of_another_version(node: Light) -> None:
    """After a switch that did not restart it."""
    now = node.run("readlink", "/opt/podnet/current").stdout.strip()
    with cni.agent(node):
        node.sh(f"cp -a /opt/podnet/{now} /opt/podnet/0.0.9-later; sed -i 's#/{now}/#/0.0.9-later/#' "
                "/opt/podnet/0.0.9-later/bin/podnet; ln -sfn 0.0.9-later /opt/podnet/current")  # fmt: skip
        try:
            found = report(node, good=False)
        finally:
            node.run("ln", "-sfn", now, "/opt/podnet/current")
            node.run("rm", "-r", "/opt/podnet/0.0.9-later")
    assert found["version"] == "0.0.9-later" and found["agent"]["version"] == now
    assert any(now in finding and "restart podnet-agent" in finding for finding in found["findings"])


def test_node_json_that_cannot_be_read(node: Light) -> None:
    node.run("mv", "/etc/podnet/node.json", "/run/kept.json")
    try:
        found = report(node, good=False)
        assert not found["node"] and any("podnet.ovs.site" in finding for finding in found["findings"])
        assert cni.BRIDGE in found["bridges"], "the switch is looked at all the same"
        node.write("/etc/podnet/node.json", "{")
        found = report(node, good=False)
        assert not found["node"] and any("node.json cannot be used" in finding for finding in found["findings"])
    finally:
        node.run("mv", "/run/kept.json", "/etc/podnet/node.json")


def test_ports_that_were_left_and_ports_that_are_broken(node: Light) -> None:
    conf = cni.configuration()
    cni.add(node, conf, "c1", "p1")
    cni.add(node, conf, "c2", "p2")
    node.run("ip", "link", "delete", host_name("c1", "eth0"))
    found = report(node, good=False)
    assert (found["attachments"], found["stale"], found["broken"]) == (2, 1, 0)
    assert any("1 of 2 ports are left over" in finding for finding in found["findings"])
    state = {item["container"]: item["error"] for item in listed(node)}
    assert state["c1"] and state["c2"] == ""
    node.ovs.vsctl("set", "interface", host_name("c2", "eth0"), "type=nonsense")
    found = report(node, good=False)
    assert (found["attachments"], found["stale"], found["broken"]) == (2, 1, 1)
    assert any("1 of 2 ports are broken" in finding for finding in found["findings"])
    for container, pod in (("c1", "p1"), ("c2", "p2")):
        cni.delete(node, conf, container, pod)


def listed(node: Light, *words: str) -> list[dict[str, Any]]:
    """What `podnet attachments` lists."""
    found: list[dict[str, Any]] = json.loads(node.run(PODNET, "attachments", "--json", *words).stdout)
    return found


def test_the_list_can_be_narrowed(node: Light) -> None:
    green, blue = cni.configuration(), cni.configuration(vlan=cni.BLUE, name="blue")
    other = {"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=p2"}
    cni.add(node, green, "c1", "p1")
    cni.add(node, blue, "c2", "p2", env=other)
    assert [item["container"] for item in listed(node, "--namespace", "shop")] == ["c2"]
    assert [item["container"] for item in listed(node, "--network", "green")] == ["c1"]
    assert listed(node, "--network", "green", "--namespace", "shop") == []
    assert len(listed(node)) == 2
    first = next(item for item in listed(node) if item["container"] == "c1")
    assert (first["mode"], first["vlan"], first["namespace"]) == ("access", cni.GREEN, "default")
    assert isinstance(first["ofport"], int) and first["ofport"] > 0
    text = node.run(PODNET, "attachments", "--namespace", "shop").stdout
    assert f"access {cni.BLUE}" in text and "shop/p2" in text and "default/p1" not in text
    cni.delete(node, green, "c1", "p1")
    cni.delete(node, blue, "c2", "p2")
