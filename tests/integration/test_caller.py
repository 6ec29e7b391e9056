# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configuration lists of podnet-ovs and Debian's plugins, and that the runtime that runs them does as libcni."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import (
    At,
    Caller,
    NotCached,
    conflist,
    podnet,
    static,
    version_of,
)

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SPOKEN = ("0.3.1", "0.4.0", "1.0.0")
"""By the plugins of Debian 12."""
P1, P2 = At("c1", "p1"), At("c2", "p2")
ADDRESSES = static("10.10.7.1/16", "fd00:10::7:1/64")
RECORDER = """#!/usr/bin/python3 -IS
import json, os, sys
conf = json.load(sys.stdin)
verb = os.environ["CNI_COMMAND"]
call = [verb, conf["tag"], os.environ["CNI_CONTAINERID"], os.environ["CNI_IFNAME"], conf]
open("/run/recorded", "a").write(json.dumps(call) + "\\n")
if conf.get("fails") == verb:
    print(json.dumps({"cniVersion": conf["cniVersion"], "code": 100, "msg": conf["tag"]}))
    sys.exit(1)
if verb == "ADD":
    said = conf.get("prevResult") or {"interfaces": [{"name": conf["tag"]}]}
    print(json.dumps({**said, "cniVersion": conf["cniVersion"]}))
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node without an agent, with a plugin that says what it is called with."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    node.write("/opt/cni/bin/recorder", RECORDER, "755")
    return node


@pytest.fixture
def caller(machine: Light) -> Iterator[Caller]:
    """A runtime of pods p1 and p2. Nothing of ours is left behind it, nor anything in its cache."""
    machine.run("rm", "-rf", "/run/recorded", "/var/lib/cni/results")
    with cni.tidy(machine, "p1", "p2"):
        yield Caller(machine)
    assert machine.sh("ls -A /var/lib/cni/results 2> /dev/null || true").stdout == ""


def recorder(tag: str, **keys: Any) -> dict[str, Any]:
    return {"type": "recorder", "tag": tag, **keys}


def recorded(caller: Caller) -> list[list[Any]]:
    """The calls since the last time: verb, tag, container, interface, configuration."""
    lines = caller.node.sh("cat /run/recorded 2> /dev/null || true; rm -f /run/recorded").stdout.splitlines()
    return [json.loads(line) for line in lines]


def calls(caller: Caller) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for row in recorded(caller)]


# The runtime itself


@pytest.mark.parametrize("version", ["0.3.1", "1.1.0"])
def test_each_gets_the_result_before_it_and_del_goes_backwards(caller: Caller, version: str) -> None:
    network = conflist(recorder("a"), recorder("b"), version=version)
    result = caller.add(network, P1)
    caller.delete(network, P1)
    seen = recorded(caller)
    assert [(row[0], row[1]) for row in seen] == [("ADD", "a"), ("ADD", "b"), ("DEL", "b"), ("DEL", "a")]
    assert [call[4].get("prevResult") for call in seen[:2]] == [None, result]
    assert [call[4].get("prevResult") for call in seen[2:]] == ([None] * 2 if version == "0.3.1" else [result] * 2)
    assert all(
        (call[4]["name"], call[4]["cniVersion"], *call[2:4]) == ("green", version, "c1", "eth0") for call in seen
    )


def test_del_stops_at_the_first_error_and_can_be_repeated(caller: Caller) -> None:
    network = conflist(recorder("a"), recorder("b"))
    caller.add(network, P1)
    broken = conflist(recorder("a"), recorder("b", fails="DEL"))
    recorded(caller)
    assert caller.ask("DEL", broken, P1).document["msg"] == "b"
    assert calls(caller) == [("DEL", "b")]
    assert caller.cache_file(network, P1).exists()
    caller.delete(network, P1)
    assert calls(caller) == [("DEL", "b"), ("DEL", "a")]


def test_an_add_that_fails_is_not_kept_and_stops_there(caller: Caller) -> None:
    answer = caller.ask("ADD", conflist(recorder("a", fails="ADD"), recorder("b")), P1)
    assert answer.code == 1 and calls(caller) == [("ADD", "a")]
    assert not caller.cache_file(conflist(), P1).exists()


def test_check_gets_the_last_result_unless_the_list_does_without(caller: Caller) -> None:
    network = conflist(recorder("a"), recorder("b"))
    with pytest.raises(NotCached):
        caller.ask("CHECK", network, P1)
    result = caller.add(network, P1)
    recorded(caller)
    assert caller.ask("CHECK", network, P1).code == 0
    seen = recorded(caller)
    assert [(call[0], call[1], call[4]["prevResult"]) for call in seen] == [("CHECK", t, result) for t in "ab"]
    for off in (True, "true"):
        assert caller.ask("CHECK", {**network, "disableCheck": off}, P1).code == 0
    assert calls(caller) == []
    caller.delete(network, P1)


@pytest.mark.parametrize("torn", [False, True])
def test_del_goes_on_without_the_cache(caller: Caller, torn: bool) -> None:
    network = conflist(recorder("a"))
    caller.add(network, P1)
    if torn:
        caller.cache_file(network, P1).write_bytes(b"")
    else:
        caller.cache_file(network, P1).unlink()
    with pytest.raises(NotCached):
        caller.ask("CHECK", network, P1)
    recorded(caller)
    caller.delete(network, P1)
    (call,) = recorded(caller)
    assert call[0] == "DEL" and "prevResult" not in call[4]


def test_declared_capabilities_get_what_the_runtime_has(caller: Caller) -> None:
    network = conflist(recorder("a", capabilities={"mac": True, "ips": False}), recorder("b"))
    runtime = {"mac": "02:00:00:00:00:01", "ips": ["10.0.0.1/24"]}
    caller.add(network, P1, runtime=runtime)
    caller.ask("CHECK", network, P1)
    caller.delete(network, P1)
    for call in recorded(caller):
        wanted = {"mac": runtime["mac"]} if call[1] == "a" else None
        assert (call[4].get("runtimeConfig"), call[4].get("capabilities")) == (wanted, None), call[0]


def test_gc_takes_what_is_not_valid_and_then_asks_each(caller: Caller) -> None:
    """What fails does not keep the rest from being done."""
    network = conflist(recorder("a"), recorder("b"), version="1.1.0")
    other = conflist(recorder("z"), name="blue", version="1.1.0")
    caller.add(network, P1)
    caller.add(network, P2)
    caller.add(other, P1)
    recorded(caller)
    broken = conflist(recorder("a", fails="GC"), recorder("b", fails="DEL"), version="1.1.0")
    assert caller.ask("GC", broken, valid=[P2]).document["msg"] == "b"
    assert calls(caller) == [("DEL", "b"), ("GC", "a"), ("GC", "b")]
    assert caller.ask("GC", network, valid=[P2]).code == 0
    seen = recorded(caller)
    assert [tuple(call[:4]) for call in seen] == [
        ("DEL", "b", "c1", "eth0"), ("DEL", "a", "c1", "eth0"), ("GC", "a", "", ""), ("GC", "b", "", ""),
    ]  # fmt: skip
    valid = [{"containerID": "c2", "ifname": "eth0"}]
    assert all(call[4]["cni.dev/valid-attachments"] == call[4]["cni.dev/attachments"] == valid for call in seen[2:])
    assert "prevResult" in seen[0][4]
    assert caller.ask("GC", {**network, "disableGC": True}, valid=[]).code == 0
    assert calls(caller) == []
    older = {**network, "cniVersion": "1.0.0"}
    assert caller.ask("GC", older, valid=[]).code == 0
    assert calls(caller) == [("DEL", "b"), ("DEL", "a")], "the verb is of 1.1.0"
    caller.delete(other, P1)


def test_status_asks_each_until_one_fails(caller: Caller) -> None:
    network = conflist(recorder("a"), recorder("b", fails="STATUS"), recorder("c"), version="1.1.0")
    assert caller.ask("STATUS", network).document["msg"] == "b"
    assert calls(caller) == [("STATUS", "a"), ("STATUS", "b")]
    assert caller.ask("STATUS", {**network, "cniVersion": "1.0.0"}).code == 0
    assert calls(caller) == [], "the verb is of 1.1.0"


@pytest.mark.parametrize(
    ("keys", "version"),
    [
        ({"cniVersion": "0.4.0"}, "0.4.0"),
        ({"cniVersion": "0.4.0", "cniVersions": ["1.0.0", "0.3.1"]}, "1.0.0"),
        ({"cniVersion": "1.1.0", "cniVersions": ["0.3.1"]}, "1.1.0"),
        ({"cniVersion": "0.3.1", "cniVersions": ["7.0.0", "1.1.0"]}, "1.1.0"),
    ],
)
def test_the_newest_known_version_of_a_list_is_taken(keys: dict[str, Any], version: str) -> None:
    assert version_of(keys) == version


# Lists of ours and Debian's


LOOPBACK = {"type": "loopback"}
TUNING = {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}, "mtu": 1300}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}, "snat": False}
MIXED: dict[str, list[dict[str, Any]]] = {
    "loopback before": [LOOPBACK, podnet(ipam=ADDRESSES)],
    "tuning behind": [podnet(ipam=ADDRESSES), TUNING],
    "portmap behind": [podnet(ipam=ADDRESSES), PORTMAP],
    "all of them": [LOOPBACK, podnet(ipam=ADDRESSES), TUNING, PORTMAP],
    "no addresses": [LOOPBACK, podnet(), TUNING],
}
MAPPED = {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}


@pytest.mark.parametrize("case", MIXED)
@pytest.mark.parametrize("version", SPOKEN)
def test_a_list_of_ours_and_debians(caller: Caller, version: str, case: str) -> None:
    """What was before is in the result, and its indices are what they were; DEL takes all, with and without results."""
    network = conflist(*MIXED[case], version=version)
    result = caller.add(network, P1, runtime=MAPPED)
    links = [item["name"] for item in result["interfaces"]]
    assert links[-1] == "eth0" and (links[0] == "lo") == (case not in ("tuning behind", "portmap behind"))
    there = {item["address"]: links[item["interface"]] for item in result.get("ips", ())}
    ours = [item["address"] for plugin in MIXED[case] for item in plugin.get("ipam", {}).get("addresses", ())]
    assert {address: name for address, name in there.items() if name != "lo"} == dict.fromkeys(ours, "eth0")
    if version != "0.3.1":
        # Debian's portmap looks in its CHECK for rules of IPv6 that it never makes.
        checked = caller.ask("CHECK", network, P1, skip=["portmap"])
        assert checked.code == 0, checked
    caller.delete(network, P1)
    assert cni.leftovers(caller.node) == cni.NOTHING
    caller.delete(network, P1)


@pytest.mark.parametrize("version", SPOKEN)
@pytest.mark.parametrize("first", ["bridge", "ptp"])
def test_debians_interface_and_ours_in_one_pod(caller: Caller, version: str, first: str) -> None:
    """The pod's own network is another plugin's, as with Multus; each goes without the other."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.60.0.0/24"}], [{"subnet": "fd00:60::/64"}]]}
    theirs = conflist({"type": first, "ipam": ipam, **({"bridge": "cni0"} if first == "bridge" else {})}, name="own",
                      version=version)  # fmt: skip
    second = At("c1", "p1", "net1")
    ours = conflist(podnet(ipam=ADDRESSES), version=version)
    caller.add(theirs, P1)
    result = caller.add(ours, second)
    assert [result["interfaces"][item["interface"]]["name"] for item in result["ips"]] == ["net1"] * 2
    if version != "0.3.1":
        assert caller.ask("CHECK", theirs, P1).code == 0
        assert caller.ask("CHECK", ours, second).code == 0
    caller.delete(theirs, P1)
    if version != "0.3.1":
        assert caller.ask("CHECK", ours, second).code == 0, "ours stays when theirs goes"
    caller.delete(ours, second)
    if first == "bridge":
        caller.node.run("ip", "link", "delete", "cni0")


def test_all_verbs_of_the_newest_version_in_a_list(caller: Caller) -> None:
    """Debian's plugins do not speak it; host-local is asked by ours in its own."""
    network = conflist(recorder("a"), podnet(ipam=cni.ipam()), recorder("b"), version="1.1.0", cniVersions=["1.0.0"])
    assert caller.ask("STATUS", network).code == 0
    result = caller.add(network, P1)
    assert [item["name"] for item in result["interfaces"]][::2] == ["a", "eth0"]
    caller.add(network, P2)
    assert [caller.ask("CHECK", network, at).code for at in (P1, P2)] == [0, 0]
    assert caller.ask("GC", network, valid=[P2]).code == 0
    assert set(cni.leases(caller.node).values()) == {"c2"}
    assert caller.ask("CHECK", network, P2).code == 0
    caller.cache_file(network, P2).unlink()
    assert caller.ask("GC", network, valid=[]).code == 0, "what the runtime has forgotten goes by our own mark"
    assert cni.leftovers(caller.node) == cni.NOTHING
