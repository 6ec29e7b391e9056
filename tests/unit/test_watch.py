# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When the watcher has a node repaired, when rescued, and when it keeps still: over time, without a kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.kernel.news import Seen
from ansible_collections.podnet.ovs.plugins.module_utils.uplink import watch
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.watch import Course, Duty, Trouble, trouble_of

BAD, NO_LEASE, WELL = Trouble("there is no device br-x"), Trouble("", "br-x has no IPv4 address"), Trouble()
DUTY = Duty("br-x", "eth0", False, frozenset({4, 6}), frozenset())
BRIDGE = Seen(True, "ovs-system", frozenset({"192.0.2.1/24", "2001:db8::1/64", "fe80::1/64"}))
NIC = Seen(True, "ovs-system", frozenset())


def play(course: Course, until: int, trouble: Callable[[int], Trouble], coming: int = 0) -> list[tuple[int, str]]:
    """What is done at which second, looking every five seconds; systemd is busy for the first `coming`."""
    steps = [(now, course.step(float(now), trouble(now), now < coming)) for now in range(0, until, 5)]
    return [(now, todo) for now, todo in steps if todo]


def test_what_does_not_come_back_is_repaired_once_and_then_rescued() -> None:
    done = play(Course(settled=True), 26, lambda now: BAD)
    assert done == [(10, watch.REPAIR), (20, watch.RESCUE), (25, watch.RESCUE)]


def test_a_restart_that_is_over_in_time_is_left_alone() -> None:
    assert play(Course(settled=True), 120, lambda now: BAD if now < 10 else WELL) == []
    assert play(Course(settled=True), 120, lambda now: BAD if now % 40 < 10 else WELL) == [], "four restarts, all short"


def test_what_crashes_again_and_again_counts_as_gone() -> None:
    done = play(Course(settled=True), 40, lambda now: BAD if now % 10 == 0 else WELL)
    assert (20, watch.RESCUE) in done


def test_a_slow_boot_gets_more_time() -> None:
    assert play(Course(), 100, lambda now: BAD if now < 40 else WELL, coming=40) == []
    done = play(Course(), 60, lambda now: BAD, coming=100)
    assert done[0] == (45, watch.RESCUE), "nothing is repaired while systemd is at it"


def test_a_lease_that_ends_is_no_fault_of_the_bridge() -> None:
    assert play(Course(settled=True), 300, lambda now: NO_LEASE) == []
    done = play(Course(), 70, lambda now: NO_LEASE)
    assert done[-2:] == [(60, watch.RESCUE), (65, watch.RESCUE)], "but after a boot it may be"
    course = Course()
    assert play(course, 15, lambda now: WELL) == [] and course.settled
    assert course.step(20.0, BAD, False) == "" and not course.settled, "nor after the switch was away"


@pytest.mark.parametrize(
    ("bridge", "nic", "daemon", "words"),
    [
        (BRIDGE, NIC, True, ""),
        (None, NIC, True, "there is no device br-x"),
        (dataclasses.replace(BRIDGE, up=False), NIC, True, "br-x is down"),
        (BRIDGE, NIC, False, "ovs-vswitchd does not run"),
        (BRIDGE, None, True, "there is no device eth0"),
        (BRIDGE, dataclasses.replace(NIC, master=""), True, "eth0 is not in br-x"),
        (dataclasses.replace(BRIDGE, addresses=frozenset({"fe80::1/64"})), NIC, True, "no IPv4 and no IPv6 address"),
        (dataclasses.replace(BRIDGE, addresses=frozenset({"169.254.3.3/16", "2001:db8::1/64"})), NIC, True, "no IPv4"),
        (dataclasses.replace(BRIDGE, addresses=frozenset({"198.51.100.1/24", "2001:db8::1/64"})), NIC, True, ""),
    ],
)
def test_what_counts_as_trouble(bridge: Seen | None, nic: Seen | None, daemon: bool, words: str) -> None:
    found = trouble_of(DUTY, bridge, nic, daemon)
    assert not found.soft and (words in found.hard if words else not found.hard)


def test_addresses_of_dhcp_count_as_given_by_others() -> None:
    table = {
        "bridge": "br-x",
        "nic": "eth0",
        "request": {"bridge": {"datapath_type": "netdev"}},
        "l3": {
            "addresses": [
                {"cidr": "192.0.2.1/24", "dynamic": True},
                {"cidr": "2001:db8::1/64", "dynamic": False},
                {"cidr": "2001:db8::2/64", "dynamic": True},
                {"cidr": "fe80::1/64", "dynamic": False},
            ]
        },
    }
    duty = Duty.of(table)
    assert duty == Duty("br-x", "eth0", True, frozenset({6}), frozenset({4}))
    alone = dataclasses.replace(BRIDGE, addresses=frozenset({"2001:db8::1/64"}))
    assert trouble_of(duty, alone, dataclasses.replace(NIC, master=""), True) == Trouble("", "br-x has no IPv4 address")
