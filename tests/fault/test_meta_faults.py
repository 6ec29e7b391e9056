# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""podnet-meta when something goes wrong: each of its networks in turn, its state, the pod's namespace, the agent.

The network that goes wrong is Debian's bridge behind a shell script that does what a file tells it: plugins that fail
on demand are in no distribution.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.meta import SECONDS, UNDO_SECONDS
from ansible_collections.podnet.ovs.plugins.module_utils.attach.plugin import SECONDS as EACH
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import At, Caller, conflist, podnet
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

Json = dict[str, Any]
STATE = "/var/lib/podnet/meta"
RESULTS = "/run/podnet/meta"
MODE, CALLS = "/run/odd.mode", "/run/odd.calls"
AT = At("c1", "p1")
ODD = f"""#!/bin/sh
mode=$(cat {MODE} 2> /dev/null)
echo "$CNI_COMMAND $CNI_IFNAME" >> {CALLS}
case $mode:$CNI_COMMAND in
    add-fails:ADD | del-fails:DEL) echo '{{"code": 100, "msg": "on purpose"}}'; exit 1 ;;
    add-hangs:ADD | del-hangs:DEL) exec sleep 1000 ;;
    add-dies:ADD | del-dies:DEL) kill -KILL $$ ;;
    add-raves:ADD | del-raves:DEL) echo 'no JSON at all'; exit 0 ;;
    add-lies:ADD) echo '{{"cniVersion": "1.0.0", "ips": [{{"address": "everywhere"}}]}}'; exit 0 ;;
    add-deep:ADD) echo '{{"cniVersion": "1.0.0", "x": {"[" * 99}{"]" * 99}}}'; exit 0 ;;
    add-wild:ADD) echo '{{"cniVersion": "1.0.0", "x": {"[" * 99999}'; exit 0 ;;
    add-nan:ADD) echo '{{"cniVersion": "1.0.0", "x": NaN}}'; exit 0 ;;
    add-big:ADD) printf '{{"cniVersion": "1.0.0", "x": "%0999999d"}}' 1; exit 0 ;;
    add-odd:ADD) echo '{{"cniVersion": "1.0.0", "routes": 5}}'; exit 0 ;;
    add-half:ADD) {cni.PEERS}/bridge > /dev/null; echo '{{"code": 100, "msg": "on purpose"}}'; exit 1 ;;
esac
exec {cni.PEERS}/bridge
"""
UNUSABLE = "printed no JSON that can be used"
"""What a configuration cannot bring back as `prevResult`: a pod with such a result could never be deleted."""
BIG = """#!/bin/sh
[ $CNI_COMMAND = ADD ] || exit 0
printf '{"cniVersion": "1.0.0", "interfaces": [{"name": "%s", "x": "%0400000d"}]}' $CNI_IFNAME 1
"""
FAULTS = {
    "add-fails": "on purpose",
    "add-hangs": "did not end its ADD in time",
    "add-dies": "ended by signal 9",
    "add-raves": "printed no JSON",
    "add-lies": "everywhere",
    "add-deep": UNUSABLE,
    "add-wild": UNUSABLE,
    "add-nan": UNUSABLE,
    "add-big": UNUSABLE,
    "add-odd": "the result.routes: a list is wanted, not 5",
    "add-half": "on purpose",
    "del-fails": "on purpose",
    "del-hangs": "did not end its DEL in time",
    "del-dies": "ended by signal 9",
    "missing": "no plugin 'odd'",
}


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with the odd plugin."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("lan"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    return node


@pytest.fixture(scope="module", params=["agent", pytest.param("in-process", marks=pytest.mark.full)])
def served(machine: Light, request: pytest.FixtureRequest) -> Iterator[Light]:
    """The node with its agent at work, and without one."""
    with cni.serving(machine, request.param):
        yield machine


@pytest.fixture
def node(served: Light) -> Iterator[Light]:
    """The node with pods, and an odd plugin that does as it should. Afterwards nothing of them is there."""
    served.write("/opt/cni/bin/odd", ODD, "755")
    served.sh(f"rm -f {MODE} {CALLS}")
    with cni.tidy(served, "p1", "p2"):
        yield served
        left = what_is_left(served)
        cni.clear(served)
        served.sh(f"rm -rf {STATE} {RESULTS}; for pod in p1 p2; do ip netns delete $pod; ip netns add $pod; done")
        for name in veths(served):
            served.run("ip", "link", "delete", name, check=False)
        assert left == ""


@pytest.fixture
def caller(node: Light) -> Caller:
    """A runtime."""
    return Caller(node)


def veths(node: Light) -> list[str]:
    """Ends of pairs in the node, but for its NIC."""
    found = json.loads(node.run("ip", "-j", "link", "show", "type", "veth").stdout)
    return [link["ifname"] for link in found if link and link["ifname"] != "eth1"]


def what_is_left(node: Light) -> str:
    """Links, ports, leases and state, in words; nothing when nothing is."""
    files = node.run("sh", "-c", f"find {STATE} {RESULTS} -type f 2> /dev/null; true").stdout.split()
    left = (*cni.leftovers(node), veths(node), files)
    return " ".join(str(item) for item in left if item)


def fault(node: Light, mode: str) -> None:
    """From now on the odd plugin does this."""
    if mode == "missing":
        node.run("rm", "/opt/cni/bin/odd")
    else:
        node.write(MODE, mode)


def mend(node: Light) -> None:
    """From now on it does as it should."""
    node.write("/opt/cni/bin/odd", ODD, "755")
    node.write(MODE, "")


def odd(name: str = "odd") -> Json:
    """Debian's bridge through the script."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/24"}], [{"subnet": "fd00:20::/64"}]]}
    return {"name": name, "type": "odd", "bridge": "cni0", "ipam": ipam}


def green() -> Json:
    """podnet-ovs, with addresses of both families."""
    return {"name": "green", **podnet(ipam=cni.ipam())}


def network(place: int, *more: Json) -> Json:
    """A list whose network number `place` is the odd one."""
    others = [green(), {"name": "blue", **podnet(cni.BLUE)}]
    delegates = [*others[:place], odd(), *others[place:], *more]
    return conflist({"type": "podnet-meta", "delegates": delegates, "result": "merged"}, name="multi", version="1.1.0")


SLOW = [pytest.mark.full]
PLACES = [(mode, place) for mode in FAULTS for place in (0, 1, 2)]


@pytest.mark.holds(
    "fault matrix of podnet-meta: each delegate fails in ADD, in DEL, hangs, dies, returns rubbish, is missing"
)
@pytest.mark.parametrize(
    ("mode", "place"),
    [pytest.param(mode, place, marks=SLOW if "hangs" in mode or place == 1 else []) for mode, place in PLACES],
)
def test_a_network_that_fails(node: Light, caller: Caller, mode: str, place: int) -> None:
    conf = network(place)
    if not mode.startswith("del"):
        fault(node, mode)
        answer = caller.ask("ADD", conf, AT)
        assert answer.code == 1 and answer.seconds < EACH["ADD"] + UNDO_SECONDS
        check_words(answer, mode, place)
        assert what_is_left(node) == "", "an ADD that fails takes back what it made"
        assert not node.run("ip", "-n", "p1", "-br", "link").stdout.replace("lo ", "").count("net1")
    else:
        caller.add(conf, AT)
        fault(node, mode)
        answer = caller.ask("DEL", conf, AT)
        assert answer.code == 1 and answer.seconds < SECONDS["DEL"]
        check_words(answer, mode, place)
        assert cni.ports(node) == [], "the other networks are gone"
    mend(node)
    caller.delete(conf, AT)
    caller.delete(conf, AT)


def check_words(answer: cni.Answer, mode: str, place: int) -> None:
    """The error names the network, and says what its plugin said."""
    document = answer.document
    assert f"delegates[{place}] (odd, {'net' + str(place) if place else 'eth0'})" in document["msg"], document
    assert FAULTS[mode] in document["msg"], document
    assert document["code"] == {"missing": 7, "add-lies": 6, "add-odd": 6}.get(mode, document["code"])
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("damage", ["empty", "torn", "gone", "results", "both", "folder"])
def test_lost_state_is_found_again_from_the_configuration(node: Light, caller: Caller, damage: str) -> None:
    """multus #920 #948 #1087 #1446 #1448: DEL that loops, or leaks, with a cache that was lost or torn."""
    conf = network(0)
    caller.add(conf, AT)
    damages = {
        "empty": f"for f in {STATE}/*; do : > $f; done",
        "torn": f"for f in {STATE}/* {RESULTS}/*; do truncate -s 40 $f; done",
        "gone": f"rm {STATE}/*",
        "results": f"rm {RESULTS}/*",
        "both": f"rm {STATE}/* {RESULTS}/*",
        "folder": f"rm -r {STATE} {RESULTS}",
    }
    node.sh(damages[damage])
    caller.delete(conf, AT)
    assert what_is_left(node) == ""


def test_del_without_the_namespace(node: Light, caller: Caller) -> None:
    conf = network(1)
    caller.add(conf, AT)
    node.run("ip", "netns", "delete", "p1")
    answer = caller.ask("DEL", conf, At("c1", ""))
    assert answer.code == 0, answer
    until(lambda: veths(node) == [], 10, "the kernel's end of the namespace")
    node.netns("p1")


def test_the_whole_list_of_add_is_deleted_though_the_configuration_has_shrunk(node: Light, caller: Caller) -> None:
    """multus #1449: a list that was reduced in DEL left addresses behind."""
    caller.add(network(0), AT)
    shrunk = conflist({"type": "podnet-meta", "delegates": [green()]}, name="multi", version="1.1.0")
    caller.delete(shrunk, AT)
    assert what_is_left(node) == ""


def test_what_could_not_be_deleted_is_still_known(node: Light, caller: Caller) -> None:
    """multus #355: a cache that was dropped though a DEL failed, so that the next one had nothing to do."""
    conf = network(1)
    caller.add(conf, AT)
    fault(node, "del-fails")
    shrunk = conflist({"type": "podnet-meta", "delegates": [green()]}, name="multi", version="1.1.0")
    assert caller.ask("DEL", shrunk, AT).code == 1
    assert cni.leases(node), "the odd network's"
    mend(node)
    caller.delete(shrunk, AT)
    assert what_is_left(node) == ""


def test_one_failing_network_stops_the_del_of_none(node: Light, caller: Caller) -> None:
    """multus #201 #669 #1342."""
    conf = network(1, {**odd("odd2"), "bridge": "cni1"})
    caller.add(conf, AT)
    fault(node, "del-fails")
    answer = caller.ask("DEL", conf, AT)
    assert answer.document["msg"].count("on purpose") == 2
    assert cni.ports(node) == []
    mend(node)
    caller.delete(conf, AT)


def test_no_room_for_the_state(node: Light, caller: Caller) -> None:
    conf = network(0)
    node.sh(f"mkdir -p {STATE} && mount -t tmpfs -o size=4k,nr_inodes=2 none {STATE}")
    node.sh(f"dd if=/dev/zero of={STATE}/f bs=4k count=1 2> /dev/null")
    try:
        answer = caller.ask("ADD", conf, AT)
    finally:
        node.sh(f"umount {STATE}")
    assert answer.code == 1 and STATE in answer.document["msg"], answer
    assert what_is_left(node) == ""
    caller.delete(conf, AT)


def test_no_room_for_the_results(node: Light, caller: Caller) -> None:
    conf = network(0)
    node.sh(f"mkdir -p {RESULTS} && mount -t tmpfs -o size=4k none {RESULTS}; head -c 4096 /dev/zero > {RESULTS}/f")
    try:
        answer = caller.ask("ADD", conf, AT)
        caller.delete(conf, AT)
        assert node.run("ls", "-A", RESULTS).stdout.split() == ["f"]
    finally:
        node.sh(f"umount {RESULTS}")
    assert answer.code == 1 and RESULTS in answer.document["msg"], answer
    assert what_is_left(node) == ""


def test_a_disk_that_is_only_read(node: Light, caller: Caller) -> None:
    """The ADD fails, and its DEL finds nothing that it would have to write for."""
    conf = network(0)
    node.sh(f"mkdir -p {STATE} && mount -t tmpfs -o ro none {STATE}")
    try:
        answer = caller.ask("ADD", conf, AT)
        assert answer.code == 1 and STATE in answer.document["msg"], answer
        assert "on the way back" not in answer.stdout
        assert what_is_left(node) == ""
        caller.delete(conf, AT)
    finally:
        node.sh(f"umount {STATE}")


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_second_add_does_no_harm_though_the_state_is_lost(node: Light, caller: Caller, place: int) -> None:
    conf = network(place)
    caller.add(conf, AT)
    node.run("rm", "-r", STATE)
    before = node.run("ip", "-n", "p1", "addr").stdout, what_is_left(node)
    answer = caller.ask("ADD", conf, AT)
    assert answer.code == 1 and "has an interface" in answer.document["msg"], answer
    assert (node.run("ip", "-n", "p1", "addr").stdout, what_is_left(node)) == before
    caller.delete(conf, AT)


def test_an_interface_of_another_attachment_is_not_taken_away(node: Light, caller: Caller) -> None:
    """Plugins that find their interface's name in use fail, and on DEL remove whatever is called so."""
    other = conflist(odd("other"), name="other")
    there = At("c1", "p1", "net1")
    caller.add(other, there)
    before = node.run("ip", "-n", "p1", "addr", "show", "net1").stdout
    answer = caller.ask("ADD", network(1), AT)
    assert answer.code == 1 and "has an interface net1 already" in answer.document["msg"], answer
    assert node.run("ip", "-n", "p1", "addr", "show", "net1").stdout == before
    caller.delete(other, there)


def test_a_result_that_does_not_come_back(node: Light, caller: Caller) -> None:
    """Each network's fits into a configuration, and all of them do not."""
    node.write("/opt/cni/bin/big", BIG, "755")
    big = [{"name": f"big{number}", "type": "big"} for number in range(3)]
    conf = conflist({"type": "podnet-meta", "delegates": [green(), *big], "result": "merged"}, name="multi")
    answer = caller.ask("ADD", conf, AT)
    assert answer.code == 1 and "with the result of all networks" in answer.document["msg"], answer
    assert what_is_left(node) == ""
    conf["plugins"][0]["delegates"] = [green(), big[0]]
    caller.add(conf, AT)
    caller.delete(conf, AT)


def test_gc_takes_what_is_not_listed_and_nothing_else(node: Light, caller: Caller) -> None:
    """multus #1273 #1475: GC reached only the first delegate, and freed nothing."""
    conf = network(0)
    other = At("c2", "p2")
    caller.add(conf, AT)
    caller.add(conf, other)
    leases = cni.leases(node)
    assert sorted(set(leases.values())) == ["c1", "c2"]
    node.write(CALLS, "")
    answer = gc(caller, conf, [other])
    assert answer.code == 0, answer
    assert set(cni.leases(node).values()) == {"c2"} and len(cni.ports(node)) == 2
    assert cni.leases(node) == {address: owner for address, owner in leases.items() if owner == "c2"}
    assert "DEL eth0" in node.run("cat", CALLS).stdout
    assert node.run("ip", "-n", "p1", "-br", "link").stdout.split()[:1] == ["lo"], "pod 1 has nothing any more"
    assert gc(caller, conf, []).code == 0
    assert what_is_left(node) == ""


def test_gc_frees_nothing_when_it_is_not_sure(node: Light, caller: Caller) -> None:
    """The runtime lists an attachment by the name that it has there; its networks know other names."""
    conf = network(0)
    caller.add(conf, AT)
    before = cni.leftovers(node)
    node.sh(f"for f in {STATE}/*; do : > $f; done")
    answer = gc(caller, conf, [AT])
    assert answer.code == 0 and "not known which networks" in answer.stderr
    assert cni.leftovers(node) == before
    assert gc(caller, conf, []).code == 0
    assert cni.ports(node) == [], "without anything to keep there is nothing to be unsure of"
    caller.delete(conf, AT)


def gc(caller: Caller, conf: Json, valid: list[At]) -> cni.Answer:
    """The verb GC alone, without what a runtime does before it."""
    plugin = {**conf["plugins"][0], "cniVersion": "1.1.0", "name": conf["name"]}
    plugin["cni.dev/valid-attachments"] = [{"containerID": at.container, "ifname": at.ifname} for at in valid]
    env = {**cni.environment("GC", "", ""), "CNI_CONTAINERID": "", "CNI_IFNAME": ""}
    began = time.monotonic()
    done = caller.node.run("/opt/cni/bin/podnet-meta", input=json.dumps(plugin), env=env, check=False)
    return cni.Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def test_a_killed_add_leaves_nothing_after_the_runtimes_del(node: Light, caller: Caller) -> None:
    """The client is killed while a network hangs; the agent goes on, or there is none and all ends with it."""
    conf = network(1)
    node.write("/opt/cni/bin/odd", ODD.replace("exec sleep 1000", "sleep 3"), "755")
    fault(node, "add-hangs")
    env = {**cni.environment("ADD", "c1", "p1")}
    process = node.popen("/opt/cni/bin/podnet-meta", env=env, stdin=-1)
    assert process.stdin is not None
    process.stdin.write(json.dumps({**conf["plugins"][0], "cniVersion": "1.1.0", "name": "multi"}).encode())
    process.stdin.close()
    until(lambda: "ADD net1" in node.run("sh", "-c", f"cat {CALLS} || true").stdout, 20, "the network that hangs")
    process.kill()
    process.wait(10)
    mend(node)
    caller.delete(conf, AT)
    assert what_is_left(node) == ""
