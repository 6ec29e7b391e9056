# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The session and the engine on a real switch: bounded waits, errors that are raised, boots, threads.

What is tested runs inside the node, by the node's own Python and from the runtime that the product installs.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Iterator
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

BEGIN = """
import json, os, sys, threading, time
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.errors import PodnetError
from podnet.vswitch.session import Session
out = {}
began = time.monotonic()
def failure(call):
    try:
        call()
    except PodnetError as error:
        return [type(error).__name__, str(error), error.code]
    return None
"""
END = """
out["seconds"] = time.monotonic() - began
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with its runtime and two NICs."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    trunk = lab.lan("trunk")
    node = lab.light("n1", nics=[Nic("eth1", trunk), Nic("eth2", trunk)], datapath=datapath)
    node.install_runtime()
    return node


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node, and afterwards nothing on its switch."""
    yield machine
    machine.run("rm", "-f", "/etc/podnet/node.json")
    for name in machine.ovs.vsctl("list-br").stdout.split():
        machine.ovs.vsctl("del-br", name)


def inside(node: Light, lines: str, **values: Any) -> dict[str, Any]:
    """Runs lines of Python in the node; they leave what they found in `out`."""
    return dict(json.loads(node.run("/usr/bin/python3", "-", input=script(lines, **values)).stdout))


def script(lines: str, **values: Any) -> str:
    """A whole program of these lines, which find `values` in `given`."""
    return BEGIN + f"given = json.loads({json.dumps(json.dumps(values))})\n" + textwrap.dedent(lines) + END


def test_a_transaction_is_waited_for_and_its_failures_are_raised(node: Light, datapath: str) -> None:
    found = inside(
        node,
        """
        with Session.open() as s:
            s.transact([s.api.add_br("br-e", datapath_type=given["datapath"])])
            out["ports"] = s.ports_ready(["br-e"])
            s.transact([s.api.add_port("br-e", "nothing0")])
            out["missing"] = failure(lambda: s.ports_ready(["nothing0"]))
            out["unknown"] = failure(lambda: s.ports_ready(["nobody"]))
            out["refused"] = failure(lambda: s.transact([s.api.add_br("br-f"), s.api.add_port("br-g", "x")]))
            out["bridges"] = s.read(lambda tables: [row.name for row in tables["Bridge"].rows.values()])
            out["nothing"] = failure(lambda: s.transact([]))
        """,
        datapath=datapath,
    )
    assert found["ports"] == {"br-e": 65534}
    kind, said, _code = found["missing"]
    assert kind == "OvsdbError" and "nothing0" in said and "No such device" in said
    assert found["unknown"][0] == "OvsdbError" and "br-g" in found["refused"][1]
    assert found["bridges"] == ["br-e"], "half of a refused transaction was done"
    assert found["nothing"] is None


def test_a_switch_that_does_not_answer_costs_no_more_than_was_given(node: Light) -> None:
    lines = """
        out["open"] = failure(lambda: Session.open(timeout=1.0).close())
        if given["daemon"] == "ovs-vswitchd":
            with Session.open() as s:
                out["change"] = failure(lambda: s.transact([s.api.add_br("br-z")], timeout=1.0))
                out["no wait"] = failure(lambda: s.transact([s.api.del_br("br-z")], timeout=1.0, wait=False))
    """
    for daemon in ("ovsdb-server", "ovs-vswitchd"):
        node.ovs.freeze(daemon)
        try:
            found = inside(node, lines, daemon=daemon)
        finally:
            node.ovs.thaw(daemon)
        assert found["seconds"] < 2.5
        if daemon == "ovsdb-server":
            assert found["open"][0] == "OvsdbUnavailable" and found["open"][2] == 50
        else:
            assert found["open"] is None and found["no wait"] is None
            assert found["change"][0] == "DeadlineExceeded" and "ovs-vswitchd" in found["change"][1]


def test_a_server_that_freezes_under_an_open_session(node: Light, datapath: str) -> None:
    lines = """
        with Session.open() as s:
            print("open", flush=True)
            sys.stdin.readline()
            began = time.monotonic()
            calls = [lambda: s.transact([s.api.add_br("br-z")], timeout=3.0), lambda: s.read(len, timeout=0.5)]
            found, took = [None, None], [0.0, 0.0]
            def call(i):
                time.sleep(0.2 * i)
                found[i] = failure(calls[i])
                took[i] = time.monotonic() - began
            threads = [threading.Thread(target=call, args=(i,)) for i in range(2)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            closing = time.monotonic()
        out["found"], out["took"], out["close"] = found, took, time.monotonic() - closing
    """
    process = node.popen("/usr/bin/python3", "-c", script(lines, datapath=datapath), stdin=PIPE)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == b"open\n"
    node.ovs.freeze("ovsdb-server")
    try:
        printed, _nothing = process.communicate(b"go\n", timeout=20)
    finally:
        node.ovs.thaw("ovsdb-server")
    found = json.loads(printed)
    assert [error[0] for error in found["found"]] == ["DeadlineExceeded", "DeadlineExceeded"]
    assert found["took"][0] < 4 and found["took"][1] < 1.5 and found["close"] < 1.5, found


def test_absent_closed_and_foreign_endpoints(node: Light) -> None:
    found = inside(
        node,
        """
        out["absent"] = failure(lambda: Session.open("unix:/run/none.sock"))
        out["remote"] = failure(lambda: Session.open("tcp:127.0.0.1:6640"))
        import socket
        dead = socket.socket(socket.AF_UNIX); dead.bind("/run/dead.sock")
        out["dead"] = failure(lambda: Session.open("unix:/run/dead.sock"))
        os.unlink("/run/dead.sock")
        os.setuid(65534)
        out["closed"] = failure(lambda: Session.open())
        """,
    )
    assert found["absent"][0] == "OvsdbUnavailable" and "role podnet.ovs.openvswitch" in found["absent"][1]
    assert found["dead"][0] == "OvsdbUnavailable" and "start openvswitch-switch" in found["dead"][1]
    assert found["remote"][0] == "ConfigError"
    assert found["closed"][0] == "OvsdbUnavailable" and "become: true" in found["closed"][1]


def test_sessions_share_nothing_and_leave_nothing(node: Light, lab: Lab) -> None:
    other = lab.light("other")
    other.ovs.vsctl("--no-wait", "add-br", "br-other")
    found = inside(
        node,
        """
        with Session.open() as near, Session.open(given["far"]) as far:
            for name, s in (("near", near), ("far", far)):
                out[name] = s.read(lambda tables: [row.name for row in tables["Bridge"].rows.values()])
        import gc
        def count():
            gc.collect()
            return len(os.listdir("/proc/self/fd")), threading.active_count()
        before = count()
        for _ in range(20):
            Session.open().close()
        out["left"] = [after - was for after, was in zip(count(), before)]
        """,
        far=f"unix:{other.host_path('/run/openvswitch/db.sock')}",
    )
    assert found["near"] == [] and found["far"] == ["br-other"]
    assert found["left"] == [0, 0], "descriptors and threads left behind"


def test_a_session_serves_many_threads(node: Light, datapath: str) -> None:
    found = inside(
        node,
        """
        with Session.open() as s:
            s.transact([s.api.add_br("br-e", datapath_type=given["datapath"])])
            errors = []
            def work(i):
                name = f"i{i}"
                for call in (
                    lambda: s.transact([s.api.add_port("br-e", name, type="internal")], timeout=20.0),
                    lambda: s.ports_ready([name], timeout=20.0),
                    lambda: s.transact([s.api.del_port(name)], timeout=20.0),
                ):
                    errors.append(failure(call))
            threads = [threading.Thread(target=work, args=(i,)) for i in range(16)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            out["errors"] = [error for error in errors if error]
            out["ports"] = s.read(lambda tables: len(tables["Port"].rows))
        """,
        datapath=datapath,
    )
    assert found["errors"] == [] and found["ports"] == 1


def test_a_session_outlives_its_server(node: Light, datapath: str) -> None:
    lines = """
        with Session.open() as s:
            print("open", flush=True)
            sys.stdin.readline()
            out["change"] = failure(
                lambda: s.transact([s.api.add_br("br-e", datapath_type=given["datapath"])], timeout=15.0))
    """
    process = node.popen("/usr/bin/python3", "-c", script(lines, datapath=datapath), stdin=PIPE)
    assert process.stdout is not None and process.stdout.readline() == b"open\n"
    node.ovs.restart()
    printed, _nothing = process.communicate(b"go\n", timeout=30)
    assert json.loads(printed)["change"] is None
    assert node.ovs.vsctl("list-br").stdout == "br-e\n"


CONVERGE = """
    from podnet.model.node import Node
    from podnet.model.target import Options, declared, node_state
    from podnet.uplink.converge import converge
    node = Node.parse(given["wish"])
    plan = converge(lambda state: node_state(state, node, declared(state), Options(purge=True)))
    out["steps"] = [[step.kind, step.name, step.action] for step in plan.operations]
"""
RESTORE = """
    from podnet.uplink.restore import restore
    report = restore(timeout=given["timeout"])
    out["steps"] = [[step.kind, step.name, step.action] for step in report.operations]
    out["missing"] = list(report.missing)
"""


def declared(datapath: str) -> dict[str, Any]:
    """A node with all that a boot takes away."""
    bridge = {
        "name": "br-e",
        "datapath_type": datapath,
        "uplinks": [{"name": "eth1", "vlans": "5,300", "mtu": 1450}],
        "interfaces": [
            {"name": "v300", "vlan": 300, "mtu": 1400, "addresses": ["10.30.0.11/24", "fd00:30::11/64"]},
            {"name": "br-e", "addresses": ["10.31.0.1/24"]},
        ],
    }
    return {"bridges": [bridge]}


def kernel(node: Light) -> dict[str, Any]:
    """What the kernel has of the node's own links."""
    found = {}
    for link in json.loads(node.run("ip", "-j", "addr").stdout):
        addresses = [f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"] if item["scope"] != "link"]
        if link["ifname"] in ("eth1", "v300", "br-e"):
            found[link["ifname"]] = ["UP" in link["flags"], link["mtu"], sorted(addresses)]
    return found


def boot(node: Light) -> None:
    """What a boot does to the kernel: the switch's devices go and come anew, NICs are down and have their own MTU."""
    node.run("ovs-appctl", "-t", "ovs-vswitchd", "exit", "--cleanup")
    node.ovs.stop("ovsdb-server")
    node.sh("for nic in eth1 eth2; do ip addr flush dev $nic; ip link set $nic down mtu 1500; done")
    time.sleep(0.2)
    node.ovs.start()


def accepts_routers(node: Light) -> str:
    """Whether the host interface takes router advertisements, which any pod on its VLAN could send."""
    return node.run("cat", "/proc/sys/net/ipv6/conf/v300/accept_ra").stdout.strip()


def test_a_boot_takes_nothing_away_for_good(node: Light, datapath: str) -> None:
    inside(node, CONVERGE, wish=declared(datapath))
    before = kernel(node)
    assert (
        before
        == {
            "eth1": [True, 1450, []],
            "v300": [True, 1400, ["10.30.0.11/24", "fd00:30::11/64"]],
            "br-e": [True, 1400, ["10.31.0.1/24"]],
        }
        or before["br-e"][0]
    ), before
    assert accepts_routers(node) == "0"
    boot(node)
    assert kernel(node) != before, "the boot took nothing away, so this shows nothing"
    assert accepts_routers(node) != "0", "the boot took nothing away, so this shows nothing"
    node.run("rm", "/etc/podnet/node.json")
    found = inside(node, RESTORE, timeout=5)
    assert accepts_routers(node) == "0"
    assert kernel(node) == before and found["missing"] == []
    assert inside(node, RESTORE, timeout=5)["steps"] == [], "a second boot unit run had something to do"
    again = inside(node, CONVERGE, wish=declared(datapath))
    assert again["steps"] == [["file", "/etc/podnet/node.json", "write"]]


def test_a_boot_with_a_nic_that_is_late_or_gone(node: Light, datapath: str) -> None:
    inside(node, CONVERGE, wish=declared(datapath))
    before = kernel(node)
    boot(node)
    node.run("ip", "link", "set", "eth1", "name", "late0")
    try:
        found = inside(node, RESTORE, timeout=1)
        assert found["missing"] == ["eth1"] and found["seconds"] < 4
        assert kernel(node)["v300"][2] == before["v300"][2], "a missing NIC kept the others from their addresses"
        waiting = node.popen("/usr/bin/python3", "-c", script(RESTORE, timeout=10))
        time.sleep(1)
    finally:
        node.run("ip", "link", "set", "late0", "name", "eth1")
    printed, _nothing = waiting.communicate(timeout=20)
    assert json.loads(printed)["missing"] == [] and kernel(node)["eth1"][0]


def test_the_boot_unit_waits_for_a_switch_that_is_late(node: Light, datapath: str) -> None:
    inside(node, CONVERGE, wish=declared(datapath))
    node.ovs.stop()
    waiting = node.popen("/usr/bin/python3", "-c", script(RESTORE, timeout=10))
    time.sleep(1)
    node.ovs.start()
    printed, _nothing = waiting.communicate(timeout=20)
    assert json.loads(printed)["missing"] == []


def test_what_a_failed_change_did_is_taken_back(node: Light, datapath: str) -> None:
    inside(node, CONVERGE, wish=declared(datapath))
    before, database = kernel(node), node.ovs.vsctl("show").stdout
    wish = declared(datapath)
    wish["bridges"][0]["interfaces"].append({"name": "v301", "vlan": 301, "addresses": ["10.32.0.1/24"]})
    wish["bridges"][0]["interfaces"][0]["addresses"] = ["10.30.0.99/24"]
    found = inside(
        node,
        """
        import podnet.uplink.converge as engine
        from podnet.errors import KernelError
        from podnet.model.node import Node
        from podnet.model.target import Options, declared, node_state
        real = engine.change_addresses
        def broken(name, add=(), remove=()):
            if name == "v301" and add:
                raise KernelError("no")
            real(name, add, remove)
        engine.change_addresses = broken
        node = Node.parse(given["wish"])
        out["error"] = failure(
            lambda: engine.converge(lambda state: node_state(state, node, declared(state), Options(purge=True))))
        """,
        wish=wish,
    )
    assert found["error"] == ["KernelError", "no", 999]
    assert kernel(node) == before and node.ovs.vsctl("show").stdout == database


def test_trunks_wake_the_switch(node: Light, datapath: str) -> None:
    """The columns trunks and vlan_mode do not wake ovs-vswitchd by themselves; the session's transactions do."""
    wish = declared(datapath)
    inside(node, CONVERGE, wish=wish)
    trace = ("ovs-appctl", "ofproto/trace", "br-e", "in_port=eth1,dl_vlan=5,dl_src=02:00:00:00:00:01")
    assert "drop" not in node.run(*trace).stdout.splitlines()[-1]
    wish["bridges"][0]["uplinks"][0]["vlans"] = "300"
    inside(node, CONVERGE, wish=wish)
    assert "drop" in node.run(*trace).stdout.splitlines()[-1]
