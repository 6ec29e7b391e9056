# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Several networks for one pod through podnet-meta: Debian's plugins and podnet-ovs, in real namespaces.

What users of other plugins suffered, and where it is tested (faults: tests/fault/test_meta_faults.py; merge:
tests/unit/test_cni_merge.py; runtimes: test_cni_runtimes.py):

multus #165; danm #255              indices that are lost or point elsewhere after a merge       here, merge
cri #1544; containerd #4402;
aws-cni #1092                       a pod is refused, its address is another network's           runtimes
multus #180 #266 #460 #869          requests that nobody declares are passed over                here
multus #402 #1306                   the readiness file is looked for once                        here
multus #553 #749 #906 #1011 #1552   default routes of the wrong network, or none                 here
multus #426 #468 #855 #1359;
nad-client #74 #75                  interfaces or addresses missing in the result                here, merge
multus #201 #669 #1342              one failing network stops the DEL of others                  faults
multus #323 #920 #1446              DEL without the state of ADD                                 faults
multus #355                         state is dropped though a DEL failed                         faults
multus #948 #1087 #1448;
cni #1055 #1066 #1149               state of no length, or torn                                  faults
multus #1449                        a list that was reduced in DEL                               faults
multus #1273 #1475                  GC and STATUS reach one network only                         here, faults
multus #452 #1016 #1344             slow ADDs of several networks                                dev/bench
cni #1156                           DEL without prevResult                                       faults
"""

from __future__ import annotations

import ipaddress
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet, static

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

Json = dict[str, Any]
FILES = "/etc/podnet/net.d"
STATE = "/var/lib/podnet/meta"
RESULTS = "/run/podnet/meta"
VERSIONS = ("0.3.1", "0.4.0", "1.0.0", "1.1.0")
PRIMARY4, PRIMARY6 = "10.20.0.0/24", "fd00:20::/64"
AT = At("c1", "p1")


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with a bridge of Open vSwitch; Debian's bridge makes another one when it is called."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("lan"))], datapath=datapath)
    document = cni.node_document(datapath)
    document["configuration_paths"] = ["/etc/elsewhere", "/run/ready"]
    cni.prepare(node, document)
    return node


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, and without one."""
    with cni.serving(machine, request.param):
        yield machine


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node with pods p1 and p2. Afterwards nothing of them is there, and no state."""
    with cni.tidy(served, "p1", "p2"):
        yield served
        left = state(served), veths(served)
        cni.clear(served)
        served.sh(f"rm -rf {FILES} /etc/elsewhere /run/ready {STATE} {RESULTS}")
        for name in left[1]:
            served.run("ip", "link", "delete", name, check=False)
        assert left == ([], [])


@pytest.fixture
def caller(node: Light) -> Caller:
    """A runtime."""
    return Caller(node)


def state(node: Light) -> list[str]:
    """The files of attachments."""
    script = f"find {STATE} {RESULTS} -type f 2> /dev/null; true"
    return node.run("sh", "-c", script).stdout.split()


def veths(node: Light) -> list[str]:
    """Ends of pairs in the node, but for its NIC."""
    found = json.loads(node.run("ip", "-j", "link", "show", "type", "veth").stdout)
    return [link["ifname"] for link in found if link and link["ifname"] != "eth1"]


def bridge(**keys: Any) -> Json:
    """Debian's bridge, with addresses of both families and a gateway."""
    ranges = [[{"subnet": PRIMARY4}], [{"subnet": PRIMARY6}]]
    routes = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
    ipam = {"type": "host-local", "ranges": ranges, "routes": routes}
    return {"name": "primary", "type": "bridge", "bridge": "cni0", "isGateway": True, "ipam": ipam, **keys}


def green(**keys: Any) -> Json:
    """podnet-ovs, with addresses of both families."""
    return {"name": "green", **podnet(ipam=cni.ipam(), **keys)}


def meta(*delegates: Any, version: str = "1.0.0", **keys: Any) -> Json:
    """A list with podnet-meta alone."""
    plugin = {"type": "podnet-meta", "delegates": list(delegates), **keys}
    return conflist({key: value for key, value in plugin.items() if value is not None}, name="multi", version=version)


def addresses(node: Light, ifname: str, pod: str = "p1") -> list[str]:
    """Addresses of an interface in a pod, but for link-local ones."""
    done = node.run("ip", "-j", "-n", pod, "addr", "show", "dev", ifname, check=False)
    found = json.loads(done.stdout or "[]")
    return [
        f"{item['local']}/{item['prefixlen']}"
        for link in found
        for item in link.get("addr_info", ())
        if item["scope"] == "global"
    ]


def in_subnet(text: str, subnet: str) -> bool:
    """Whether an address with its prefix is of a subnet."""
    return ipaddress.ip_interface(text).ip in ipaddress.ip_network(subnet)


def by_interface(result: Json) -> dict[str, list[str]]:
    """Addresses by the interface that they point at; containers' interfaces only."""
    names = [item["name"] for item in result["interfaces"]]
    found: dict[str, list[str]] = {item["name"]: [] for item in result["interfaces"] if item.get("sandbox")}
    for item in result["ips"]:
        found[names[item["interface"]]].append(item["address"])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_one_result_of_all_networks(node: Light, caller: Caller, version: str) -> None:
    network = meta(
        bridge(cniVersion=min(version, "1.0.0")), green(cniVersion=version), result="merged", version=version
    )
    result = caller.add(network, AT)
    assert result["cniVersion"] == version
    there = {name: addresses(node, name) for name in ("eth0", "net1")}
    assert all(len(found) == 2 for found in there.values())
    assert by_interface(result) == there
    assert [in_subnet(item["address"], subnet) for item, subnet in zip(result["ips"], (PRIMARY4, PRIMARY6))] == [
        True
    ] * 2
    assert [item["name"] for item in result["interfaces"] if item.get("sandbox")] == ["eth0", "net1"]
    assert ("version" in result["ips"][0]) == (version < "1")
    assert ("mtu" in result["interfaces"][-1]) == (version == "1.1.0")
    if version != "0.3.1":
        assert caller.ask("CHECK", network, AT).code == 0
    caller.delete(network, AT)


def test_the_primary_networks_result_unless_told_otherwise(node: Light, caller: Caller) -> None:
    result = caller.add(meta(bridge(), green()), AT)
    assert set(by_interface(result)) == {"eth0"} and addresses(node, "net1")
    assert result["routes"] and not any("." in key for key in result)
    caller.delete(meta(bridge(), green()), AT)


def test_the_whole_picture_under_a_key_of_our_own(caller: Caller) -> None:
    network = meta(bridge(), green(), result="vendor")
    result = caller.add(network, AT)
    whole = result.pop("podnet.ovs/merged")
    assert set(by_interface(result)) == {"eth0"}
    assert set(by_interface(whole)) == {"eth0", "net1"}
    caller.delete(network, AT)


def test_the_oldest_version_says_what_it_cannot_carry(node: Light, caller: Caller) -> None:
    network = meta(bridge(cniVersion="1.0.0"), green(cniVersion="1.0.0"), result="merged", version="0.2.0")
    answer = caller.ask("ADD", network, AT)
    assert answer.code == 0
    assert set(answer.document) == {"cniVersion", "ip4", "ip6", "dns"}
    assert in_subnet(answer.document["ip4"]["ip"], PRIMARY4) and in_subnet(answer.document["ip6"]["ip"], PRIMARY6)
    lost = [line for line in answer.stderr.splitlines() if "0.2.0 cannot carry" in line]
    assert any("interface net1" in line for line in lost)
    assert any(addresses(node, "net1")[0] in line for line in lost)
    caller.delete(network, AT)


def test_networks_from_files_by_name(node: Light, caller: Caller) -> None:
    node.write(f"{FILES}/20-green.conf", json.dumps({"cniVersion": "1.0.0", **green()}))
    node.write(f"{FILES}/10-other.conflist", json.dumps({**conflist(bridge(), name="other")}))
    node.write(f"{FILES}/00-broken.conf", "{")
    network = meta({"name": "other"}, {"name": "green", "interface": "lan0"}, result="merged")
    result = caller.add(network, AT)
    assert set(by_interface(result)) == {"eth0", "lan0"}
    node.sh(f"rm {FILES}/*")
    assert caller.ask("CHECK", network, AT).code == 0
    caller.delete(network, AT)
    assert veths(node) == []


def test_a_network_that_is_not_there_is_named_with_those_that_are(node: Light, caller: Caller) -> None:
    node.write(f"{FILES}/20-green.conf", json.dumps({"cniVersion": "1.0.0", **green()}))
    answer = caller.ask("ADD", meta(bridge(), {"name": "grene"}), AT)
    assert answer.document["code"] == 7
    assert "delegates[1].name" in answer.document["msg"] and "grene" in answer.document["msg"]
    assert "green" in answer.document["details"]
    caller.delete(meta(bridge(), {"name": "grene"}), AT)


def test_a_folder_only_as_the_node_lets_it_be_named(node: Light, caller: Caller) -> None:
    node.write("/etc/elsewhere/green.conf", json.dumps({"cniVersion": "1.0.0", **green()}))
    allowed = meta({"name": "green"}, confDir="/etc/elsewhere")
    caller.add(allowed, AT)
    caller.delete(allowed, AT)
    answer = caller.ask("ADD", meta({"name": "green"}, confDir="/etc/cni/net.d"), AT)
    assert answer.document["code"] == 7 and "confDir" in answer.document["msg"]


def test_a_configuration_of_multus_with_only_its_type_changed(node: Light, caller: Caller) -> None:
    node.write(f"{FILES}/10-primary.conflist", json.dumps(conflist(bridge(), name="primary")))
    node.write(f"{FILES}/20-green.conf", json.dumps({"cniVersion": "1.0.0", **green()}))
    network = meta(
        clusterNetwork="primary", defaultNetworks=["green"], delegates=None, logLevel="debug", logFile="/var/log/m",
        cniDir="/var/lib/cni/multus", binDir="/opt/cni/bin",
    )  # fmt: skip
    caller.add(network, AT)
    assert addresses(node, "eth0") and addresses(node, "net1")
    caller.delete(network, AT)
    answer = caller.ask("ADD", meta(bridge(), kubeconfig="/etc/kube"), AT)
    assert answer.document["code"] == 2 and "kubeconfig" in answer.document["msg"]


def test_capabilities_come_to_those_that_declare_them(node: Light, caller: Caller) -> None:
    mac = "02:00:00:00:be:ef"
    fixed = {"name": "fixed", **podnet(ipam={"type": "static"}, capabilities={"ips": True, "mac": True})}
    selection = {"config": fixed, "ips": ["10.77.0.7/24", "fd00:77::7/64"], "mac": mac}
    network = meta(bridge(), selection, result="merged")
    result = caller.add(network, AT)
    assert by_interface(result)["net1"] == ["10.77.0.7/24", "fd00:77::7/64"] == addresses(node, "net1")
    assert result["interfaces"][-1]["mac"] == mac
    caller.delete(network, AT)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("ips", ["10.77.0.7/24"]),
        ("mac", "02:00:00:00:be:ef"),
        ("portMappings", [{"hostPort": 80, "containerPort": 80, "protocol": "tcp"}]),
        ("bandwidth", {"ingressRate": 1000000, "ingressBurst": 1000000}),
        ("infiniband-guid", "c2:11:22:33:44:55:66:77"),
    ],
)
def test_what_is_asked_for_and_not_declared_is_an_error(caller: Caller, key: str, value: Any) -> None:
    """multus #180 #266 #460 #869: such requests were passed over in silence."""
    network = meta(bridge(), {"config": green(), key: value})
    answer = caller.ask("ADD", network, AT)
    assert answer.document["code"] == 7
    assert "delegates[1]" in answer.document["msg"] and "capabilities" in answer.document["details"]
    caller.delete(network, AT)


def test_the_runtimes_own_requests_are_the_primary_networks(node: Light, caller: Caller) -> None:
    fixed = {"name": "fixed", **podnet(ipam={"type": "static"}, capabilities={"ips": True})}
    network = meta(fixed, green(), capabilities={"ips": True})
    caller.add(network, AT, runtime={"ips": ["10.77.0.9/24"]})
    assert addresses(node, "eth0") == ["10.77.0.9/24"]
    caller.delete(network, AT)
    answer = caller.ask("ADD", meta(green(), fixed, capabilities={"ips": True}), AT, runtime={"ips": ["10.77.0.9/24"]})
    assert answer.document["code"] == 7 and "delegates[0]" in answer.document["msg"]


def test_requested_addresses_are_looked_for_in_the_result(node: Light, caller: Caller) -> None:
    """A plugin that declares the capability and does not do it: a bridge without addresses."""
    deaf = bridge(name="deaf", bridge="cni1", capabilities={"ips": True}, ipam={}, isGateway=False)
    network = meta(green(), {"config": deaf, "ips": ["10.20.0.200/24"]})
    answer = caller.ask("ADD", network, AT)
    assert answer.document["code"] == 7 and "10.20.0.200/24" in answer.document["msg"]
    assert veths(node) == [] and state(node) == []
    caller.delete(network, AT)


@pytest.mark.parametrize(
    ("delegates", "keys", "word"),
    [
        ([], {}, "delegates"),
        ([{"type": "podnet-meta", "delegates": []}], {}, "part of itself"),
        ([{"type": "../bridge"}], {}, "delegates[0].type"),
        ([{"plugins": []}], {}, "delegates[0].plugins"),
        ([{"config": {"type": "bridge"}, "interface": "net1"}], {}, "delegates[0].interface"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "interface": "eth0"}], {}, "eth0 is the interface of"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "interface": "much-too-long-a-name"}], {}, "20 bytes"),
        ([{"type": "bridge"}, {"name": "green", "namespace": "other"}], {}, "delegates[1].namespace"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "defaultRoute": []}], {}, "delegates[1].defaultRoute"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "ips": "10.0.0.1"}], {}, "delegates[1].ips"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "ips": ["10.0.0.1/99"]}], {}, "delegates[1].ips[0]"),
        ([{"type": "bridge"}, {"config": {"type": "bridge"}, "default-route": ["no"]}], {}, "default-route[0]"),
        ([{"type": "bridge"}, {"type": "bridge", "interface": "lan0"}], {}, "delegates[1].interface"),
        ([{"type": "bridge"}, {"type": "bridge", "default-route": ["10.0.0.1"]}], {}, "delegates[1].default-route"),
        ([{"type": "bridge", "plugins": [{"type": "bridge"}]}], {}, "both type and plugins"),
        ([{"type": "bridge"}], {"result": "both"}, "result"),
        ([{"type": "bridge"}], {"delegate": []}, "delegate"),
        ([{"type": "nosuch"}], {}, "nosuch"),
        (7, {}, "delegates"),
        ([7], {}, "delegates[0]"),
    ],
)
def test_a_wrong_configuration_is_named_and_leaves_nothing(
    node: Light, caller: Caller, delegates: Any, keys: Json, word: str
) -> None:  # fmt: skip
    network = meta(**{"delegates": delegates, **keys}) if not isinstance(delegates, list) else meta(*delegates, **keys)
    answer = caller.ask("ADD", network, AT)
    assert answer.document["code"] in (2, 7) and word in answer.document["msg"], answer
    assert state(node) == []
    caller.delete(network, AT)


def test_a_second_add_leaves_the_first_as_it_is(node: Light, caller: Caller) -> None:
    network = meta(bridge(), green())
    caller.add(network, AT)
    before, kept = addresses(node, "net1"), state(node)
    answer = caller.ask("ADD", network, AT)
    assert answer.document["code"] == 7 and "eth0" in answer.document["msg"]
    assert addresses(node, "net1") == before and state(node) == kept
    caller.delete(network, AT)


def test_a_chain_goes_on_behind_it(node: Light, caller: Caller) -> None:
    network = meta(bridge(), green(), result="merged")
    network["plugins"].append({"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}})
    caller.add(network, AT)
    path = "/proc/sys/net/ipv4/conf/eth0/log_martians"
    assert node.run("ip", "netns", "exec", "p1", "cat", path).stdout == "1\n"
    assert caller.ask("CHECK", network, AT).code == 0
    caller.delete(network, AT)


def test_check_looks_at_every_network(node: Light, caller: Caller) -> None:
    network = meta(bridge(), green())
    caller.add(network, AT)
    assert caller.ask("CHECK", network, AT).code == 0
    lost = addresses(node, "net1")[0]
    node.run("ip", "-n", "p1", "addr", "del", lost, "dev", "net1")
    answer = caller.ask("CHECK", network, AT)
    assert (
        answer.code == 1 and "delegates[1] (green, net1)" in answer.document["msg"] and lost in answer.document["msg"]
    )
    caller.delete(network, AT)


def test_status_asks_every_network(node: Light, caller: Caller) -> None:
    assert caller.ask("STATUS", meta(bridge(), green(), version="1.1.0")).code == 0
    answer = caller.ask("STATUS", meta(bridge(), green(bridge="br-none"), version="1.1.0"))
    assert answer.document["code"] == 50
    assert "delegates[1]" in answer.document["msg"] and "br-none" in answer.document["msg"]
    answer = caller.ask("STATUS", meta({"type": "nosuch"}, green(), version="1.1.0"))
    assert answer.document["code"] == 50 and "nosuch" in answer.document["msg"]
    answer = caller.ask("STATUS", meta({"name": "nowhere"}, version="1.1.0"))
    assert answer.document["code"] == 50 and "nowhere" in answer.document["msg"]


def test_the_readiness_file_is_looked_for_each_time_and_never_by_del(node: Light, caller: Caller) -> None:
    """multus #402 #1306."""
    network = meta(green(), readinessindicatorfile="/run/ready", version="1.1.0")
    answer = caller.ask("ADD", network, AT)
    assert answer.document["code"] == 11 and "/run/ready" in answer.document["msg"]
    assert caller.ask("STATUS", network).document["code"] == 50
    node.run("touch", "/run/ready")
    assert caller.ask("STATUS", network).code == 0
    caller.add(network, AT)
    node.run("rm", "/run/ready")
    assert caller.ask("STATUS", network).document["code"] == 50
    caller.delete(network, AT)


def defaults(node: Light) -> dict[str, str]:
    """The pod's default routes: interface and gateway by family."""
    found = {}
    for family in ("-4", "-6"):
        routes = json.loads(node.run("ip", "-j", family, "-n", "p1", "route", "show", "default").stdout or "[]")
        for route in routes:
            assert family not in found, "two default routes of one family"
            found[family] = f"{route['dev']} {route.get('gateway', '')}"
    return found


def test_one_network_has_the_default_routes_that_are_asked_for(node: Light, caller: Caller) -> None:
    """multus #1011 #749 #906 #1552: left where they were, doubled in IPv6, or taken from all."""
    selection = {"config": green(), "default-route": ["10.10.0.1"]}
    network = meta(bridge(), selection, result="merged")
    result = caller.add(network, AT)
    assert defaults(node) == {"-4": "net1 10.10.0.1", "-6": "eth0 fd00:20::1"}
    assert [item["gw"] for item in result["routes"] if item["dst"] == "0.0.0.0/0"] == ["10.10.0.1"]
    assert [item.get("gw") for item in result["routes"] if item["dst"] == "::/0"] == [None], "the primary network's"
    assert caller.ask("CHECK", network, AT).code == 0
    caller.delete(network, AT)
    network = meta(bridge(), {"config": green(), "default-route": ["10.10.0.1", "fd00:10::1"]})
    caller.add(network, AT)
    assert defaults(node) == {"-4": "net1 10.10.0.1", "-6": "net1 fd00:10::1"}
    caller.delete(network, AT)


@pytest.mark.parametrize("gateway", ["10.99.0.1", "fd00:99::1"])
def test_a_default_route_to_nowhere(node: Light, caller: Caller, gateway: str) -> None:
    answer = caller.ask("ADD", meta(bridge(), {"config": green(), "default-route": [gateway]}), AT)
    assert answer.document["code"] == 7 and f"{gateway} is no neighbour of net1" in answer.document["msg"]
    assert "10.10.0.0/16" in answer.document["details"]


def test_an_empty_default_route_takes_only_the_networks_own(node: Light, caller: Caller) -> None:
    """multus #553 #1011."""
    routed = green()
    routed["ipam"] = {**routed["ipam"], "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    network = meta(bridge(), {"config": routed, "default-route": []})
    caller.add(network, AT)
    assert defaults(node) == {"-4": "eth0 10.20.0.1", "-6": "eth0 fd00:20::1"}
    assert caller.ask("CHECK", network, AT).code == 0
    caller.delete(network, AT)


def test_layer_2_alone_beside_a_primary_with_addresses(node: Light, caller: Caller) -> None:
    network = meta(bridge(), {"name": "plain", **podnet()}, result="merged")
    result = caller.add(network, AT)
    assert by_interface(result) == {"eth0": addresses(node, "eth0"), "net1": []}
    caller.delete(network, AT)


def test_static_addresses_in_the_arguments_are_the_primary_networks(node: Light, caller: Caller) -> None:
    network = meta({"name": "fixed", **podnet(ipam=static("10.66.0.5/24"))}, green())
    caller.add(network, AT)
    assert addresses(node, "eth0") == ["10.66.0.5/24"]
    caller.delete(network, AT)
