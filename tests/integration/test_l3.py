# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All layer-3 state of a NIC goes to a bridge and comes back equal but for the device, from any half-done state."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration.layer3 import BRIDGE, NIC, OTHER, act, configure, make_bridge

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

HOLDS = "every route of every table, rules, multipath, source addresses, address order, lifetimes, both families"


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node whose NIC has everything."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    lans = [lab.lan(name) for name in ("one", "two")]
    made = lab.light("n1", nics=[Nic(NIC, lans[0]), Nic(OTHER, lans[1])], datapath=datapath)
    made.install_runtime()
    configure(made)
    return made


@pytest.fixture
def before(node: Light) -> Iterator[dict[str, Any]]:
    """What the NIC carries; each test leaves it as it was."""
    settled = "import time; time.sleep(2.5); "  # duplicate address detection
    found = act(node, settled + "print(json.dumps(state(NIC)))")
    yield found
    equal(act(node, "print(json.dumps(state(NIC)))"), found)


def equal(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Asserts that all is the same, and that what ends does so at the same moment, but for what the kernel cuts."""
    for part, value in wanted.items():
        if part == "routes":
            lines, others = (
                sorted(json.dumps(item, sort_keys=True) for item in routes) for routes in (found[part], value)
            )
            assert not [line for line in difflib.ndiff(lines, others) if line[0] in "+-"]
        elif part != "lives":
            assert found[part] == value, part
    assert found["lives"].keys() == wanted["lives"].keys()
    for name, lives in wanted["lives"].items():
        assert found["lives"][name] == pytest.approx(lives, rel=0, abs=4), name


@pytest.mark.holds(HOLDS)
def test_all_goes_over_and_comes_back(node: Light, before: dict[str, Any]) -> None:
    script = """
    x = L3.from_dict(json.loads(json.dumps(l3.snapshot(NIC).to_dict())))
    l3.stage(x, BRIDGE)
    staged = state(NIC)
    l3.swap(x, NIC, BRIDGE)
    there = {"staged": staged, "state": state(BRIDGE), "left": carries(NIC), "missing": l3.missing(x, BRIDGE)}
    y = l3.snapshot(BRIDGE).configured_as(x)
    l3.stage(y, NIC)
    l3.swap(y, BRIDGE, NIC, keep=True)
    kept = [item["local"] for item in carries(BRIDGE) if "local" in item]
    l3.swap(y, BRIDGE, NIC)
    back = {"state": state(NIC), "left": carries(BRIDGE), "missing": l3.missing(x, NIC), "kept": kept}
    print(json.dumps([there, back]))
    """
    there, back = act(node, script)
    for way in (there, back):
        equal(way["state"], before)
        assert not way["left"]
        assert not way["missing"]
    assert there["staged"]["addresses"] == before["addresses"]
    assert {item["local"] for item in before["addresses"]} == set(back["kept"])


@pytest.mark.holds(HOLDS)
def test_a_staged_target_draws_nothing(node: Light, before: dict[str, Any]) -> None:
    script = """
    x = l3.snapshot(NIC)
    asked = ["10.0.0.1", "10.0.0.20", "198.51.100.7", "192.0.2.2", "10.58.0.1", "172.17.5.5",
             "2001:db8::20", "2001:db8:bb::1", "2001:4860::1", "fd00::5"]
    def ways():
        return [read("route", "get", address)[0]["dev"] for address in asked]
    first = ways()
    l3.stage(x, BRIDGE)
    l3.stage(x, BRIDGE)
    staged = ways()
    l3.swap(x, NIC, BRIDGE)
    over = ways()
    l3.stage(x, NIC)
    again = ways()
    l3.swap(x, BRIDGE, NIC)
    print(json.dumps([first, staged, over, again, ways()]))
    """
    first, staged, over, again, back = act(node, script)
    assert staged == first == back
    assert again == over == [name.replace(NIC, BRIDGE) for name in first]


@pytest.mark.holds(HOLDS)
def test_from_each_half_done_state_it_goes_on_and_it_goes_back(
    node: Light, before: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    script = """
    step = int(sys.argv[1])
    x = l3.snapshot(NIC)
    found = []
    l3.stage(x, BRIDGE)
    total = part(x, NIC, BRIDGE, 0)
    for count in range(int(sys.argv[2]), total + 1, step):
        part(x, NIC, BRIDGE, count)
        l3.swap(x, NIC, BRIDGE)
        found.append(["on", count, state(BRIDGE), carries(NIC)])
        part(x, BRIDGE, NIC, count)
        l3.swap(x, BRIDGE, NIC)
        found.append(["on, back", count, state(NIC), carries(BRIDGE)])
        l3.stage(x, BRIDGE)
        part(x, NIC, BRIDGE, count)
        l3.stage(x, NIC)
        l3.swap(x, BRIDGE, NIC)
        found.append(["undone", count, state(NIC), carries(BRIDGE)])
    print(json.dumps([total, found]))
    """
    step = 1 if request.config.getoption("--full") else 7
    total, found = act(node, script, str(step), "0", timeout=300)
    assert total > 50
    for what, count, state, left in found:
        try:
            equal(state, before)
            assert not left
        except AssertionError as error:
            raise AssertionError(f"{what} after {count} of {total} changes") from error


def test_twice_changes_nothing_and_a_source_that_is_down_or_gone_is_fine(node: Light, before: dict[str, Any]) -> None:
    script = """
    x = l3.snapshot(NIC)
    l3.stage(x, BRIDGE)
    l3.swap(x, NIC, BRIDGE)
    once = state(BRIDGE)
    l3.swap(x, NIC, BRIDGE)
    l3.stage(x, BRIDGE)
    l3.swap(x, NIC, BRIDGE)
    twice = state(BRIDGE)
    subprocess.run(["ip", "link", "set", BRIDGE, "down"], check=True)
    gone = l3.missing(x, BRIDGE)
    l3.swap(x, BRIDGE, NIC)
    down = state(NIC)
    l3.stage(x, BRIDGE)
    l3.swap(x, NIC, BRIDGE)
    # a VXLAN link ends with its lower device
    subprocess.run(["ip", "link", "set", "vx0", "type", "vxlan", "id", "5", "dev", NIC], check=True)
    subprocess.run(["ovs-vsctl", "--timeout=10", "del-br", BRIDGE], check=True)
    l3.swap(x, BRIDGE, NIC)
    print(json.dumps([once, twice, gone, down]))
    """
    once, twice, gone, down = act(node, script)
    make_bridge(node)
    equal(twice, once)
    assert f"{BRIDGE} is down" in gone
    equal(down, before)


def test_a_target_that_is_gone_is_an_error_before_anything_changes(node: Light, before: dict[str, Any]) -> None:
    script = """
    x = l3.snapshot(NIC)
    errors = []
    for work in (lambda: l3.stage(x, "none"), lambda: l3.swap(x, NIC, "none"), lambda: l3.snapshot("none")):
        try:
            work()
        except l3.KernelError as error:
            errors.append(str(error))
    print(json.dumps([errors, l3.missing(x, "none"), l3.missing(x, NIC)]))
    """
    errors, missing, none = act(node, script)
    assert errors == ["the kernel has no link none"] * 3
    assert missing == ["the device none"]
    assert not none


def test_settings_are_there_before_the_link_is_up_and_the_way_back_is_not_checked_meanwhile(
    node: Light, before: dict[str, Any]
) -> None:
    script = """
    def values(device):
        paths = ("ipv4/conf/%s/rp_filter", "ipv4/conf/%s/forwarding", "ipv4/neigh/%s/gc_stale_time",
                 "ipv6/conf/%s/hop_limit", "ipv6/conf/%s/addr_gen_mode")
        return [l3.sysctls.read(device, path) for path in paths]
    x = l3.snapshot(NIC)
    found = [values(NIC)]
    l3.stage(x, BRIDGE)
    found += [values(NIC), values(BRIDGE)]
    l3.swap(x, NIC, BRIDGE)
    found += [values(BRIDGE)]
    l3.quiet(NIC)
    quiet = [l3.sysctls.read(NIC, path) for path in l3._QUIET]
    l3.loud(NIC, x)
    l3.stage(x, NIC)
    l3.swap(x, BRIDGE, NIC)
    loud = l3.sysctls.read_all(NIC)
    changed = {path: value for path, value in x.sysctls.items() if loud.get(path) != value}
    print(json.dumps([*found, quiet, changed]))
    """
    first, dual_nic, dual_bridge, over, quiet, changed = act(node, script)
    assert first[:4] == ["1", "1", "77", "60"]
    assert dual_nic[0] == dual_bridge[0] == "2"
    assert dual_bridge[1:4] == first[1:4]
    assert over == first
    assert quiet == ["1", "1", "1"]
    assert not changed


def test_a_limited_lifetime_that_is_over_is_left_out_unless_it_is_to_last(node: Light, before: dict[str, Any]) -> None:
    script = """
    from dataclasses import replace
    x = l3.snapshot(NIC)
    old = replace(x, taken=replace(x.taken, boottime=x.taken.boottime - 4000))
    l3.stage(old, BRIDGE)
    first, began = state(BRIDGE)["lives"], time.time()
    l3.stage(old.lasting(600, now()), BRIDGE)
    second = state(BRIDGE)["lives"]
    left = [second["10.0.0.7"][0] - time.time(), first["2001:db8::6"][0] - began]
    subprocess.run(["ip", "link", "set", BRIDGE, "down"], check=True)
    subprocess.run(["ip", "addr", "flush", "dev", BRIDGE], check=True)
    l3.swap(x, BRIDGE, NIC)
    known = {address.cidr: address.valid for address in x.addresses}
    print(json.dumps([sorted(first), *left, known["2001:db8::6/64"]]))
    """
    first, lasting, old, valid = act(node, script)
    assert "10.0.0.7" not in first
    assert lasting == pytest.approx(600, rel=0, abs=20)
    assert old == pytest.approx(valid - 4000, rel=0, abs=20)


def test_an_address_of_somebody_else_stays_and_one_of_a_client_goes(node: Light, before: dict[str, Any]) -> None:
    script = """
    x = l3.snapshot(NIC)
    l3.stage(x, BRIDGE)
    l3.swap(x, NIC, BRIDGE)
    for words in (["10.200.0.1/32"], ["10.201.0.1/24", "valid_lft", "100", "preferred_lft", "100"]):
        subprocess.run(["ip", "addr", "add", *words, "dev", BRIDGE], check=True)
    l3.stage(x, NIC)
    l3.swap(x, BRIDGE, NIC)
    left = [item["local"] for item in carries(BRIDGE) if "local" in item]
    subprocess.run(["ip", "addr", "flush", "dev", BRIDGE], check=True)
    print(json.dumps(left))
    """
    assert act(node, script) == ["10.200.0.1"]
