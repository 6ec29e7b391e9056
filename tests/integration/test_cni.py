# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podnet-ovs on a real switch, by the agent and in its own process: all verbs, what it refuses, what it leaves."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac, host_mac, host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Pod

SOON = 2.0
"""Seconds within which a call that cannot succeed has said so."""
VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
SCRIPTS = "/opt/scripts"


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with one bridge and two pod networks."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    return node


both_ways = pytest.mark.parametrize("served", ["agent", "in-process"], indirect=True, scope="module")
"""What is shown both ways in each tier; the rest in the plugin's own process only with --full."""


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, and without one."""
    with cni.serving(machine, request.param):
        yield machine


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node with pods p1 and p2. Each test takes away what it makes."""
    with cni.tidy(served, "p1", "p2"):
        yield served


@pytest.fixture
def pod(node: Light) -> Pod:
    """The namespace of pod p1."""
    from ansible_collections.podnet.ovs.tests.lab import Pod

    return Pod(node, "p1")


def link(pod: Pod, name: str = "eth0") -> dict[str, Any]:
    """The interface as `ip` shows it."""
    found: dict[str, Any] = json.loads(pod.run("ip", "-j", "-d", "addr", "show", name).stdout)[0]
    return found


def row(node: Light, table: str, name: str, columns: str) -> list[Any]:
    """A row's columns."""
    printed = node.ovs.vsctl("--format=json", f"--columns={columns}", "find", table, f"name={name}").stdout
    found: list[Any] = json.loads(printed)["data"][0]
    return found


# What an ADD makes


@both_ways
def test_add_check_and_del(node: Light, pod: Pod) -> None:
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}, {"dst": "192.0.2.0/24", "gw": "10.10.0.9"}]
    conf = cni.configuration(mtu=1400, ipam={**cni.ipam(), "routes": routes}, cniVersion="1.1.0")
    result = cni.add(node, conf)
    host = host_name("c1", "eth0")
    assert result["interfaces"] == [
        {"name": host, "mac": host_mac("c1", "eth0"), "mtu": 1400},
        {"name": "eth0", "mac": derived_mac("c1", "eth0"), "mtu": 1400, "sandbox": "/run/netns/p1"},
    ]
    assert result["ips"] == [
        {"address": "10.10.0.2/16", "gateway": "10.10.0.1", "interface": 1},
        {"address": "fd00:10::2/64", "gateway": "fd00:10::1", "interface": 1},
    ]
    assert result["routes"] == routes

    seen = link(pod)
    assert (seen["mtu"], seen["address"], "UP" in seen["flags"]) == (1400, derived_mac("c1", "eth0"), True)
    wide = {(item["local"], item["prefixlen"]) for item in seen["addr_info"] if item["scope"] == "global"}
    assert wide == {("10.10.0.2", 16), ("fd00:10::2", 64)}
    assert not any(
        item.get("tentative") or item.get("dadfailed") for item in seen["addr_info"] if "fd00" in item["local"]
    )
    assert "UP" in link(pod, "lo")["flags"]
    printed = pod.run("ip", "route").stdout + pod.run("ip", "-6", "route").stdout
    assert "default via 10.10.0.1 dev eth0" in printed
    assert "default via fd00:10::1 dev eth0" in printed
    assert "192.0.2.0/24 via 10.10.0.9 dev eth0" in printed

    (ours,) = json.loads(node.run("ip", "-j", "addr", "show", host).stdout)
    assert ours["mtu"] == 1400 and "UP" in ours["flags"]
    assert not ours["addr_info"], "the node's end would answer the pod past any VLAN"
    tag, mode, ids = row(node, "Port", host, "tag,vlan_mode,external_ids")
    assert (tag, mode) == (cni.GREEN, "access")
    marks = dict(ids[1])
    assert marks == {
        "podnet_schema": "1", "podnet_owner": "podnet-ovs", "podnet_container_id": "c1", "podnet_ifname": "eth0",
        "podnet_network": "green", "podnet_pod_namespace": "default", "podnet_pod_name": "p1", "podnet_mtu": "1400",
        "podnet_addresses": "10.10.0.2/16 fd00:10::2/64",
    }  # fmt: skip
    # Addresses come last, and only to the port: of an interface's keys ovs-vswitchd hears.
    assert dict(row(node, "Interface", host, "external_ids")[0][1]) == {
        key: value for key, value in marks.items() if key != "podnet_addresses"
    }

    assert cni.call(node, "CHECK", {**conf, "prevResult": result}).code == 0
    cni.delete(node, {**conf, "prevResult": result})
    assert cni.leftovers(node) == cni.NOTHING
    cni.delete(node, conf)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version(node: Light, version: str) -> None:
    conf = cni.configuration(cniVersion=version)
    result = cni.add(node, conf)
    assert result["cniVersion"] == version
    if version == "0.2.0":
        assert (result["ip4"]["ip"], result["ip6"]["ip"]) == ("10.10.0.2/16", "fd00:10::2/64")
    else:
        assert [item.get("version") for item in result["ips"]] == ([None] * 2 if version[0] == "1" else ["4", "6"])
        assert ("mtu" in result["interfaces"][1]) == (version == "1.1.0")
    cni.delete(node, conf)


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"addresses": [{"address": "ff02::5/64"}]}, "address ff02::5/64"),
        (
            {"addresses": [{"address": "10.10.0.5/16"}], "routes": [{"dst": "::/0", "gw": "10.10.0.9"}]},
            "the other family",
        ),
    ],
)
def test_what_the_kernel_cannot_have_is_an_error_of_the_configuration(node: Light, given: Any, word: str) -> None:
    answer = cni.call(node, "ADD", cni.configuration(ipam={"type": "static", **given}))
    assert answer.document["code"] == 7 and word in answer.document["msg"], answer


def test_a_network_without_addresses(node: Light, pod: Pod) -> None:
    conf = cni.configuration(ipam=None)
    result = cni.add(node, conf)
    assert "ips" not in result and result["interfaces"][1]["name"] == "eth0"
    assert "UP" in link(pod)["flags"]
    cni.delete(node, conf)
    refused = cni.call(node, "ADD", {**conf, "cniVersion": "0.2.0"})
    assert refused.code == 1 and "0.2.0" in refused.document["msg"]


def test_mac_and_addresses_that_the_runtime_asks_for(node: Light, pod: Pod) -> None:
    wanted = {"mac": "02:00:5e:10:00:07", "ips": ["10.10.3.7/16", "fd00:10::37/64"]}
    conf = cni.configuration(mac="02:00:5e:10:00:01", runtimeConfig=wanted)
    result = cni.add(node, conf)
    assert [item["address"] for item in result["ips"]] == wanted["ips"]
    assert link(pod)["address"] == wanted["mac"] == result["interfaces"][1]["mac"]
    cni.delete(node, conf)
    conf = cni.configuration(args={"cni": {"mac": "02:00:5e:10:00:08"}})
    cni.add(node, conf)
    assert link(pod)["address"] == "02:00:5e:10:00:08"
    cni.delete(node, conf)


def test_addresses_that_the_ipam_plugin_cannot_give_are_no_silence(node: Light) -> None:
    deaf = script(node, """[ "$CNI_COMMAND" = DEL ] || echo '{"ips": [{"address": "10.10.0.5/16"}]}'""")
    for plugin in (None, {"type": "odd"}):
        conf = cni.configuration(ipam=plugin, runtimeConfig={"ips": ["10.77.0.7/16"]})
        answer = cni.call(node, "ADD", conf, env=deaf)
        assert answer.code == 1 and answer.document["code"] == 7 and "runtimeConfig.ips" in answer.document["msg"]


def test_a_gateway_outside_of_the_pods_network(node: Light, pod: Pod) -> None:
    static = {
        "type": "static",
        "addresses": [{"address": "10.10.9.9/32"}, {"address": "fd00:10::9/128"}],
        "routes": [
            {"dst": "0.0.0.0/0", "gw": "10.10.0.1"},
            {"dst": "::/0", "gw": "fd00:10::1"},
            {"dst": "198.51.100.0/24"},
        ],
    }
    conf = cni.configuration(ipam=static)
    result = cni.add(node, conf)
    assert "default via 10.10.0.1 dev eth0 proto static onlink" in " ".join(pod.run("ip", "route").stdout.split())
    assert "default via fd00:10::1 dev eth0" in pod.run("ip", "-6", "route").stdout
    assert "198.51.100.0/24 dev eth0" in pod.run("ip", "route").stdout
    assert cni.call(node, "CHECK", {**conf, "prevResult": result}).code == 0
    cni.delete(node, conf)


def test_untagged_is_an_access_port_and_absent_bridge_the_first(machine: Light, datapath: str) -> None:
    document = cni.node_document(datapath)
    document["policy"] = [{"bridge": cni.BRIDGE, "untagged": True}]
    machine.write("/etc/podnet/node.json", json.dumps(document))
    machine.sh("[ -e /run/netns/p1 ] || ip netns add p1")
    conf = cni.configuration(bridge=None, vlan=None, untagged=True)
    cni.add(machine, conf)
    assert row(machine, "Port", host_name("c1", "eth0"), "tag,vlan_mode") == [0, "access"]
    cni.delete(machine, conf)
    machine.write("/etc/podnet/node.json", json.dumps(cni.node_document(datapath)))


def test_a_plugin_later_in_a_list_adds_to_the_result(node: Light) -> None:
    before = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "veth0"}, {"name": "net0", "sandbox": "/run/netns/p1"}],
        "ips": [{"address": "192.0.2.5/24", "interface": 1}, {"address": "192.0.2.6/24"}],
        "dns": {"nameservers": ["192.0.2.53"]},
    }
    conf = cni.configuration(prevResult=before)
    result = cni.add(node, conf)
    assert [item["name"] for item in result["interfaces"]] == ["veth0", "net0", host_name("c1", "eth0"), "eth0"]
    assert [item.get("interface") for item in result["ips"]] == [1, None, 3, 3]
    assert result["dns"] == before["dns"]
    cni.delete(node, {**conf, "prevResult": result})


def test_same_bytes_by_the_agent_and_without(machine: Light) -> None:
    machine.sh("[ -e /run/netns/p1 ] || ip netns add p1")
    conf = cni.configuration(ipam={"type": "static", "addresses": [{"address": "10.10.0.7/16"}]})
    calls: list[tuple[str, cni.Json | bytes]] = [
        ("ADD", conf),
        ("CHECK", conf),
        ("ADD", {**conf, "vlna": 1}),
        ("ADD", b"{"),
        ("DEL", conf),
        ("VERSION", {}),
    ]

    def outputs() -> list[tuple[int, str]]:
        answers = [cni.call(machine, verb, stdin) for verb, stdin in calls]
        return [(answer.code, answer.stdout) for answer in answers]

    alone = outputs()
    with cni.agent(machine):
        assert outputs() == alone


# What is refused


REFUSED: dict[str, tuple[dict[str, Any], int, str]] = {
    "bridge missing": ({"bridge": "nobr"}, 7, "nobr"),
    "bridge no word": ({"bridge": 1}, 7, "bridge"),
    "bridge too long": ({"bridge": "b" * 16}, 7, "bridge"),
    "vlan 0": ({"vlan": 0}, 7, "vlan"),
    "vlan 5000": ({"vlan": 5000}, 7, "vlan"),
    "vlan 4095": ({"vlan": 4095}, 7, "vlan"),
    "vlan -1": ({"vlan": -1}, 7, "vlan"),
    "vlan as text": ({"vlan": "100"}, 7, "vlan"),
    "vlan as text with zero": ({"vlan": "0100"}, 7, "vlan"),
    "vlan true": ({"vlan": True}, 7, "vlan"),
    "vlan 100.0": ({"vlan": 100.0}, 7, "vlan"),
    "vlan and untagged": ({"untagged": True}, 7, "untagged"),
    "neither": ({"vlan": None}, 7, "vlan"),
    "untagged as text": ({"untagged": "yes"}, 7, "untagged"),
    "closed vlan": ({"vlan": cni.CLOSED}, 7, "300"),
    "vlan and trunk": ({"trunk": [{"id": 100}]}, 7, "vlan_mode"),
    "closed trunk": ({"vlan": None, "trunk": [{"minID": 100, "maxID": 101}]}, 7, "101"),
    "misspelt key": ({"vlna": 100}, 2, "vlna"),
    "mtu 67": ({"mtu": 67}, 7, "mtu"),
    "mtu as text": ({"mtu": "1500"}, 7, "mtu"),
    "multicast mac": ({"mac": "01:00:5e:00:00:01"}, 7, "mac"),
    "no mac": ({"mac": "here"}, 7, "mac"),
    "requested mac": ({"runtimeConfig": {"mac": "x"}}, 7, "runtimeConfig.mac"),
    "ipam plugin missing": ({"ipam": {"type": "nosuch"}}, 7, "nosuch"),
    "ipam type a path": ({"ipam": {"type": "../../bin/sh"}}, 7, "ipam.type"),
    "ipam without type": ({"ipam": {"subnet": "10.0.0.0/8"}}, 7, "ipam.type"),
    "ipam a list": ({"ipam": []}, 7, "ipam"),
    "ipam refuses": ({"ipam": {"type": "host-local"}}, 999, "host-local"),
    "version 9.9.9": ({"cniVersion": "9.9.9"}, 1, "9.9.9"),
    "name a path": ({"name": "../x"}, 7, "name"),
    "no name": ({"name": None}, 7, "name"),
    "prevResult no object": ({"prevResult": []}, 7, "prevResult"),
    "prevResult nonsense": ({"prevResult": {"ips": [{"address": "x"}]}}, 6, "prevResult"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_configuration_is_refused_soon_and_leaves_nothing(node: Light, case: str) -> None:
    keys, code, word = REFUSED[case]
    conf = cni.configuration(**keys)
    answer = cni.call(node, "ADD", conf)
    error = answer.document
    assert (answer.code, error["code"]) == (1, code), answer
    assert word in error["msg"] and "Traceback" not in answer.stdout + answer.stderr
    assert error["cniVersion"] in VERSIONS
    assert answer.seconds < SOON
    assert cni.leftovers(node) == cni.NOTHING
    assert node.run("ip", "-n", "p1", "link", "show", "eth0", check=False).returncode == 1
    gone = cni.call(node, "DEL", conf)
    assert (gone.code, gone.stdout) == (0, "") and gone.seconds < SOON
    assert cni.call(node, "DEL", {**conf, "strange": 1}).code == 0


def test_the_hint_names_the_nearest_key(node: Light) -> None:
    answer = cni.call(node, "ADD", cni.configuration(vlna=100))
    assert "did you mean vlan?" in answer.document["details"]


def test_keys_of_others_pass(node: Light) -> None:
    keys: dict[str, Any] = {"example.org/colour": "green", "cni.dev/x": 1, "capabilities": {"mac": True}}
    conf = cni.configuration(**keys, ipam={**cni.ipam(), "unheardOf": {"deep": [1]}})
    cni.add(node, conf)
    cni.delete(node, conf)


@pytest.mark.parametrize(
    "stdin",
    [
        b"", b"{", b"[]", b'{"cniVersion":"1.0.0","name":"green","name":"blue"}', b'{"mtu":NaN}', b"\xff\xfe{}",
        b"[" * 100_000, b'{"a":"' + b"x" * (1 << 20) + b'"}',
    ],
    ids=["empty", "cut off", "list", "twice the same key", "NaN", "not UTF-8", "deep", "long"],
)  # fmt: skip
def test_what_is_no_configuration_is_code_6_soon(node: Light, stdin: bytes) -> None:
    answer = cni.call(node, "ADD", stdin)
    assert (answer.code, answer.document["code"]) == (1, 6), answer
    assert answer.seconds < SOON
    cni.delete(node, stdin)


def test_a_del_that_cannot_be_read_takes_link_and_port_and_says_that_the_lease_stays(node: Light) -> None:
    conf = cni.configuration()
    cni.add(node, conf)
    answer = cni.call(node, "DEL", b"{")
    assert (answer.code, answer.document["code"]) == (1, 6)
    assert (cni.ports(node), cni.links(node), len(cni.leases(node))) == ([], [], 2)
    cni.delete(node, conf)


@pytest.mark.parametrize(
    ("variables", "word"),
    [
        ({"CNI_CONTAINERID": ""}, "CNI_CONTAINERID"),
        ({"CNI_CONTAINERID": "a/b"}, "CNI_CONTAINERID"),
        ({"CNI_NETNS": ""}, "CNI_NETNS"),
        ({"CNI_IFNAME": ""}, "CNI_IFNAME"),
        ({"CNI_IFNAME": "eth0-is-too-long"}, "CNI_IFNAME"),
        ({"CNI_IFNAME": "a b"}, "CNI_IFNAME"),
        ({"CNI_IFNAME": "a/b"}, "CNI_IFNAME"),
        ({"CNI_PATH": ""}, "CNI_PATH"),
        ({"CNI_COMMAND": "MAKE"}, "CNI_COMMAND"),
        ({"CNI_ARGS": "COLOUR=green"}, "CNI_ARGS"),
    ],
)
def test_a_bad_environment_is_code_4_and_names_the_variable(node: Light, variables: dict[str, str], word: str) -> None:
    answer = cni.call(node, "ADD", cni.configuration(), env=variables)
    assert (answer.code, answer.document["code"]) == (1, 4) and word in answer.document["msg"], answer
    assert answer.seconds < SOON


@pytest.mark.parametrize("path", ["/run/netns/gone", "/etc/hostname", "/proc/1/ns/mnt", "/run/netns"])
def test_a_bad_namespace_is_code_8(node: Light, path: str) -> None:
    answer = cni.call(node, "ADD", cni.configuration(), env={"CNI_NETNS": path})
    assert (answer.code, answer.document["code"]) == (1, 8), answer
    assert answer.seconds < SOON
    assert cni.call(node, "DEL", cni.configuration(), env={"CNI_NETNS": path}).code == 0


def test_the_nodes_own_namespace_is_code_8(node: Light) -> None:
    script = "CNI_NETNS=/proc/$$/ns/net exec /opt/cni/bin/podnet-ovs"
    env = cni.environment("ADD", "c1", "p1")
    done = node.run("sh", "-c", script, input=json.dumps(cni.configuration()), env=env, check=False)
    assert json.loads(done.stdout)["code"] == 8 and "own" in done.stdout


def test_policy_is_by_namespace(machine: Light, datapath: str) -> None:
    document = cni.node_document(datapath)
    document["networks"][0]["namespaces"] = ["shop"]
    machine.write("/etc/podnet/node.json", json.dumps(document))
    machine.sh("[ -e /run/netns/p1 ] || ip netns add p1")
    conf = cni.configuration()
    answer = cni.call(machine, "ADD", conf, env={"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=office"})
    assert answer.document["code"] == 7 and "office" in answer.document["msg"]
    assert "200" in answer.document["details"], "what is open is named"
    cni.add(machine, conf, env={"CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop"})
    cni.delete(machine, conf)
    machine.write("/etc/podnet/node.json", json.dumps(cni.node_document(datapath)))


@pytest.mark.parametrize("content", [None, "", "{", '{"schema": 99}'])
def test_a_node_that_is_not_prepared(node: Light, datapath: str, content: str | None) -> None:
    cni.add(node, cni.configuration())
    node.run("rm", "/etc/podnet/node.json")
    if content is not None:
        node.write("/etc/podnet/node.json", content)
    answer = cni.call(node, "ADD", cni.configuration(), "c2", "p2")
    assert answer.document["code"] == 50 and "node.json" in answer.document["msg"]
    assert "podnet.ovs.site" in answer.document["details"]
    assert cni.call(node, "STATUS", cni.configuration()).document["code"] == 50
    cni.delete(node, cni.configuration())
    node.write("/etc/podnet/node.json", json.dumps(cni.node_document(datapath)))


# A second ADD


class Ping:
    """Packets from one pod to another, one every 10 ms, for two seconds."""

    def __init__(self, pod: Pod, address: str) -> None:
        pod.run("ping", "-c", "1", "-W", "2", address)
        self._process = pod.popen("ping", "-q", "-i", "0.01", "-c", "200", "-W", "2", address)

    def lost(self) -> int:
        """How many of them went unanswered."""
        printed = self._process.communicate(timeout=30)[0].decode()
        sent, received = (int(word) for word in re.findall(r"(\d+) (?:packets transmitted|received)", printed))
        assert sent == 200
        return sent - received


@both_ways
@pytest.mark.parametrize(
    "second",
    [{}, {"container": "c9"}, {"pod": "p3"}],
    ids=["the same attachment", "another container on its interface", "the same attachment in another namespace"],
)
def test_a_second_add_fails_and_the_first_pod_does_not_notice(node: Light, pod: Pod, second: dict[str, str]) -> None:
    conf = cni.configuration()
    cni.add(node, conf)
    cni.add(node, conf, "c2", "p2")
    node.sh("[ -e /run/netns/p3 ] || ip netns add p3")
    before = cni.leftovers(node)
    ping = Ping(pod, "10.10.0.3")
    for _turn in range(3):
        answer = cni.call(node, "ADD", conf, second.get("container", "c1"), second.get("pod", "p1"))
        assert (answer.code, answer.document["code"]) == (1, 7), answer
        assert "already" in answer.document["msg"] and "DEL" in answer.document["details"]
    assert ping.lost() == 0
    assert cni.leftovers(node) == before
    assert node.run("ip", "-n", "p3", "link", "show", "eth0", check=False).returncode == 1
    node.sh("ip netns delete p3")
    cni.delete(node, conf)
    cni.delete(node, conf, "c2", "p2")


# DEL, whatever is missing


@pytest.mark.parametrize("missing", ["namespace", "link", "port", "bridge", "lease", "prevResult and path of netns"])
def test_del_succeeds_without(node: Light, datapath: str, missing: str) -> None:
    conf = cni.configuration()
    cni.add(node, conf)
    host = host_name("c1", "eth0")
    pod = "p1"
    if missing == "namespace":
        node.sh("ip netns delete p1")
    elif missing == "link":
        node.run("ip", "link", "delete", host)
    elif missing == "port":
        node.ovs.vsctl("del-port", host)
    elif missing == "bridge":
        node.ovs.vsctl("del-br", cni.BRIDGE)
    elif missing == "lease":
        node.sh(f"rm -f {cni.LEASES}/green/10.* {cni.LEASES}/green/fd00*")
    else:
        pod = ""
    cni.delete(node, conf, pod=pod)
    cni.delete(node, conf, pod=pod)
    assert cni.leftovers(node) == cni.NOTHING
    if missing == "namespace":
        node.netns("p1")
    if missing == "bridge":
        node.run("/opt/podnet/current/bin/podnet", "node", "apply", "/run/node.json")


@both_ways
def test_an_attachment_at_once_after_its_end(node: Light) -> None:
    conf = cni.configuration()
    for _turn in range(10):
        cni.add(node, conf)
        cni.delete(node, conf)


def test_del_of_one_interface_leaves_the_other(node: Light) -> None:
    conf, other = cni.configuration(), cni.configuration(cni.BLUE, "blue")
    cni.add(node, conf)
    cni.add(node, other, env={"CNI_IFNAME": "net1"})
    cni.delete(node, conf)
    assert cni.ports(node) == cni.links(node) == [host_name("c1", "net1")]
    assert list(cni.leases(node).values()) == ["c1", "c1"]
    cni.delete(node, other, env={"CNI_IFNAME": "net1"})


# CHECK


DAMAGE = {
    "gone": "ip -n p1 link delete eth0",
    "MTU": "ip -n p1 link set eth0 mtu 1300",
    "MAC": "ip -n p1 link set eth0 address 02:00:00:00:00:99",
    "down": "ip -n p1 link set eth0 down",
    "10.10.0.2": "ip -n p1 addr delete 10.10.0.2/16 dev eth0",
    "fd00:10::2": "ip -n p1 addr delete fd00:10::2/64 dev eth0",
    "0.0.0.0/0": "ip -n p1 route delete default",
    "tag": "ovs-vsctl set port {host} tag=200",
    "mode": "ovs-vsctl clear port {host} tag vlan_mode",
    "port": "ovs-vsctl del-port {host}",
    "bridge": "ovs-vsctl add-br br-x -- set bridge br-x datapath_type={datapath} -- del-port {host} -- "
    "add-port br-x {host} tag=100 vlan_mode=access -- set port {host} external_ids='{marks}'",
    "host-local": f"rm -f {cni.LEASES}/green/*.* {cni.LEASES}/green/fd*",
}


@pytest.mark.parametrize("what", DAMAGE)
def test_check_finds_damage(node: Light, datapath: str, what: str) -> None:
    conf = cni.configuration(cniVersion="1.1.0", ipam={**cni.ipam(), "routes": [{"dst": "0.0.0.0/0"}]})
    conf["prevResult"] = cni.add(node, conf)
    host = host_name("c1", "eth0")
    assert cni.call(node, "CHECK", {**conf, "strange": 1}).code == 0
    marks = ",".join(
        f"{key}={value}" for key, value in row(node, "Port", host, "external_ids")[0][1] if " " not in value
    )
    node.sh(DAMAGE[what].format(host=host, datapath=datapath, marks=marks))
    answer = cni.call(node, "CHECK", conf)
    assert answer.code == 1 and what in answer.document["msg"], answer
    cni.delete(node, conf)
    node.ovs.vsctl("--if-exists", "del-br", "br-x")


# STATUS, GC, VERSION


def test_status(node: Light) -> None:
    conf = cni.configuration(cniVersion="1.1.0")
    assert cni.call(node, "STATUS", conf, env={"CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": ""}).code == 0
    answer = cni.call(node, "STATUS", {**conf, "bridge": "nobr"})
    assert (answer.code, answer.document["code"]) == (1, 50) and "nobr" in answer.document["msg"]
    answer = cni.call(node, "STATUS", {**conf, "ipam": {"type": "nosuch"}})
    assert answer.code == 1 and "nosuch" in answer.document["msg"]


def test_version_needs_nothing(served: Light) -> None:
    for stdin in (b"", b'{"cniVersion":"1.0.0"}'):
        done = served.run(cni.PLUGIN, input=stdin, env={"CNI_COMMAND": "VERSION"})
        assert json.loads(done.stdout) == {"cniVersion": "1.1.0", "supportedVersions": list(VERSIONS)}


def test_gc_frees_what_is_not_listed(node: Light) -> None:
    green = cni.configuration(cniVersion="1.1.0")
    blue = cni.configuration(cni.BLUE, "blue", cniVersion="1.1.0")
    cni.add(node, green, "c1", "p1")
    cni.add(node, green, "c2", "p2")
    cni.add(node, blue, "c2", "p2", env={"CNI_IFNAME": "net1"})
    node.ovs.vsctl("add-port", cni.BRIDGE, "foreign0", "--", "set", "interface", "foreign0", "type=internal")

    def collect(**keys: Any) -> None:
        answer = cni.call(node, "GC", {**green, **keys}, "", "", env={"CNI_IFNAME": ""})
        assert (answer.code, answer.stdout) == (0, ""), answer

    before = cni.leftovers(node)
    collect()
    assert cni.leftovers(node) == before, "a runtime that gives no list wants nothing to go"
    collect(**{"cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]})
    kept = sorted([host_name("c1", "eth0"), host_name("c2", "net1")])
    assert sorted(cni.ports(node)) == cni.links(node) == kept
    assert set(cni.leases(node)) == {"green/10.10.0.2", "green/fd00:10::2", "blue/10.10.0.2", "blue/fd00:10::2"}
    collect(**{"cni.dev/valid-attachments": [], "strange": 1})
    assert cni.links(node) == [host_name("c2", "net1")]
    assert "foreign0" in node.ovs.vsctl("list-ports", cni.BRIDGE).stdout
    node.ovs.vsctl("del-port", "foreign0")
    bad: list[Any] = [{}, [{"containerID": "c1"}], [1]]
    for wrong in bad:
        answer = cni.call(node, "GC", {**blue, "cni.dev/valid-attachments": wrong}, "", "", env={"CNI_IFNAME": ""})
        assert answer.code == 1 and cni.links(node) == [host_name("c2", "net1")], "unsure, so nothing goes"
    cni.delete(node, blue, "c2", "p2", env={"CNI_IFNAME": "net1"})


# The switch is away, or does not answer


@both_ways
def test_the_database_is_away(node: Light) -> None:
    conf = cni.configuration(cniVersion="1.1.0")
    cni.add(node, conf)
    node.ovs.stop()
    answer = cni.call(node, "ADD", conf, "c2", "p2")
    assert answer.document["code"] == 50 and "unix:/run/openvswitch/db.sock" in answer.document["msg"]
    assert answer.seconds < SOON
    assert cni.call(node, "STATUS", conf).document["code"] == 50
    cni.delete(node, conf)
    assert (cni.links(node), cni.leases(node)) == ([], {}), "link gone, address free, whatever the switch does"
    node.ovs.start()
    assert cni.ports(node) == [host_name("c1", "eth0")]
    cni.add(node, conf, "c2", "p2")
    until(lambda: cni.ports(node) == [host_name("c2", "eth0")], 10, "the next ADD takes the dead port away")
    cni.delete(node, conf, "c2", "p2")


@both_ways
@pytest.mark.parametrize("daemon", ["ovsdb-server", "ovs-vswitchd"])
def test_a_daemon_is_frozen(node: Light, daemon: str) -> None:
    conf = cni.configuration(cniVersion="1.1.0")
    cni.add(node, conf)
    node.ovs.freeze(daemon)
    try:
        answer = cni.call(node, "ADD", conf, "c2", "p2")
        assert answer.code == 1 and answer.document["code"] in (11, 50) and daemon in answer.stdout, answer
        assert answer.seconds < SOON
        assert cni.links(node) == [host_name("c1", "eth0")] and "c2" not in cni.leases(node).values()
        if daemon == "ovs-vswitchd":
            assert cni.ports(node) == [host_name("c1", "eth0")]
        answer = cni.call(node, "STATUS", conf)
        assert answer.document["code"] == 50 and daemon in answer.stdout
        assert answer.seconds < SOON
        gone = cni.call(node, "DEL", conf)
        assert gone.code == 0 and gone.seconds < SOON
        assert (cni.links(node), cni.leases(node)) == ([], {})
    finally:
        node.ovs.thaw(daemon)
    cni.delete(node, conf, "c2", "p2")
    cni.delete(node, conf)


def test_switch_restarts_are_no_matter(node: Light) -> None:
    conf = cni.configuration()
    cni.add(node, conf)
    node.ovs.restart()
    cni.add(node, conf, "c2", "p2")
    cni.delete(node, conf, "c2", "p2")
    cni.delete(node, conf)


# IPAM plugins that misbehave


def script(node: Light, text: str) -> dict[str, str]:
    """An IPAM plugin that is a shell script; gives the environment with which it is found."""
    node.write(f"{SCRIPTS}/odd", "#!/bin/sh\n" + text, "755")
    return {"CNI_PATH": f"{SCRIPTS}:{cni.PATH}"}


def test_the_ipam_plugins_error_is_passed_on(node: Light) -> None:
    path = script(node, """echo '{"cniVersion":"1.0.0","code":123,"msg":"none left","details":"ask ops"}'; exit 1""")
    answer = cni.call(node, "ADD", cni.configuration(ipam={"type": "odd"}), env=path)
    assert (answer.document["code"], answer.document["details"]) == (123, "ask ops")
    assert "none left" in answer.document["msg"] and "odd" in answer.document["msg"]


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("echo nonsense", "JSON"),
        ("echo '[]'", "JSON"),
        ("""echo '{"ips": [{"address": "10.10.0.300/16"}]}'""", "odd"),
        ("kill -9 $$", "signal 9"),
        ("echo oops >&2; exit 3", "oops"),
        ("exec yes", "odd"),
    ],
)
def test_an_ipam_plugin_that_speaks_nonsense(node: Light, text: str, word: str) -> None:
    path = script(node, f'[ "$CNI_COMMAND" = ADD ] || exit 0\ncat > /dev/null\n{text}\n')
    answer = cni.call(node, "ADD", cni.configuration(ipam={"type": "odd"}), env=path)
    assert answer.code == 1 and word in answer.document["msg"], answer
    assert answer.seconds < SOON
    assert cni.leftovers(node) == cni.NOTHING


@both_ways
def test_what_fails_after_the_lease_gives_it_back(node: Light) -> None:
    path = script(
        node,
        f"""echo $CNI_COMMAND $CNI_IFNAME >> {SCRIPTS}/log
[ "$CNI_COMMAND" = ADD ] || exit 0
echo '{{"ips": [{{"address": "10.10.0.3/16"}}], "routes": [{{"dst": "::/0", "gw": "::1"}}]}}'
""",
    )
    node.run("rm", "-f", f"{SCRIPTS}/log")
    answer = cni.call(node, "ADD", cni.configuration(ipam={"type": "odd"}), env=path)
    assert answer.code == 1 and "route" in answer.document["msg"], answer
    assert node.run("cat", f"{SCRIPTS}/log").stdout == "ADD eth0\nDEL eth0\n"
    assert cni.leftovers(node) == cni.NOTHING


def test_a_lease_that_cannot_be_given_back_is_not_forgotten(node: Light) -> None:
    text = """[ "$CNI_COMMAND" = ADD ] && exec echo '{"ips": [{"address": "10.10.0.3/16"}]}'
[ -e /run/works ] || { echo '{"code": 11, "msg": "no cluster"}'; exit 1; }
"""
    path = script(node, text)
    conf = cni.configuration(ipam={"type": "odd"})
    cni.add(node, conf, env=path)
    for _turn in range(3):
        answer = cni.call(node, "DEL", conf, env=path)
        assert answer.code == 1 and "no cluster" in answer.document["msg"], "each DEL says so until it is done"
        assert (cni.ports(node), cni.links(node)) == ([], [])
    node.run("touch", "/run/works")
    cni.delete(node, conf, env=path)
    node.run("rm", "/run/works")
    cni.delete(node, conf, env=path)


def test_an_ipam_plugin_that_hangs_is_ended(node: Light) -> None:
    path = script(node, f"sleep 1000 & echo $$ $! > {SCRIPTS}/pids; wait\n")
    began = time.monotonic()
    answer = cni.call(node, "STATUS", cni.configuration(cniVersion="1.1.0", ipam={"type": "odd"}), env=path)
    assert answer.document["code"] == 11 and "odd" in answer.document["msg"], answer
    assert time.monotonic() - began < 15
    for pid in node.run("cat", f"{SCRIPTS}/pids").stdout.split():
        assert node.run("cat", f"/proc/{pid}/cmdline", check=False).stdout == "", "it goes with all that it started"


# The command


def test_the_command(node: Light) -> None:
    cni.add(node, cni.configuration())
    command = "/opt/podnet/current/bin/podnet"
    printed = node.run(command, "attachments").stdout
    assert host_name("c1", "eth0") in printed and "default/p1" in printed and "10.10.0.2/16" in printed
    (found,) = json.loads(node.run(command, "attachments", "--json").stdout)
    assert (found["vlan"], found["network"], found["error"]) == (cni.GREEN, "green", "")
    report = json.loads(node.run(command, "status", "--json", check=False).stdout)
    assert report["attachments"] == 1 and cni.BRIDGE in report["bridges"]
    assert node.run(command, "--version").stdout.startswith("podnet 0.")
    assert node.run(command, "node", "restore").returncode == 0
    node.run(command, "node", "apply", "/run/node.json")
    assert "as it should be" in node.run(command, "node", "status").stdout
    node.ovs.vsctl("set", "bridge", cni.BRIDGE, "fail_mode=secure")
    changed = node.run(command, "node", "status", check=False)
    assert changed.returncode == 1 and f"bridge {cni.BRIDGE}: " in changed.stdout
    node.run(command, "node", "apply")
    assert node.run(command, "node", "status", "--json").stdout.strip() == "[]"
    cni.delete(node, cni.configuration())
    node.ovs.stop()
    answer = node.run(command, "status", check=False)
    assert answer.returncode == 1 and "db.sock" in answer.stdout and "Traceback" not in answer.stderr
    node.ovs.start()
