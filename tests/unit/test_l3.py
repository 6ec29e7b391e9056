# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer-3 state as values, and the messages that move it, in their order. No kernel."""

from __future__ import annotations

import ipaddress
import json
import socket
import struct
from dataclasses import replace
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import DecodeError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel import l3_item as item, l3_route as route
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.l3_plan import Work, moving, staging
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.l3_read import Seen, taken_from
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.l3_wire import (
    APPEND,
    DELADDR,
    DELROUTE,
    NEWADDR,
    NEWROUTE,
    REPLACE,
    attributes,
    pack,
    u32,
)
from ansible_collections.podnet.ovs.plugins.module_utils.model.l3 import L3, Moment, left

ETH0, BR, ETH1 = 2, 3, 4
THEN = Moment("boot", 100.0, 1000.0)


def link(name: str, index: int, lower: int = 0) -> item.LinkSeen:
    """A link that is up."""
    vni = 5 if lower else 0
    return item.LinkSeen(name, index, True, "52:54:00:00:00:01", 1500, 0, "", lower, vni)


def route_message(to: str, index: int, via: str = "", metric: int = 0, protocol: int = 4, more: Any = ()) -> bytes:
    """A route of the main table as the kernel shows it."""
    network = ipaddress.ip_network(to)
    family = socket.AF_INET if network.version == 4 else socket.AF_INET6
    attrs = [(route.TABLE, u32(254)), (route.DST, network.network_address.packed), (route.OIF, u32(index))]
    attrs += [(route.GATEWAY, ipaddress.ip_address(via).packed)] if via else []
    attrs += [(route.PRIORITY, u32(metric))] if metric else []
    scope = 0 if via or family == socket.AF_INET6 else route.LINK_SCOPE
    head = route.HEADER.pack(family, network.prefixlen, 0, 0, 254, protocol, scope, route.UNICAST, 0)
    return head + pack([*attrs, *more])


def address_message(cidr: str, index: int, flags: int = item.PERMANENT, valid: int = item.FOREVER) -> bytes:
    """An address as the kernel shows it."""
    host = ipaddress.ip_interface(cidr)
    family = socket.AF_INET if host.version == 4 else socket.AF_INET6
    own = [(item.IFA_LOCAL, host.ip.packed), (item.IFA_LABEL, b"eth0:1\0")] if host.version == 4 else []
    attrs = [(item.IFA_ADDRESS, host.ip.packed), *own, (item.IFA_FLAGS, u32(flags))]
    attrs.append((item.IFA_CACHEINFO, struct.pack("=IIII", valid, valid, 7, 7)))
    return item.IFADDRMSG.pack(family, host.network.prefixlen, flags & 0xFF, 0, index) + pack(attrs)


def seen(addresses: list[bytes], routes: list[bytes]) -> Seen:
    """A node with three devices."""
    links = {"eth0": link("eth0", ETH0), "br-x": link("br-x", BR), "eth1": link("eth1", ETH1)}
    return Seen(links, addresses, routes, [], [], [])


ADDRESSES = [
    address_message("10.0.0.5/24", ETH0),
    address_message("10.0.0.6/24", ETH0, item.PERMANENT | item.SECONDARY),
    address_message("2001:db8::5/64", ETH0),
    address_message("fe80::5/64", ETH0),
]
ROUTES = [
    route_message("0.0.0.0/0", ETH0, "10.0.0.1"),
    route_message("10.9.0.0/16", ETH0),
    route_message("10.0.0.0/24", ETH0, protocol=2, more=[(route.PREFSRC, ipaddress.ip_address("10.0.0.5").packed)]),
    route_message("fe80::/64", ETH1, metric=256, protocol=2),
    route_message("fe80::/64", ETH0, metric=256, protocol=2),
    route_message("2001:db8::/64", ETH0, metric=256, protocol=2),
]


@pytest.fixture
def before() -> Seen:
    """A NIC with addresses and routes, and a bare bridge."""
    return seen(ADDRESSES, ROUTES)


def taken(state: Seen) -> L3:
    """A snapshot of its NIC at a known moment."""
    return replace(taken_from(state, "eth0"), taken=THEN, sysctls={"ipv4/conf/%s/rp_filter": "1"})


def test_a_snapshot_is_the_same_after_json(before: Seen) -> None:
    l3 = taken(before)
    assert L3.from_dict(json.loads(json.dumps(l3.to_dict()))) == l3
    assert [address.cidr for address in l3.addresses] == ["10.0.0.5/24", "10.0.0.6/24", "2001:db8::5/64", "fe80::5/64"]
    assert [address.link_local for address in l3.addresses] == [False, False, False, True]
    assert l3.routes[0].text == "default via 10.0.0.1" and l3.routes[0].gateway == "10.0.0.1"


@pytest.mark.parametrize("damage", [None, [], {"schema": 2}, {"schema": 1}, {"schema": 1, "addresses": [7]}])
def test_what_is_no_snapshot_is_an_error(damage: Any) -> None:
    with pytest.raises(DecodeError, match="snapshot"):
        L3.from_dict(damage)


def test_keys_of_a_later_release_are_passed_over(before: Seen) -> None:
    l3 = taken(before)
    assert L3.from_dict({**l3.to_dict(), "colour": "blue"}) == l3


def test_lifetimes_count_down_and_can_be_made_to_last() -> None:
    assert [left(None, 50), left(100, 30.4), left(100, 200)] == [None, 70, 0]
    assert Moment("boot", 160.0, 5000.0).seconds_since(THEN) == 60
    assert Moment("next", 5.0, 1700.0).seconds_since(THEN) == 700
    limited = taken(seen([address_message("10.0.0.5/24", ETH0, 0, valid=100)], []))
    late = Moment("next", 5.0, 100000.0)
    (address,) = limited.lasting(600, late).addresses
    assert left(address.valid, late.seconds_since(THEN)) == 600
    assert limited.addresses[0].dynamic and limited.addresses[0].valid == 100


def test_settings_are_those_of_the_device_that_it_returns_to(before: Seen) -> None:
    l3 = taken(before)
    back = replace(l3, device="br-x", sysctls={}, token="::1").configured_as(l3)
    assert (back.sysctls, back.token, back.settings_of) == (l3.sysctls, "", "eth0")


@pytest.mark.parametrize(
    "label, moved", [("eth0", "br-x"), ("eth0:1", "br-x:1"), ("other", "other"), ("eth0:much-more", "br-x:much-more")]
)
def test_labels_follow_the_device(label: str, moved: str) -> None:
    assert item.moved_label(label, "eth0", "br-x") == moved
    assert len(item.moved_label(label, "eth0", "a-long-bridge-1")) <= 15


def test_the_order_in_which_no_packet_is_lost(before: Seen) -> None:
    changes = moving(Work(taken(before), before, "eth0", "br-x", 0), keep=False)
    texts = [change.text for change in changes]
    assert texts == [
        "address 10.0.0.5/24",
        "address 10.0.0.6/24",
        "address fe80::5/64",
        "address 2001:db8::5/64",
        "route 10.0.0.0/24",
        "route fe80::/64 metric 256",
        "route 2001:db8::/64 metric 256",
        "route 10.9.0.0/16",
        "route default via 10.0.0.1",
        "old route fe80::/64 metric 256",
        "old address 10.0.0.6/24",
        "old address 10.0.0.5/24",
        "old address 2001:db8::5/64",
        "old address fe80::5/64",
        "flags of 2001:db8::5/64",
        "flags of fe80::5/64",
    ]
    flags = {change.text: change.flags for change in changes if change.kind == NEWROUTE}
    assert flags["route 10.0.0.0/24"] & REPLACE and flags["route default via 10.0.0.1"] & REPLACE
    assert flags["route fe80::/64 metric 256"] & APPEND and not flags["route fe80::/64 metric 256"] & REPLACE


def test_for_as_long_as_frames_arrive_the_source_keeps_its_addresses(before: Seen) -> None:
    changes = moving(Work(taken(before), before, "eth0", "br-x", 0), keep=True)
    assert not [change for change in changes if change.kind == DELADDR]
    assert not [change for change in changes if change.kind == DELROUTE and "fe80" in change.text]


def test_staging_brings_no_route_of_ipv6_and_no_detection(before: Seen) -> None:
    for change in staging(Work(taken(before), before, "eth0", "br-x", 0)):
        assert change.kind == NEWADDR
        wanted = item.NODAD | item.NOPREFIXROUTE
        assert item.address_device(change.body) == BR
        if change.body[0] == socket.AF_INET6:
            assert item.address_flags(change.body) & wanted == wanted
        else:
            assert not item.address_flags(change.body) & wanted


def test_when_all_is_done_nothing_is_to_do(before: Seen) -> None:
    l3 = taken(before)
    there = [item.IFADDRMSG.pack(*body[:4], BR) + body[item.IFADDRMSG.size :] for body in ADDRESSES]
    routes = [ROUTES[3]] + [route.with_devices(body, lambda _index: BR) for body in ROUTES if body != ROUTES[3]]
    assert moving(Work(l3, seen(there, routes), "eth0", "br-x", 0), keep=False) == []


def test_a_multipath_route_keeps_its_other_hops_and_every_attribute() -> None:
    def hop(index: int, weight: int, via: str) -> bytes:
        nested = pack([(route.GATEWAY, ipaddress.ip_address(via).packed)])
        return struct.pack("=HBBi", 8 + len(nested), 1 | 16, weight, index) + nested

    hops = hop(ETH0, 1, "10.0.0.1") + hop(ETH1, 2, "10.1.0.1")
    unknown = (99, b"what is this?")
    body = route_message("10.5.0.0/16", ETH0, more=[(route.MULTIPATH, hops), unknown])
    body = body[: route.HEADER.size] + pack(part for part in attributes(body, 12) if part[0] != route.OIF)
    moved = route.with_devices(body, {ETH0: BR, ETH1: ETH1}.__getitem__)
    assert route.devices(moved) == {BR, ETH1}
    assert unknown in attributes(moved, route.HEADER.size)
    assert route.identity(route.with_devices(moved, {BR: ETH0, ETH1: ETH1}.__getitem__)) == route.identity(body)
    assert route.identity(moved) != route.identity(body)


def test_an_ipv6_route_that_expires_says_so_again() -> None:
    info = struct.pack("=IIiIIIII", 0, 0, 90000, 0, 0, 0, 0, 0)
    body = route_message("2001:db8:a::/48", ETH0, "fe80::1", more=[(route.CACHEINFO, info)])
    assert route.expires(body) == 900
    again = dict(attributes(route.with_devices(body, route.same, 890), route.HEADER.size))
    assert again[route.EXPIRES] == u32(890) and route.CACHEINFO not in again
