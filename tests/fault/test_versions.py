# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another version of the runtime, and back, while pods come: none is lost, and whichever version is there detaches."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.fault.releases import Releases
from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    import subprocess

    from ansible_collections.podnet.ovs.tests.lab import Full, Lab

SLOW = """#!/bin/sh
cat > /dev/null
echo "$CNI_COMMAND $CNI_CONTAINERID" >> /run/calls
sleep 1
[ "$CNI_COMMAND" != ADD ] || echo "{\\"ips\\": [{\\"address\\": \\"10.10.0.${CNI_CONTAINERID#c}/16\\"}]}"
"""
CONF = cni.configuration(ipam={"type": "slow"})
PODS = 20


@pytest.fixture(scope="module")
def node(lab: Lab) -> Full:
    """A node with systemd, a bridge, pods, and an IPAM plugin that takes a second."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.full("versions", nics=[Nic("eth1", lab.lan("lan"))], packages=["openvswitch-switch"], runtime=True)
    made.run("mkdir", "-p", "/etc/podnet")
    made.write("/etc/podnet/node.json", json.dumps(cni.node_document("netdev")))
    made.run("podnet", "node", "apply")
    made.write("/opt/cni/bin/slow", SLOW, "755")
    made.sh("\n".join(f"ip netns add p{number}" for number in range(1, PODS + 1)))
    return made


def begin_while(node: Full, switch: threading.Thread, first: int, last: int) -> list[subprocess.Popen[bytes]]:
    """ADDs that begin one after the other, and some before the switch does."""
    calls = []
    for number in range(first, last):
        calls.append(cni.start(node, "ADD", CONF, f"c{number}", f"p{number}"))
        if number == first + (last - first) // 4:
            switch.start()
        time.sleep(0.15)
    return calls


@pytest.mark.full
@pytest.mark.holds(
    "a version switch forward and back during ADDs: none is lost, DEL of all by whichever version is there"
)
def test_switches_while_pods_come(node: Full, tmp_path: Path) -> None:
    releases = Releases(node, tmp_path)
    first, second = releases.current(), releases.build_another()
    for version, numbers in ((second, (1, 15)), (first, (15, PODS + 1))):
        switch = threading.Thread(target=releases.switch, args=(version,))
        calls = begin_while(node, switch, *numbers)
        for number, call in enumerate(calls, numbers[0]):
            stdout = call.communicate(timeout=60)[0]
            assert call.returncode == 0, stdout
            assert json.loads(stdout)["ips"][0]["address"] == f"10.10.0.{number}/16"
        switch.join(60)
        assert releases.switched == version == releases.current() == releases.of_agent()
        if version == second:
            for number in range(1, 8):
                cni.delete(node, CONF, f"c{number}", f"p{number}")
    for number in range(8, PODS + 1):
        cni.delete(node, CONF, f"c{number}", f"p{number}")
    begun = node.run("cat", "/run/calls").stdout.splitlines()
    expected = sorted(f"{verb} c{number}" for verb in ("ADD", "DEL") for number in range(1, PODS + 1))
    assert sorted(begun) == expected, "each was begun with once"
    assert "pn" not in node.run("ovs-vsctl", "list-ports", cni.BRIDGE).stdout
