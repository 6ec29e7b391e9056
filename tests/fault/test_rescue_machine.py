# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rescues on a stock kernel, whose datapath holds on to the NIC when ovs-vswitchd is dead: in the virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.fault.years import begin, story, wait_for_state

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab

pytestmark = pytest.mark.vm


@pytest.mark.holds("vswitchd in a crash loop: the old address answers")
@pytest.mark.full
def test_rescues_on_a_stock_kernel(lab: Lab) -> None:
    words = ["tests/fault/test_rescue.py", "--full", "-k", "whatever_is_dead or hangs or is_lost"]
    done = lab.vm().pytest("-q", "--durations=5", *words, timeout=2700)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.holds("openvswitch module hidden: the old address answers")
@pytest.mark.full
def test_the_kernel_module_is_hidden_and_the_node_reboots(lab: Lab) -> None:
    from ansible_collections.podnet.ovs.tests.lab import Nic, until

    lan = lab.lan("lan", ipv4="10.72.0.0/24", ipv6="fd72::/64", mirror=True)
    node = lab.machine("m1", nics=[Nic("eth0", lan, "static")], packages=["openvswitch-switch"], runtime=True)
    until(lambda: node.state() in ("running", "degraded"), 300, "the end of its boot")
    journal = begin(node)
    assert journal["state"] == "committed", journal["reason"] or journal["log"]
    node.write("/etc/modprobe.d/hidden.conf", "install openvswitch /bin/false\nblacklist openvswitch\n")
    node.reboot(timeout=240)
    until(lambda: node.ssh("true", check=False, timeout=20).returncode == 0, 90, "the node's old address")
    wait_for_state(node, "rescued", 180)
    assert node.ssh("true", check=False).returncode == 0, story(node)
    node.run("rm", "/etc/modprobe.d/hidden.conf")
    node.run("systemctl", "restart", "openvswitch-switch", timeout=180)
    journal = begin(node)
    assert journal["state"] == "committed", journal["reason"] or journal["log"]
    wait_for_state(node, "ok", 60)
