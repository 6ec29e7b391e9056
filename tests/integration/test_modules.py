# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The modules on light nodes: check, run, run again, change, remove; and what ovs-vsctl and ip say after each."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.plugin_utils.archive import build_archive
from ansible_collections.podnet.ovs.tests.integration.ansiballz import COLLECTION, PYTHON, payload, run_module
from ansible_collections.podnet.ovs.tests.lab.proc import STATE

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan, Light

Options = dict[str, Any]

FREE = ("eth1", "eth2", "eth3")
"""The NICs of the node that it does not use itself."""


@pytest.fixture(scope="module")
def trunk(lab: Lab) -> Lan:
    """A switch for NICs without addresses."""
    return lab.lan("trunk")


@pytest.fixture(scope="module")
def machine(lab: Lab, trunk: Lan, datapath: str) -> Light:
    """A node with its runtime, a NIC of its own with addresses, and two for pods."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    home = lab.lan("home", ipv4="10.99.0.0/24", ipv6="fd00:99::/64")
    nics = [Nic("eth0", home, "static"), *(Nic(name, trunk) for name in FREE)]
    node = lab.light("n1", nics=nics, datapath=datapath)
    node.install_runtime()
    return node


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node with nothing on its switch, before and after."""
    yield machine
    machine.run("rm", "-f", "/etc/podnet/node.json")
    for name in machine.ovs.vsctl("list-br").stdout.split():
        machine.ovs.vsctl("del-br", name)
    machine.ovs.vsctl("clear", "open", ".", "external_ids", "--", "remove", "open", ".", "other_config", "vlan-limit")
    for name in FREE:
        machine.run("ip", "addr", "flush", "dev", name)
        machine.run("ip", "link", "set", name, "down", "mtu", "1500")


def run(node: Light, module: str, check: bool = False, **options: Any) -> Options:
    """A run that must succeed."""
    result = run_module(node, module, check, **options)
    assert not result.get("failed"), result.get("msg", result)
    return result


def fails(node: Light, module: str, check: bool = False, **options: Any) -> str:
    """A run that must fail with a message for a person; gives it."""
    before = database(node), links(node)
    result = run_module(node, module, check, **options)
    assert result.get("failed"), f"should have failed: {result}"
    assert "Traceback" not in result["msg"] and "hint" in result, result
    assert (database(node), links(node)) == before, "a failed run left something behind"
    return str(result["msg"])


def database(node: Light) -> Options:
    """Bridges, ports and interfaces as ovs-vsctl shows them, without what the switch reports."""
    found: Options = {}
    for table, columns in (
        ("Bridge", "name,datapath_type,fail_mode,stp_enable,rstp_enable,other_config,external_ids"),
        ("Port", "name,tag,trunks,vlan_mode,bond_mode,lacp,other_config,external_ids"),
        ("Interface", "name,type,mac,mtu_request,external_ids"),
        ("Open_vSwitch", "other_config"),
    ):
        printed = node.ovs.vsctl("--format=json", f"--columns={columns}", "list", table).stdout
        found[table] = sorted(json.loads(printed)["data"], key=str) if printed.strip() else []
    return found


def links(node: Light) -> Options:
    """Name to (up, permanent addresses) of the node's links, without IPv6 link-local ones."""
    found = {}
    for link in json.loads(node.run("ip", "-j", "addr").stdout):
        addresses = [f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"] if item["scope"] != "link"]
        if link["ifname"] not in ("lo", "ovs-netdev", "ovs-system"):
            found[link["ifname"]] = ("UP" in link["flags"], sorted(addresses))
    return found


def get(node: Light, table: str, record: str, column: str) -> str:
    """A column as ovs-vsctl prints it."""
    return node.ovs.vsctl("get", table, record, column).stdout.strip()


def messages(result: Options) -> str:
    """The warnings of a result as text."""
    return json.dumps(result.get("warnings", []))


def once(node: Light, module: str, **options: Any) -> Options:
    """Check, run, run again: the check changes nothing and says what the run then does; the second run does nothing."""
    before = database(node), links(node)
    check = run(node, module, True, **options)
    assert (database(node), links(node)) == before, "check mode changed something"
    real = run(node, module, **options)
    for key in ("changed", "operations", "before", "after", "diff"):
        assert check[key] == real[key], f"check mode foresaw another {key}"
    after = database(node), links(node)
    again = run(node, module, **options)
    assert not again["changed"] and again["operations"] == [] and again["diff"] == [], again
    assert (database(node), links(node)) == after
    return real


def steps(result: Options) -> list[tuple[str, str, str]]:
    """Kind, name and action of the operations."""
    return [(step["kind"], step["name"], step["action"]) for step in result["operations"]]


# bridge


def test_bridge_comes_changes_and_goes(node: Light, datapath: str) -> None:
    made = once(node, "bridge", name="br-t", datapath_type=datapath, mac="02:00:5e:10:00:01", mtu=1400)
    assert made["changed"] and steps(made) == [("bridge", "br-t", "create")]
    assert get(node, "Bridge", "br-t", "datapath_type") == datapath
    assert get(node, "Bridge", "br-t", "fail_mode") == "standalone"
    assert get(node, "Interface", "br-t", "mtu") == "1400"
    assert "02:00:5e:10:00:01" in node.run("ip", "link", "show", "br-t").stdout
    assert get(node, "Bridge", "br-t", "external_ids:podnet_owner") == "node"

    changed = once(node, "bridge", name="br-t", fail_mode="secure", rstp=True, vlan_limit=2, external_ids={"site": "x"})
    assert get(node, "Bridge", "br-t", "fail_mode") == "secure"
    assert get(node, "Bridge", "br-t", "rstp_enable") == "true"
    assert get(node, "Open_vSwitch", ".", "other_config:vlan-limit") == '"2"'
    assert get(node, "Bridge", "br-t", "datapath_type") == datapath, "an option that was not given was changed"
    assert get(node, "Interface", "br-t", "mtu_request") == "1400"
    assert "-    fail_mode: standalone" not in changed["diff"][0]["after"]
    assert "fail_mode: standalone" in changed["diff"][0]["before"]
    assert "fail_mode: secure" in changed["diff"][0]["after"]

    gone = once(node, "bridge", name="br-t", state="absent")
    assert steps(gone) == [("bridge", "br-t", "remove")] and gone["after"] == {}
    assert node.ovs.vsctl("list-br").stdout == "" and "br-t" not in links(node)


def test_keys_merge_or_are_replaced(node: Light, datapath: str) -> None:
    run(node, "bridge", name="br-t", datapath_type=datapath)
    node.ovs.vsctl("set", "Bridge", "br-t", "other_config:mac-table-size=100", "external_ids:theirs=1")
    once(node, "bridge", name="br-t", other_config={"mac-aging-time": 60}, external_ids={"mine": "2"})
    assert get(node, "Bridge", "br-t", "other_config") == '{mac-aging-time="60", mac-table-size="100"}'
    assert get(node, "Bridge", "br-t", "external_ids:theirs") == '"1"'
    once(
        node,
        "bridge",
        name="br-t",
        other_config={"mac-aging-time": 90},
        other_config_mode="replaced",
        external_ids={"mine": "3"},
        external_ids_mode="replaced",
    )
    assert get(node, "Bridge", "br-t", "other_config") == '{mac-aging-time="90"}'
    assert get(node, "Bridge", "br-t", "external_ids") == '{mine="3", podnet_owner=node, podnet_schema="1"}'


def test_a_datapath_that_cannot_be_had_is_an_error_and_leaves_nothing(node: Light, datapath: str) -> None:
    if datapath == "system":
        pytest.skip("this kernel has the datapath")
    said = fails(node, "bridge", name="br-t", datapath_type="system")
    assert "modprobe openvswitch" in said and "datapath_type: netdev" in said
    run(node, "bridge", name="br-t", datapath_type=datapath)
    run(node, "interface", name="v5", bridge="br-t", vlan=5, addresses=["10.5.0.1/24"])
    assert "cannot run the type system" in fails(node, "bridge", name="br-t", datapath_type="system")
    assert links(node)["v5"] == (True, ["10.5.0.1/24"])


def test_bridge_with_foreign_ports_stays_unless_forced(node: Light, datapath: str) -> None:
    run(node, "bridge", name="br-t", datapath_type=datapath)
    node.ovs.vsctl("add-port", "br-t", "theirs", "--", "set", "Interface", "theirs", "type=internal")
    said = fails(node, "bridge", name="br-t", state="absent")
    assert "theirs" in said and "force: true" in said
    assert fails(node, "bridge", True, name="br-t", state="absent") == said, "check mode must foresee the refusal"
    once(node, "bridge", name="br-t", state="absent", force=True)
    assert node.ovs.vsctl("list-br").stdout == ""


def test_a_bridge_that_is_there_already_is_taken_over_with_what_it_has(node: Light, datapath: str) -> None:
    node.ovs.vsctl("add-br", "br-t", "--", "set", "Bridge", "br-t", f"datapath_type={datapath}", "stp_enable=true")
    once(node, "bridge", name="br-t", mtu=1300)
    assert get(node, "Bridge", "br-t", "stp_enable") == "true"
    assert get(node, "Bridge", "br-t", "datapath_type") == datapath


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"name": "a-name-of-16-byt"}, "15"),
        ({"name": "br-t", "mac": "01:00:5e:00:00:01"}, "multicast"),
        ({"name": "br-t", "stp": True, "rstp": True}, "not both"),
        ({"name": "br-t", "mtu": 20}, "MTU"),
        ({"name": "br-t", "external_ids": {"podnet_owner": "me"}}, "owner mark"),
        ({"name": "eth1"}, "choose another name"),
        ({"name": "br-t", "ovsdb": "tcp:127.0.0.1:6640"}, "unix socket"),
        ({"name": "br-t", "ovsdb": "unix:/nowhere/db.sock"}, "systemctl start openvswitch-switch"),
    ],
)
def test_bridge_bad_options(node: Light, options: Options, words: str) -> None:
    assert words in fails(node, "bridge", **options)


# uplink


@pytest.fixture
def bridge(node: Light, datapath: str) -> str:
    """A bridge on the node."""
    run(node, "bridge", name="br-t", datapath_type=datapath)
    return "br-t"


def test_uplink_comes_changes_and_goes(node: Light, bridge: str) -> None:
    made = once(node, "uplink", name="eth1", bridge=bridge, vlans="100,200")
    assert steps(made) == [("uplink", "eth1", "create"), ("link", "eth1", "up")]
    assert get(node, "Port", "eth1", "trunks") == "[100, 200]" and get(node, "Port", "eth1", "vlan_mode") == "trunk"
    assert links(node)["eth1"][0], "the NIC is down"
    once(node, "uplink", name="eth1", bridge=bridge, mtu=1450, native_vlan=7)
    assert get(node, "Port", "eth1", "tag") == "7" and get(node, "Port", "eth1", "vlan_mode") == "native-untagged"
    assert get(node, "Port", "eth1", "trunks") == "[100, 200]"
    assert "mtu 1450" in node.run("ip", "link", "show", "eth1").stdout
    gone = once(node, "uplink", name="eth1", bridge=bridge, state="absent")
    assert steps(gone) == [("uplink", "eth1", "remove")]
    assert node.ovs.vsctl("list-ports", bridge).stdout == ""


def test_vlans_are_a_set_difference(node: Light, bridge: str) -> None:
    run(node, "uplink", name="eth1", bridge=bridge, vlans=[100, "200-202"])
    more = once(node, "uplink", name="eth1", bridge=bridge, vlans=300)
    assert more["operations"][0]["detail"]["port"] == {"trunks": {"add": [300], "remove": []}}
    less = once(node, "uplink", name="eth1", bridge=bridge, vlans="201-250", vlans_mode="deleted")
    assert less["operations"][0]["detail"]["port"] == {"trunks": {"add": [], "remove": [201, 202]}}
    assert "vlans: 100,200,300" in less["diff"][0]["after"]
    other = once(node, "uplink", name="eth1", bridge=bridge, vlans="200,400", vlans_mode="replaced")
    assert other["operations"][0]["detail"]["port"] == {"trunks": {"add": [400], "remove": [100, 300]}}
    assert get(node, "Port", "eth1", "trunks") == "[200, 400]"
    assert "all of them" in fails(node, "uplink", name="eth1", bridge=bridge, vlans="1-4094", vlans_mode="deleted")


def test_bond_comes_grows_and_becomes_a_single_nic(node: Light, bridge: str) -> None:
    two, three, others = ["eth1", "eth2"], ["eth1", "eth2", "eth3"], ["eth1", "eth3"]
    made = once(node, "uplink", name="bond0", bridge=bridge, nics=two, bond_mode="balance-tcp", lacp="active")
    assert made["after"]["bridges"][bridge]["uplinks"]["bond0"]["nics"] == {"eth1": "up", "eth2": "up"}
    assert get(node, "Port", "bond0", "bond_mode") == "balance-tcp" and get(node, "Port", "bond0", "lacp") == "active"
    once(node, "uplink", name="bond0", bridge=bridge, nics=three)
    once(node, "uplink", name="bond0", bridge=bridge, nics=others, bond_mode="active-backup", lacp="off")
    assert sorted(node.ovs.vsctl("list-ifaces", bridge).stdout.split()) == others
    assert get(node, "Port", "bond0", "bond_mode") == "active-backup"
    assert "bond0" in fails(node, "uplink", name="eth1", bridge=bridge)
    once(node, "uplink", name="bond0", bridge=bridge, state="absent")
    once(node, "uplink", name="eth1", bridge=bridge)


@pytest.mark.parametrize("check", [False, True])
def test_a_nic_in_use_is_refused(node: Light, bridge: str, check: bool) -> None:
    said = fails(node, "uplink", check, name="eth0", bridge=bridge)
    address = next(item for item in links(node)["eth0"][1] if "." in item)
    assert address in said and "fd00:99::" in said and "default" in said and "another NIC" in said
    assert "10.99.0.1" in said, "the gateway is not named"
    assert address in fails(node, "uplink", check, name="bond0", bridge=bridge, nics=["eth0", "eth1"])


def test_a_nic_with_only_a_route_is_refused(node: Light, bridge: str) -> None:
    node.run("ip", "link", "set", "eth1", "up")
    node.run("ip", "route", "add", "198.51.100.0/24", "dev", "eth1")
    try:
        assert "198.51.100.0/24" in fails(node, "uplink", name="eth1", bridge=bridge)
    finally:
        node.run("ip", "route", "delete", "198.51.100.0/24", "dev", "eth1")


def test_a_nic_with_only_a_link_local_address_is_taken(node: Light, bridge: str) -> None:
    node.run("ip", "link", "set", "eth1", "up")
    assert "fe80::" in node.run("ip", "addr", "show", "eth1").stdout
    once(node, "uplink", name="eth1", bridge=bridge)


@pytest.mark.parametrize("address", ["192.0.2.1/32", "2001:db8::1/128"])
def test_a_nic_with_only_an_address_is_refused(node: Light, bridge: str, address: str) -> None:
    node.run("ip", "addr", "add", address, "dev", "eth1")
    assert address in fails(node, "uplink", name="eth1", bridge=bridge)


def test_a_nic_that_others_stand_on_or_hold_is_refused(node: Light, bridge: str, datapath: str) -> None:
    node.run("ip", "link", "add", "link", "eth1", "name", "mv0", "type", "macvlan")
    node.run("ip", "link", "add", "lb0", "type", "bridge")
    node.run("ip", "link", "set", "eth2", "master", "lb0")
    try:
        assert "mv0" in fails(node, "uplink", name="eth1", bridge=bridge)
        assert "lb0" in fails(node, "uplink", name="eth2", bridge=bridge)
    finally:
        node.run("ip", "link", "delete", "mv0")
        node.run("ip", "link", "delete", "lb0")
    run(node, "bridge", name="br-u", datapath_type=datapath)
    run(node, "uplink", name="eth1", bridge="br-u")
    assert "br-u" in fails(node, "uplink", name="eth1", bridge=bridge)


def test_what_is_not_there_is_named_with_what_is(node: Light, bridge: str) -> None:
    said = fails(node, "uplink", name="eth7", bridge=bridge)
    assert "eth7" in said and "eth0, eth1, eth2, eth3" in said
    assert "br-t" in fails(node, "uplink", name="eth1", bridge="br-none")
    assert "4094" in fails(node, "uplink", name="eth1", bridge=bridge, vlans="5000")
    assert "two NICs" in fails(node, "uplink", name="bond0", bridge=bridge, nics=["eth1"])
    assert "lacp: active" in fails(
        node, "uplink", name="bond0", bridge=bridge, nics=["eth1", "eth2"], bond_mode="balance-tcp"
    )


def test_a_pods_port_is_nobodys_uplink(node: Light, bridge: str) -> None:
    node.run("ip", "link", "add", "pn1", "type", "veth", "peer", "name", "pn1-pod")
    mark = "external_ids={podnet_owner=podnet-ovs,podnet_schema=1,podnet_container_id=c1,podnet_pod_name=p}"
    node.ovs.vsctl("add-port", bridge, "pn1", "tag=5", "--", "set", "Port", "pn1", mark)
    try:
        assert "pod" in fails(node, "uplink", name="pn1", bridge=bridge, state="absent")
        assert "pn1" in fails(node, "bridge", name=bridge, state="absent")
        (attachment,) = run(node, "node_info")["attachments"]
        assert attachment["container_id"] == "c1" and attachment["vlan"] == 5
    finally:
        node.run("ip", "link", "delete", "pn1")


# interface


def test_interface_comes_changes_and_goes(node: Light, bridge: str) -> None:
    both = ["10.30.0.11/24", "fd00:30::11/64"]
    made = once(node, "interface", name="v300", bridge=bridge, vlan=300, addresses=both, mtu=1400)
    assert made["after"]["bridges"][bridge]["interfaces"]["v300"]["addresses"] == both
    assert get(node, "Port", "v300", "tag") == "300" and get(node, "Interface", "v300", "type") == "internal"
    assert links(node)["v300"] == (True, both)
    assert "mtu 1400" in node.run("ip", "link", "show", "v300").stdout
    assert "tentative" not in node.run("ip", "-6", "addr", "show", "v300", "scope", "global").stdout
    once(node, "interface", name="v300", bridge=bridge, addresses=["10.30.0.12/24", "fd00:30::11/64"])
    assert links(node)["v300"] == (True, ["10.30.0.12/24", "fd00:30::11/64"])
    assert get(node, "Port", "v300", "tag") == "300", "an option that was not given was changed"
    once(node, "interface", name="v300", bridge=bridge, vlan=0, mac="02:00:00:00:00:31")
    assert get(node, "Port", "v300", "tag") == "0" and get(node, "Port", "v300", "vlan_mode") == "access"
    assert "02:00:00:00:00:31" in node.run("ip", "link", "show", "v300").stdout
    gone = once(node, "interface", name="v300", bridge=bridge, state="absent")
    assert steps(gone) == [("interface", "v300", "remove")] and "v300" not in links(node)


def test_an_address_of_others_stays_and_a_secondary_one_survives_its_primary(node: Light, bridge: str) -> None:
    run(node, "interface", name="v9", bridge=bridge, vlan=9, addresses=["10.9.0.1/24", "10.9.0.2/24"])
    node.run("ip", "addr", "add", "10.9.9.9/32", "dev", "v9")
    node.run("sysctl", "-qw", "net.ipv4.conf.v9.promote_secondaries=0")
    once(node, "interface", name="v9", bridge=bridge, addresses=["10.9.0.2/24"])
    assert links(node)["v9"] == (True, ["10.9.0.2/24", "10.9.9.9/32"])


def test_what_was_changed_by_hand_is_seen_and_mended(node: Light, bridge: str) -> None:
    options: Options = {"name": "v9", "bridge": bridge, "vlan": 9, "addresses": ["10.9.0.1/24", "fd00:9::1/64"]}
    run(node, "interface", **options)
    node.run("ip", "addr", "delete", "10.9.0.1/24", "dev", "v9")
    node.run("ip", "link", "set", "v9", "down")
    node.ovs.vsctl("set", "Port", "v9", "tag=10")
    mended = once(node, "interface", **options)
    assert ("link", "v9", "up") in steps(mended) and ("address", "v9", "add") in steps(mended)
    assert links(node)["v9"] == (True, ["10.9.0.1/24", "fd00:9::1/64"]) and get(node, "Port", "v9", "tag") == "9"


def test_the_bridges_own_interface(node: Light, bridge: str) -> None:
    once(node, "interface", name=bridge, bridge=bridge, addresses=["10.8.0.1/24"])
    assert links(node)[bridge] == (True, ["10.8.0.1/24"]) and get(node, "Port", bridge, "tag") == "[]"
    once(node, "interface", name=bridge, bridge=bridge, state="absent")
    assert links(node)[bridge][1] == []


def test_interface_refusals(node: Light, bridge: str) -> None:
    address = links(node)["eth0"][1][0]
    assert "eth0" in fails(node, "interface", name="v9", bridge=bridge, vlan=9, addresses=[address])
    assert "choose another name" in fails(node, "interface", name="eth2", bridge=bridge, vlan=9)
    assert "prefix length" in fails(node, "interface", name="v9", bridge=bridge, vlan=9, addresses=["10.0.0.1"])
    assert "4094" in fails(node, "interface", name="v9", bridge=bridge, vlan=4095)
    run(node, "uplink", name="eth1", bridge=bridge)
    assert "podnet.ovs.uplink" in fails(node, "interface", name="eth1", bridge=bridge, state="absent")


def test_an_address_that_another_host_has_is_an_error(lab: Lab, trunk: Lan, node: Light, bridge: str) -> None:
    from ansible_collections.podnet.ovs.tests.lab import Nic

    other = lab.light("other", nics=[Nic("eth1", trunk)], ovs=False)
    other.drop_ingress("eth1", False)
    other.sh("ip link set eth1 up; ip addr add fd00:77::1/64 dev eth1 nodad")
    run(node, "uplink", name="eth1", bridge=bridge)
    result = run_module(node, "interface", name="v0", bridge=bridge, addresses=["fd00:77::1/64"])
    assert result.get("failed") and "another host" in result["msg"] and "fd00:77::1/64" in result["msg"], result
    assert "v0" not in links(node)


# the node's own way to its network


def test_what_would_cut_the_node_off_is_refused(node: Light, bridge: str) -> None:
    for address, words in (("10.99.0.2/29", "10.99.0.0/24"), ("10.99.0.1/32", "gateway on eth0")):
        assert words in fails(node, "interface", name="v5", bridge=bridge, vlan=5, addresses=[address])
    mac = node.run("cat", "/sys/class/net/eth0/address").stdout.strip()
    assert "eth0" in fails(node, "bridge", name=bridge, mac=mac)


def test_a_bridge_that_carries_the_node_stays_what_it_is(node: Light, bridge: str) -> None:
    node.ovs.vsctl("add-port", bridge, "eth1")
    node.sh(f"ip link set {bridge} up; ip addr add 198.51.100.11/24 dev {bridge}; ip link set eth1 up")
    node.run("ip", "route", "add", "203.0.113.0/24", "via", "198.51.100.1")
    for check in (True, False):
        for module, options in (
            ("bridge", {"name": bridge, "state": "absent", "force": True}),
            ("bridge", {"name": bridge, "fail_mode": "secure"}),
            ("bridge", {"name": bridge, "mac": "02:00:00:00:00:09"}),
            ("uplink", {"name": "eth1", "bridge": bridge, "state": "absent"}),
            ("uplink", {"name": "eth1", "bridge": bridge, "vlans": 100, "vlans_mode": "replaced"}),
            ("interface", {"name": bridge, "bridge": bridge, "vlan": 5}),
            ("node", {"bridges": [], "force": True}),
        ):
            assert "198.51.100.11/24" in fails(node, module, check, **options)
    assert "203.0.113.0/24 via 198.51.100.1" in node.run("ip", "route").stdout
    once(node, "uplink", name="eth1", bridge=bridge, mtu=1400)
    once(node, "interface", name="v5", bridge=bridge, vlan=5, addresses=["10.5.0.1/24"])


# node


def wanted(datapath: str, **more: Any) -> Options:
    """A node as most declare it."""
    bridge = {
        "name": "br-pod",
        "datapath_type": datapath,
        "uplinks": [{"name": "eth1", "vlans": "100,200,300"}],
        "interfaces": [{"name": "pods300", "vlan": 300, "addresses": ["10.30.0.11/24", "fd00:30::11/64"]}],
        **more,
    }
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.10.0.0/24"}]]}
    return {"bridges": [bridge], "networks": [{"name": "tenant-a", "bridge": "br-pod", "vlan": 100, "ipam": ipam}]}


def test_node_comes_changes_and_goes(node: Light, datapath: str) -> None:
    made = once(node, "node", **wanted(datapath))
    kinds = [step["kind"] for step in made["operations"]]
    assert kinds == ["bridge", "uplink", "interface", "link", "link", "address", "address", "file"]
    assert len(made["diff"]) == 2 and made["diff"][1]["after_header"] == "/etc/podnet/node.json"
    written = json.loads(node.get("/etc/podnet/node.json"))
    assert written["schema"] == 1 and written["networks"][0]["name"] == "tenant-a"
    assert json.loads(made["diff"][1]["after"]) == written
    assert run(node, "node_info")["findings"] == []

    options = wanted(
        datapath,
        uplinks=[{"name": "bond0", "nics": ["eth1", "eth2"], "vlans": "100,300", "mtu": 1450}],
        mac="02:00:00:00:00:55",
        rstp=True,
        vlan_limit=0,
        other_config={"mac-table-size": 4096},
        external_ids={"site": "x"},
    )
    once(node, "node", **options)
    assert sorted(node.ovs.vsctl("list-ifaces", "br-pod").stdout.split()) == ["eth1", "eth2", "pods300"]
    assert get(node, "Open_vSwitch", ".", "other_config:vlan-limit") == '"0"'

    once(node, "node", **wanted(datapath))
    assert sorted(node.ovs.vsctl("list-ifaces", "br-pod").stdout.split()) == ["eth1", "pods300"]
    assert get(node, "Bridge", "br-pod", "other_config") == "{}", "what is not declared any more is still there"
    assert get(node, "Bridge", "br-pod", "external_ids") == '{podnet_owner=node, podnet_schema="1"}'
    assert "vlan-limit" not in get(node, "Open_vSwitch", ".", "other_config")

    once(node, "node", bridges=[])
    assert node.ovs.vsctl("list-br").stdout == "" and "pods300" not in links(node)


def test_nics_and_addresses_change_hands_in_one_plan(node: Light, datapath: str) -> None:
    def two(bond: list[str], single: str, first: list[str], second: list[str]) -> Options:
        return {
            "bridges": [
                {
                    "name": "br-a",
                    "datapath_type": datapath,
                    "uplinks": [{"name": single}],
                    "interfaces": [{"name": "if1", "vlan": 1, "addresses": first}],
                },
                {
                    "name": "br-b",
                    "datapath_type": datapath,
                    "uplinks": [{"name": "bond0", "nics": bond}],
                    "interfaces": [{"name": "if2", "vlan": 2, "addresses": second}],
                },
            ]
        }

    one, other = ["10.1.0.1/24", "fd00:1::1/64"], ["10.2.0.1/24"]
    once(node, "node", **two(["eth1", "eth2"], "eth3", one, other))
    once(node, "node", **two(["eth1", "eth3"], "eth2", other, one))
    assert node.ovs.vsctl("list-ifaces", "br-a").stdout.split() == ["eth2", "if1"]
    assert node.ovs.vsctl("list-ifaces", "br-b").stdout.split() == ["eth1", "eth3", "if2"]
    assert links(node)["if1"] == (True, other) and links(node)["if2"] == (True, one)
    swapped = two(["eth1", "eth3"], "eth2", other, one)
    swapped["bridges"][0]["interfaces"], swapped["bridges"][1]["interfaces"] = (
        swapped["bridges"][1]["interfaces"],
        swapped["bridges"][0]["interfaces"],
    )
    once(node, "node", **swapped)
    assert node.ovs.vsctl("list-ifaces", "br-a").stdout.split() == ["eth2", "if2"]
    assert links(node)["if1"] == (True, other) and links(node)["if2"] == (True, one)


def test_two_runs_at_once_follow_one_another(node: Light, datapath: str) -> None:
    single = wanted(datapath)
    bond = wanted(
        datapath, uplinks=[{"name": "bond0", "nics": ["eth1", "eth2"]}], interfaces=[{"name": "v4", "vlan": 4}]
    )
    sent = [payload("node", options) for options in (single, bond)]
    for _round in range(3):
        with ThreadPoolExecutor() as both:
            runs = [both.submit(node.run, PYTHON, "-", input=text, check=False) for text in sent]
        results = [json.loads(item.result().stdout) for item in runs]
        assert not any(result.get("failed") for result in results), results
        last = [not run(node, "node", True, **options)["changed"] for options in (single, bond)]
        assert sorted(last) == [False, True], "a mixture of both"
        run(node, "node", bridges=[])


def test_an_mtu_that_cannot_be_is_an_error_each_time_and_is_taken_back(node: Light, datapath: str) -> None:
    if datapath == "system":
        pytest.skip("the kernel's datapath takes all of them")
    for _round in range(2):
        options = wanted(datapath, interfaces=[{"name": "v5", "vlan": 5, "mtu": 65535}])
        assert "does not take 65535" in fails(node, "node", **options)


def test_a_disk_that_takes_nothing_leaves_all_as_it_was(node: Light, datapath: str) -> None:
    node.sh("mkdir -p /etc/podnet; mount -t tmpfs -o ro none /etc/podnet")
    try:
        assert "Read-only" in fails(node, "node", **wanted(datapath))
    finally:
        node.run("umount", "/etc/podnet")


def test_node_leaves_what_is_not_its_own(node: Light, datapath: str) -> None:
    node.ovs.vsctl("add-br", "theirs", "--", "set", "Bridge", "theirs", f"datapath_type={datapath}")
    run(node, "node", **wanted(datapath))
    node.ovs.vsctl("add-port", "br-pod", "vm0", "--", "set", "Interface", "vm0", "type=internal")
    node.ovs.vsctl("set", "Bridge", "br-pod", "other_config:mac-aging-time=60", "external_ids:theirs=1")
    once(node, "node", **wanted(datapath, interfaces=[]))
    assert "pods300" not in links(node) and "vm0" in links(node)
    assert get(node, "Bridge", "br-pod", "other_config") == '{mac-aging-time="60"}'
    assert get(node, "Bridge", "br-pod", "external_ids:theirs") == '"1"'
    assert "vm0" in fails(node, "node", bridges=[])
    kept = once(node, "node", bridges=[], purge=False)
    assert [step["kind"] for step in kept["operations"]] == ["file"]
    once(node, "node", bridges=[], force=True)
    assert node.ovs.vsctl("list-br").stdout == "theirs\n"


def test_node_is_all_or_nothing(node: Light, datapath: str) -> None:
    said = fails(node, "node", **wanted(datapath, uplinks=[{"name": "eth1"}, {"name": "eth0"}]))
    assert "move: true" in said
    assert "declared are: br-pod" in fails(
        node, "node", **{**wanted(datapath), "networks": [{"name": "x", "bridge": "br-x", "vlan": 1}]}
    )
    if datapath == "netdev":
        assert "modprobe" in fails(node, "node", **wanted("system"))
    assert node.run("test", "-e", "/etc/podnet/node.json", check=False).returncode == 1


@pytest.mark.parametrize("module", ["node", "uplink"])
def test_a_move_is_left_to_the_action_plugin(node: Light, datapath: str, module: str) -> None:
    """The module itself says what must move, and changes nothing: the connection that it runs on would not last."""
    run(node, "bridge", name="br-pod", datapath_type=datapath)
    options = wanted(datapath, uplinks=[{"name": "eth0", "vlans": 100, "move": True}])
    if module == "uplink":
        options = {"name": "eth0", "bridge": "br-pod", "vlans": 100, "move": True}
    before = database(node), links(node)
    told = run(node, module, True, manager="none", **options)
    assert (told["operations"][0]["kind"], told["operations"][0]["action"]) == ("move", "move")
    assert set(told["before"]["links"]) == {"eth0"} and set(told["after"]["links"]) == {"br-pod"}
    real = run(node, module, manager="none", confirm="probe", confirm_timeout=30, probes=["10.99.0.1"], **options)
    (request,) = real["move_pending"]
    assert (request["nic"], request["bridge"]["name"], request["confirm"]) == ("eth0", "br-pod", "probe")
    steps = real["operations"]
    assert not real["changed"] and steps == told["operations"][: len(steps)]
    assert (database(node), links(node)) == before
    assert "600" in fails(node, module, confirm_timeout=5, **options)
    assert "tcp://HOST:PORT" in fails(node, module, probes=["gateway"], **options)


def test_node_warns_of_a_vlan_that_no_uplink_carries(node: Light, datapath: str) -> None:
    result = run(node, "node", True, **wanted(datapath, uplinks=[{"name": "eth1", "vlans": "200,300"}]))
    assert "tenant-a" in messages(result) and "100" in messages(result)
    assert "not survive a reboot" not in messages(result), "the runtime comes later, in check mode on a fresh node"
    assert "not survive a reboot" in messages(run(node, "node", **wanted(datapath)))


def test_node_json_of_a_newer_release_is_refused_and_a_broken_one_replaced(node: Light, datapath: str) -> None:
    node.write("/etc/podnet/node.json", '{"schema": 2}')
    assert "schema 2" in fails(node, "node", **wanted(datapath))
    node.write("/etc/podnet/node.json", '{"schema": 1, "brid')
    once(node, "node", **wanted(datapath))
    assert json.loads(node.get("/etc/podnet/node.json"))["schema"] == 1


def test_node_info_finds_what_is_wrong(node: Light, datapath: str) -> None:
    run(node, "node", **wanted(datapath))
    node.run("ip", "link", "set", "eth1", "down")
    node.run("ip", "addr", "delete", "10.30.0.11/24", "dev", "pods300")
    node.ovs.vsctl("add-port", "br-pod", "nothing0", "--", "remove", "Port", "eth1", "trunks", "100", check=False)
    info = run(node, "node_info")
    found = "\n".join(info["findings"])
    assert "eth1 on bridge br-pod is down" in found and "pods300 lacks its address 10.30.0.11/24" in found
    assert "cannot use nothing0" in found and "node.json asks for uplink eth1: change" in found
    assert info["running"] and info["bridges"]["br-pod"]["owned"] and info["declared"]["networks"] == ["tenant-a"]
    assert info["uplinks"]["eth1"]["vlans"] == "200,300" and info["uplinks"]["eth1"]["nics"] == {"eth1": "down"}
    assert info["interfaces"]["pods300"]["vlan"] == 300


# without Open vSwitch, or with one that does not answer


@pytest.fixture(scope="module")
def fresh(lab: Lab, trunk: Lan) -> Light:
    """A node without Open vSwitch, with the runtime's libraries."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("fresh", nics=[Nic("eth1", trunk)], ovs=False)
    node.install_runtime()
    return node


def test_names_of_peers(node: Light) -> None:
    """A link to the plugin for each that is listed; check mode says the same; the plugin answers by that name."""
    version = node.run("readlink", "/opt/podnet/current").stdout.strip()
    link = "/opt/cni/bin/ovs"
    wanted_links: Options = {"version": version, "command": "", "aliases": ["ovs"]}
    assert run(node, "runtime", True, **wanted_links)["operations"] == [f"link {link}"]
    assert node.run("test", "-e", link, check=False).returncode == 1
    result = run(node, "runtime", **wanted_links)
    assert result["changed"] and result["operations"] == [f"link {link}"]
    assert result["diff"]["after"]["links"][link] == "/opt/podnet/current/bin/podnet-ovs"
    assert not run(node, "runtime", **wanted_links)["changed"]
    said = node.run(link, env={"CNI_COMMAND": "VERSION"}, input='{"cniVersion": "1.0.0"}').stdout
    assert "1.1.0" in json.loads(said)["supportedVersions"]
    plain: Options = {"version": version, "command": ""}
    assert run(node, "runtime", **plain)["operations"] == [f"unlink {link}"]
    node.write(link, "ovs-cni's own", "755")
    for check in (True, False):
        failed = run_module(node, "runtime", check, **wanted_links)
        assert failed["failed"] and "podnet_cni_aliases" in failed["hint"], failed
    assert node.run("cat", link).stdout == "ovs-cni's own"
    assert not run(node, "runtime", **plain)["changed"], "what is not listed is none of our business"
    node.run("rm", link)


def test_check_mode_on_a_fresh_node_plans_from_nothing(fresh: Light) -> None:
    result = run(fresh, "node", True, **wanted("netdev"))
    assert result["changed"] and ("bridge", "br-pod", "create") in steps(result)
    assert "as if Open vSwitch were running and empty" in messages(result)
    for module, options in (
        ("uplink", {"name": "eth1", "vlans": 5}),
        ("interface", {"name": "v5", "vlan": 5, "addresses": ["10.5.0.1/24"]}),
    ):
        result = run(fresh, module, True, bridge="br-later", **options)
        assert "an earlier task makes it" in messages(result)
        assert all(step["kind"] != "bridge" for step in result["operations"])
    said = run_module(fresh, "node", **wanted("netdev"))
    assert said["failed"] and "role podnet.ovs.openvswitch" in said["msg"]
    info = run(fresh, "node_info")
    assert not info["running"] and "No such file" in info["findings"][0]


def test_without_the_runtime_the_module_says_so_and_works_with_one_that_travels(
    lab: Lab, trunk: Lan, tmp_path: Path
) -> None:
    from ansible_collections.podnet.ovs.tests.lab import Nic

    bare = lab.light("bare", nics=[Nic("eth1", trunk)], ovs=False)
    result = run_module(bare, "bridge", True, name="br-t")
    assert result["failed"] and result["runtime_missing"] and "role podnet.ovs.runtime" in result["msg"]
    archive = build_archive(COLLECTION, STATE / "wheels", tmp_path)
    result = run(bare, "node", True, _podnet_archive=str(archive.path), **wanted("netdev"))
    assert ("bridge", "br-pod", "create") in steps(result)


@pytest.mark.parametrize("daemon", ["ovsdb-server", "ovs-vswitchd"])
def test_a_frozen_switch_is_an_error_in_time_and_is_taken_back(node: Light, datapath: str, daemon: str) -> None:
    node.ovs.freeze(daemon)
    try:
        result = run_module(node, "bridge", name="br-t", datapath_type=datapath)
    finally:
        node.ovs.thaw(daemon)
    assert result.get("failed") and "systemctl status" in result["msg"], result
    assert node.ovs.vsctl("list-br").stdout == ""
