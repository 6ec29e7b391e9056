# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod's port does to frames, on the wire: each mode, frames of each kind, both ways, every tag parsed.

The table is that of docs/networks.md, from ovs-vswitchd.conf.db(5), table Port, "VLAN Configuration". Runs on the
userspace datapath and with `--datapath=system` on a stock kernel (test_vm.py).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.wire import Tap, await_all, frame, tags_of

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Pod

FRAMES = ("", "0", "5", "8", "10", "30", "100", "s5", "s10", "s100", "10+5", "100+5", "100+8", "s100+5", "100+0")
"""What is sent each way: the tags from the outside in, "s" for 802.1ad."""
OUTSIDE = "02:00:00:00:00:77"
"""The MAC address of who sends at the uplink's other end."""
_numbers = itertools.count(1)


def same(*tags: str) -> dict[str, str]:
    """These frames pass as they are."""
    return {word: word for word in tags}


@dataclass(frozen=True)
class Mode:
    """A configuration, and which frames pass as what: `out` from the pod to the wire, `come` the other way.

    What is not among them is dropped. `odd`: what is different where the switch looks at one VLAN header.
    """

    keys: Mapping[str, Any]
    out: Mapping[str, str]
    come: Mapping[str, str]
    odd: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


ACCESS = Mode(
    {"vlan": 100},
    {"": "100", "0": "100"},
    {"100": "", "s100": "", "100+0": ""},
    # the one header is looked at and taken off; what is inside is the frame
    {"come": {"100": "", "s100": "", "100+0": "0", "100+5": "5", "100+8": "8", "s100+5": "5"}},
)
UNTAGGED = Mode({"vlan": None, "untagged": True}, {"": "", "0": ""}, {"": "", "0": ""})
EVERY = {**same(*FRAMES), "0": "", "100+0": "100"}
EVERY_ODD = {**same(*FRAMES), "0": ""}
CARRIED = same("10", "s10", "10+5")
NATIVE_OUT = {"": "100", "0": "100", **CARRIED, **same("100", "s100", "100+5", "100+8", "s100+5"), "100+0": "100"}
NATIVE_TAGGED_IN = {**CARRIED, **same("100", "s100", "100+5", "100+8", "s100+5"), "100+0": "100"}
NATIVE_UNTAGGED_IN = {**CARRIED, "100": "", "s100": "", "100+5": "5", "100+8": "8", "s100+5": "5", "100+0": ""}
TUNNEL_IN = {"100": "", "s100": "", "100+5": "5", "100+8": "8", "s100+5": "5", "100+0": ""}


def tunnelled(outer: str) -> dict[str, str]:
    """What leaves a tunnel whose outer tag is this."""
    whole = {word: f"{outer}+{word}" for word in FRAMES if word not in ("", "0")}
    # of three tags a switch that looks at two keeps those
    two = {word: f"{outer}+{word.partition('+')[0]}" for word in FRAMES if "+" in word}
    return {"": outer, "0": outer, **whole, **two}


def tunnelled_whole(outer: str) -> dict[str, str]:
    """The same where the switch looks at one header."""
    return {"": outer, "0": outer, **{word: f"{outer}+{word}" for word in FRAMES if word not in ("", "0")}}


def tunnel(outer: str, **keys: Any) -> Mode:
    """A tunnel for everything."""
    odd = {"out": tunnelled_whole(outer), "come": {**TUNNEL_IN, "100+0": "0"}}
    return Mode({"vlan": 100, "vlan_mode": "dot1q-tunnel", **keys}, tunnelled(outer), TUNNEL_IN, odd)


CVLANS = {"vlan": 100, "vlan_mode": "dot1q-tunnel", "cvlans": "5-7"}
OVS_CNI = {"socket_file": "unix:/run/openvswitch/db.sock"}
MODES = {
    "access": ACCESS,
    "untagged access": UNTAGGED,
    "trunk": Mode({"vlan": None, "trunk": "10-20"}, CARRIED, CARRIED),
    "trunk and untagged": Mode(
        {"vlan": None, "trunk": "10-20", "untagged": True}, {"": "", "0": "", **CARRIED}, {"": "", "0": "", **CARRIED}
    ),
    "native-tagged": Mode(
        {"vlan": 100, "trunk": "10-20", "vlan_mode": "native-tagged"}, NATIVE_OUT, NATIVE_TAGGED_IN,
        {"out": {**NATIVE_OUT, "100+0": "100+0"}, "come": {**NATIVE_TAGGED_IN, "100+0": "100+0"}},
    ),
    "native-untagged": Mode(
        {"vlan": 100, "trunk": "10-20", "vlan_mode": "native-untagged"}, NATIVE_OUT, NATIVE_UNTAGGED_IN,
        {"out": {**NATIVE_OUT, "100+0": "100+0"}, "come": {**NATIVE_UNTAGGED_IN, "100+0": "0"}},
    ),
    "tunnel": tunnel("s100"),
    "tunnel, 802.1ad": tunnel("s100", qinq_ethertype="802.1ad"),
    "tunnel, 802.1q": tunnel("100", qinq_ethertype="802.1q"),
    "tunnel of cvlans": Mode(CVLANS, {"5": "s100+5", "s5": "s100+s5"}, {"100+5": "5", "s100+5": "5"}),
    "tunnel of cvlans and untagged": Mode(
        {**CVLANS, "untagged": True},
        {"": "s100", "0": "s100", "5": "s100+5", "s5": "s100+s5"},
        {"100": "", "s100": "", "100+0": "", "100+5": "5", "s100+5": "5"},
    ),
    "ovs-cni: everything": Mode(
        {"vlan": None, **OVS_CNI}, EVERY, EVERY,
        {"out": EVERY_ODD, "come": EVERY_ODD},
    ),
    "ovs-cni: trunk": Mode(
        {"vlan": None, **OVS_CNI, "trunk": [{"id": 0}, {"minID": 10, "maxID": 20}]},
        {"": "", "0": "", **CARRIED}, {"": "", "0": "", **CARRIED},
    ),
    "Antrea": Mode({"vlan": 100, "networkType": "vlan"}, ACCESS.out, ACCESS.come, ACCESS.odd),
    "Antrea: no VLAN": Mode({"vlan": None, "networkType": "vlan"}, UNTAGGED.out, UNTAGGED.come),
}  # fmt: skip
LIMITS = {"one header": None, "two headers": 2, "no limit": 0}


@dataclass(frozen=True)
class Bench:
    """A node with one pod, and what hears at the uplink's other end."""

    node: Light
    pod: Pod
    wire: Tap
    limit: int | None


@pytest.fixture(scope="module", params=["one header", "two headers", pytest.param("no limit", marks=pytest.mark.full)])
def bench(lab: Lab, datapath: str, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """A node whose policy opens everything, for each number of VLAN headers that the switch looks at."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    limit = LIMITS[request.param]
    name = request.param.replace(" ", "-")
    lan = lab.lan(f"lan-{name}")
    node = lab.light(name, nics=[Nic("eth1", lan)], datapath=datapath)
    document = cni.node_document(datapath, **({} if limit is None else {"vlan_limit": limit}))
    document["policy"] = [{"bridge": cni.BRIDGE, "vlans": "1-4094", "untagged": True}]
    cni.prepare(node, document)
    with ExitStack() as stack:
        stack.enter_context(cni.agent(node))
        wire = stack.enter_context(Tap(lan.enter(), node.ports["eth1"].switch_port))
        yield Bench(node, node.netns("p1"), wire, limit)


def numbered(source: str) -> dict[int, tuple[str, bytes]]:
    """All frames. Each has an EtherType of its own, so that no flow that the switch has kept fits another one."""
    made = {}
    for tags in FRAMES:
        number = next(_numbers)
        made[number] = tags, frame(number, source, tags, 0x9000 + number % 0x700)
    return made


def heard(tap: Tap, sent: Mapping[int, tuple[str, bytes]]) -> dict[str, str]:
    """The tags that each frame arrived with."""
    there = tap.heard()
    return {
        tags: " and ".join(map(tags_of, there[number])) for number, (tags, _data) in sent.items() if number in there
    }


@pytest.mark.holds("each port mode, tags seen on the wire: as Open vSwitch documents it")
@pytest.mark.parametrize("name", MODES, ids=[re.sub(r"\W+", "-", name) for name in MODES])
def test_what_a_frame_looks_like_on_either_side(bench: Bench, name: str) -> None:
    mode = MODES[name]
    odd = {} if bench.limit is not None else mode.odd
    out, come = dict(odd.get("out", mode.out)), dict(odd.get("come", mode.come))
    conf = cni.configuration(ipam=None, **mode.keys)
    if bench.limit is None and "cvlans" in mode.keys:
        error = cni.call(bench.node, "ADD", conf).document
        assert error["code"] == 7 and "cvlans" in error["msg"] and "vlan_limit: 2" in error["details"]
        assert cni.leftovers(bench.node) == cni.NOTHING
        return
    try:
        mac = cni.add(bench.node, conf)["interfaces"][1]["mac"]
        with Tap(bench.pod.enter(), "eth0") as pod:
            sent, coming = numbered(mac), numbered(OUTSIDE)
            for _round in range(3):  # a frame may be lost on a busy machine; one that is to be dropped never comes
                pod.send([data for _tags, data in sent.values()])
                bench.wire.send([data for _tags, data in coming.values()])
                await_all([
                    (bench.wire, [number for number, (tags, _data) in sent.items() if tags in out]),
                    (pod, [number for number, (tags, _data) in coming.items() if tags in come]),
                ])  # fmt: skip
                if (heard(bench.wire, sent), heard(pod, coming)) == (out, come):
                    break
            assert (heard(bench.wire, sent), heard(pod, coming)) == (out, come)
    finally:
        cni.delete(bench.node, conf)
