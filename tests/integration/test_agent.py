# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The resident agent: who may call it, calls side by side and in turn, its end, and clients without it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import host_name
from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SLOW = """#!/bin/sh
cat > /dev/null
echo "$CNI_COMMAND begins" >> /run/log
sleep 1
echo "$CNI_COMMAND ends" >> /run/log
[ "$CNI_COMMAND" != ADD ] || echo '{"ips": [{"address": "10.10.0.9/16"}]}'
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with one bridge, and an IPAM plugin that takes a second."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    made = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(made, cni.node_document(datapath))
    made.write("/opt/cni/bin/slow", SLOW, "755")
    return made


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node with pods p0 to p3. Each test takes away what it makes."""
    machine.run("rm", "-f", "/run/log", cni.SOCKET)
    machine.sh("for pod in p0 p1 p2 p3; do [ -e /run/netns/$pod ] || ip netns add $pod; done")
    yield machine
    left = cni.leftovers(machine)
    if left != cni.NOTHING:
        cni.clear(machine)
    assert left == cni.NOTHING


def socket_of(node: Light) -> str:
    """The agent's socket, as this machine sees it."""
    return str(node.host_path(cni.SOCKET))


def talk(node: Light, data: bytes, half_close: bool = False) -> bytes:
    """Sends bytes to the agent and gives what it answers until it closes."""
    with socket.socket(socket.AF_UNIX) as pipe:
        pipe.settimeout(15)
        pipe.connect(socket_of(node))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            pipe.sendall(data)
            if half_close:
                pipe.shutdown(socket.SHUT_WR)
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while more := pipe.recv(65536):
                answer += more
        return answer


def descriptors(pid: int) -> int:
    """How many files a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_side_by_side(node: Light) -> None:
    conf = cni.configuration(ipam={"type": "slow"})
    with cni.agent(node):
        began = time.monotonic()
        for verb in ("ADD", "DEL"):
            calls = [cni.start(node, verb, conf, f"c{i}", f"p{i}") for i in range(4)]
            assert [process.wait(timeout=30) for process in calls] == [0] * 4
        assert time.monotonic() - began < 6, "eight calls of a second each, four at a time"


def test_two_containers_that_want_one_interface(node: Light) -> None:
    conf = cni.configuration(ipam=None)
    with cni.agent(node):
        for _turn in range(5):
            calls = [cni.start(node, "ADD", conf, f"c{i}", "p1") for i in range(4)]
            printed = [process.communicate(timeout=30)[0] for process in calls]
            assert sorted(process.returncode for process in calls) == [0, 1, 1, 1]
            errors = [document for document in map(json.loads, printed) if "code" in document]
            assert {error["code"] for error in errors} == {7} and all("already" in error["msg"] for error in errors)
            assert len(cni.links(node)) == 1 and cni.ports(node) == cni.links(node)
            for i in range(4):
                cni.delete(node, conf, f"c{i}")


@pytest.mark.parametrize("way", ["agent", "in-process", "agent and then not"])
def test_calls_of_one_attachment_take_turns(node: Light, way: str) -> None:
    conf = cni.configuration(ipam={"type": "slow"})
    with contextlib.ExitStack() as stack:
        if way != "in-process":
            stack.enter_context(cni.agent(node))
        first = cni.start(node, "ADD", conf, "c1", "p1")
        node.sh("for i in $(seq 100); do [ -s /run/log ] && exit; sleep 0.05; done; exit 1")
        if way == "agent and then not":
            node.run("mv", cni.SOCKET, "/run/socket")
        cni.delete(node, conf)
        if way == "agent and then not":
            node.run("mv", "/run/socket", cni.SOCKET)
        assert first.wait(timeout=30) == 0
    order = node.run("cat", "/run/log").stdout.split("\n")
    assert order[:4] == ["ADD begins", "ADD ends", "DEL begins", "DEL ends"]


def test_what_is_no_call_harms_nobody(node: Light) -> None:
    with cni.agent(node) as process:
        conf = cni.configuration()
        cni.add(node, conf)
        before = descriptors(process.pid)
        for data in (
            b"",
            b"\n",
            b"GET / HTTP/1.1\r\n\r\n",
            b"PODNET/1 podnet-ovs 0 0\n",
            b"PODNET/2 podnet-ovs -1 0 9999999999999\n",
            b"PODNET/2 podnet-ovs 99999999999 0 9999999999999\n",
            b"PODNET/2 podnet-ovs 4 4 9999999999999\nab",
            b"x" * 1_000_000,
            b"PODNET/2 podnet-ovs 20 0 9999999999999\nCNI_COMMAND=\xff\xfe\x00\xff=A\x00xx",
        ):
            answer = talk(node, data, half_close=True)
            assert answer == b"" or json.loads(answer.partition(b"\n")[2].partition(b"\n")[0])["code"], data
        idle = [socket.socket(socket.AF_UNIX) for _number in range(40)]
        for pipe in idle:
            pipe.connect(socket_of(node))
        assert cni.call(node, "CHECK", {**conf, "prevResult": {}}).document["code"] == 7
        assert cni.add(node, conf, "c2", "p2"), "clients that say nothing keep nobody waiting"
        for pipe in idle:
            pipe.close()
        cni.delete(node, conf)
        cni.delete(node, conf, "c2", "p2")
        node.sh("sleep 1")
        assert descriptors(process.pid) <= before + 2


def test_a_client_of_another_release_is_told(node: Light) -> None:
    with cni.agent(node):
        answer = talk(node, b"PODNET/1 podnet-ovs 0 0\n").decode()
        assert "another protocol" in answer and "release" in answer


def test_only_root_may_call(node: Light) -> None:
    program = (
        "import os, socket; os.setuid(65534); s = socket.socket(socket.AF_UNIX); "
        f"s.connect({cni.SOCKET!r}); print(s.recv(1000))"
    )
    with cni.agent(node):
        mode = node.run("stat", "-c", "%a %U", cni.SOCKET).stdout
        assert mode == "600 root\n"
        denied = node.run("/usr/bin/python3", "-c", program, check=False)
        assert denied.returncode == 1 and "PermissionError" in denied.stderr
        node.sh(f"chmod 666 {cni.SOCKET} && chmod 711 {os.path.dirname(cni.SOCKET)}")
        assert "only root" in node.run("/usr/bin/python3", "-c", program).stdout


def test_its_end_waits_for_the_calls_at_work(node: Light) -> None:
    conf = cni.configuration(ipam={"type": "slow"})
    with cni.agent(node) as process:
        call = cni.start(node, "ADD", conf, "c1", "p1")
        node.sh("for i in $(seq 100); do [ -s /run/log ] && exit; sleep 0.05; done; exit 1")
        process.terminate()
        assert call.wait(timeout=30) == 0
        assert process.wait(timeout=30) == 0
    cni.delete(node, conf)


def test_an_agent_that_is_killed_in_a_call_is_code_11_and_del_cleans_up(node: Light) -> None:
    conf = cni.configuration(ipam={"type": "slow"})
    process = node.popen("/opt/podnet/current/bin/podnet-agent", "--socket", cni.SOCKET, stdout=None, stderr=None)
    node.sh(f"for i in $(seq 200); do [ -S {cni.SOCKET} ] && exit; sleep 0.05; done; exit 1")
    call = cni.start(node, "ADD", conf, "c1", "p1")
    node.sh("for i in $(seq 100); do [ -s /run/log ] && exit; sleep 0.05; done; exit 1")
    process.kill()
    process.wait(timeout=10)
    assert call.stdout is not None
    error = json.loads(call.stdout.read())
    assert call.wait(timeout=10) == 1 and error["code"] == 11 and "podnet-agent" in error["details"]
    cni.delete(node, conf)
    log = node.run("cat", "/run/log").stdout.split("\n")
    assert log.index("ADD ends") < log.index("DEL begins"), "the dead call's IPAM plugin ends before DEL asks it"
    assert cni.leftovers(node) == cni.NOTHING
    cni.add(node, cni.configuration())
    cni.delete(node, cni.configuration())


def test_a_socket_of_systemd(node: Light) -> None:
    """sd_listen_fds(3): descriptor 3 listens already, so a call may come before the agent is up."""
    program = (
        "import os, socket\n"
        f"os.makedirs('/run/podnet', exist_ok=True)\n"
        f"s = socket.socket(socket.AF_UNIX); s.bind({cni.SOCKET!r}); s.listen(16)\n"
        "print('up', flush=True)\n"
        "input()\n"
        "os.dup2(s.fileno(), 3); os.set_inheritable(3, True)\n"
        "os.environ.update(LISTEN_FDS='1', LISTEN_PID=str(os.getpid()))\n"
        "os.execv('/opt/podnet/current/bin/podnet-agent', ['podnet-agent'])\n"
    )
    process = node.popen("/usr/bin/python3", "-c", program, stdin=-1)
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == b"up\n"
    call = cni.start(node, "ADD", cni.configuration(), "c1", "p1")
    process.stdin.write(b"\n")
    process.stdin.flush()
    assert call.wait(timeout=20) == 0
    cni.delete(node, cni.configuration())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0
    node.run("rm", cni.SOCKET)


def test_many_calls_leave_no_descriptor_and_no_thread(node: Light) -> None:
    conf = cni.configuration()
    with cni.agent(node) as process:
        for number in range(45):
            if number == 5:
                before = descriptors(process.pid)
            cni.add(node, conf, f"c{number}")
            cni.delete(node, conf, f"c{number}")
        time.sleep(1.5)
        assert descriptors(process.pid) <= before
        threads = os.listdir(f"/proc/{process.pid}/task")
        assert len(threads) <= 5, (
            "one looks after the others, two wait for calls, one visits namespaces, one keeps house"
        )
        maps = Path(f"/proc/{process.pid}/maps").read_text(encoding="utf-8")
        assert "pyroute2" not in maps
        resident = int(Path(f"/proc/{process.pid}/statm").read_text(encoding="ascii").split()[1]) * 4
        assert resident < 32 * 1024, f"{resident} kB"


def test_a_stale_socket_is_no_agent(node: Light) -> None:
    node.sh(f"mkdir -p /run/podnet; /usr/bin/python3 -c 'import socket; socket.socket(1).bind(\"{cni.SOCKET}\")'")
    cni.add(node, cni.configuration())
    cni.delete(node, cni.configuration())
    node.run("rm", cni.SOCKET)


def test_usage(node: Light) -> None:
    for words in ([], ["--socket"], ["--soket", "x"], ["--socket", "/run/x.sock", "--metrics", "nowhere"]):
        done = node.run("/opt/podnet/current/bin/podnet-agent", *words, check=False, timeout=10)
        assert done.returncode in (1, 2) and ("usage" in done.stderr or "nowhere" in done.stderr)


def test_announcements_are_repeated_and_keep_nobody_waiting(node: Light) -> None:
    """On the same VLAN a neighbour hears each address at least twice, by either way of serving."""
    conf = cni.configuration(ipam=None)
    for way in ("agent", "in-process"):
        with contextlib.ExitStack() as stack:
            if way == "agent":
                stack.enter_context(cni.agent(node))
            cni.add(node, conf, "listener", "p1")
            node.sh("ip -n p1 link set eth0 up")
            words = ["tcpdump", "-l", "-n", "-i", "eth0", "-Q", "in", "arp or icmp6"]
            heard = node.popen("nsenter", "--net=/run/netns/p1", *words)
            assert heard.stdout is not None
            while b"listening" not in heard.stdout.readline():
                pass
            cni.add(node, cni.configuration(), "speaker", "p2")
            time.sleep(1.0)
            heard.terminate()
            text = heard.communicate(timeout=10)[0].decode()
            low, low6 = (item.partition("/")[2] for item in sorted(cni.leases(node)))
            assert (
                text.count(f"Request who-has {low} (ff:ff:ff:ff:ff:ff) tell {low}")
                + text.count(f"Request who-has {low} tell {low}")
                + text.count(f"Reply {low} is-at")
                >= 2
            ), text
            assert text.count(f"neighbor advertisement, tgt is {low6}") >= 2, text
            cni.delete(node, cni.configuration(), "speaker", "p2")
            cni.delete(node, conf, "listener", "p1")
        node.run("rm", "-rf", cni.LEASES)
    assert host_name("speaker", "eth0") not in cni.ports(node)


def test_the_log_says_why_a_call_failed_in_the_call_s_line(node: Light) -> None:
    command = f"exec /opt/podnet/current/bin/podnet-agent --socket {cni.SOCKET} 2> /run/agent.log"
    process = node.popen("sh", "-c", command, stdout=None, stderr=None)
    node.sh(f"for i in $(seq 200); do [ -S {cni.SOCKET} ] && exit; sleep 0.05; done; exit 1")
    assert cni.call(node, "ADD", cni.configuration(vlan=999)).document["code"] == 7
    assert cni.call(node, "ADD", cni.configuration(ipam={"type": "a\n\x1bb"})).document["code"] != 0
    process.terminate()
    process.wait(timeout=30)
    first, second = node.run("cat", "/run/agent.log").stdout.splitlines()
    assert first.startswith("ADD c1 ") and "code=1 " in first and "VLAN 999" in first and "podnet_networks" in first
    assert second.startswith("ADD c1 ") and "\x1b" not in second
