# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An agent that hangs, or whose database does; clients that do not behave; and what a call may leave in the agent."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils import client
from ansible_collections.podnet.ovs.tests.fault.resident import QUIET_THREADS, Resident, codes, traces
from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab.proc import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

PODS = 4
MANY = 16
BARE = cni.configuration(ipam=None)
LIMITED = cni.configuration(runtimeConfig={"bandwidth": {"ingressRate": 8_000_000, "ingressBurst": 800_000}})
SPY = """#!/bin/sh
cat > /dev/null
sleep 0.2
readlink /proc/$$/fd/* >> /run/held
[ "$CNI_COMMAND" != ADD ] || echo '{"ips": [{"address": "10.10.0.9/16"}]}'
"""


SETTLE = """
import sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.errors import PodnetError
from podnet.model.ownership import OWNER_OVS, Mark
from podnet.vswitch.fastpath import open_switch
from podnet.vswitch.podport import PodPort
port = PodPort("pnnolink", "br-pod", {"tag": 100, "vlan_mode": "access"}, Mark(OWNER_OVS, "c9", "eth0", "green"))
with open_switch("unix:/run/openvswitch/db.sock", 5.0, port.name) as switch:
    switch.begin(port)
    switch.inserted(port)
    print("made", flush=True)
    sys.stdin.readline()
    try:
        switch.settle(port, 4.0)
    except PodnetError as error:
        print(error.code, error.message, flush=True)
    switch.abandon(port)
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with a bridge, four pods, and an IPAM plugin that writes down which files it has open."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    made.sh("\n".join(f"ip netns add p{number}" for number in range(PODS)))
    made.write("/opt/cni/bin/spy", SPY, "755")
    return made


@pytest.fixture
def agent(machine: Light) -> Iterator[Resident]:
    """The node's agent at work; each test takes away what it makes, and the agent holds nothing of it."""
    made = Resident(machine)
    machine.run("rm", "-f", "/run/agent.log", "/run/held")
    made.start()
    cni.add(machine, BARE)
    cni.delete(machine, BARE)
    until(lambda: made.held()[1] <= QUIET_THREADS, 10, "the end of the first call")
    before = made.held()
    yield made
    try:
        assert traces(machine) == {}
        until(lambda: made.held() <= before, 15, f"descriptors and threads as before: {before}")
        assert "Traceback" not in made.log() and "internal error" not in made.log()
    finally:
        made.close()
        cni.clear(machine)


@pytest.mark.holds("a hung agent is bypassed by the client after a bound, and does not begin with the call later")
def test_an_agent_that_hangs_is_bypassed(machine: Light, agent: Resident, record_property: Any) -> None:
    agent.freeze()
    with ThreadPoolExecutor(PODS) as pool:
        calls = [pool.submit(cni.call, machine, "ADD", BARE, f"c{number}", f"p{number}") for number in range(PODS)]
        answers = [call.result() for call in calls]
    record_property("seconds", [round(answer.seconds, 2) for answer in answers])
    assert [codes(answer) for answer in answers] == [0] * PODS
    assert all(client.SIGN_SECONDS <= answer.seconds < client.DOT_SECONDS for answer in answers), answers
    agent.thaw()
    until(lambda: agent.log().count("too late") == PODS, 10, "the agent's word on calls that it does not begin")
    assert len(cni.links(machine)) == PODS
    with ThreadPoolExecutor(PODS) as pool:
        began = time.monotonic()
        list(pool.map(lambda number: cni.delete(machine, BARE, f"c{number}", f"p{number}"), range(PODS)))
    assert time.monotonic() - began < client.BEGIN_SECONDS, "and after that it serves again"


@pytest.mark.parametrize("seconds", [pytest.param(1.0, marks=pytest.mark.full), 3.2])
def test_a_call_that_the_agent_and_its_client_serve_is_tried_again(
    machine: Light, agent: Resident, seconds: float
) -> None:  # fmt: skip
    """An agent that stands still right after it began: its client must take it for one that has not. One of the two
    attaches the pod, and if that is the agent nobody gets to hear of it.
    """
    conf = cni.configuration(ipam={"type": "spy"})
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cni.call, machine, "ADD", conf)
        until(lambda: "eth0" in machine.run("ip", "-n", "p1", "link").stdout, 5, "an ADD at work", 0.01)
        agent.freeze()
        time.sleep(seconds)
        agent.thaw()
        answer = call.result()
    assert (codes(answer), answer.seconds < 5) == (0 if seconds < client.SIGN_SECONDS else 11, True), answer
    assert len(cni.links(machine)) == 1
    cni.delete(machine, conf)


@pytest.mark.parametrize("pause", [pytest.param(1.0, marks=pytest.mark.full), 2.0])
def test_an_agent_that_stood_still_for_a_while_fails_no_call(machine: Light, agent: Resident, pause: float) -> None:
    """One that comes back after it may begin with the call, but before its client gave up, says so."""
    agent.freeze()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(cni.call, machine, "ADD", BARE)
        time.sleep(pause)
        agent.thaw()
        answer = call.result()
    assert codes(answer) == 0 and pause <= answer.seconds < pause + 1.5, answer
    assert agent.log().count("too late") == (pause > client.BEGIN_SECONDS)
    cni.delete(machine, BARE)


@pytest.mark.holds("a frozen database costs each of many calls its bound, and not that of those before it as well")
def test_many_calls_wait_together_for_a_database_that_hangs(machine: Light, agent: Resident) -> None:
    machine.ovs.restart()
    machine.ovs.freeze("ovsdb-server")
    try:
        with ThreadPoolExecutor(MANY) as pool:
            calls = [pool.submit(cni.call, machine, "DEL", BARE, f"x{number}", "") for number in range(MANY)]
            answers = [call.result() for call in calls]
    finally:
        machine.ovs.thaw("ovsdb-server")
    assert [codes(answer) for answer in answers] == [0] * MANY
    assert max(answer.seconds for answer in answers) < 6, sorted(answer.seconds for answer in answers)


def test_what_a_call_starts_holds_nothing_of_the_others(machine: Light, agent: Resident) -> None:
    """A process that an IPAM plugin leaves behind would keep the namespaces of pods, or sockets of the agent."""
    conf = cni.configuration(ipam={"type": "spy"})
    for verb in ("ADD", "DEL"):
        calls = [cni.start(machine, verb, conf, f"c{number}", f"p{number}") for number in range(PODS)]
        assert [call.wait(timeout=30) for call in calls] == [0] * PODS
    held = set(machine.run("cat", "/run/held").stdout.split())
    own = ("pipe:", "/opt/cni/bin/spy", "/run/held", "/run/podnet/turns/")
    assert held and not [name for name in held if not name.startswith(own)], held


@pytest.mark.parametrize(
    ("what", "answer"),
    [("works", b"999 ovs-vswitchd cannot use"), ("ends", b"11 waited"), ("stands still", b"11 waited")],
)
def test_what_a_switch_said_of_a_link_counts_while_it_works(machine: Light, what: str, answer: bytes) -> None:
    """That it has not found it is an error; if it has ended since, or hangs, the call is tried again."""
    call = machine.popen("/usr/bin/python3", "-IS", "-c", SETTLE, stdin=subprocess.PIPE)
    assert call.stdout is not None and call.stdout.readline() == b"made\n"
    error = ("get", "Interface", "pnnolink", "error")
    until(lambda: "No such device" in machine.ovs.vsctl("--no-wait", *error).stdout, 5, "its word")
    try:
        if what == "ends":
            machine.ovs.kill("ovs-vswitchd")
        elif what == "stands still":
            machine.ovs.freeze("ovs-vswitchd")
        output = call.communicate(b"\n", timeout=20)[0]
    finally:
        if what == "ends":
            machine.ovs.start("ovs-vswitchd")
        elif what == "stands still":
            machine.ovs.thaw("ovs-vswitchd")
    assert output.startswith(answer), output


def sent(machine: Light, data: bytes) -> socket.socket:
    """A client of the agent that has said that."""
    pipe = socket.socket(socket.AF_UNIX)
    pipe.settimeout(15)
    pipe.connect(str(machine.host_path(cni.SOCKET)))
    with contextlib.suppress(BrokenPipeError):
        pipe.sendall(data)
    return pipe


def whole_call(container: str, verb: str = "DEL") -> bytes:
    """A call as the client sends it, without a namespace."""
    env = b"".join(f"{key}={value}\0".encode() for key, value in cni.environment(verb, container, "").items())
    stdin = b'{"cniVersion":"1.0.0","name":"green","type":"podnet-ovs"}'
    by = int((time.monotonic() + client.BEGIN_SECONDS) * 1000)
    return b"%s podnet-ovs %d %d %d\n" % (client.GREETING, len(env), len(stdin), by) + env + stdin


@pytest.mark.holds("a broken request harms no other, and leaves nothing in the agent")
def test_clients_that_do_not_behave(machine: Light, agent: Resident) -> None:
    """Half a greeting, numbers without end, garbage, a client that never reads, one that is gone after its call."""
    odd = [
        client.GREETING[:4],
        client.GREETING + b" podnet-ovs " + b"9" * 5000 + b" 1 1\n",
        client.GREETING + b" podnet-ovs 1 " + b"9" * 60000 + b" 1\n",
        client.GREETING + b" podnet-ovs 10 10 " + b"9" * 200 + b"\nA=B\0",
        client.GREETING + b" @status 0 0 0\n",
        client.GREETING + b" \xff\xfe 0 0 99999999999999\n",
        os.urandom(4096),
        b"\0" * 4096,
    ]
    never_read = [sent(machine, whole_call(f"n{number}")) for number in range(20)]
    pipes = [sent(machine, data) for data in odd for _turn in range(3)]
    for number in range(20):
        sent(machine, whole_call(f"g{number}")).close()
    for number in range(3):
        cni.add(machine, LIMITED, f"c{number}", f"p{number}")
        cni.delete(machine, LIMITED, f"c{number}", f"p{number}")
    assert agent.log().count("DEL g") == 20 and agent.log().count("DEL n") == 20, "who does not read is served, too"
    for pipe in (*never_read, *pipes):
        pipe.close()


def test_clients_that_say_nothing_cannot_take_all_places(machine: Light, agent: Resident) -> None:
    """While they do, the others serve themselves; that ends when their time is over."""
    idle = [sent(machine, b"") for _number in range(70)]
    until(lambda: agent.held()[1] > 60, 5, "an agent that is full")
    answer = cni.call(machine, "ADD", BARE)
    assert codes(answer) == 0 and answer.seconds < client.SIGN_SECONDS + 2
    for pipe in idle:
        pipe.close()
    cni.delete(machine, BARE)


OTHER_RELEASE = """
here=$(readlink -f /opt/podnet/current)
cp -a "$here" /opt/podnet/other
cd /opt/podnet/other
sed -i "s|$here|/opt/podnet/other|g" bin/podnet-*
sed -i 's|PODNET/2"|PODNET/7"|' lib/podnet/client.py
grep -q PODNET/7 lib/podnet/client.py
rm lib/podnet/__pycache__/client.*
"""
"""The same with another protocol. Byte code is taken as it is, whatever its source says."""


@pytest.mark.holds("a client of another release than the agent serves itself")
def test_client_and_agent_of_different_releases(machine: Light, agent: Resident) -> None:
    machine.sh(OTHER_RELEASE)
    for plugin, container in (("/opt/podnet/other/bin/podnet-ovs", "x1"), (cni.PLUGIN, "x2")):
        lines = agent.log().count("\n")
        result: dict[str, Any] = {}
        for verb in ("ADD", "CHECK", "DEL"):
            conf = {**BARE, **({"prevResult": result} if result else {})}
            env = cni.environment(verb, container, "p1")
            done = machine.run(plugin, input=json.dumps(conf), env=env)
            result = json.loads(done.stdout) if verb == "ADD" else result
            assert f"{verb} {container}" in done.stderr, "by itself"
        assert f" {container} " not in agent.log() and agent.log().count("\n") == lines, "an agent of another release"
        agent.end()
        agent.start("/opt/podnet/other/bin/podnet-agent")
    agent.end()
    agent.start()
    machine.run("rm", "-r", "/opt/podnet/other")
