# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What users of other plugins suffered, each once: the reports that have no test elsewhere.

ovs-cni #106                    an empty CNI_NETNS after a reboot
ovs-cni #109 #220 #304          dead ports pile up, on whichever bridge
antrea #276 #4122               dead ports stay after a restart of the agent
ovs-cni #258 #259 #276          failed ADDs leave ports, and DEL then loops
ovs-cni #19 #205 #206           MAC addresses twice, or multicast
ovs-cni #96 #97                 trunks of ids and ranges
ovs-cni #119 #131               an unclear error without the database
ovs-cni #137; plugins #463      a neighbour keeps the old MAC address
antrea #5788                    an address is free before its port is gone
antrea #5846 #7557 #7746        several bridges
antrea #5693                    no addresses at all
cni #1086 #1091 #1101 #1103     both names of the list for GC
cni #1121                       an IPAM plugin that returns interfaces
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac, host_mac, host_name
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

OTHER = "br-two"
SCRIPTS = "/opt/scripts"
GC_ENV = {"CNI_IFNAME": ""}


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with two bridges, the second one without an uplink."""
    return make(lab, datapath, "n1")


def make(lab: Lab, datapath: str, name: str) -> Light:
    """A node like that."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    document = cni.node_document(datapath)
    document["bridges"].append({"name": OTHER, "datapath_type": datapath})
    document["networks"] += [
        {"name": "violet", "bridge": OTHER, "vlan": cni.GREEN},
        {"name": "trunk", "bridge": cni.BRIDGE, "trunk": "100-110"},
    ]
    node = lab.light(name, nics=[Nic("eth1", lab.lan(f"lan-{name}"))], datapath=datapath)
    cni.prepare(node, document)
    return node


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


def violet(**keys: Any) -> cni.Json:
    """A network of the second bridge."""
    return cni.configuration(name="violet", bridge=OTHER, cniVersion="1.1.0", **keys)


def script(node: Light, text: str) -> dict[str, str]:
    """An IPAM plugin that is a shell script; gives the environment with which it is found."""
    node.write(f"{SCRIPTS}/odd", "#!/bin/sh\n" + text, "755")
    return {"CNI_PATH": f"{SCRIPTS}:{cni.PATH}"}


def reboot(node: Light, *pods: str) -> None:
    """What a reboot leaves of pods: rows in the database, and leases."""
    for pod in pods:
        node.run("ip", "netns", "delete", pod)
    until(lambda: cni.links(node) == [], 5, "the end of the links")
    node.ovs.restart()


def test_del_with_an_empty_netns_after_a_reboot(node: Light) -> None:
    conf = cni.configuration()
    cni.add(node, conf)
    reboot(node, "p1")
    for _turn in range(2):
        cni.delete(node, conf, pod="", env={"CNI_NETNS": ""})
        assert cni.leftovers(node) == cni.NOTHING


def test_dead_ports_of_a_reboot_go_from_whichever_bridge_with_the_next_add(node: Light) -> None:
    cni.add(node, cni.configuration(), "c1", "p1")
    cni.add(node, violet(), "c2", "p2")
    reboot(node, "p1", "p2")
    node.netns("p1")
    cni.add(node, cni.configuration(), "c3", "p1")
    until(lambda: cni.ports(node) == [host_name("c3", "eth0")], 10, "the end of the dead ports")
    cni.delete(node, cni.configuration(), "c3", "p1")
    cni.delete(node, cni.configuration(), "c1", "")
    cni.delete(node, violet(), "c2", "")


def test_dead_ports_of_a_reboot_go_from_whichever_bridge_with_gc(node: Light) -> None:
    green = cni.configuration(cniVersion="1.1.0")
    cni.add(node, {**green, "bridge": OTHER}, "c1", "p1")
    cni.add(node, green, "c2", "p2")
    reboot(node, "p1", "p2")
    done = cni.call(node, "GC", {**green, "cni.dev/valid-attachments": []}, "", "", GC_ENV)
    assert (done.code, done.stdout) == (0, ""), done
    assert cni.leftovers(node) == cni.NOTHING


def test_failed_adds_leave_no_ports_and_their_dels_do_not_loop(node: Light) -> None:
    path = script(node, """[ "$CNI_COMMAND" = ADD ] || exit 0; cat > /dev/null; echo '{"ips": [{"address": "x"}]}'""")
    for conf, env in (
        (cni.configuration(ipam={"type": "host-local"}), {}),
        (cni.configuration(ipam={"type": "host-local", "ranges": [[{"subnet": "10.0.0.0/99"}]]}), {}),
        (cni.configuration(ipam={"type": "odd"}), path),
    ):
        for _turn in range(3):
            assert cni.call(node, "ADD", conf, env=env).code == 1
            assert cni.leftovers(node) == cni.NOTHING
        for _turn in range(3):
            cni.delete(node, conf, env=env)


def test_a_thousand_attachments_have_a_thousand_unicast_local_macs(node: Light) -> None:
    containers = [f"{number:064x}" for number in range(1000)]
    macs = {mac for cid in containers for mac in (derived_mac(cid, "eth0"), host_mac(cid, "eth0"))}
    assert len(macs) == 2000 and len({host_name(cid, "eth0") for cid in containers}) == 1000
    assert all(int(mac[:2], 16) & 3 == 2 for mac in macs), "local, and not multicast"
    conf = cni.configuration(ipam=None)
    for number, cid in enumerate(containers[:10]):
        result = cni.add(node, conf, cid, "p1", {"CNI_IFNAME": f"net{number}"})
        seen = json.loads(Pod(node, "p1").run("ip", "-j", "link", "show", f"net{number}").stdout)[0]["address"]
        assert seen == result["interfaces"][1]["mac"] == derived_mac(cid, f"net{number}")
    for number, cid in enumerate(containers[:10]):
        cni.delete(node, conf, cid, "p1", {"CNI_IFNAME": f"net{number}"})


def test_a_trunk_of_ids_and_ranges_that_overlap_is_merged(node: Light) -> None:
    trunk = [{"id": 109}, {"minID": 100, "maxID": 105}, {"minID": 103, "maxID": 107}, {"id": 104}]
    conf = cni.configuration(vlan=None, name="trunk", ipam=None, trunk=trunk)
    cni.add(node, conf)
    printed = node.ovs.vsctl("get", "Port", host_name("c1", "eth0"), "trunks", "vlan_mode").stdout.split("\n")
    assert json.loads(printed[0]) == [*range(100, 108), 109] and printed[1] == "trunk"
    cni.delete(node, conf)
    answer = cni.call(node, "ADD", {**conf, "trunk": [{"minID": 105, "maxID": 100}]})
    assert answer.document["code"] == 7 and "trunk[0]: the range 105-100 runs backwards" in answer.document["msg"]


@pytest.mark.parametrize("way", ["absent", "refused", "a file"])
def test_without_a_database_the_error_names_its_socket(node: Light, way: str) -> None:
    """Also when the agent has been connected before."""
    conf = cni.configuration(cniVersion="1.1.0")
    cni.add(node, conf)
    cni.delete(node, conf)
    node.ovs.stop()
    bind = "import socket; socket.socket(socket.AF_UNIX).bind('/run/openvswitch/db.sock')"
    node.sh("rm -f /run/openvswitch/db.sock")
    if way == "refused":
        node.run("/usr/bin/python3", "-c", bind)
    elif way == "a file":
        node.run("touch", "/run/openvswitch/db.sock")
    word = "No such file" if way == "absent" else "refused"
    for verb in ("ADD", "STATUS"):
        answer = cni.call(node, verb, conf)
        assert answer.document["code"] == 50 and "unix:/run/openvswitch/db.sock" in answer.document["msg"], answer
        assert word in answer.document["msg"] and "ovsdb-server" in answer.document["details"]
    cni.delete(node, conf)
    node.sh("rm -f /run/openvswitch/db.sock")
    node.ovs.start()


def test_a_neighbour_forgets_the_mac_of_the_pod_that_had_the_address(node: Light) -> None:
    """The first announcement of each kind is lost on its way, as on a port that does not forward yet."""
    static = {"type": "static", "addresses": [{"address": "10.10.0.7/16"}, {"address": "fd00:10::7/64"}]}
    conf = cni.configuration(ipam=static)
    node.netns("ear")
    cni.add(node, cni.configuration(), "c-ear", "ear")
    ear = Pod(node, "ear")
    old = cni.add(node, conf, "c1", "p1")["interfaces"][1]["mac"]
    for address in ("10.10.0.7", "fd00:10::7"):
        ear.run("ping", "-c", "1", "-W", "5", address)
    assert known(ear) == {"10.10.0.7": old, "fd00:10::7": old}
    cni.delete(node, conf, "c1", "p1")
    time.sleep(1.2)  # net.ipv4.neigh.default.locktime: what was learnt just now is not learnt anew
    new = derived_mac("c2", "eth0")
    rules = "\n".join(
        f"add rule netdev lost ear ether saddr {new} {kind} quota until {most} bytes counter drop"
        for kind, most in (("ether type arp", 50), ("icmpv6 type nd-neighbor-advert", 100))
    )
    hook = "{ type filter hook ingress device eth0 priority 0; }"
    ear.run("nft", "-f", "-", input=f"add table netdev lost\nadd chain netdev lost ear {hook}\n{rules}\n")
    assert cni.add(node, conf, "c2", "p2")["interfaces"][1]["mac"] == new
    until(lambda: known(ear) == {"10.10.0.7": new, "fd00:10::7": new}, 3, "the neighbour to learn")
    assert ear.run("nft", "list", "ruleset").stdout.count("counter packets 1 ") == 2, "one of each was lost"
    cni.delete(node, conf, "c2", "p2")
    cni.delete(node, cni.configuration(), "c-ear", "ear")
    node.run("ip", "netns", "delete", "ear")


def known(pod: Pod) -> dict[str, str]:
    """The MAC addresses of the pod's neighbours, less their link-local ones."""
    found = json.loads(pod.run("ip", "-j", "neigh", "show", "dev", "eth0").stdout or "[]")
    return {item["dst"]: item.get("lladdr", "") for item in found if not item["dst"].startswith("fe80")}


def test_an_address_is_not_free_before_link_and_port_are_gone(node: Light) -> None:
    """The IPAM plugin looks, when it is asked for its DEL."""
    text = f"""cat > /dev/null
[ "$CNI_COMMAND" != ADD ] || exec echo '{{"ips": [{{"address": "10.10.0.3/16"}}]}}'
ls /sys/class/net | grep '^pn' > {SCRIPTS}/seen
ovs-vsctl --timeout=5 --bare --columns=name find Port external_ids:podnet_owner=podnet-ovs >> {SCRIPTS}/seen
echo looked >> {SCRIPTS}/seen
"""
    path = script(node, text)
    conf = cni.configuration(ipam={"type": "odd"})
    cni.add(node, conf, env=path)
    cni.delete(node, conf, env=path)
    assert node.run("cat", f"{SCRIPTS}/seen").stdout == "looked\n"


def test_each_network_has_its_bridge(node: Light) -> None:
    cni.add(node, cni.configuration(), "c1", "p1")
    cni.add(node, violet(), "c2", "p2")
    for bridge, cid in ((cni.BRIDGE, "c1"), (OTHER, "c2")):
        ours = [name for name in node.ovs.vsctl("list-ports", bridge).stdout.split() if name.startswith("pn")]
        assert ours == [host_name(cid, "eth0")]
    assert Pod(node, "p1").run("ping", "-c", "1", "-W", "1", "10.10.0.3", check=False).returncode == 1
    cni.delete(node, cni.configuration(), "c1", "p1")
    cni.delete(node, violet(), "c2", "p2")


def test_pods_without_addresses_hear_each_other(node: Light) -> None:
    conf = cni.configuration(ipam=None)
    for cid, pod, address in (("c1", "p1", "192.0.2.1/24"), ("c2", "p2", "192.0.2.2/24")):
        assert "ips" not in cni.add(node, conf, cid, pod)
        Pod(node, pod).run("ip", "addr", "add", address, "dev", "eth0")
    Pod(node, "p1").run("ping", "-c", "1", "-W", "5", "192.0.2.2")
    cni.delete(node, conf, "c1", "p1")
    cni.delete(node, conf, "c2", "p2")


@pytest.mark.parametrize("key", ["cni.dev/valid-attachments", "cni.dev/attachments"])
def test_gc_keeps_what_is_listed_by_either_name(node: Light, key: str) -> None:
    conf = cni.configuration(cniVersion="1.1.0")
    cni.add(node, conf, "c1", "p1")
    cni.add(node, conf, "c2", "p2")
    done = cni.call(node, "GC", {**conf, key: [{"containerID": "c2", "ifname": "eth0"}]}, "", "", GC_ENV)
    assert (done.code, done.stdout) == (0, ""), done
    assert cni.ports(node) == cni.links(node) == [host_name("c2", "eth0")]
    assert set(cni.leases(node).values()) == {"c2"}
    cni.delete(node, conf, "c2", "p2")


def test_interfaces_of_an_ipam_plugin_are_ignored(node: Light) -> None:
    returned = {
        "interfaces": [{"name": "eth9", "mac": "02:00:00:00:00:99"}, {"name": "uplink"}],
        "ips": [{"address": "10.10.0.3/16", "interface": 1}, {"address": "fd00:10::3/64", "interface": 7}],
    }
    path = script(node, f"""cat > /dev/null; [ "$CNI_COMMAND" = DEL ] || echo '{json.dumps(returned)}'\n""")
    conf = cni.configuration(ipam={"type": "odd"})
    result = cni.add(node, conf, env=path)
    assert [item["name"] for item in result["interfaces"]] == [host_name("c1", "eth0"), "eth0"]
    assert [(item["address"], item["interface"]) for item in result["ips"]] == [
        ("10.10.0.3/16", 1), ("fd00:10::3/64", 1),
    ]  # fmt: skip
    cni.delete(node, conf, env=path)


def test_dead_ports_go_when_the_agent_starts(lab: Lab, datapath: str) -> None:
    node = make(lab, datapath, "n2")
    for pod in ("p1", "p2"):
        node.netns(pod)
    cni.add(node, cni.configuration(), "c1", "p1")
    cni.add(node, violet(), "c2", "p2")
    reboot(node, "p1", "p2")
    assert len(cni.ports(node)) == 2
    with cni.agent(node):
        until(lambda: cni.ports(node) == [], 10, "the end of the dead ports")
    cni.delete(node, cni.configuration(), "c1", "")
    cni.delete(node, violet(), "c2", "")
    assert cni.leftovers(node) == cni.NOTHING
