# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the kernel made from router advertisements goes over, and the kernel goes on with it there."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration.layer3 import BRIDGE, NIC, act, make_bridge

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan, Light

LOOK = """
def look(device):
    (link,) = read("addr", "show", "dev", device)
    addresses = {item["local"]: item["valid_life_time"] for item in link["addr_info"] if not item.get("temporary")}
    routes = [item for item in read("-6", "route", "show", "default") if item["dev"] == device]
    return {"addresses": addresses, "routes": [[item["gateway"], item["metric"], item["expires"]] for item in routes]}
"""
OVER = """
x = l3.snapshot(NIC)
l3.stage(x, BRIDGE)
subprocess.run(["ovs-vsctl", "--timeout=10", "add-port", BRIDGE, NIC], check=True)
if sys.argv[1] == "system":
    l3.wait_master(NIC, True, 10)
before = look(NIC)
l3.swap(x, NIC, BRIDGE)
if sys.argv[1] != "system":
    l3.quiet(NIC)
print(json.dumps([x.to_dict(), before, look(BRIDGE), look(NIC)]))
"""
BACK = """
original = L3.from_dict(json.loads(sys.argv[2]))
x = l3.snapshot(BRIDGE).configured_as(original)
l3.loud(NIC, original)
before = look(BRIDGE)
l3.stage(x, NIC)
l3.swap(x, BRIDGE, NIC, keep=True)
subprocess.run(["ovs-vsctl", "--timeout=10", "del-port", BRIDGE, NIC], check=True)
if sys.argv[1] == "system":
    l3.wait_master(NIC, False, 10)
l3.swap(x, BRIDGE, NIC)
modes = [item.get("inet6_addr_gen_mode") for item in read("link", "show", "dev", NIC)]
print(json.dumps([before, look(NIC), look(BRIDGE), modes]))
"""
WAIT = """
import time
end = time.monotonic() + 20
old = json.loads(sys.argv[2])
while time.monotonic() < end:
    seen = look(sys.argv[1])
    lives = seen["addresses"]
    new = all(lives.get(name, 0) > life for name, life in old.items())
    if new and seen["routes"] and any(life <= 600 for life in lives.values()):
        break
    time.sleep(0.1)
print(json.dumps(seen))
"""


@pytest.fixture(scope="module")
def lan(lab: Lab) -> Lan:
    """A LAN whose router says each four seconds what the prefix is."""
    return lab.lan("ra", ipv4="10.89.0.0/24", ipv6="fd89::/64", dhcp=True, ra="slaac", ra_interval=4, ra_lifetime=600)


@pytest.mark.holds("SLAAC: addresses and routes keep their lifetimes, and the next advertisement renews them")
@pytest.mark.parametrize("mode", ["eui64", pytest.param("random", marks=pytest.mark.full)])
def test_the_kernel_goes_on_where_the_addresses_are(lab: Lab, lan: Lan, datapath: str, mode: str) -> None:
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light(mode, nics=[Nic(NIC, lan)], datapath=datapath)
    node.install_runtime()
    if datapath == "netdev":
        node.drop_ingress(NIC, False)  # until it is a port, its own kernel uses the NIC
    node.sh(f"ip link set {NIC} addrgenmode {mode}; ip link set {NIC} up")
    first = renewed(node, NIC, {})
    make_bridge(node)
    snapshot, before, there, left = act(node, LOOK + OVER, datapath)
    same(before, there)
    assert not left["addresses"] and not left["routes"]
    after = renewed(node, BRIDGE, limited(there))
    assert after["addresses"].keys() == first["addresses"].keys()
    before, there, left, modes = act(node, LOOK + BACK, datapath, json.dumps(snapshot))
    same(before, there)
    assert not left["addresses"] and not left["routes"]
    after = renewed(node, NIC, limited(there))
    assert after["addresses"].keys() == first["addresses"].keys()
    assert modes == [mode]


def same(before: dict[str, Any], after: dict[str, Any]) -> None:
    """Asserts the same addresses and routes, which live as long as before; or as an advertisement in between says."""
    assert before["addresses"].keys() == after["addresses"].keys()
    assert [route[:2] for route in before["routes"]] == [route[:2] for route in after["routes"]]
    for name, life in before["addresses"].items():
        assert life - 10 <= after["addresses"][name] <= max(life + 1, 600) or life > 600
    assert before["routes"][0][2] - 10 <= after["routes"][0][2] <= 601


def limited(seen: dict[str, Any]) -> dict[str, int]:
    """The lifetimes that end."""
    return {name: life for name, life in seen["addresses"].items() if life <= 600}


def renewed(node: Light, device: str, old: dict[str, int]) -> dict[str, Any]:
    """What the device carries once an advertisement has come again."""
    seen: dict[str, Any] = act(node, LOOK + WAIT, device, json.dumps(old))
    assert len(seen["routes"]) == 1
    assert len(limited(seen)) == 1
    return seen
