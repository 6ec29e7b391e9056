# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A move and the way back lose no packet and no connection: on the kernel datapath, so in the virtual machine.

The userspace datapath would show less than it loses, since the kernel hears the NIC too.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.tests.integration.echo import Seen, echo
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan, Light

NIC, BRIDGE = "eth0", "br-x"

BEYOND = 20.0
"""Milliseconds that the worst gap of a move may be longer than that of the idle runs."""
IDLE_SECONDS = 4.0

MOVER = """
import hashlib, json, sys, time
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.model.move import APPLIED, COMMITTING
from podnet.uplink import deadman, points
from podnet.uplink.commit import finish
from podnet.uplink.move import Order, begin
from podnet.uplink.steps import forward
from podnet.vswitch.session import Session
# no process beside this one: under emulation it would take longer to start than the move takes
deadman.arm = deadman.start = deadman.disarm = lambda *_args: None
# nor as little time as on a real machine; what the first session imports is loaded before anything is measured
opened = Session.open
Session.open = lambda endpoint="unix:/run/openvswitch/db.sock", timeout=0: opened(endpoint, 60)
Session.open().close()
reached = []
points.reached = lambda point: reached.append([time.time(), point])
print("ready", flush=True)
for number, direction in enumerate(sys.stdin):
    bridge = {"name": "br-x", "datapath_type": "system", "uplinks": [{"name": "eth0", "move": True}]}
    request = {"direction": direction.strip(), "nic": "eth0", "bridge": bridge, "timeout": 600}
    request = {**request, "manager": "none", "confirm": "none"}
    order = {"id": f"run{number}", "nonce_hash": hashlib.sha256(b"x").hexdigest(), "request": request, "holder": {}}
    journal, _plan = begin(Order.parse(json.dumps(order)))
    journal = forward(journal, lambda _journal: None)
    finish(journal.advance(COMMITTING, (APPLIED,)))
    print(json.dumps(reached), flush=True)
    reached.clear()
"""
"""Carries out moves with the steps of the product, from the plan to the files, and without its timers."""

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 7)) as server:
    print("ready", flush=True)
    link, _peer = server.accept()
    while True:
        data = link.recv(64)
        if not data:
            break
        link.sendall(data)
"""
CLIENT = """
import json, signal, socket, sys, time
ended = []
signal.signal(signal.SIGTERM, lambda *_args: ended.append(1))
count, worst = 0, 0.0
with socket.create_connection((sys.argv[1], 7), 5) as link:
    link.settimeout(20)
    print("ready", flush=True)
    while not ended:
        began = time.monotonic()
        link.sendall(b"x")
        if link.recv(1) != b"x":
            sys.exit("the other end is gone")
        count, worst = count + 1, max(worst, time.monotonic() - began)
        time.sleep(0.05)
print(json.dumps([count, worst]))
"""


class Site:
    """A node with one NIC on a LAN with a gateway, from where it is seen."""

    def __init__(self, lan: Lan, node: Light) -> None:
        self.lan = lan
        self.node = node
        self.addresses = [str(address.ip) for address in node.ports[NIC].addresses]
        python = ("/usr/bin/python3", "-IS", "-c")
        self._mover = node.popen(*python, MOVER, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        assert self._line() == b"ready\n"

    def move(self, direction: str) -> list[tuple[float, str]]:
        """Carries out a move or the way back, and gives when it reached which point."""
        assert self._mover.stdin is not None
        self._mover.stdin.write(direction.encode() + b"\n")
        self._mover.stdin.flush()
        return [tuple(row) for row in json.loads(self._line() or "[]")]

    def _line(self) -> bytes:
        assert self._mover.stdout is not None and self._mover.stderr is not None
        line = self._mover.stdout.readline()
        if not line:
            raise AssertionError(self._mover.stderr.read().decode())
        return line


@pytest.fixture(scope="module")
def moved(lab: Lab, datapath: str) -> Site:
    """A node with one NIC, and addresses of both families on it."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    if datapath != "system":
        pytest.skip("loss is measured on the kernel datapath: test_vm.py runs this in the virtual machine")
    lan = lab.lan("site", ipv4="10.88.0.0/24", ipv6="fd88::/64")
    node = lab.light("n1", nics=[Nic(NIC, lan, "static")], datapath=datapath)
    node.install_runtime()
    return Site(lan, node)


def where(reached: list[tuple[float, str]], when: float) -> str:
    """After which point that was, and by how many milliseconds."""
    before = [(point, when - then) for then, point in reached if then <= when]
    return f"{before[-1][0]}+{1000 * before[-1][1]:.0f}" if before else "before it began"


@contextmanager
def session(site: Site) -> Iterator[None]:
    """A TCP connection from the gateway that is used all the time; asserts that it was never broken."""
    python = ("/usr/bin/python3", "-IS", "-c")
    server = site.node.popen(*python, SERVER, site.addresses[0], stderr=subprocess.PIPE)
    try:
        assert server.stdout is not None and server.stdout.readline() == b"ready\n"
        words = [*site.lan.enter(), *python, CLIENT, site.addresses[0]]
        client = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            assert client.stdout is not None and client.stdout.readline() == b"ready\n"
            yield
            client.terminate()
            output, errors = client.communicate(timeout=30)
            assert client.returncode == 0, errors.decode()
            count, worst = json.loads(output)
            print(f"one TCP session: {count} bytes there and back, the slowest in {worst * 1000:.0f} ms")
        finally:
            client.kill()
            client.wait()
    finally:
        server.kill()
        server.wait()


@pytest.mark.holds("packets lost on the kernel datapath (vm): echo at 200/s, both families, idle run beside it")
def test_a_move_and_the_way_back_lose_nothing(moved: Site, request: pytest.FixtureRequest) -> None:
    rounds = 30 if request.config.getoption("--full") else 3
    runs: dict[str, list[Seen]] = {"idle": [], "move": [], "unbridge": []}
    with session(moved):
        for number in range(rounds):
            with echo(moved.lan, *moved.addresses) as seen:
                time.sleep(IDLE_SECONDS)
            runs["idle"].append(seen)
            for direction in ("move", "unbridge"):
                with echo(moved.lan, *moved.addresses) as seen:
                    reached = moved.move(direction)
                    time.sleep(0.5)
                runs[direction].append(seen)
                print(
                    direction, number, [where(reached, when) for flow in seen.flows.values() for when in flow.lost_at]
                )
            if number % 2:  # a bridge that is there already, and one that the move makes
                moved.node.ovs.vsctl("del-br", BRIDGE)
                until(lambda: moved.node.run("ip", "link", "show", BRIDGE, check=False).returncode, 20, "no bridge")
    idle = {address: max(seen.flows[address].outage for seen in runs["idle"]) for address in moved.addresses}
    for what, seens in runs.items():
        for address in moved.addresses:
            flows = [seen.flows[address] for seen in seens]
            lost, gaps, outages = ([getattr(flow, name) for flow in flows] for name in ("lost", "gap", "outage"))
            print(
                f"{what} {address}: {len(flows)} runs, {sum(flow.sent for flow in flows)} sent, "
                f"lost {lost} (median {statistics.median(lost):g}), worst gap {max(gaps):.1f} ms, "
                f"{max(outages):.1f} ms without the sender's own pauses (idle {idle[address]:.1f} ms)"
            )
    mac = moved.node.ports[NIC].mac
    for direction in ("move", "unbridge"):
        for seen in runs[direction]:
            assert {claim[1] for claim in seen.claims if claim[0] in moved.addresses} <= {mac}
            for address, flow in seen.flows.items():
                assert flow.again == 0
                assert flow.outage <= idle[address] + BEYOND
        for address in moved.addresses:
            assert statistics.median(seen.flows[address].lost for seen in runs[direction]) == 0
