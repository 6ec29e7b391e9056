# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of every version: read in one, written in another, and what is lost on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach.common import pod_routes
from ansible_collections.podnet.ovs.plugins.module_utils.cni.merge import lost
from ansible_collections.podnet.ovs.plugins.module_utils.cni.result import (
    Address,
    Interface,
    Result,
    Route,
    parse_result,
    render,
)
from ansible_collections.podnet.ovs.plugins.module_utils.cni.versions import NEWEST, SUPPORTED, at_least
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, DecodeError
from ansible_collections.podnet.ovs.tests.unit.strategies import results

PAIRS = list(product(SUPPORTED, SUPPORTED))
OLDEST = SUPPORTED[0]


def through(result: Result, version: str) -> Result:
    """What a reader has of the result that was written in a version."""
    return parse_result(json.loads(json.dumps(render(result, version))))


def carried(result: Result, version: str) -> Result:
    """What the tables of the specification have for a version, worked out another way than `render` does."""
    if version == NEWEST:
        return result
    newer = ("socketPath", "pciID")
    interfaces = tuple(
        replace(item, mtu=None, extra={key: item.extra[key] for key in item.extra if key not in newer})
        for item in result.interfaces
    )
    routes = tuple(replace(item, extra={}) for item in result.routes)
    if version != OLDEST:
        return replace(result, interfaces=interfaces, routes=routes)
    first = [[replace(a, interface=None) for a in result.addresses if a.family == family][:1] for family in (4, 6)]
    families = {item.family for item in result.addresses}
    ordered = [item for family in (4, 6) for item in routes if item.family == family and family in families]
    return Result((), (*first[0], *first[1]), tuple(ordered), result.dns, result.foreign)


def fits(result: Result, *versions: str) -> bool:
    """Without an address nothing can be written in the oldest version."""
    return bool(result.addresses) or OLDEST not in versions


@given(results())
def test_the_newest_version_loses_nothing(result: Result) -> None:
    assert through(result, NEWEST) == result
    assert lost(result, NEWEST) == []


@given(results())
def test_each_version_carries_what_the_specification_says(result: Result) -> None:
    for version in SUPPORTED:
        if fits(result, version):
            assert through(result, version) == carried(result, version)


@given(results())
def test_all_pairs_of_versions(result: Result) -> None:
    for first, last in PAIRS:
        if fits(result, first, last):
            assert through(through(result, first), last) == carried(carried(result, first), last), (first, last)


@given(results())
def test_up_and_down_again_loses_nothing_more(result: Result) -> None:
    for low, high in PAIRS:
        if at_least(high, low) and fits(result, low):
            there = through(result, low)
            assert through(through(there, high), low) == there, (low, high)
            assert lost(there, low) == lost(there, high) == []


@given(results())
def test_what_is_lost_is_named(result: Result) -> None:
    for version in SUPPORTED:
        missing = lost(result, version)
        kept = carried(result, version)
        if version == OLDEST:
            gone = len(result.interfaces) + len(result.addresses) - len(kept.addresses)
            gone += len(result.routes) - len(kept.routes)
            families = {item.family for item in kept.addresses}
            gone += sum(len(item.extra) for item in result.routes if item.family in families)
        else:
            links = list(zip(result.interfaces, kept.interfaces))
            gone = sum(len(a.extra) - len(b.extra) + (a.mtu != b.mtu) for a, b in links)
            gone += sum(len(a.extra) - len(b.extra) for a, b in zip(result.routes, kept.routes))
        assert len(missing) == gone
        assert not missing or all(any(word in said for said in missing) for word in names(result, kept))


def names(whole: Result, kept: Result) -> set[str]:
    """What the words must name, of interfaces, addresses and routes that are not carried whole."""
    hosts = {item.address for item in whole.addresses} - {item.address for item in kept.addresses}
    ways = {item.destination for item in whole.routes if item.extra}
    ways |= {item.destination for item in whole.routes} - {item.destination for item in kept.routes}
    links = {item.name for item in whole.interfaces if item not in kept.interfaces}
    return hosts | ways | links


def test_the_words_of_what_is_lost() -> None:
    result = Result(
        (Interface("eth0", mtu=1400, extra={"pciID": "0000:01:00.0", "vendor": 1}),),
        (Address("10.0.0.2/24"), Address("10.0.0.3/24")),
        (Route("10.9.0.0/16", "", {"priority": 5}), Route("fd09::/32")),
    )
    assert lost(result, "1.0.0") == [
        "mtu of interface eth0", "pciID of interface eth0", "priority of the route to 10.9.0.0/16"
    ]  # fmt: skip
    assert lost(result, "0.2.0") == [
        "interface eth0", "address 10.0.0.3/24", "the route to fd09::/32", "priority of the route to 10.9.0.0/16"
    ]  # fmt: skip


@given(results(), st.sampled_from(SUPPORTED))
def test_a_version_has_only_its_own_keys(result: Result, version: str) -> None:
    try:
        document = render(result, version)
    except ConfigError:
        assert version == OLDEST and not result.addresses
        return
    assert document["cniVersion"] == version
    vendors = {"vendor", "example.org/key"}
    if version == OLDEST:
        assert set(document) <= {"cniVersion", "ip4", "ip6", "dns"} | vendors
        return
    assert set(document) <= {"cniVersion", "interfaces", "ips", "routes", "dns"} | vendors
    assert all(("version" in item) == (not at_least(version, "1.0.0")) for item in document.get("ips", ()))
    if version != NEWEST:
        assert all(set(item) <= {"name", "mac", "sandbox"} | vendors for item in document.get("interfaces", ()))
        assert all(set(item) <= {"dst", "gw"} | vendors for item in document.get("routes", ()))


@given(results())
def test_keys_of_a_vendor_stay_on_every_level(result: Result) -> None:
    for version in SUPPORTED[1:]:
        kept = through(result, version)
        assert kept.foreign == result.foreign and kept.dns == result.dns
        assert [item.foreign for item in kept.addresses] == [item.foreign for item in result.addresses]
        assert [item.foreign for item in kept.routes] == [item.foreign for item in result.routes]


@given(results())
def test_routes_of_any_result_are_routes_of_the_kernel(result: Result) -> None:
    """A vendor's keys are no arguments of a route. One by a gateway of the other family is refused."""
    crossed = [item for item in result.routes if item.gateway and (":" in item.gateway) != (":" in item.destination)]
    try:
        assert len(pod_routes(result)) == len(result.routes) and not crossed
    except ConfigError as error:
        assert crossed and crossed[0].destination in error.message and crossed[0].gateway in error.message


def test_an_index_of_no_interface_counts_as_absent() -> None:
    """An interface that is added behind would else be what it points to."""
    addresses = [{"address": "10.0.0.2/24"}, *({"address": "10.0.0.3/24", "interface": index} for index in (-1, 1, 9))]
    result = parse_result({"interfaces": [{"name": "eth0"}], "ips": addresses, "vendor": 1})
    assert [item.interface for item in result.addresses] == [None] * 4
    longer = result.extended([Interface("net1")], [Address("10.0.0.4/24")])
    assert [item.interface for item in longer.addresses] == [None] * 4 + [1]
    assert longer.foreign == {"vendor": 1}


def test_what_is_null_is_absent() -> None:
    nothing = {"interfaces": None, "ips": None, "routes": None, "dns": None}
    assert parse_result(nothing) == Result()
    link = {"name": "eth0", "mac": None, "sandbox": None, "mtu": None}
    address = {"address": "10.0.0.2/24", "gateway": None, "interface": None}
    route = {"dst": "0.0.0.0/0", "gw": None, "mtu": None}
    result = parse_result({"interfaces": [link], "ips": [address], "routes": [route]})
    assert result == Result((Interface("eth0"),), (Address("10.0.0.2/24"),), (Route("0.0.0.0/0"),))


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ([], "result"),
        ("x", "result"),
        ({"ips": [{}]}, "ips[0].address"),
        ({"ips": [{"address": "x"}]}, "ips[0].address"),
        ({"ips": [{"address": "10.0.0.2"}]}, "ips[0].address"),
        ({"ips": [{"address": "10.0.0.2/255.255.255.0"}]}, "ips[0].address"),
        ({"ips": [{"address": "fe80::1%eth0/64"}]}, "ips[0].address"),
        ({"ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0"}]}, "ips[0].gateway"),
        ({"ips": [{"address": "10.0.0.2/24", "gateway": 1}]}, "ips[0].gateway"),
        ({"ips": [{"address": "10.0.0.2/24"}, {"address": "10.0.0.3/24", "interface": True}]}, "ips[1].interface"),
        ({"ips": {"address": "10.0.0.2/24"}}, "ips"),
        ({"ip4": {"gateway": "10.0.0.1"}}, "ip4.ip"),
        ({"ip6": "fd00::1/64"}, "ip6"),
        ({"routes": [{"dst": 1}]}, "routes[0].dst"),
        ({"routes": [{"dst": "default"}]}, "routes[0].dst"),
        ({"routes": [{"dst": "0.0.0.0/0", "gw": "x"}]}, "routes[0].gw"),
        ({"routes": [{"dst": "0.0.0.0/0", "mtu": "1400"}]}, "routes[0].mtu"),
        ({"routes": [{"dst": "0.0.0.0/0", "priority": 1 << 32}]}, "routes[0].priority"),
        ({"routes": [{"dst": "0.0.0.0/0", "table": -1}]}, "routes[0].table"),
        ({"routes": [{"dst": "0.0.0.0/0", "scope": 256}]}, "routes[0].scope"),
        ({"interfaces": [1]}, "interfaces[0]"),
        ({"interfaces": [{}]}, "interfaces[0].name"),
        ({"interfaces": [{"name": "eth0", "mtu": True}]}, "interfaces[0].mtu"),
        ({"interfaces": [{"name": "eth0", "sandbox": ["/run"]}]}, "interfaces[0].sandbox"),
        ({"dns": [["nameservers", []]]}, "dns"),
    ],
)
def test_what_is_no_result_is_code_6_and_names_the_key(document: Any, place: str) -> None:
    with pytest.raises(DecodeError) as caught:
        parse_result(document)
    assert caught.value.code == 6
    assert caught.value.message.startswith(place if place == "result" else f"result.{place}: ")
