# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Results of several plugins as one."""

from __future__ import annotations

import ipaddress
from dataclasses import replace

import pytest
from hypothesis import given

from ansible_collections.podnet.ovs.plugins.module_utils.cni.merge import Part, merge
from ansible_collections.podnet.ovs.plugins.module_utils.cni.result import (
    Address,
    Interface,
    Result,
    Route,
    parse_result,
    render,
)
from ansible_collections.podnet.ovs.plugins.module_utils.cni.versions import NEWEST, SUPPORTED
from ansible_collections.podnet.ovs.tests.unit.strategies import SANDBOX, parts

HERE, NODE = SANDBOX, ""
PRIMARY = Part(
    Result(
        (Interface("pn0"), Interface("eth0", "02:00:00:00:00:01", HERE)),
        (Address("10.0.0.2/24", "10.0.0.1", 1), Address("fd00::2/64", "", 1)),
        (Route("0.0.0.0/0"), Route("::/0", "fd00::1")),
        {"nameservers": ["10.0.0.53"]},
    ),
    "eth0",
    HERE,
)


def key(item: Interface) -> tuple[str, str]:
    return item.name, item.sandbox


def pointed(address: Address, part: Part) -> tuple[str, str] | None:
    """The interface of an address as its plugin said it: what it points to, or its own if it gave none at all."""
    there = part.result.interfaces
    if not there:
        return part.ifname, part.sandbox
    if address.interface is None or not 0 <= address.interface < len(there):
        return None
    return key(there[address.interface])


def said(given: list[Part]) -> list[tuple[object, tuple[str, str] | None]]:
    """All addresses, each with its interface, in the order of the plugins."""
    return [(ipaddress.ip_interface(a.address), pointed(a, part)) for part in given for a in part.result.addresses]


def found(result: Result) -> list[tuple[object, tuple[str, str] | None]]:
    """The same of a result."""
    return [
        (ipaddress.ip_interface(a.address), None if a.interface is None else key(result.interfaces[a.interface]))
        for a in result.addresses
    ]


def is_all(route: Route) -> bool:
    return route.destination.endswith("/0")


@given(parts())
def test_each_address_is_where_it_was(given: list[Part]) -> None:
    """Its index is in range, and of the interface that its plugin meant; nothing is lost, nothing made up."""
    whole = merge(given[0], given[1:])
    assert all(item.interface is None or item.interface in range(len(whole.interfaces)) for item in whole.addresses)
    assert set(found(whole)) == set(said(given))
    known = [there for there in found(whole) if there[1] is not None]
    assert len(known) == len(set(known)), "the same address on the same interface is there twice"
    absent = [there for there in said(given) if there[1] is None]
    assert len(found(whole)) - len(known) == len(absent), "an address of no known interface is not another one"


@given(parts())
def test_the_primary_comes_first_and_its_own_interface_before_all(given: list[Part]) -> None:
    whole = found(merge(given[0], given[1:]))
    primary = list(dict.fromkeys(there for there in said(given[:1])))
    own = [there for there in primary if there[1] == ("eth0", HERE)]
    assert list(dict.fromkeys(whole))[: len(primary)] == own + [there for there in primary if there not in own]


@given(parts())
def test_the_order_of_the_plugins_is_kept(given: list[Part]) -> None:
    whole = merge(given[0], given[1:])
    links = [key(i) for part in given for i in part.result.interfaces or synthesised(part)]
    assert [key(item) for item in whole.interfaces] == list(dict.fromkeys(links))
    rest = [there for there in said(given[1:]) if there not in said(given[:1])]
    behind = [there for there in found(whole) if there not in said(given[:1])]
    assert list(dict.fromkeys(behind)) == list(dict.fromkeys(rest))


def synthesised(part: Part) -> tuple[Interface, ...]:
    return (Interface(part.ifname, "", part.sandbox),) if part.result.addresses else ()


@given(parts())
def test_routes_are_kept_in_order_but_for_other_default_routes(given: list[Part]) -> None:
    def way(route: Route) -> tuple[object, ...]:
        gateway = route.gateway and ipaddress.ip_address(route.gateway)
        return ipaddress.ip_network(route.destination, strict=False), gateway, sorted(route.extra.items())

    wanted: list[tuple[object, ...]] = []
    for number, part in enumerate(given):
        for route in part.result.routes:
            if (number == 0 or not is_all(route)) and way(route) not in wanted:
                wanted.append(way(route))
    assert [way(route) for route in merge(given[0], given[1:]).routes] == wanted


@given(parts())
def test_merging_in_two_steps_is_merging_at_once(given: list[Part]) -> None:
    for cut in range(1, len(given) + 1):
        first = replace(given[0], result=merge(given[0], given[1:cut]))
        assert merge(first, given[cut:]) == merge(given[0], given[1:])


@given(parts())
def test_merging_one_is_identity(given: list[Part]) -> None:
    """Of what is as a plugin should say it; and always of what has been merged."""
    once = merge(given[0], [])
    assert merge(replace(given[0], result=once), []) == once
    result = given[0].result
    well = result.interfaces and len(set(map(key, result.interfaces))) == len(result.interfaces)
    own_first = sorted(found(result), key=lambda there: there[1] != ("eth0", HERE)) == found(result)
    each_once = len(set(found(result))) == len(result.addresses) and len(once.routes) == len(result.routes)
    if well and own_first and each_once:
        assert once == result


@given(parts())
def test_a_vendors_keys_and_all_that_is_said_of_an_interface_are_kept(given: list[Part]) -> None:
    whole = merge(given[0], given[1:])
    for item in whole.interfaces:
        same = [i for part in given for i in part.result.interfaces if key(i) == key(item)]
        assert item.mac == next((i.mac for i in same if i.mac), "")
        assert item.mtu == next((i.mtu for i in same if i.mtu is not None), None)
        extra = {name: value for i in reversed(same) for name, value in i.extra.items()}
        assert item.extra == extra
    assert whole.foreign == {k: v for part in reversed(given) for k, v in part.result.foreign.items()}
    for address in whole.addresses:
        vendors = {k for part in given for a in part.result.addresses for k in a.foreign}
        assert set(address.foreign) <= vendors
    kept = {k for a in whole.addresses for k in a.foreign}
    assert kept == {k for part in given for a in part.result.addresses for k in a.foreign}


@given(parts())
def test_what_is_merged_can_be_written_and_read(given: list[Part]) -> None:
    whole = merge(given[0], given[1:])
    assert parse_result(render(whole, NEWEST)) == whole
    for version in SUPPORTED[1:]:
        assert found(parse_result(render(whole, version))) == found(whole)


# Each rule once, in a case that can be read


def test_a_bridge_of_the_node_is_there_once_and_each_says_of_it_what_it_knows() -> None:
    one = Part(Result((Interface("br", extra={"vendor": 1}), Interface("net1", "", HERE))), "net1", HERE)
    two = Part(Result((Interface("br", "02:00:00:00:00:0b", mtu=1400, extra={"vendor": 2, "x": 3}),)), "net2", HERE)
    whole = merge(PRIMARY, [one, two])
    assert [item.name for item in whole.interfaces] == ["pn0", "eth0", "br", "net1"]
    assert whole.interfaces[2] == Interface("br", "02:00:00:00:00:0b", "", 1400, {"vendor": 1, "x": 3})


def test_equal_names_in_the_pod_and_on_the_node_are_two() -> None:
    other = Part(Result((Interface("eth0", "", NODE),), (Address("10.1.0.1/24", "", 0),)), "net1", HERE)
    whole = merge(PRIMARY, [other])
    assert [key(item) for item in whole.interfaces] == [("pn0", NODE), ("eth0", HERE), ("eth0", NODE)]
    assert whole.addresses[2].interface == 2


@pytest.mark.parametrize("index", [None, 0, 7])
def test_addresses_without_an_interface_are_of_the_one_that_was_asked_for(index: int | None) -> None:
    other = Part(Result((), (Address("10.1.0.2/24", "", index), Address("fd01::2/64", "", index))), "net1", HERE)
    whole = merge(PRIMARY, [other])
    assert whole.interfaces[2:] == (Interface("net1", "", HERE),)
    assert [item.interface for item in whole.addresses] == [1, 1, 2, 2]


@pytest.mark.parametrize("index", [None, 1, -1])
def test_an_absent_index_stays_absent(index: int | None) -> None:
    other = Part(Result((Interface("net1", "", HERE),), (Address("10.1.0.2/24", "", index),)), "net1", HERE)
    assert merge(PRIMARY, [other]).addresses[2].interface is None


def test_the_pods_address_comes_before_what_else_the_primary_has() -> None:
    """containerd takes the first one of CNI_IFNAME, and the interface of a sub-VLAN may come first."""
    primary = Part(
        Result(
            (Interface("eth0", "", NODE), Interface("eth0.5", "", HERE), Interface("eth0", "", HERE)),
            (Address("10.5.0.2/24", "", 1), Address("10.9.0.1/24", "", 0), Address("10.0.0.2/24", "", 2)),
        ),
        "eth0",
        HERE,
    )
    assert [item.address for item in merge(primary, []).addresses] == ["10.0.0.2/24", "10.5.0.2/24", "10.9.0.1/24"]


def test_a_plugin_without_addresses_and_one_without_anything() -> None:
    layer2 = Part(Result((Interface("net1", "", HERE),)), "net1", HERE)
    nothing = Part(Result(), "net2", HERE)
    whole = merge(PRIMARY, [nothing, layer2])
    assert whole.interfaces == (*PRIMARY.result.interfaces, *layer2.result.interfaces)
    assert whole.addresses == PRIMARY.result.addresses


@pytest.mark.parametrize("destination", ["0.0.0.0/0", "10.0.0.0/0", "::/0", "0:0::0/0", "fd00::/0"])
def test_a_default_route_of_another_is_left_out(destination: str) -> None:
    other = Part(Result((), (), (Route(destination, ""), Route("10.9.0.0/16"))), "net1", HERE)
    assert [item.destination for item in merge(PRIMARY, [other]).routes] == ["0.0.0.0/0", "::/0", "10.9.0.0/16"]
    alone = Part(replace(PRIMARY.result, routes=()), "eth0", HERE)
    assert [item.destination for item in merge(alone, [other]).routes] == ["10.9.0.0/16"]


def test_the_dns_of_the_first_that_has_one() -> None:
    none = Part(replace(PRIMARY.result, dns={"nameservers": []}), "eth0", HERE)
    empty, some = Part(Result(), "net1", HERE), Part(Result(dns={"domain": "d"}), "net2", HERE)
    assert merge(PRIMARY, [some]).dns == PRIMARY.result.dns
    assert merge(none, [empty, some]).dns == {"domain": "d"}
    assert merge(none, [empty]).dns == {"nameservers": []}
