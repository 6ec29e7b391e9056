# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent under systemd: restarted while pods are attached, killed, hung. Its IPAM plugin takes a second."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    import subprocess

    from ansible_collections.podnet.ovs.tests.lab import Full, Lab

UNIT = "podnet-agent.service"
SLOW = """#!/bin/sh
cat > /dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID begins" >> /run/calls
sleep 1
echo "$CNI_COMMAND $CNI_CONTAINERID ends" >> /run/calls
[ "$CNI_COMMAND" != ADD ] || echo "{\\"ips\\": [{\\"address\\": \\"10.10.0.${CNI_CONTAINERID#c}/16\\"}]}"
"""
CONF = cni.configuration(ipam={"type": "slow"})


@pytest.fixture(scope="module", name="machine")
def _machine(lab: Lab) -> Full:
    """A node with a bridge, and eight pods."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    lan = lab.lan("lan")
    node = lab.full("units", nics=[Nic("eth1", lan)], packages=["openvswitch-switch"], runtime=True)
    document = {**cni.node_document("netdev"), "schema": 1}
    node.run("mkdir", "-p", "/etc/podnet")
    node.write("/etc/podnet/node.json", json.dumps(document))
    node.run("podnet", "node", "apply")
    node.write("/opt/cni/bin/slow", SLOW, "755")
    node.sh("for number in 1 2 3 4 5 6 7 8; do ip netns add p$number; done")
    return node


@pytest.fixture(name="node")
def _node(machine: Full) -> Iterator[Full]:
    """The node with its agent at work; afterwards no port is left."""
    machine.sh("rm -f /run/calls; touch /run/calls")
    machine.run("systemctl", "start", UNIT)
    yield machine
    for number in range(1, 9):
        cni.delete(machine, cni.configuration(ipam=None), f"c{number}", f"p{number}")
    assert "pn" not in machine.run("ovs-vsctl", "list-ports", cni.BRIDGE).stdout


def show(node: Full, name: str) -> str:
    """What systemd says of the agent."""
    return node.run("systemctl", "show", "--value", "--property", name, UNIT).stdout.strip()


def begin(node: Full, *numbers: int) -> list[subprocess.Popen[bytes]]:
    """ADDs that work side by side."""
    return [cni.start(node, "ADD", CONF, f"c{number}", f"p{number}") for number in numbers]


def result(call: subprocess.Popen[bytes]) -> tuple[int, Any]:
    """A call's exit status, and what it printed."""
    stdout = call.communicate(timeout=60)[0]
    return call.returncode, json.loads(stdout or b"{}")


def said(node: Full, line: str) -> bool:
    """Whether the IPAM plugin has written that line."""
    return line in node.run("cat", "/run/calls").stdout.splitlines()


def test_systemd_knows_every_word_of_the_units_and_holds_the_agent_to_them(node: Full) -> None:
    said_so = node.run("sh", "-c", "systemd-analyze verify /etc/systemd/system/podnet-agent.* 2>&1", check=False).stdout
    assert "podnet" not in said_so, said_so
    status = node.run("cat", f"/proc/{show(node, 'MainPID')}/status").stdout
    held = {key: value.strip() for key, _colon, value in (line.partition(":") for line in status.splitlines())}
    modules, admin, raw = 1 << 16, 1 << 12, 1 << 13
    bounds = int(held["CapBnd"], 16)
    assert bounds & admin and bounds & raw and not bounds & modules
    assert held["NoNewPrivs"] == "1"


def test_a_restart_while_pods_are_attached_loses_none(node: Full) -> None:
    before = show(node, "MainPID")
    calls = begin(node, 1, 2, 3, 4)
    until(lambda: said(node, "ADD c4 begins"), 10, "the calls at work")
    restart = node.popen("systemctl", "try-restart", UNIT)
    calls += begin(node, 5, 6, 7, 8)
    for number, call in enumerate(calls, 1):
        code, document = result(call)
        assert code == 0 and document["ips"][0]["address"] == f"10.10.0.{number}/16", document
    assert restart.wait(timeout=60) == 0
    assert show(node, "MainPID") not in ("0", before)
    assert (show(node, "Result"), show(node, "NRestarts")) == ("success", "0")


def test_what_the_agent_has_started_ends_by_itself_when_the_agent_is_killed(node: Full) -> None:
    """And holds its attachment's turn until then: the DEL that follows finds what it took."""
    before = show(node, "MainPID")
    (call,) = begin(node, 1)
    until(lambda: said(node, "ADD c1 begins"), 10, "the call at work")
    node.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
    code, document = result(call)
    assert code == 1 and document["code"] == 11
    cni.delete(node, CONF, "c1", "p1")
    log = node.run("cat", "/run/calls").stdout.splitlines()
    assert log.index("ADD c1 ends") < log.index("DEL c1 begins"), log
    until(lambda: show(node, "MainPID") not in ("0", before), 10, "the agent's return")
    assert result(begin(node, 2)[0])[0] == 0


@pytest.mark.full
@pytest.mark.holds("a hung agent is bypassed by the client after a bound and restarted")
def test_an_agent_that_hangs_is_ended_and_started_again(node: Full) -> None:
    """Calls that come meanwhile are served without it, and once only. One that it had begun with fails in time."""
    before = show(node, "MainPID")
    (caught,) = begin(node, 4)
    until(lambda: said(node, "ADD c4 begins"), 10, "a call at work")
    began = time.monotonic()
    node.run("kill", "-STOP", before)
    for call in begin(node, 1, 2, 3):
        code, document = result(call)
        assert code == 0 and 2.5 < time.monotonic() - began < 6, document
    code, document = result(caught)
    assert code == 1 and document["code"] == 11 and time.monotonic() - began < 25, document
    until(lambda: show(node, "MainPID") not in ("0", before), 40, "another agent")
    until(lambda: show(node, "ActiveState") == "active", 10, "its being ready")
    assert time.monotonic() - began < 35
    assert node.run("coredumpctl", "list", check=False).returncode != 0, "no core file"
    assert result(begin(node, 5)[0])[0] == 0
    calls = node.run("cat", "/run/calls").stdout.splitlines()
    assert [calls.count(f"ADD c{number} begins") for number in range(1, 6)] == [1] * 5, calls
    cni.delete(node, CONF, "c4", "p4")
    ports = node.run("ovs-vsctl", "list-ports", cni.BRIDGE).stdout.split()
    mine = sorted(port for port in ports if port.startswith("pn"))
    assert mine == sorted(host_name(f"c{number}", "eth0") for number in (1, 2, 3, 5))


def test_one_that_fails_at_once_is_tried_again_for_ever(node: Full) -> None:
    path = node.run("readlink", "-f", "/opt/podnet/current/bin/podnet-agent").stdout.strip()
    good = node.run("cat", path).stdout
    node.write(path, "#!/bin/sh\nexit 1\n", "755")
    node.run("systemctl", "kill", "--signal=KILL", "--kill-whom=main", UNIT)
    until(lambda: int(show(node, "NRestarts")) >= 7, 20, "more failures than systemd usually bears")
    assert show(node, "ActiveState") == "activating"
    node.write(path, good, "755")
    until(lambda: show(node, "ActiveState") == "active", 10, "its return")
    assert result(begin(node, 1)[0])[0] == 0
