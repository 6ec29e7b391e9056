# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes the nodes that are moved and killed: with the runtime, its launcher replaced, and what they show at rest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MOVE, UNBRIDGE
from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, FAULT, NIC, PODNET, Subject
from ansible_collections.podnet.ovs.tests.fault.listing import Listing, listing, processes
from ansible_collections.podnet.ovs.tests.lab import Lab, Lan, Nic, until

IPV4, IPV6 = "10.77.0.0/24", "fd77::/64"
HERE = Path(__file__).parent
BEFORE = "before"


def make_lan(lab: Lab, name: str = "lan", *, dhcp: bool = False) -> Lan:
    """A LAN with a gateway of both families."""
    return lab.lan(name, ipv4=IPV4, ipv6=IPV6, dhcp=dhcp)


def make_light(lab: Lab, lan: Lan, name: str, datapath: str) -> Subject:
    """A node of namespaces without systemd and without a network manager."""
    node = lab.light(name, nics=[Nic(NIC, lan, "static")], datapath=datapath)
    node.install_runtime()
    return _ready(Subject(node, lan, "none"))


def make_full(lab: Lab, lan: Lan, name: str, manager: str = "networkd", mode: str = "static") -> Subject:
    """A node with systemd, the product's units and a network manager; still without a bridge."""
    nics = [Nic(NIC, lan, mode)]
    node = lab.full(name, nics=nics, manager=manager, packages=["openvswitch-switch"], runtime=True)
    return _ready(Subject(node, lan, manager))


def make_machine(lab: Lab, lan: Lan, name: str) -> Subject:
    """A machine with a stock kernel and a disk, as a full node; emulated, and so slow."""
    node = lab.machine(name, nics=[Nic(NIC, lan, "static")], runtime=True)
    return _ready(Subject(node, lan, "networkd"))


def _ready(subject: Subject) -> Subject:
    replace_launcher(subject)
    until(subject.reachable, 30, f"{subject.node.name} on its address")
    return subject


def replace_launcher(subject: Subject) -> None:
    """From now on each `podnet` of the node goes through injected.py, also those that systemd starts."""
    node = subject.node
    for name in ("injected.py", "recorded.py"):
        node.write(f"{FAULT}/{name}", (HERE / name).read_bytes())
    path = node.run("readlink", "-f", PODNET).stdout.strip()
    text = node.get(path).decode()
    made, count = re.subn(
        r"^from podnet\.cli import main$", f'sys.path.insert(0, "{FAULT}")\nfrom injected import main', text, flags=re.M
    )
    assert count == 1, f"the launcher is not as it was:\n{text}"
    node.write(path, made, "755")


def _rests(subject: Subject) -> bool:
    """Whether nothing works on a move any more; who watches over a bridge stays."""
    return not any(" uplink " in line and " watch " not in line for line in processes(subject))


def references(subject: Subject) -> Mapping[str, Listing]:
    """What the node shows at rest: after a move, after the way back, which leaves the bridge, and BEFORE a move."""
    found = {}
    for direction in (MOVE, UNBRIDGE):
        subject.run_whole(direction)
        until(partial(_rests, subject), 40, f"the end of what {direction} has started", 0.2)
        found[direction] = listing(subject)
    remove_bridge(subject)
    found[BEFORE] = listing(subject)
    return found


def remove_bridge(subject: Subject) -> None:
    """What who has taken the NIC out does with the bridge: so the next move makes it anew."""
    subject.node.run("ovs-vsctl", "--timeout=20", "--if-exists", "del-br", BRIDGE)
