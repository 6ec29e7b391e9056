# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connections that follow the ports of pods, against the real database: of an agent, and of plugins on their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import OvsdbUnavailable
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_OVS, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.port import Bandwidth
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.fastpath import open_switch
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.jsonrpc import Connection
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.podport import PodPort
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.replica import Replica
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.shared import SharedSwitch
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SECONDS = 2.0


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with a bridge."""
    made = lab.light("n1", datapath=datapath)
    made.ovs.vsctl("add-br", "br0", "--", "set", "Bridge", "br0", f"datapath_type={datapath}")
    return made


@pytest.fixture
def endpoint(node: Light) -> str:
    """The node's database, as this process reaches it."""
    return f"unix:{node.host_path('/run/openvswitch/db.sock')}"


def port(number: int, bridge: str = "br0") -> PodPort:
    """A pod's port, without a link."""
    return PodPort(
        f"pn{number}", bridge, {"tag": 100, "vlan_mode": "access"}, Mark(OWNER_OVS, f"c{number}", "eth0", "n")
    )


def test_the_database_survives_those_who_follow_one_port_and_those_who_follow_all(node: Light, endpoint: str) -> None:
    """Each dies of it for itself; ovsdb-server of Open vSwitch 3.1.0 died of both, when a row changed after that."""
    before = node.ovs.pid("ovsdb-server")
    shared = SharedSwitch()
    for number in range(3):
        with ExitStack() as stack:
            first = stack.enter_context(open_switch(endpoint, SECONDS, f"pn{number}"))
            first.begin(port(number))
            first.inserted(port(number))
            with shared.open(endpoint, SECONDS) as switch:
                switch.begin(port(100 + number))
                switch.inserted(port(100 + number))
                last = stack.enter_context(open_switch(endpoint, SECONDS, f"pn{100 + number}"))
                assert switch.detach(f"pn{number}") and last.detach(f"pn{100 + number}")
        shared.close()
    assert node.ovs.pid("ovsdb-server") == before
    assert node.run("test", "-d", f"/proc/{before}", check=False).returncode == 0, "it died"


def test_a_port_takes_the_place_of_a_dead_one_of_its_name(node: Light, endpoint: str) -> None:
    """Whatever the order in which the server tells of the two: the new one is there, and not forgotten with the old."""
    shared = SharedSwitch()
    for _turn in range(20):
        with shared.open(endpoint, SECONDS) as switch:
            new = port(1)
            switch.begin(new)
            switch.inserted(new)
            found = switch.followed(new.name)
            assert found is not None and found.uuid == new.uuid
    with shared.open(endpoint, SECONDS) as switch:
        assert switch.detach("pn1")
    shared.close()


@pytest.mark.parametrize("order", ["deleted first", "inserted first"])
def test_two_rows_of_one_name_in_one_change(order: str) -> None:
    replica = Replica()
    marks = ["map", [["podnet_owner", OWNER_OVS], ["podnet_container_id", "c1"], ["podnet_ifname", "eth0"]]]
    row = {"name": "pn1", "external_ids": marks}
    replica.update({"Port": {"old": {"initial": row}}, "Interface": {"o": {"initial": {**row, "ofport": 5}}}})
    for table, old, new in (("Port", "old", "new"), ("Interface", "o", "n")):
        changes: dict[str, Mapping[str, Any]] = {old: {"delete": None}, new: {"insert": row}}
        replica.update({table: dict(sorted(changes.items(), reverse=order == "deleted first"))})
    assert replica.ports["pn1"].uuid == "new"
    assert replica.links["pn1"].ofport is None
    replica.update({"Port": {"new": {"delete": None}}, "Interface": {"n": {"delete": None}}})
    assert not replica.ports and not replica.links


def test_a_reply_that_nobody_asks_for_is_not_kept(node: Light, endpoint: str) -> None:
    """An ADD that is refused while its port is on its way does not look what the database said of it."""
    seen: list[Connection] = []
    shared = SharedSwitch()
    for number in range(5):
        with shared.open(endpoint, SECONDS) as switch:
            seen.append(vars(switch)["_connection"])
            switch.begin(port(number))
            switch.abandon(port(number))
    with shared.open(endpoint, SECONDS) as switch:
        for number in range(5):
            switch.detach(f"pn{number}")
    assert len(set(map(id, seen))) == 1
    kept = vars(seen[0])
    assert not kept["_replies"] and not kept["_forgotten"] and not kept["_waiters"]
    shared.close()


def test_who_waits_for_a_database_that_hangs_waits_no_longer_for_each_before_it(node: Light, endpoint: str) -> None:
    shared = SharedSwitch()
    took: list[float] = []

    def call(_number: int) -> None:
        began = time.monotonic()
        with pytest.raises(OvsdbUnavailable), shared.open(endpoint, 0.5):
            pass
        took.append(time.monotonic() - began)

    node.ovs.freeze("ovsdb-server")
    try:
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(call, range(16)))
    finally:
        node.ovs.thaw("ovsdb-server")
    assert max(took) < 1.5, took
    with shared.open(endpoint, SECONDS) as switch:
        assert switch.bridges() == ["br0"], "and it is found again"
    shared.close()


def test_a_connection_that_is_closed_wakes_who_reads(node: Light, endpoint: str) -> None:
    connection = Connection(endpoint, SECONDS, Replica().update)
    ends: list[float] = []

    def wait() -> None:
        with pytest.raises(OvsdbUnavailable):
            connection.until(lambda: False, time.monotonic() + 10)
        ends.append(time.monotonic())

    threads = [threading.Thread(target=wait) for _number in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    connection.close()
    for thread in threads:
        thread.join(5)
    assert len(ends) == 3 and max(ends) - began < 1


def test_more_than_the_server_s_queue_holds_come_at_once(node: Light, endpoint: str) -> None:
    """Plugins on their own, in a burst: a full queue is not an error."""
    node.ovs.freeze("ovsdb-server")
    open_ones: list[Connection] = []
    try:
        with ThreadPoolExecutor(100) as pool:
            calls = [pool.submit(Connection, endpoint, 5.0, Replica().update) for _number in range(100)]
            time.sleep(0.3)
            node.ovs.thaw("ovsdb-server")
            open_ones = [call.result() for call in calls]
    finally:
        node.ovs.thaw("ovsdb-server")
        for connection in open_ones:
            connection.close()
    assert len(open_ones) == 100


@pytest.mark.holds("ovsdb-server frozen: a commit that lands late leaves no orphan")
@pytest.mark.parametrize("way", ["agent", "in-process"])
def test_a_commit_that_lands_late_leaves_nothing(node: Light, endpoint: str, way: str) -> None:
    """The database stands still when the port is sent, and the call is over when it goes on."""
    limited = replace(port(7), limits=Bandwidth(8_000_000, 800_000))
    shared = SharedSwitch()
    late: list[Connection] = []
    opened = shared.open(endpoint, SECONDS) if way == "agent" else open_switch(endpoint, SECONDS, limited.name, late)
    try:
        with opened as switch:
            node.ovs.freeze("ovsdb-server")
            switch.begin(limited)
            for step in (switch.inserted, switch.abandon):
                with pytest.raises(OvsdbUnavailable):
                    step(limited)
    finally:
        node.ovs.thaw("ovsdb-server")
    for connection in late:
        connection.drain(5)
        connection.close()
    tables = ("Port", "Interface", "QoS", "Queue")
    where = "external_ids:podnet_container_id=c7"

    def left() -> str:
        return "".join(node.ovs.vsctl("--bare", "--columns=_uuid", "find", table, where).stdout for table in tables)

    until(lambda: not left(), 3, "the end of its port")
    shared.close()
