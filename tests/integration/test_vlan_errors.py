# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-adopt`, and what of `podnet-vlan` needs no kernel with 802.1Q: errors, DEL of what is not there, GC, STATUS.

plugins #800 #830           a missing master: an obscure error, or a panic
cni-issues: GC              what the runtime lists are not the names that IPAM plugins know
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet, static
from ansible_collections.podnet.ovs.tests.lab import Pod

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SCRIPTS = "/opt/scripts"
SPOKEN = f"{SCRIPTS}/spoken"
LOG = f"""#!/bin/sh
echo "$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $(cat)" >> {SPOKEN}
"""
"""An IPAM plugin that writes down what it is told."""
ADOPTED = At("c1", "p1", "net1")


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def node(lab: Lab, datapath: str, request: pytest.FixtureRequest) -> Iterator[Light]:
    """A node with a pod p1, which has an attachment eth0 of the network green."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    name = "n1" if request.param == "agent" else "n2"
    made = lab.light(name, nics=[Nic("eth1", lab.lan(f"lan-{name}"))], datapath=datapath)
    document = cni.node_document(datapath)
    document["policy"] = [{"interface": "eth9", "vlans": "3"}]
    cni.prepare(made, document)
    with cni.serving(made, request.param):
        made.netns("p1")
        Caller(made).add(green(), At("c1", "p1"))
        yield made


@pytest.fixture
def caller(node: Light) -> Iterator[Caller]:
    """A runtime; afterwards the pod has what it had."""
    before = state(Pod(node, "p1"))
    yield Caller(node)
    assert state(Pod(node, "p1")) == before
    node.run("rm", "-rf", SCRIPTS, "/run/podnet/owed")


def green() -> dict[str, Any]:
    """The first list."""
    return conflist(podnet(ipam=static("10.10.0.1/16", "fd00:10::1/64")), version="1.1.0")


def state(pod: Pod) -> list[Any]:
    """All links with their addresses, less the counters."""
    return [[item["ifname"], item["address"], item["mtu"], item["flags"], [
        (entry["local"], entry["prefixlen"]) for entry in item["addr_info"]
    ]] for item in json.loads(pod.run("ip", "-j", "addr").stdout)]  # fmt: skip


def adopt(*more: Any, version: str = "1.1.0", **keys: Any) -> dict[str, Any]:
    """A second list."""
    return conflist({"type": "podnet-adopt", **keys}, *more, name="upper", version=version)


def vlan(**keys: Any) -> dict[str, Any]:
    """A VLAN in a list."""
    return {"type": "podnet-vlan", "vlanId": 3, **keys}


def error(caller: Caller, network: dict[str, Any], at: At = ADOPTED, verb: str = "ADD") -> dict[str, Any]:
    """The error of a call."""
    answer = caller.ask(verb, network, at)
    assert answer.code == 1, answer
    return answer.document


# podnet-adopt


@pytest.mark.parametrize("version", ["0.3.1", "1.0.0", "1.1.0"])
@pytest.mark.parametrize("keys", [{"interface": "eth0"}, {"network": "green"}])
def test_an_interface_that_is_there_becomes_that_of_a_list(
    node: Light, caller: Caller, keys: dict[str, str], version: str
) -> None:
    network = adopt(**keys, version=version)
    result = caller.add(network, ADOPTED)
    (own,) = result["interfaces"]
    link = json.loads(Pod(node, "p1").run("ip", "-j", "link", "show", "eth0").stdout)[0]
    assert (own["name"], own["mac"], own["sandbox"]) == ("eth0", link["address"], "/run/netns/p1")
    assert own.get("mtu") == (1500 if version == "1.1.0" else None)
    assert [(item["address"], item["interface"]) for item in result["ips"]] == [
        ("10.10.0.1/16", 0), ("fd00:10::1/64", 0),
    ]  # fmt: skip
    if version != "0.3.1":
        assert caller.ask("CHECK", network, ADOPTED).code == 0
    for _turn in range(2):
        caller.delete(network, ADOPTED)


def test_without_a_name_it_is_the_interface_that_the_runtime_named(caller: Caller) -> None:
    assert caller.add(adopt(), At("c1", "p1"))["interfaces"][0]["name"] == "eth0"
    said = error(caller, adopt())
    assert said["code"] == 7 and "interface" in said["msg"] and "net1" in said["msg"] and "eth0" in said["msg"]


def test_behind_another_plugin_its_interface_is_adopted_once(node: Light, caller: Caller) -> None:
    """What prevResult has already is not there twice, and addresses that it lacks come with their index."""
    pod = node.netns("p3")
    network = conflist(
        podnet(cni.BLUE, ipam=static("10.20.0.1/16")), {"type": "podnet-adopt"}, name="blue", version="1.1.0"
    )
    plain = Caller(node).add(conflist(network["plugins"][0], name="blue", version="1.1.0"), At("c3", "p3"))
    pod.run("ip", "addr", "add", "fd00:20::1/64", "dev", "eth0", "nodad")
    conf = {"cniVersion": "1.1.0", "name": "blue", "type": "podnet-adopt", "prevResult": plain}
    env = cni.environment("ADD", "c3", "p3")
    done = node.run("/opt/cni/bin/podnet-adopt", input=json.dumps(conf), env=env)
    result = json.loads(done.stdout)
    assert result["interfaces"] == plain["interfaces"]
    assert [(item["address"], item["interface"]) for item in result["ips"]] == [
        ("10.20.0.1/16", 1), ("fd00:20::1/64", 1),
    ]  # fmt: skip
    Caller(node).delete(network, At("c3", "p3"))
    pod.delete()


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"interface": "eth7"}, ["interface: eth7", "eth0"]),
        ({"network": "blue"}, ["network", "'blue'", "eth0 on green"]),
        ({"network": 7}, ["network", "7"]),
        ({"interface": "eth0", "network": "green"}, ["interface: both"]),
        ({"interface": "eth 0"}, ["interface"]),
        ({"ipam": {"type": "static"}}, ["ipam"]),
        ({"interfaces": "eth0"}, ["interfaces: unknown key", "interface?"]),
    ],
)
def test_what_cannot_be_adopted_is_named_with_what_is_there(
    caller: Caller, keys: dict[str, Any], words: list[str]
) -> None:
    said = error(caller, adopt(**keys))
    assert said["code"] in (2, 7), said
    for word in words:
        assert word in said["msg"] + said.get("details", ""), said
    caller.delete(adopt(**keys), ADOPTED)


def test_a_network_that_a_pod_has_twice_is_ambiguous(node: Light, caller: Caller) -> None:
    second = conflist(podnet(ipam=static("10.10.0.2/16")), version="1.1.0")
    caller.add(second, At("c1", "p1", "net7"))
    said = error(caller, adopt(network="green"))
    assert said["code"] == 7 and "eth0, net7" in said["msg"] and "interface" in said["details"]
    caller.delete(second, At("c1", "p1", "net7"))


def test_attachments_of_other_pods_are_not_adopted(node: Light, caller: Caller) -> None:
    other = node.netns("p4")
    for name, ifname in (("green", "net4"), ("lime", "net5")):
        caller.add(conflist(podnet(), name=name, version="1.1.0"), At("c4", "p4", ifname))
    assert caller.add(adopt(network="green"), ADOPTED)["interfaces"][0]["name"] == "eth0"
    said = error(caller, adopt(network="lime"))
    assert said["code"] == 7 and "net5" not in json.dumps(said), said
    for name, ifname in (("green", "net4"), ("lime", "net5")):
        caller.delete(conflist(podnet(), name=name, version="1.1.0"), At("c4", "p4", ifname))
    other.delete()


@pytest.mark.parametrize("what", ["MAC", "MTU", "address", "gone"])
def test_check_of_an_adopted_interface(node: Light, caller: Caller, what: str) -> None:
    pod = Pod(node, "p1")
    pod.sh("ip link add dm0 address 02:00:00:00:00:01 mtu 1400 type veth peer dm1; ip link set dm0 up")
    pod.sh("ip address add 10.88.0.1/24 dev dm0")
    network = adopt(interface="dm0")
    caller.add(network, ADOPTED)
    assert caller.ask("CHECK", network, ADOPTED).code == 0
    pod.sh({
        "MAC": "ip link set dm0 address 02:00:00:00:00:02", "MTU": "ip link set dm0 mtu 1300",
        "address": "ip address flush dev dm0", "gone": "ip link delete dm0",
    }[what])  # fmt: skip
    said = error(caller, network, verb="CHECK")
    assert "dm0" in said["msg"] and what in said["msg"]
    caller.delete(network, ADOPTED)
    pod.run("ip", "link", "delete", "dm0", check=False)


def test_del_of_an_adopted_interface_needs_nothing(node: Light, caller: Caller) -> None:
    for pod in ("p1", "", "nosuch"):
        caller.delete(adopt(interface="eth0"), At("c1", pod, "net1"))
    for stdin in ("", "{", "[]", '{"cniVersion": "9"}'):
        done = node.run("/opt/cni/bin/podnet-adopt", input=stdin, env=cni.environment("DEL", "c1", "p1"), check=False)
        assert (done.returncode, done.stdout) == (0, ""), (stdin, done)


# podnet-vlan


@pytest.mark.skipif(Path("/proc/net/vlan").exists(), reason="this kernel has 802.1Q")
def test_a_kernel_without_vlans_is_named_with_the_way_out(node: Light, caller: Caller) -> None:
    entries = [{"id": number, "ipam": cni.ipam()} for number in range(3, 14)]
    for plugin in (vlan(ipam=cni.ipam()), {"type": "podnet-vlan", "vlans": entries}):
        said = error(caller, adopt(plugin, interface="eth0"))
        assert "802.1Q" in said["msg"] and "modprobe 8021q" in said["details"], said
        assert cni.leases(node) == {}
        caller.delete(adopt(plugin, interface="eth0"), ADOPTED)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"master": "eth7", "linkInContainer": True}, ["master: eth7", "eth0"]),
        ({"linkInContainer": True}, ["master: it is not given", "eth0"]),
        ({}, ["master: it is not given", "podnet-adopt"]),
        ({"master": "eth9"}, ["master: this node has no interface eth9"]),
        ({"master": "eth1"}, ["master: VLAN 3", "eth1", "podnet_policy"]),
        ({"master": "eth0", "linkInContainer": True, "mtu": 1501}, ["mtu: 1501", "eth0"]),
        ({"master": "eth0", "linkInContainer": True, "vlanId": 0}, ["vlanId"]),
        ({"master": "eth0", "linkInContainer": True, "vlanid": 7}, ["vlanid: unknown key"]),
        ({"master": "eth0", "linkInContainer": True, "ipam": {"type": "nosuch"}}, ["nosuch"]),
    ],
)
def test_a_missing_master_is_named(node: Light, caller: Caller, keys: dict[str, Any], words: list[str]) -> None:
    network = conflist(vlan(**keys), name="upper", version="1.1.0")
    said = error(caller, network)
    assert said["code"] in (2, 7), said
    for word in words:
        assert word in said["msg"] + said.get("details", ""), said
    assert cni.leases(node) == {}
    caller.delete(network, ADOPTED)


def spoken(node: Light) -> list[tuple[str, str, str, dict[str, Any]]]:
    """What the plugin `log` was told since the last time: verb, container, interface, configuration."""
    lines = node.run("cat", SPOKEN).stdout.splitlines()
    node.run("rm", SPOKEN)
    return [(verb, cid, name, json.loads(conf)) for verb, cid, name, conf in (line.split(" ", 3) for line in lines)]


def call(node: Light, verb: str, conf: dict[str, Any], pod: str = "p1", **env: str) -> cni.Answer:
    """One call of podnet-vlan that finds the scripts."""
    variables = {**cni.environment(verb, "c1", pod), "CNI_PATH": f"{SCRIPTS}:{cni.PATH}", **env}
    done = node.run("/opt/cni/bin/podnet-vlan", input=json.dumps(conf), env=variables, check=False)
    return cni.Answer(done.returncode, done.stdout, done.stderr, 0)


def logged(**keys: Any) -> dict[str, Any]:
    """A configuration with two VLANs whose IPAM plugin is `log`."""
    entries = [{"id": 3, "ipam": {"type": "log"}}, {"id": 4, "name": "st", "ipam": {"type": "log", "more": 1}}]
    return {"cniVersion": "1.1.0", "name": "upper", "type": "podnet-vlan", "vlans": entries, **keys}


@pytest.mark.parametrize("pod", ["p1", "", "nosuch", "stale"])
def test_del_releases_each_vlan_by_its_own_key_whatever_is_there(node: Light, caller: Caller, pod: str) -> None:
    """A reboot leaves files of namespaces that are none any more."""
    node.write(f"{SCRIPTS}/log", LOG, "755")
    node.write("/run/netns/stale", "")
    for prefix in ("", "p"):
        keys = {"parent": "previous"} if prefix else {}
        assert call(node, "DEL", logged(**keys), pod).code == 0
        told = sorted(spoken(node), key=lambda row: row[2])
        assert [row[:3] for row in told] == [("DEL", "c1", f"eth0.{prefix}3"), ("DEL", "c1", "st")]
        assert [row[3]["ipam"] for row in told] == [entry["ipam"] for entry in logged()["vlans"]]
    node.run("rm", "/run/netns/stale")


def test_a_lease_that_stays_is_an_error_until_it_is_given_back(node: Light, caller: Caller) -> None:
    """Where the pod shows no trace of the VLAN a plugin that refuses has leased nothing; without a pod nobody knows."""
    refusing = LOG + 'echo \'{"code": 7, "msg": "no"}\'; exit 1\n'
    node.write(f"{SCRIPTS}/log", refusing, "755")
    assert call(node, "DEL", logged(), "p1").code == 0
    assert len(spoken(node)) == 2, "all are tried"
    for pod in ("", "p1"):
        answer = call(node, "DEL", logged(), pod)
        assert answer.code == 1 and "log: no" in answer.document["msg"], "the second is owed, whatever the pod shows"
        assert len(spoken(node)) == 2
    node.write(f"{SCRIPTS}/log", LOG, "755")
    assert call(node, "DEL", logged(), "p1").code == 0
    node.write(f"{SCRIPTS}/log", refusing, "755")
    assert call(node, "DEL", logged(), "p1").code == 0, "nothing is owed any more"
    node.write(f"{SCRIPTS}/log", "#!/bin/sh\nexit 3\n", "755")
    assert call(node, "DEL", logged(), "p1").code == 1, "one that broke may hold a lease"
    node.write(f"{SCRIPTS}/log", LOG, "755")
    assert call(node, "DEL", logged(), "p1").code == 0


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_tells_ipam_plugins_the_names_that_they_know(node: Light, caller: Caller, key: str) -> None:
    versions = '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'
    node.write(f"{SCRIPTS}/log", f"#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || exec echo '{versions}'\n{LOG}", "755")
    valid = [{"containerID": "c1", "ifname": "eth0"}, {"containerID": "c2", "ifname": "net1"}]
    assert call(node, "GC", logged(**{key: valid}), "", CNI_CONTAINERID="", CNI_IFNAME="").code == 0
    told = spoken(node)
    assert sorted(row[3]["ipam"].get("more", 0) for row in told) == [0, 1], "each different one once"
    wanted = {("c1", "eth0"), ("c1", "eth0.3"), ("c1", "st"), ("c2", "net1"), ("c2", "net1.3"), ("c2", "st")}
    for row in told:
        assert row[0] == "GC" and {(item["containerID"], item["ifname"]) for item in row[3][key]} == wanted
    assert call(node, "GC", logged(), "", CNI_CONTAINERID="", CNI_IFNAME="").code == 0
    assert node.run("test", "-e", SPOKEN, check=False).returncode == 1, "without a list nothing is collected"


def test_gc_of_any_plugin_keeps_what_another_one_of_the_list_has_leased(node: Light, caller: Caller) -> None:
    """The plugins of a list may share an IPAM plugin's store: each tells it all names of the attachments to keep."""
    versions = '{"cniVersion": "1.1.0", "supportedVersions": ["1.0.0", "1.1.0"]}'
    node.write(f"{SCRIPTS}/log", f"#!/bin/sh\n[ $CNI_COMMAND != VERSION ] || exec echo '{versions}'\n{LOG}", "755")
    known = {"container_id": "c2", "ifname": "net1", "network": "upper", "names": ["net1.3", "st"]}
    node.write("/run/podnet/leased/one", json.dumps(known))
    valid = [{"containerID": "c2", "ifname": "net1"}]
    own = {"cniVersion": "1.1.0", "name": "upper", **podnet(ipam={"type": "log"}), "cni.dev/valid-attachments": valid}
    env = {**cni.environment("GC", "", ""), "CNI_PATH": f"{SCRIPTS}:{cni.PATH}", "CNI_IFNAME": ""}
    done = node.run("/opt/cni/bin/podnet-ovs", input=json.dumps(own), env=env, check=False)
    assert done.returncode == 0, done.stdout
    ((verb, *_rest, told),) = spoken(node)
    listed = {(item["containerID"], item["ifname"]) for item in told["cni.dev/valid-attachments"]}
    assert verb == "GC" and listed == {("c2", "net1"), ("c2", "net1.3"), ("c2", "st")}
    gone = call(node, "GC", logged(**{"cni.dev/valid-attachments": []}), "", CNI_CONTAINERID="", CNI_IFNAME="")
    assert gone.code == 0, gone
    deleted = sorted(row[:3] for row in spoken(node) if row[0] == "DEL")
    assert deleted == [("DEL", "c2", "net1.3"), ("DEL", "c2", "st")], "and what is lost is given back by its names"
    assert node.run("ls", "/run/podnet/leased").stdout.split() == ["one"], "a file of another name is not ours"
    node.run("rm", "/run/podnet/leased/one")


def test_status(node: Light, caller: Caller) -> None:
    for name in ("vlan", "adopt"):
        keys = vlan(ipam={"type": "static"}) if name == "vlan" else {"type": "podnet-adopt"}
        conf = {"cniVersion": "1.1.0", "name": "upper", **keys}
        env = {**cni.environment("STATUS", "", ""), "CNI_IFNAME": ""}
        done = node.run(f"/opt/cni/bin/podnet-{name}", input=json.dumps(conf), env=env, check=False)
        assert done.returncode == 0, done.stdout
    answer = call(node, "STATUS", {**logged(), "vlans": [{"id": 3, "ipam": {"type": "nosuch"}}]}, "")
    assert answer.code == 1 and "nosuch" in answer.document["msg"]
