# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way for pods leaves the kernel and the database as the libraries would leave them, whatever a pod asks for.

PODNET_SEED chooses the configurations; with --full there are ten times as many.
"""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, seed, settings, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.model.port import (
    ACCESS,
    ETHERTYPES,
    MODES,
    NATIVE_TAGGED,
    NATIVE_UNTAGGED,
    TRUNK,
    TUNNEL,
)
from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SEED = int(os.environ.get("PODNET_SEED") or 1)
EXAMPLES, FULL_EXAMPLES = 3, 30
"""For each port mode."""
ROOT = Path(__file__).absolute().parents[5]
WORKER = "ansible_collections.podnet.ovs.tests.integration.twoways"

Json = dict[str, Any]

PLAIN: Json = {
    "port": {"vlan": 100}, "mtu": 1400, "mac": "02:00:00:00:00:02", "addresses": [], "routes": [], "ofport": None,
    "protected": False, "bandwidth": {},
}  # fmt: skip
BOTH_FAMILIES: Json = {
    **PLAIN,
    "addresses": ["10.10.0.2/16", "fd00:10::2/64"],
    "routes": [
        {"destination": "0.0.0.0/0", "gateway": "10.10.0.1"},
        {"destination": "::/0", "gateway": "fd00:10::1"},
        {"destination": "192.0.2.0/24"},
        {"destination": "2001:db8::/32"},
    ],
}
ODD_LENGTHS: Json = {**PLAIN, "addresses": ["10.0.0.1/31", "10.0.1.1/32", "fd00::1/127", "fd01::1/128"]}
GATEWAYS_OUTSIDE: Json = {
    **PLAIN,
    "addresses": ["10.10.0.2/32", "fd00:10::2/128"],
    "routes": [
        {"destination": "0.0.0.0/0", "gateway": "10.10.0.1"},
        {"destination": "::/0", "gateway": "fd00:10::1"},
        {"destination": "2001:db8::/32", "gateway": "fe80::1"},
    ],
}
ALL_THAT_A_ROUTE_CAN_BE: Json = {
    **PLAIN,
    "addresses": ["10.10.0.2/16"],
    "routes": [
        {"destination": "192.0.2.0/24", "gateway": "10.10.0.1", "priority": 77, "mtu": 1300, "advmss": 1200},
        {"destination": "198.51.100.0/24", "gateway": "10.10.0.1", "table": 100},
        {"destination": "203.0.113.0/24", "gateway": "10.10.0.1", "table": 1000, "scope": 0},
    ],
}
LIMITED: Json = {
    **PLAIN,
    "ofport": 4711,
    "protected": True,
    "bandwidth": {"ingressRate": 10_000_000, "ingressBurst": 80_000, "egressRate": 1_500, "egressBurst": 999},
}

vlan_ids = st.integers(1, 4094)
vlan_lists = st.lists(
    vlan_ids | st.tuples(vlan_ids, vlan_ids).map(lambda ends: {"minID": min(ends), "maxID": max(ends)}), min_size=1,
    max_size=4,
)  # fmt: skip


@st.composite
def ports(draw: st.DrawFn, mode: str) -> Json:
    """What `parse_port` takes for a mode."""
    table: Json = {"vlan_mode": mode}
    if mode in (NATIVE_TAGGED, NATIVE_UNTAGGED, TUNNEL):
        table["vlan"] = draw(vlan_ids)
    if mode == ACCESS:
        table.update(draw(st.just({"untagged": True}) | vlan_ids.map(lambda number: {"vlan": number})))
    if mode in (TRUNK, NATIVE_TAGGED, NATIVE_UNTAGGED):
        table["trunk"] = draw(vlan_lists)
    if mode == TRUNK:
        table["untagged"] = draw(st.booleans())
    if mode == TUNNEL:
        table["cvlans"] = draw(st.none() | vlan_lists)
        table["untagged"] = table["cvlans"] is not None and draw(st.booleans())
        table["qinq_ethertype"] = draw(st.none() | st.sampled_from(ETHERTYPES))
    return table


@st.composite
def addresses(draw: st.DrawFn, version: int) -> str:
    """An address of a private network, with any prefix length that the kernel takes."""
    low, high = (8, 32) if version == 4 else (8, 128)
    network = ipaddress.ip_network("10.0.0.0/8" if version == 4 else "fd00::/8")
    number = int(network.network_address) + draw(st.integers(1, network.num_addresses - 2))
    return f"{ipaddress.ip_address(number)}/{draw(st.integers(low, high))}"


@st.composite
def routes(draw: st.DrawFn, version: int, own: list[str]) -> Json:
    """A route of any kind: on the link, by a gateway on it or beyond, of another table, with numbers of its own."""
    highest = 32 if version == 4 else 128
    length = draw(st.sampled_from([0, 8, 24, highest]) | st.integers(0, highest))
    inside = "198.18.0.0" if version == 4 else "2001:db8::"
    to = ipaddress.ip_network(f"{inside}/{length}", strict=False)
    gateways = [None, "192.0.2.1" if version == 4 else "fe80::1"]
    gateways += [str(ipaddress.ip_interface(text).ip + 1) for text in own]
    route: Json = {"destination": str(to)}
    gateway = draw(st.sampled_from(gateways))
    if gateway:
        route["gateway"] = gateway
    for key, numbers in (
        ("priority", st.integers(1, 2**31)), ("table", st.sampled_from([100, 253, 255, 256, 1000, 2**31])),
        ("mtu", st.integers(1280, 9000)), ("advmss", st.integers(500, 8000)), ("scope", st.sampled_from([0, 200, 253])),
    ):  # fmt: skip
        value = draw(st.none() | numbers)
        if value is not None:
            route[key] = value
    return route


@st.composite
def bandwidths(draw: st.DrawFn) -> Json:
    """Limits in either direction, in both, or none. Rates that a queue takes."""
    table: Json = {}
    for way in draw(st.sets(st.sampled_from(["ingress", "egress"]))):
        table[f"{way}Rate"] = draw(st.integers(1, 10**10))
        table[f"{way}Burst"] = draw(st.integers(1, 2**34))
    return table


@st.composite
def wishes(draw: st.DrawFn, mode: str) -> Json:
    """What a pod is to have, in a port mode."""
    mtu = draw(st.just(1500) | st.integers(1280, 9000) | st.integers(68, 1279))
    given = {version: draw(st.lists(addresses(version), max_size=2, unique=True)) for version in (4, 6)}
    if mtu < 1280:
        given[6] = []
    wanted: list[Json] = []
    for version, own in given.items():
        if own:
            wanted += draw(st.lists(routes(version, own), max_size=3))
    mac = draw(st.integers(0, 2**40 - 1).map(lambda number: f"02{number:010x}"))
    return {
        "port": draw(ports(mode)),
        "mtu": mtu,
        "mac": ":".join(mac[at : at + 2] for at in range(0, 12, 2)),
        "addresses": given[4] + given[6],
        "routes": wanted,
        "ofport": draw(st.none() | st.integers(1000, 60000)),
        "protected": draw(st.booleans()),
        "bandwidth": draw(bandwidths()),
    }


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with one bridge."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    return made


@pytest.fixture(scope="module")
def both(node: Light) -> Iterator[Callable[[Json], Json]]:
    """Makes a wish come true by both ways, one after the other, and gives what each left."""
    env = {"PYTHONPATH": f"{ROOT}:/opt/podnet/current/lib"}
    worker = node.popen("/usr/bin/python3", "-m", WORKER, env=env, stdin=subprocess.PIPE, stderr=None)
    stdin, stdout = worker.stdin, worker.stdout
    assert stdin is not None and stdout is not None

    def ask(wish: Json) -> Json:
        stdin.write(json.dumps(wish).encode() + b"\n")
        stdin.flush()
        answer: Json = json.loads(stdout.readline())
        assert "broken" not in answer, answer["broken"]
        return answer

    yield ask
    stdin.close()
    assert worker.wait(timeout=30) == 0


@pytest.mark.holds("fast path and library path: same kernel state, same database, over generated configurations")
@pytest.mark.parametrize("mode", MODES)
def test_both_ways_leave_the_same(both: Callable[[Json], Json], request: pytest.FixtureRequest, mode: str) -> None:
    count = FULL_EXAMPLES if request.config.getoption("--full") else EXAMPLES
    refused = []

    @seed(SEED)
    @settings(
        max_examples=count, deadline=None, database=None, phases=(Phase.explicit, Phase.generate),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(wishes(mode))
    def same(wish: Json) -> None:
        answer = both(wish)
        short, library = answer["short"], answer["library"]
        assert short.get("refused") == library.get("refused")
        if "refused" in short:
            refused.append(short["refused"])
        else:
            assert short["state"]["kernel"] == library["state"]["kernel"]
            assert short["state"] == library["state"]
            assert short["state"]["Port"] and short["state"]["Interface"], "there was something to compare"
            assert bool(wish["bandwidth"].get("ingressRate")) == bool(short["state"]["Queue"])
            for seen in (short, library):
                assert seen["observed"] == seen["listed"]
        assert (short["left"], library["left"]) == ([], []), "each removes what the other has made"

    if mode == ACCESS:
        for wish in (BOTH_FAMILIES, ODD_LENGTHS, GATEWAYS_OUTSIDE, ALL_THAT_A_ROUTE_CAN_BE, LIMITED):
            same = example(wish)(same)
    same()
    assert len(refused) <= count // 2, refused


BEGIN = f"""
import os
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from {WORKER} import *
wish = Wish.parse({PLAIN!r})
netns = os.open("/run/netns/p1", os.O_RDONLY)
def veth(mac=wish.mac, mtu=wish.mtu, host=HOST, netns=netns):
    fastpath.make_veth(host, HOST_MAC, IFNAME, mac, mtu, netns)
def port(bridge=BRIDGE, name=HOST, vlans=wish.vlans.columns(), **more):
    with open_switch(ENDPOINT, 5, name) as switch:
        made = PodPort(name, bridge, vlans, wish.mark, **more)
        switch.begin(made)
        try:
            switch.inserted(made)
            switch.settle(made, 5)
        finally:
            switch.detach(HOST)
def configure(addresses=(), routes=(), name=IFNAME):
    veth()
    try:
        with fastpath.PodSpace(netns) as space:
            space.bring_up(name)
            space.configure(name, addresses, routes)
    finally:
        fastpath.remove_link(HOST)
try:
    REFUSED
except PodnetError as error:
    print(error)
"""
REFUSED: dict[str, tuple[str, str]] = {
    "link is there": ('veth(host="lo")', "File exists"),
    "no namespace to make it in": ('veth(netns=os.open("/etc/hostname", os.O_RDONLY))', "cannot make the link pair"),
    "no namespace to work in": ('fastpath.PodSpace(os.open("/etc/hostname", os.O_RDONLY))', "network namespace"),
    "MTU": ("veth(mtu=70000)", "cannot make the link pair"),
    "multicast MAC": ('veth(mac="01:00:5e:00:00:01")', "cannot make the link pair"),
    "no link to bring up": ('configure(name="eth9")', "cannot bring eth9 up"),
    "address of another kind": ('configure(["224.0.0.1/24", "ff02::1/64"])', "does not take the address ff02::1/64"),
    "address twice": ('configure(["10.0.0.1/24"] * 2)', "does not take the address 10.0.0.1/24: File exists"),
    "route that leads nowhere": (
        'configure(["10.0.0.1/24"], [PodRoute("192.0.2.0/24", "10.0.0.2", scope=253)])',
        "does not take the route to 192.0.2.0/24 by 10.0.0.2",
    ),
    "bridge is gone": ('port(bridge="nobr")', "not there any more"),
    "value out of range": ('port(vlans={"tag": 5000})', "5000"),
    "mode that is none": ('port(vlans={"vlan_mode": "odd"})', "odd"),
    "number that is taken by nothing": ("port(ofport_request=70000)", "70000"),
    "name is taken": ('port(name="eth1")', "eth1"),
    "no device": ("port()", "No such device"),
    "no database": ('open_switch("unix:/run/none.sock", 1).__enter__()', "/run/none.sock: No such file or directory"),
    "database of another machine": ('open_switch("tcp:127.0.0.1:6640", 1).__enter__()', "not a local database"),
}  # fmt: skip


@pytest.fixture
def pod(node: Light) -> Iterator[Light]:
    """The node with a pod."""
    node.netns("p1")
    yield node
    node.sh("ip netns delete p1")


@pytest.mark.parametrize("case", REFUSED)
def test_every_refusal_is_an_error_in_words(pod: Light, case: str) -> None:
    script, word = REFUSED[case]
    node = pod
    before = node.ovs.vsctl("list-ports", cni.BRIDGE).stdout
    env = {"PYTHONPATH": f"{ROOT}:/opt/podnet/current/lib"}
    printed = node.run("/usr/bin/python3", "-c", BEGIN.replace("REFUSED", script), env=env).stdout
    assert word in printed, "the error's text"
    assert cni.leftovers(node) == cni.NOTHING
    assert node.ovs.vsctl("list-ports", cni.BRIDGE).stdout == before


def test_a_link_that_is_not_there_is_removed_already(node: Light) -> None:
    script = f"from {WORKER} import *; print(fastpath.remove_link(HOST)); short_end()"
    env = {"PYTHONPATH": f"{ROOT}:/opt/podnet/current/lib"}
    assert node.run("/usr/bin/python3", "-c", script, env=env).stdout == "False\n"
