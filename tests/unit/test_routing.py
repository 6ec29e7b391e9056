# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer-3 attachments as far as they are pure: the plan for an address, what is to be done for it, what a configuration
asks, which uplink an IPAM plugin names, and the records.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Union

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach import routed_record as records, routed_wish, uplinks
from ansible_collections.podnet.ovs.plugins.module_utils.attach.routed_record import Record
from ansible_collections.podnet.ovs.plugins.module_utils.attach.uplinks import Home
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import decode, parse_netconf
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import Request, parse_request
from ansible_collections.podnet.ovs.plugins.module_utils.cni.result import Address, Interface, Result, Route
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError, PolicyError
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.routing import (
    FROM_POD,
    LAST_RESORT,
    MAIN,
    TO_POD,
    UNREACHABLE,
    HostRoute,
    HostRule,
    Plan,
    Proxy,
    Seen,
    Way,
    change,
    is_ours,
    plan,
    table_of,
)

UP, POD, OTHER_POD = 7, 30, 31
FOUR, SIX = Way("10.2.0.100", "eth2", "10.2.0.1"), Way("fd00:2::100", "eth2", "fd00:2::1")
Thing = Union[HostRoute, HostRule, Proxy]


def is_pods(index: int) -> bool:
    """The host's ends of pods' pairs have the indices from 30 on."""
    return index >= POD


def apply(seen: Seen, wanted: Plan) -> Seen:
    """What a node has after a change, by the kernel's rules; fails where the kernel would refuse."""
    todo = change(wanted, seen, is_pods)
    routes, rules, proxies = set(seen.routes), Counter(seen.rules), set(seen.proxies)

    def key(item: HostRoute) -> tuple[object, ...]:
        return item.destination, item.table, item.metric

    def drop(things: tuple[Thing, ...] | tuple[HostRoute, ...]) -> None:
        for item in things:
            if isinstance(item, HostRoute):
                routes.discard(item)
            elif isinstance(item, HostRule):
                rules.subtract([item])
            else:
                proxies.discard(item)

    drop(todo.first)
    for item in todo.new:
        if isinstance(item, HostRoute):
            there = {old for old in routes if key(old) == key(item)}
            assert not there or item.table != MAIN, "the kernel refuses what is there"
            routes -= there
            routes.add(item)
        elif isinstance(item, HostRule):
            assert not rules[item]
            rules[item] += 1
        else:
            proxies.add(item)
    drop(todo.last)
    return Seen(routes, +rules, proxies)


def test_what_an_address_needs() -> None:
    assert plan(FOUR, UP, POD, ["10.2.0.0/24"]) == Plan(
        HostRoute("10.2.0.100/32", MAIN, POD),
        (
            HostRoute("0.0.0.0/0", 20007, kind=UNREACHABLE, metric=LAST_RESORT),
            HostRoute("10.2.0.1/32", 20007, UP),
            HostRoute("0.0.0.0/0", 20007, UP, "10.2.0.1"),
        ),
        (HostRule(TO_POD, "10.2.0.100", MAIN), HostRule(FROM_POD, "10.2.0.100", 20007)),
        (Proxy("10.2.0.100", UP),),
    )
    six = plan(SIX, UP, POD)
    assert six.uplink[2] == HostRoute("::/0", 20007, UP, "fd00:2::1", metric=1024) and six.proxies == ()


def test_a_link_local_gateway_is_on_its_device_anyway() -> None:
    routes = plan(Way("fd00:2::100", "eth2", "fe80::9"), UP, POD).uplink
    assert [item.gateway for item in routes] == ["", "fe80::9"] and routes[1].device == UP


def test_without_a_gateway_the_last_resort_still_is_there() -> None:
    first, second = plan(Way("10.2.0.100", "eth2"), UP, POD).uplink
    assert first.kind == UNREACHABLE and (second.device, second.gateway) == (UP, "")


def test_only_neighbours_of_the_address_are_answered() -> None:
    networks = ["10.3.0.0/16", "fd00:2::/64"]
    assert plan(FOUR, UP, POD, networks).proxies == () and plan(SIX, UP, POD, networks).proxies == (
        Proxy(SIX.address, UP),
    )


ADDRESSES = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)).map(str)
INDICES = st.integers(1, 1 << 20)


@given(ADDRESSES, INDICES, INDICES)
def test_rules_of_a_plan_are_ours_and_of_one_address(address: str, uplink: int, pod: int) -> None:
    wanted = plan(Way(address, "eth1"), uplink, pod)
    assert all(is_ours(rule) and rule.address == address for rule in wanted.rules)
    assert wanted.rules[0].priority < wanted.rules[1].priority, "a pod of the node is found before a way out is taken"
    assert table_of(uplink) > 255
    last = wanted.uplink[0]
    assert last.kind == UNREACHABLE and all(item.metric < last.metric for item in wanted.uplink[1:])


@pytest.mark.parametrize(
    "rule",
    [HostRule(2110, "10.0.0.1", MAIN), HostRule(2010, "10.0.0.1", 20007), HostRule(2110, "10.0.0.1", 20000),
     HostRule(2110, "10.0.0.1", 100), HostRule(2111, "10.0.0.1", 20007), HostRule(2110, "10.0.0.1", (1 << 32) - 1)],
)  # fmt: skip
def test_rules_of_others(rule: HostRule) -> None:
    assert not is_ours(rule)


@st.composite
def messes(draw: st.DrawFn) -> Seen:
    """What there may be of ours before: older attachments of the same addresses, old tables, doubles, bits."""
    ways = st.sampled_from([FOUR, SIX, Way("10.2.0.100", "eth1", "10.1.0.1"), Way("fd00:2::100", "eth1", "fd00:1::1")])
    seen = Seen()
    for way in draw(st.lists(ways, max_size=4)):
        uplink, pod = draw(st.sampled_from([5, 6, UP])), draw(st.sampled_from([POD, OTHER_POD]))
        older = plan(way, uplink, pod, ["10.2.0.0/24"])
        metrics = {(item.destination, item.table, item.metric) for item in seen.routes}
        kept = draw(st.lists(st.sampled_from([*older.routes]), unique=True))
        seen.routes |= {item for item in kept if (item.destination, item.table, item.metric) not in metrics}
        seen.rules.update(draw(st.lists(st.sampled_from(older.rules), max_size=3)))
        seen.proxies |= set(older.proxies)
    return seen


@given(messes(), st.sampled_from([FOUR, SIX]))
def test_whatever_there_was_an_address_has_what_it_needs_and_nothing_else(seen: Seen, way: Way) -> None:
    wanted = plan(way, UP, POD, ["10.2.0.0/24"])
    after = apply(seen, wanted)
    assert {rule for rule in after.rules.elements() if rule.address == way.address} == set(wanted.rules)
    assert all(count == 1 for rule, count in after.rules.items() if rule.address == way.address)
    assert {item for item in after.routes if item.destination == wanted.to_pod.destination} == {wanted.to_pod}
    mine = {item for item in after.routes if item.table == table_of(UP) and item.family == way.family}
    assert mine == set(wanted.uplink)
    assert {item for item in after.proxies if item.address == way.address} == set(wanted.proxies)
    assert after.has(wanted)
    again = change(wanted, after, is_pods)
    assert (again.first, again.new, again.last) == ((), (), ()), "a second time nothing is to be done"
    # What is about other addresses is as it was.
    assert [rule for rule in after.rules.elements() if rule.address != way.address] == [
        rule for rule in seen.rules.elements() if rule.address != way.address
    ]


def test_a_quick_look_finds_whatever_is_missing_or_too_much() -> None:
    wanted = plan(FOUR, UP, POD, ["10.2.0.0/24"])

    def all_of_it() -> Seen:
        return Seen(set(wanted.routes), Counter(wanted.rules), set(wanted.proxies))

    assert all_of_it().has(wanted)
    for route in wanted.routes:
        seen = all_of_it()
        seen.routes.discard(route)
        assert not seen.has(wanted)
    for rule in (*wanted.rules, HostRule(FROM_POD, FOUR.address, table_of(5))):
        seen = all_of_it()
        seen.rules[rule] += 1
        assert not seen.has(wanted)
    assert not Seen(set(wanted.routes), Counter(wanted.rules)).has(wanted)


def test_a_rule_to_another_table_goes_after_the_new_one_is_there() -> None:
    """In between the older one counts, whose table leads nowhere; without any the main table would."""
    before = Seen(rules=Counter(plan(FOUR, 5, POD).rules))
    todo = change(plan(FOUR, UP, POD), before, is_pods)
    old = HostRule(FROM_POD, FOUR.address, table_of(5))
    assert old in todo.last and HostRule(FROM_POD, FOUR.address, table_of(UP)) in todo.new


def test_a_host_route_of_somebody_else_is_not_taken_away() -> None:
    foreign = HostRoute("10.2.0.100/32", MAIN, 3)
    todo = change(plan(FOUR, UP, POD), Seen(routes={foreign}), is_pods)
    assert foreign not in (*todo.first, *todo.last)


def test_another_gateway_while_others_leave_by_the_uplink() -> None:
    first = plan(Way("10.2.0.9", "eth2", "10.2.0.1"), UP, OTHER_POD)
    seen = Seen(set(first.routes), Counter(first.rules))
    second = plan(Way("10.2.0.100", "eth2", "10.2.0.2"), UP, POD)
    with pytest.raises(
        ConfigError, match=r"10\.2\.0\.2 is given, but other pods leave by the same uplink and 10\.2\.0\.1"
    ):
        change(second, seen, is_pods)
    seen.rules.clear()
    assert apply(seen, second).routes >= set(second.routes)


def test_tables_that_no_rule_names() -> None:
    mine, theirs = plan(FOUR, UP, POD), plan(SIX, UP, POD)
    seen = Seen({*mine.routes, *theirs.routes}, Counter(theirs.rules))
    assert set(seen.unused({(4, table_of(UP)), (6, table_of(UP))})) == set(mine.uplink)
    assert seen.unused({(4, 5)}) == [] and seen.unused({(4, MAIN)}) == []


# Which uplink is meant


HOST, POD_END = Interface("eth1"), Interface("eth0", sandbox="/run/netns/p1")


@pytest.mark.parametrize(
    ("interfaces", "indices", "names"),
    [
        ((HOST,), (None,), ["eth1"]),
        ((POD_END, HOST, Interface("eth2")), (None,), ["eth1"]),
        ((POD_END, HOST, Interface("eth2")), (2, 1), ["eth2", "eth1"]),
        ((POD_END, HOST), (0,), ["eth1"]),
        ((HOST, HOST), (), ["eth1"]),
    ],
)
def test_the_interface_that_an_address_names_or_the_first_of_the_host(
    interfaces: tuple[Interface, ...], indices: tuple[int | None, ...], names: list[str]
) -> None:
    result = Result(interfaces, tuple(Address("10.0.0.1/24", "", index) for index in indices))
    assert [item.name for item in uplinks.hints(result, "odd")] == names


@pytest.mark.parametrize(
    ("interfaces", "index", "words"),
    [((), None, "named no interface"), ((POD_END,), 0, "named no interface")],
)
def test_hints_that_are_none(interfaces: tuple[Interface, ...], index: int | None, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        uplinks.hints(Result(interfaces, (Address("10.0.0.1/24", "", index),)), "odd")
    assert caught.value.code == 7 and caught.value.hint


def test_an_index_of_nothing_is_no_hint() -> None:
    document = {"interfaces": [{"name": "eth1"}], "ips": [{"interface": 0}, {}, {"interface": 1}]}
    with pytest.raises(ConfigError, match=r"ips\[2\] of odd names interface 1, of 1") as caught:
        uplinks.refuse_lost_indices(document, "odd")
    assert caught.value.code == 7 and caught.value.hint
    uplinks.refuse_lost_indices({"ips": [{}]}, "odd")


def test_one_bridge() -> None:
    on, two, off = Home("br-a", "br-a"), Home("br-b", "br-b"), Home("eth3")
    assert uplinks.one_bridge({"eth1": on}, None) == uplinks.one_bridge({"eth1": on}, "br-a") == "br-a"
    for homes, given_bridge, words in (
        ({"eth1": on, "eth2": two}, None, "several bridges: br-a, br-b"), ({"eth3": off}, None, "eth3 is on no bridge"),
        ({"eth1": on}, "br-b", "bridge: br-b is given, but the uplink eth1 is on br-a"),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=words):
            uplinks.one_bridge(homes, given_bridge)


# What is asked for


def wish_of(keys: dict[str, Any], strict: bool = True) -> routed_wish.Wish:
    """What the plugin reads, from the bytes of a call on."""
    table = {"cniVersion": "1.0.0", "name": "a", "type": "podnet-routed", "ipam": {"type": "static"}, **keys}
    stdin = json.dumps({key: value for key, value in table.items() if value is not None}).encode()
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": "/p"}
    return routed_wish.parse_wish(parse_netconf(decode(stdin), stdin), parse_request(env), strict)


def test_a_wish() -> None:
    assert wish_of({"uplink": "eth1"}) == routed_wish.Wish("eth1", False, False, None, None)
    all_keys = {"uplink": "eth1", "uplinkFromIPAM": True, "onLink": True, "mtu": 9000, "mac": "02-00-5E-00-00-01"}
    assert wish_of(all_keys) == routed_wish.Wish("eth1", True, True, 9000, "02:00:5e:00:00:01")
    assert wish_of({"uplink": "eth1", "vlan": 5}, strict=False).uplink == "eth1"


@pytest.mark.parametrize(
    ("keys", "code", "key"),
    [
        ({}, 7, "uplink"), ({"uplink": ""}, 7, "uplink"), ({"uplink": "a/b"}, 7, "uplink"),
        ({"uplink": "eth1", "ipam": None}, 7, "ipam"), ({"uplinkFromIPAM": "true"}, 7, "uplinkFromIPAM"),
        ({"uplink": "eth1", "bridge": "br-a"}, 2, "bridge"), ({"uplink": "eth1", "onlink": True}, 2, "onlink"),
        ({"uplink": "eth1", "runtimeConfig": {"portMappings": [{}]}}, 7, "runtimeConfig.portMappings"),
        ({"uplink": "eth1", "runtimeConfig": {"ips": ["x"]}}, 7, "runtimeConfig.ips[0]"),
    ],
)  # fmt: skip
def test_bad_wishes(keys: dict[str, Any], code: int, key: str) -> None:
    with pytest.raises(PodnetError) as caught:
        wish_of(keys)
    assert caught.value.code == code and caught.value.message.startswith(f"{key}: ") and caught.value.hint


WISH = wish_of({"uplink": "eth1"})


@pytest.mark.parametrize(
    ("addresses", "routes", "words"),
    [
        ((), (), "gave no address"),
        ((("10.0.0.5/24", ""),), (), "no gateway for 10.0.0.5"),
        ((("10.0.0.5/24", "10.0.0.5"),), (), "the gateway 10.0.0.5"),
        ((("10.0.0.5/24", "fd00::1"),), (), "the gateway fd00::1"),
        ((("10.0.0.5/24", "10.0.0.1/24"),), (), "is given as a gateway"),
        ((("10.0.0.5/24", "10.0.0.1"), ("10.0.0.5/16", "10.0.0.1")), (), "10.0.0.5 twice"),
        ((("127.0.0.5/8", "127.0.0.1"),), (), "cannot be routed"),
        ((("fe80::5/64", "fe80::1"),), (), "cannot be routed"),
        ((("10.0.0.5/24", "10.0.0.1"),), (("10.9.0.0/16", "10.0.0.9"),), "the gateway 10.0.0.9, which no address has"),
        ((("10.0.0.5/24", "10.0.0.1"),), (("::/0", ""),), "without an address of its family"),
    ],
)
def test_addresses_and_routes_that_cannot_be_had(
    addresses: tuple[tuple[str, str], ...], routes: tuple[tuple[str, str], ...], words: str
) -> None:
    result = Result((), tuple(Address(*item) for item in addresses), tuple(Route(*item) for item in routes))
    with pytest.raises(ConfigError, match=words) as caught:
        routed_wish.refuse_useless(result, WISH, "odd")
    assert caught.value.code == 7 and caught.value.hint


def test_what_the_pod_has() -> None:
    given_result = Result(
        (), (Address("10.0.0.5/24", "10.0.0.1", 3), Address("fd00::5/64", "fe80::1%eth1")),
        (Route("192.0.2.0/24", "10.0.0.1", {"mtu": 1400}),),
    )  # fmt: skip
    routed_wish.refuse_useless(given_result, WISH, "odd")
    have = routed_wish.in_pod(given_result)
    assert [item.address for item in have.addresses] == ["10.0.0.5/32", "fd00::5/128"]
    assert [item.interface for item in have.addresses] == [None, None]
    assert [(item.destination, item.gateway, item.mtu) for item in routed_wish.pod_routes(have)] == [
        ("192.0.2.0/24", "169.254.1.1", 1400), ("::/0", "fe80::1", 0),
    ]  # fmt: skip
    assert routed_wish.ways(given_result, [Home("eth1"), Home("br-a", "br-a")]) == (
        Way("10.0.0.5", "eth1", "10.0.0.1"), Way("fd00::5", "br-a", "fe80::1"),
    )  # fmt: skip


def test_layer_3_attachments_are_closed_unless_a_rule_opens_them() -> None:
    bridges = [{"name": "br-a"}, {"name": "br-b"}]
    node = Node.parse({
        "bridges": bridges,
        "networks": [{"name": "n", "bridge": "br-b", "vlan": 5}],
        "policy": [
            {"bridge": "br-a", "routed": True, "namespaces": ["blue"]}, {"interface": "eth1", "routed": True},
            {"interface": "eth2", "vlans": "5"}, {"bridge": "br-b", "vlans": "1-4094", "untagged": True},
        ],
    })  # fmt: skip
    for home, namespace, is_open in (
        (Home("br-a", "br-a"), "blue", True), (Home("br-a", "br-a"), "green", False), (Home("eth1"), "", True),
        (Home("eth2"), "blue", False), (Home("br-b", "br-b"), "blue", False), (Home("v5", "br-a"), "blue", True),
    ):  # fmt: skip
        request = Request("ADD", "c1", args={"K8S_POD_NAMESPACE": namespace})
        if is_open:
            routed_wish.refuse_closed(home, request, node)
            continue
        with pytest.raises(PolicyError) as caught:
            routed_wish.refuse_closed(home, request, node)
        assert caught.value.code == 7 and f"{home.name}, routed: true" in caught.value.hint
    assert Node.from_json(node.to_json()) == node


# Records


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FOLDER", str(tmp_path / "routed"))


def test_records() -> None:
    record = Record("c1", "eth0", "n", (FOUR, SIX))
    assert (records.stamp(), records.load(record.host), records.load_all()) == (0, None, [])
    records.write(record)
    assert records.load(record.host) == record and records.load_all() == [record] and records.any_there()
    first = records.stamp()
    records.write(Record("c2", "eth0", "n", ()))
    assert records.stamp() > first > 0
    records.forget(record.host)
    records.forget(record.host)
    assert [item.container_id for item in records.load_all()] == ["c2"]


WITHOUT_ADDRESS = {"schema": 1, "container_id": "c", "ifname": "i", "network": "n",
                   "ways": [{"address": "x", "uplink": "", "gateway": ""}]}  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema": 2}', json.dumps(WITHOUT_ADDRESS)])
def test_a_damaged_record_is_as_good_as_none(text: str) -> None:
    record = Record("c1", "eth0", "n", (FOUR,))
    records.write(record)
    Path(records.FOLDER, record.host).write_text(text, encoding="utf-8")
    assert records.load(record.host) is None and records.load_all() == []
