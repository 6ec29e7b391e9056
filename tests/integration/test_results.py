# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What real Ansible says of a move that does not end as usual, and the ways by which it reaches the node meanwhile.

Each test begins with the node's addresses on its only NIC, and ends so.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ansible
import pytest

from ansible_collections.podnet.ovs.tests.integration.controller import Controller, Run
from ansible_collections.podnet.ovs.tests.lab import Full, Lab, Lan, Nic, until
from ansible_collections.podnet.ovs.tests.lab.faults import both_ways
from ansible_collections.podnet.ovs.tests.lab.proc import run as run_here
from ansible_collections.podnet.ovs.tests.lab.space import processes_in

NIC, BRIDGE = "eth0", "br-x"
PODNET = "/opt/podnet/current/bin/podnet"
TIMEOUT = 15
CONTROLLER = "/opt/controller"
"""Where on the node Ansible is put."""
PLAY = """
- hosts: nodes
  gather_facts: false
  become: true
  tasks:
    - name: Make the bridge
      podnet.ovs.bridge:
        name: br-x
        datapath_type: netdev
    - name: Move the NIC
      podnet.ovs.uplink:
        name: eth0
        bridge: br-x
        state: "{{ state | default('present') }}"
        move: true
        confirm: "{{ confirm | default('controller') }}"
        confirm_timeout: "{{ seconds | default(15) }}"
        probes: "{{ probes | default([]) }}"
"""


@dataclass(frozen=True)
class Home:
    """A node that lives on its one NIC, and who works on it."""

    lan: Lan
    node: Full
    controller: Controller
    pool: ThreadPoolExecutor

    def play(self, *words: str, **variables: object) -> Run:
        """Moves the NIC with these variables, or with `state` absent takes it out again."""
        return self.controller.play(str(self.controller.folder / "move.yml"), *words, "-e", json.dumps(variables))

    def start(self, **variables: object) -> Future[Run]:
        """The same beside this test."""
        return self.pool.submit(self.play, **variables)

    def good(self, result: str = "committed", **variables: object) -> Mapping[str, Any]:
        """The same, and the one move must end so."""
        return moved(self.play(**variables), result)

    def journals(self) -> dict[str, dict[str, Any]]:
        """What the node knows of its moves, by id; read from outside, so that it costs the node nothing."""
        found = (self.node.folder / "disk/var/lib/podnet/uplink").glob("*/journal.json")
        return {path.parent.name: json.loads(path.read_text(encoding="utf-8")) for path in found}

    def new(self, before: Mapping[str, object]) -> list[dict[str, Any]]:
        """The journals of the moves that were not there before."""
        return [journal for name, journal in self.journals().items() if name not in before]

    def wait(self, before: Mapping[str, object], *states: str, seconds: float = 60) -> dict[str, Any]:
        """Waits until the move that was not there before is in one of these states, and gives its journal."""

        def there() -> dict[str, Any]:
            return next((journal for journal in self.new(before) if journal["state"] in states), {})

        return until(there, seconds, f"a move {' or '.join(states)}", 0.05)

    @contextmanager
    def cut(self, what: str = "ssh") -> Iterator[None]:
        """Inside, the node is cut off from its controller: of its own "ssh" alone, or of "all" by its one cable."""
        port = self.node.ports[NIC]
        rules = ["tcp dport 22 drop", "tcp sport 22 drop"] if what == "ssh" else ["drop"]
        self.lan.run("sh", "-ec", both_ways("podnet_cut", port.switch_port, rules))
        try:
            yield
        finally:
            self.lan.run("sh", "-ec", both_ways("podnet_cut", port.switch_port, ["accept"]))

    def podnet(self, *words: str, check: bool = True) -> str:
        """What the command says at the node's console."""
        return self.node.run(PODNET, "uplink", *words, check=check).stdout

    def on(self, device: str) -> bool:
        """Whether a device carries the node, and ssh goes there."""
        shown = self.node.run("ip", "-o", "addr", "show", "dev", device, check=False).stdout
        return f" {self.node.address}/" in shown and self.node.ssh("true", check=False).returncode == 0

    def attached(self) -> bool:
        """Whether the NIC is a port of the bridge."""
        return self.node.run("ovs-vsctl", "--timeout=10", "port-to-br", NIC, check=False).returncode == 0


@pytest.fixture(name="house", scope="module")
def _house(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    lan = lab.lan("lan", ipv4="10.99.0.0/24", ipv6="fd00:99::/64")
    node = lab.full("n1", nics=[Nic(NIC, lan, "static")], packages=["openvswitch-switch"], runtime=True)
    controller = Controller.make(tmp_path_factory.mktemp("controller"), lab.inventory(), {}, {"n1": {}})
    (controller.folder / "move.yml").write_text(PLAY, encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        yield Home(lan, node, controller, pool)


@pytest.fixture(name="home")
def _home(house: Home) -> Iterator[Home]:
    """The node with its addresses on the NIC, whatever the test before has left."""
    yield house
    if house.attached():
        house.podnet("rollback", check=False)
    if house.attached():
        house.good(state="absent")


def moved(run: Run, result: str) -> Mapping[str, Any]:
    """The task's result, whose last move ended so."""
    found = re.search(r"(FAILED!|changed: \[n1\]) => ", run.text)
    if found:
        table: Any = json.JSONDecoder().raw_decode(run.text, found.end())[0]
    else:
        table = next((row["result"] for row in run.rows if row["task"] == "Move the NIC"), {})
    assert [move["result"] for move in table.get("moves", [])] == [result], run.text
    assert (run.code == 0) == (result == "committed"), run.text
    assert isinstance(table, dict)
    return table


def test_over_the_network_somebody_must_confirm(home: Home) -> None:
    said = home.good("refused", confirm="none")
    assert "confirm: none is for ansible_connection local" in said["msg"] and "nothing was touched" in said["msg"]
    assert "controller, probe or both" in said["msg"]
    assert home.journals() == {} and not home.attached() and home.on(NIC)


@pytest.mark.full
@pytest.mark.holds("unreachable: the task ends, says what the node does by itself, and the next run works")
@pytest.mark.parametrize(("what", "pipelining"), [("ssh", False), ("all", True)])
def test_a_node_that_stays_cut_off(home: Home, what: str, pipelining: bool) -> None:
    before = home.journals()
    playing = home.start(ansible_pipelining=pipelining)
    journal = home.wait(before, "cutover")
    began = time.monotonic()
    with home.cut(what):
        said = moved(playing.result(), "unreachable")
        took = time.monotonic() - began
        assert home.journals()[journal["id"]]["state"] == "rolled_back"
    print(f"said after {took:.0f} s: {said['msg']}")
    assert took < TIMEOUT + 60 + 30  # the margin, and a last call
    assert "goes back by itself" in said["msg"] and f"podnet uplink status {journal['id']}" in said["msg"]
    until(lambda: home.on(NIC), 20, "ssh to the node")
    home.good()
    assert home.on(BRIDGE)
    home.good(state="absent")
    assert home.on(NIC)


@pytest.mark.full
def test_an_order_without_an_answer_is_carried_out_once(home: Home) -> None:
    """The process that takes the order is stopped before it can say so; the controller gives the order again."""
    before = home.journals()
    playing = home.start()
    taker = until(lambda: process_of(home.node, "begin"), 60, "the order", 0.01)
    until(lambda: any(journal["state"] != "planned" for journal in home.new(before)), 10, "its journal", 0.01)
    os.kill(taker, signal.SIGSTOP)
    said = moved(playing.result(), "rolled_back")
    (journal,) = home.new(before)
    assert [move["id"] for move in said["moves"]] == [journal["id"]] and journal["reason"] in said["msg"]
    assert home.on(NIC) and not home.attached()


def process_of(node: Full, verb: str) -> int:
    """The process on the node that runs `podnet uplink` with this verb, a number of this machine; 0 without one."""
    for pid in processes_in(node.lab, [node.name]):
        with suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
            if "python" in words[0] and words[2:5] == [PODNET, "uplink", verb]:
                return pid
    return 0


@pytest.mark.full
def test_somebody_at_the_console_takes_it_back(home: Home) -> None:
    before = home.journals()
    playing = home.start()
    home.wait(before, "cutover")
    with home.cut():
        journal = home.wait(before, "applied")
        assert f"{journal['id']}: {NIC} to {BRIDGE}: applied (goes back in" in home.podnet("status")
        home.podnet("rollback")
    said = moved(playing.result(), "rolled_back")
    assert "somebody asked for it" in said["msg"] and "the node is as it was" in said["msg"]
    assert home.on(NIC) and not home.attached()


@pytest.mark.full
def test_a_way_back_that_fails_is_neither_done_nor_taken_back(home: Home) -> None:
    """The switch does not run when the move is to be undone; the node is reached by its NIC all the same."""
    before = home.journals()
    playing = home.start()
    home.wait(before, "cutover")
    with home.cut():
        journal = home.wait(before, "applied")
        home.node.run("systemctl", "stop", "ovsdb-server")
        home.podnet("rollback", check=False)
        home.wait(before, "rollback_failed")
    said = moved(playing.result(), "diverged")
    assert "neither done nor taken back: somebody asked for it; the way back failed" in said["msg"], said["msg"]
    assert f"podnet uplink rollback {journal['id']}" in said["msg"] and home.on(NIC)
    home.node.run("systemctl", "start", "openvswitch-switch")
    home.podnet("rollback", journal["id"])  # as the message says
    home.wait(before, "rolled_back")
    assert home.on(NIC) and not home.attached()


@pytest.mark.full
def test_a_confirmed_move_that_cannot_be_completed(home: Home) -> None:
    """Nobody can write the network manager's files: the node goes on trying, and what is asked of a person is true."""
    before = home.journals()
    playing = home.start(seconds=10)
    home.wait(before, "armed", "prepared", "cutover")
    folder = "/etc/systemd/network"
    home.node.sh(f"mount --bind {folder} {folder}; mount -o remount,bind,ro {folder}")
    try:
        said = moved(playing.result(), "diverged")
    finally:
        home.node.run("umount", folder)
    (journal,) = home.new(before)
    assert journal["state"] == "committing"
    assert "is confirmed and not yet done" in said["msg"] and "Read-only file system" in said["msg"], said["msg"]
    assert f"podnet uplink status {journal['id']}" in said["msg"] and "podnet uplink rollback" not in said["msg"]
    home.wait(before, "committed", seconds=20)
    assert home.on(BRIDGE)
    run = home.play()
    assert run.code == 0 and run.changed() == 0, run.text
    home.good(state="absent")


@pytest.mark.full
def test_the_node_itself_is_asked_by_probe_and_not_by_both(home: Home) -> None:
    """The controller is cut off until the move is over: only where it need not confirm, the move becomes permanent."""
    gateway = home.lan.gateway
    for confirm, state in (("both", "rolled_back"), ("probe", "committed")):
        before = home.journals()
        playing = home.start(confirm=confirm, probes=[gateway])
        home.wait(before, "cutover")
        with home.cut():
            home.wait(before, state)
        said = moved(playing.result(), state)
        if state == "rolled_back":
            assert "nobody confirmed it before its deadline" in said["msg"] and home.on(NIC)
    assert home.on(BRIDGE)
    home.good(state="absent", confirm="both", probes=[gateway])
    for confirm in ("both", "probe"):
        said = home.good("rolled_back", confirm=confirm, probes=[f"tcp://{gateway}:9"])
        assert f"the probe tcp://{gateway}:9 is not taken" in said["msg"]
    assert home.on(NIC) and not home.attached()


@pytest.mark.full
def test_another_user_becomes_root_with_a_password(home: Home) -> None:
    home.node.sh(
        "useradd --create-home --shell /bin/bash ops; printf 'ops:one two$\\nroot:three\"\\n' | chpasswd;"
        "cp -r ~root/.ssh /home/ops/; chown -R ops: /home/ops/.ssh;"
        "echo 'ops ALL=(ALL:ALL) PASSWD: ALL' > /etc/sudoers.d/ops"
    )
    ops = {"ansible_user": "ops", "ansible_become_method": "ansible.builtin.sudo"}
    run = home.play(**ops)
    assert run.code != 0 and "password" in run.text.lower() and not home.attached(), run.text
    home.good(**ops, ansible_become_password="one two$")
    assert home.on(BRIDGE)
    su = {**ops, "ansible_become_method": "ansible.builtin.su", "ansible_become_password": 'three"'}
    home.good(state="absent", **su)
    assert home.on(NIC)
    home.good(**su)
    home.good(state="absent", **ops, ansible_become_password="one two$", ansible_pipelining=False)
    assert home.on(NIC)


def accepted(node: Full) -> list[str]:
    """The ports of the ssh connections that the node has taken, in order."""
    text = node.run("journalctl", "--unit=ssh.service", "--output=cat", "--no-pager").stdout
    return re.findall(r"^Accepted publickey for root from \S+ port (\d+) ", text, re.M)


@pytest.mark.full
def test_the_confirmation_comes_over_a_connection_of_its_own(home: Home) -> None:
    """A shared connection (ControlMaster) and pipelining are for the modules; what the node's sshd took shows it."""
    shared = f"-o ControlMaster=auto -o ControlPersist=60 -o ControlPath={home.controller.folder}/%C"
    before, taken = home.journals(), accepted(home.node)
    home.good(ansible_ssh_args=shared, ansible_pipelining=True)
    (journal,) = home.new(before)
    new = accepted(home.node)[len(taken) :]
    print(f"{len(new)} connections, the move was begun over number {new.index(journal['connection'][1]) + 1}")
    assert new.index(journal["connection"][1]) == 1  # all modules before came over the first one
    assert len(new) >= 4  # a look, and the confirmation
    home.good(state="absent", ansible_ssh_args=shared)


@pytest.mark.full
def test_a_node_that_is_reached_and_slow_has_more_time(home: Home) -> None:
    """Who carries the move out is stopped until after the deadline that the move had at first."""
    before = home.journals()
    playing = home.start(seconds=10)
    journal = until(lambda: next((j for j in home.new(before) if j["worker"]), {}), 60, "who carries it out")
    home.node.sh(f"kill -STOP {journal['worker']['pid']}; sleep 12; kill -CONT {journal['worker']['pid']}")
    moved(playing.result(), "committed")
    (over,) = home.new(before)
    times = {entry["point"]: entry["t"] for entry in over["log"]}
    print(f"it waited for its confirmation after {times['applied'] - times['planned']:.1f} s")
    assert times["applied"] - times["planned"] > 10 and over["deadline"] > journal["deadline"] + 1
    assert home.on(BRIDGE)
    home.good(state="absent")


@pytest.mark.full
def test_ansible_on_the_node_itself(home: Home) -> None:
    """Ansible runs on the node: nobody sees from outside whether a move worked, so who begins it says so."""
    put_ansible(home)

    def play(**variables: object) -> Run:
        words = ["python3", "-m", "ansible.cli.playbook", "-v", "-i", "nodes.yml", "move.yml"]
        env = {"PYTHONPATH": f"{CONTROLLER}/site", "ANSIBLE_COLLECTIONS_PATH": f"{CONTROLLER}/collections"}
        argv = ["env", f"--chdir={CONTROLLER}", *words, "-e", json.dumps(variables)]
        done = home.node.run(*argv, env={**env, "LC_ALL": "C.UTF-8", "HOME": "/root"}, check=False, timeout=120)
        return Run(done.returncode, done.stdout + done.stderr)

    for confirm in ("controller", "both"):
        said = moved(play(confirm=confirm), "refused")
        assert "over ansible_connection local nobody can see from outside that it worked" in said["msg"]
    assert not home.attached()
    with home.cut():
        moved(play(confirm="none"), "committed")
    assert home.on(BRIDGE)
    moved(play(confirm="probe", state="absent"), "committed")
    assert home.on(NIC)


def put_ansible(home: Home) -> None:
    """Copies the controller's Ansible and the installed collection to the node."""
    site, folder = Path(ansible.__file__).parents[1], home.controller.folder
    kinds = ("ansible", "jinja2", "jinja2-*.dist-info", "markupsafe", "yaml", "_yaml", "packaging", "resolvelib")
    needed = [path.name for kind in kinds for path in site.glob(kind)]
    for source, names, target in ((site, needed, "site"), (folder, ["collections", "move.yml"], "")):
        archive = run_here(["tar", "--create", "--directory", source, *names])
        home.node.run("mkdir", "-p", f"{CONTROLLER}/{target}")
        home.node.run("tar", "--extract", "--directory", f"{CONTROLLER}/{target}", input=archive.stdout)
    home.node.write(f"{CONTROLLER}/nodes.yml", "nodes: {hosts: {n1: {ansible_connection: local}}}\n")
