# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Spoilt calls by the thousand: each is answered as the specification has it, in its time, and leaves nothing.

PODNET_SEED is the seed; what went wrong is printed so that PODNET_FUZZ=NUMBER repeats that one call.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import PATIENCE

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SEED = os.environ.get("PODNET_SEED") or "1"
ONLY = os.environ.get("PODNET_FUZZ")
COUNT = round(5000 / PATIENCE**2)
TREE = Path(__file__).absolute().parents[5]
START = (
    f"import sys; sys.path[:0] = ['/opt/podnet/current/lib', {str(TREE)!r}]; "
    "from ansible_collections.podnet.ovs.tests.integration.fuzz import main; main()"
)
SETUP = """
sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1
ip addr add 10.0.0.3/24 dev eth2
ip addr add fd00::3/64 dev eth2 nodad
ip link set eth2 up
ip -n p1 link add base0 type veth peer name base1
ip -n p1 link set base0 up
ip -n p1 link set base1 up
"""
MOST_FILES = 60
"""That the process may have open at the end, however many calls there were."""


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with a bridge that looks at two VLAN headers, an uplink that routes and has VLANs for pods, and a pod."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk")), Nic("eth2", lab.lan("side"))], datapath=datapath)
    document = cni.node_document(datapath, vlan_limit=2)
    document["policy"] = [{"interface": "eth2", "routed": True}, {"interface": "eth2", "vlans": "40-49"}]
    cni.prepare(node, document)
    node.netns("p1")
    node.sh(SETUP)
    return node


@pytest.mark.holds("malformed input: an error of the specification or a right result, in time; nothing is left")
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.full) for part in range(1, 20))])
def test_whatever_comes_is_answered_and_leaves_nothing(node: Light, part: int) -> None:
    which = ["--only", ONLY] if ONLY else ["--first", str(part * COUNT), "--count", str(COUNT)]
    done = node.run("/usr/bin/python3", "-IS", "-c", START, "--seed", SEED, *which, check=False, timeout=900)
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    *failures, figures = (json.loads(line) for line in lines)
    assert not failures, "\n".join(words(failure) for failure in failures)
    assert done.returncode == 0, done.stderr
    if not ONLY:
        served = {outcome.split()[0] for outcome in figures["outcomes"] if outcome.endswith("ADD ok")}
        plugins = {outcome.split()[0] for outcome in figures["outcomes"]}
        missing = plugins - served - set(figures["lacks"])
        assert not missing, f"{missing}: a plugin whose ADD never succeeds needs a configuration in fuzz_words.BASES"
        assert figures["files"] <= MOST_FILES, figures
    print(figures)


def words(failure: dict[str, Any]) -> str:
    """A failure as a person reads it."""
    again = f"PODNET_SEED={failure['seed']} PODNET_FUZZ={failure.get('only')}"
    return f"{failure['why']}\n  {again}\n  " + "\n  ".join(f"{key}: {value}" for key, value in failure.items())
