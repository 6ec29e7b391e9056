# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A move that is undone before the network manager let go of the NIC: neither of them notices."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MOVE, ROLLED_BACK
from ansible_collections.podnet.ovs.tests.fault.harness import FAULT, GRACE, NIC, Subject
from ansible_collections.podnet.ovs.tests.fault.subjects import replace_launcher
from ansible_collections.podnet.ovs.tests.lab import Nic, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab

TEST = "192.0.2.1"
LOG = f"{FAULT}/monitor"
KINDS = [
    ("networkd", "dhcp"),
    *(pytest.param(*kind, marks=pytest.mark.full) for kind in (("networkd", "static"), ("ifupdown", "dhcp"))),
]


@pytest.mark.holds("SIGKILL before anything was changed: the network manager goes on, no address is lost for a moment")
@pytest.mark.parametrize(("manager", "mode"), KINDS)
def test_a_manager_that_never_let_go(lab: Lab, manager: str, mode: str) -> None:
    lan = lab.lan(f"lan-{manager}-{mode}", ipv4="10.77.0.0/24", ipv6="fd77::/64", dhcp=mode == "dhcp")
    nics = [Nic(NIC, lan, mode)]
    node = lab.full(f"{manager}-{mode}", nics=nics, manager=manager, packages=["openvswitch-switch"], runtime=True)
    subject = Subject(node, lan, manager)
    replace_launcher(subject)
    until(lambda: node.ssh("true", check=False).returncode == 0, 30, "ssh to the node")
    subject.tell(kill={"point": "files-volatile", "times": [1], "whole": True})
    log = subject.path(LOG)
    monitor = node.popen("sh", "-c", f"exec timeout 120 ip monitor address dev {NIC} > {LOG}")

    def listens() -> bool:
        node.sh(f"ip address add {TEST}/32 dev {NIC}; ip address del {TEST}/32 dev {NIC}")
        return TEST in log.read_text("utf-8")

    try:
        with lan.capture() as seen:
            until(listens, 10, "the monitor", 0.3)
            move, begun = subject.begin(MOVE, 10)
            assert begun.returncode == 0, begun.stdout + begun.stderr
            subject.wait_for(move, ROLLED_BACK, seconds=10 + GRACE)
            time.sleep(1)  # nothing may follow, either
    finally:
        monitor.kill()
        monitor.wait()
    gone = [line for line in log.read_text("utf-8").splitlines() if "Deleted" in line and TEST not in line]
    assert not gone, gone
    assert [message.type for message in seen.dhcp() if message.type not in ("REQUEST", "ACK")] == []
    node.down()
