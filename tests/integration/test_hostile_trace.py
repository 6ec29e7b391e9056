# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hostile input, under a system-call trace: what a call opens, whom it connects to, what it starts.

Plugins in their own processes one by one (a sample that PODNET_SEED chooses, with --full all), the agent over all.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni, hostile, tracing
from ansible_collections.podnet.ovs.tests.integration.hostile import CASES, SAMPLE, environment

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

WRITTEN = (
    r"/run/podnet|/run/podnet/turns(/[0-9a-f]{3})?",  # the turn of an attachment
    r"/run/podnet/owed(/pn[0-9a-f]{12})?",  # the lease that an attachment still has
    r"/proc/sys/net/ipv6/conf/pn[0-9a-f]{12}/disable_ipv6",  # the node's end of a link pair
    r"/dev/null",
    r"/var/lib/cni(/networks(/green(/lock|/last_reserved_ip\.[01]|/[0-9a-f.:]+)?)?)?",  # host-local's
)
"""All that a call may open for writing, make, or take away, whatever its input says."""
CONNECTED = {cni.SOCKET, "/run/openvswitch/db.sock"}
BOUND = {"AF_NETLINK", "AF_PACKET"}
"""The kernel, and what a pod that was attached says to its neighbours."""
EXECUTED = {cni.PLUGIN, "/usr/bin/python3", f"{cni.PEERS}/host-local"}
NAMED_ANYWAY = {cni.PLUGIN, "/etc/podnet/node.json"}
FORBIDDEN = {path for case in CASES.values() for path in case.paths} - NAMED_ANYWAY
"""What the input names, and nobody may even look at."""
ROWS = [pytest.param(case, marks=[] if case in SAMPLE else pytest.mark.full) for case in CASES]
holds = pytest.mark.holds("hostile input, under a system-call trace: no file outside its folders, no connection tried")


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with a pod, which lets configurations name some files."""
    node = hostile.make_node(lab, datapath)
    node.netns("p1")
    return node


def hold(seen: tracing.Touched) -> None:
    """Nothing was touched that is not a call's own."""
    allowed = re.compile("|".join(f"({pattern})" for pattern in WRITTEN))
    assert sorted(path for path in seen.written if not allowed.fullmatch(path)) == []
    assert seen.named & FORBIDDEN == set()
    assert seen.connected <= CONNECTED and seen.bound <= BOUND
    assert seen.executed <= EXECUTED


@holds
@pytest.mark.parametrize("case", ROWS)
def test_a_call_touches_nothing_that_is_not_its_own(machine: Light, case: str) -> None:
    for verb in ("ADD", "DEL"):
        seen = tracing.run(machine, cni.PLUGIN, CASES[case].stdin, environment(verb, CASES[case]))
        hold(seen)
        assert cni.PLUGIN in seen.executed and cni.SOCKET in seen.connected, "the trace shows what is done"
    assert cni.leftovers(machine) == cni.NOTHING


@holds
def test_the_agent_touches_nothing_that_is_not_its_own(machine: Light) -> None:
    conf = cni.configuration(ipam=cni.ipam())
    with cni.agent(machine) as process:
        with tracing.attached(machine, process.pid):
            for case in CASES.values():
                for verb in ("ADD", "DEL"):
                    machine.run(cni.PLUGIN, input=case.stdin, env=environment(verb, case), check=False)
            cni.add(machine, conf)
            cni.delete(machine, conf)
        seen = tracing.read(machine)
    hold(seen)
    assert {"/etc/podnet/node.json", "/etc/podnet/files/fifo", f"{cni.PEERS}/host-local"} <= seen.named
    assert any("/disable_ipv6" in path for path in seen.written), "the trace shows what is done"
    assert cni.leftovers(machine) == cni.NOTHING
