# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node's only NIC goes under a bridge and comes out again, by `podnet uplink` alone: light nodes, without systemd.

The tests follow one another on one node, which each leaves as it found it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import secrets
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from ansible_collections.podnet.ovs.tests.lab import Lab, Lan, Light, Nic, until

NIC, BRIDGE = "eth0", "br-x"
PODNET = "/opt/podnet/current/bin/podnet"
TIMEOUT = 60
_ports = itertools.count(41000)


@dataclass
class Move:
    """A move that was begun."""

    direction: str
    timeout: int = TIMEOUT
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))
    connection: str = ""
    more: dict[str, Any] = field(default_factory=dict)


class Site:
    """A node with one NIC on a LAN with a gateway, from where it is seen."""

    def __init__(self, lan: Lan, node: Light) -> None:
        self.lan = lan
        self.node = node
        self.addresses = [str(address.ip) for address in node.ports[NIC].addresses]
        self.short = 10 if node.datapath == "netdev" else 60
        """Seconds until a move goes back: enough to get as far as that, on the slow machine with a stock kernel too."""

    def connection(self) -> str:
        """A new SSH connection from the controller, as sshd would name it."""
        return f"{self.lan.controllers[0].ip} {next(_ports)} {self.addresses[0]} 22"

    def podnet(self, *words: str, connection: str | None = None, input: str = "") -> tuple[int, dict[str, Any]]:
        """Exit status and answer of `podnet uplink … --json`."""
        env = {"SSH_CONNECTION": self.connection() if connection is None else connection}
        done = self.node.run(PODNET, "uplink", *words, "--json", input=input, check=False, env=env)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def begin(self, move: Move, bridge: str = BRIDGE) -> tuple[int, dict[str, Any]]:
        """Begins it."""
        declared = {"name": bridge, "datapath_type": self.node.datapath, "uplinks": [{"name": NIC, "move": True}]}
        request = {"direction": move.direction, "nic": NIC, "bridge": declared, "timeout": move.timeout, **move.more}
        order = {
            "schema": 1,
            "id": move.id,
            "nonce_hash": hashlib.sha256(move.nonce.encode()).hexdigest(),
            "request": {"manager": "none", **request},
            "holder": {"host": "controller", "user": "tester"},
        }
        move.connection = move.connection or self.connection()
        return self.podnet("begin", connection=move.connection, input=json.dumps(order))

    def state(self, move: Move) -> dict[str, Any]:
        """How it stands."""
        return self.podnet("status", move.id)[1]

    def journal(self, move: Move) -> dict[str, Any]:
        """What the node has on its disk."""
        path = self.node.host_path(f"/var/lib/podnet/uplink/{move.id}/journal.json")
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    def wait(self, move: Move, *states: str, seconds: float = 60) -> dict[str, Any]:
        """How it stands as soon as it is in one of these states."""
        found: dict[str, Any] = {}

        def there() -> bool:
            found.update(self.state(move))
            return found["state"] in states

        until(there, seconds, f"{move.direction} in {states}", 0.2)
        return found

    def applied(self, direction: str, timeout: int = TIMEOUT, **more: Any) -> Move:
        """A move that waits for its confirmation."""
        move = Move(direction, timeout, more=more)
        code, answer = self.begin(move)
        assert code == 0, answer
        found = self.wait(move, "applied", "rolled_back", "rollback_failed")
        assert found["state"] == "applied", found
        return move

    def whole(self, direction: str) -> Move:
        """A move from its beginning to its end."""
        move = self.applied(direction)
        assert self.podnet("confirm", move.id, move.nonce)[0] == 0
        found = self.wait(move, "committed")
        assert not found["reason"]
        return move

    def reachable(self) -> bool:
        """Whether all its addresses answer the gateway."""
        return all(self.lan.run("ping", "-nqc1", "-W2", item, check=False).returncode == 0 for item in self.addresses)

    def layer3(self, device: str) -> dict[str, Any]:
        """What a device carries, without its name and what counts down."""

        def read(*words: str) -> Any:
            return json.loads(self.node.run("ip", "-d", "-j", *words).stdout or "[]")

        addresses = [
            {key: item.get(key) for key in ("local", "prefixlen", "scope", "broadcast")}
            for link in read("addr", "show", "dev", device)
            for item in link["addr_info"]
            if item["scope"] != "link"
        ]
        routes = []
        for family in ("-4", "-6"):
            for item in read(family, "route", "show", "table", "all"):
                if item.get("dev") == device and item.get("type") in (None, "unicast"):
                    kept = ("dst", "gateway", "table", "metric", "prefsrc", "scope", "protocol")
                    routes.append({"family": family, **{key: item.get(key) for key in kept}})
        routes = [item for item in routes if not str(item["dst"]).startswith(("fe80", "ff00", "multicast"))]
        rules = [item for family in ("-4", "-6") for item in read(family, "rule", "show")]
        return {
            "addresses": addresses,
            "routes": sorted(routes, key=lambda item: json.dumps(item, sort_keys=True)),
            "rules": [{**rule, "iif": str(rule.get("iif", "")).replace(device, "DEV")} for rule in rules],
        }

    def attached(self) -> bool:
        """Whether the NIC is a port of a bridge."""
        return self.node.run("ovs-vsctl", "--timeout=10", "port-to-br", NIC, check=False).returncode == 0

    def bridges(self) -> list[str]:
        """The bridges of the switch."""
        return self.node.run("ovs-vsctl", "--timeout=10", "list-br").stdout.split()

    def workers(self) -> list[int]:
        """The processes of moves."""
        found = self.node.run("pgrep", "-f", "bin/podnet uplink (work|finish|recover|keep)", check=False).stdout
        return [pid for pid in map(int, found.split()) if self._is_mine(pid)]

    def _is_mine(self, pid: int) -> bool:
        try:
            return os.readlink(f"/proc/{pid}/ns/net") == os.readlink(f"/proc/{self.node.holder}/ns/net")
        except OSError:
            return False


@pytest.fixture(scope="module")
def site(lab: Lab, datapath: str) -> Site:
    """The node, with routes in several tables and rules."""
    lan = lab.lan("site", ipv4="10.88.0.0/24", ipv6="fd88::/64")
    node = lab.light("n1", nics=[Nic(NIC, lan, "static")], datapath=datapath)
    node.install_runtime()
    four, six = (str(gateway.ip) for gateway in lan.gateways)
    batch = [
        f"addr add 10.88.0.77/24 dev {NIC}",
        f"route add 10.50.0.0/16 via {four} metric 50",
        f"route add 10.51.0.0/16 via {four} table 100",
        f"route add 10.88.0.0/24 dev {NIC} scope link table 100",
        f"route add fd50::/32 via {six} metric 77",
        f"route add fd51::/32 via {six} table 100",
        "rule add from 10.88.0.77 lookup 100 priority 1000",
        f"rule add iif {NIC} lookup 100 priority 1001",
    ]
    node.run("ip", "-batch", "-", input="\n".join(batch))
    return Site(lan, node)


@pytest.fixture
def before(site: Site) -> Iterator[dict[str, Any]]:
    """What the NIC carries; the test must leave the node so, without a bridge or a process."""
    found = site.layer3(NIC)
    assert len(found["addresses"]) == 3 and len(found["routes"]) >= 9, found
    yield found
    until(lambda: not site.workers(), 20, "the end of all processes", 0.2)
    assert site.layer3(NIC) == found
    assert site.layer3(BRIDGE)["addresses"] == [] if BRIDGE in site.bridges() else True
    assert not site.attached()
    assert site.reachable()


def test_there_and_back(site: Site, before: dict[str, Any]) -> None:
    site.whole("move")
    assert site.layer3(BRIDGE) == before
    assert site.layer3(NIC)["addresses"] == []
    assert site.attached() and site.reachable()
    rows = site.node.run("ovs-vsctl", "get", "Port", NIC, "other_config", "external_ids").stdout
    assert "transient" not in rows and "podnet_move" not in rows and "podnet_owner=node" in rows
    assert site.podnet("status")[1]["bridges"] == [{"bridge": BRIDGE, "nic": NIC, "state": "ok", "why": ""}]
    site.whole("unbridge")
    assert site.podnet("status")[1]["bridges"] == []
    assert BRIDGE in site.bridges(), "the bridge stays: what runs next removes it, if nobody wants it"
    site.node.run("ovs-vsctl", "del-br", BRIDGE)


def test_without_a_confirmation_it_goes_back(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move", site.short)
    assert site.reachable()
    found = site.wait(move, "rolled_back", seconds=site.short + 10)
    assert "nobody confirmed it" in found["reason"]
    assert site.bridges() == []
    code, answer = site.podnet("confirm", move.id, move.nonce)
    assert (code, answer["kind"], answer["state"]) == (1, "lost", "rolled_back")


def test_the_way_back_goes_back_too(site: Site, before: dict[str, Any]) -> None:
    site.whole("move")
    carried = site.layer3(BRIDGE)
    move = site.applied("unbridge", site.short)
    assert site.reachable()
    site.wait(move, "rolled_back", seconds=site.short + 10)
    assert site.layer3(BRIDGE) == carried and site.reachable() and site.attached()
    site.whole("unbridge")
    site.node.run("ovs-vsctl", "del-br", BRIDGE)


def test_what_no_longer_answers_undoes_it_at_once(site: Site, before: dict[str, Any]) -> None:
    """As on a port of the site's switch that lets no frames of the bridge pass."""
    move = Move("move", more={"probes": ["10.88.0.250", "tcp://10.88.0.250:9"]})
    assert site.begin(move)[0] == 0
    until(lambda: site.journal(move)["state"] == "cutover", 40, "the cutover", 0.02)
    site.lan.gateway_down()
    try:
        found = site.wait(move, "rolled_back")
    finally:
        site.lan.gateway_up()
    for word in ("the gateway 10.88.0.1", "the probe 10.88.0.250", "the probe tcp://10.88.0.250:9"):
        assert word in found["reason"]
    assert site.bridges() == []


def test_only_one_move_at_a_time(site: Site, before: dict[str, Any]) -> None:
    first = site.applied("move")
    code, answer = site.begin(Move("move"), "br-other")
    assert (code, answer["kind"]) == (1, "busy")
    assert answer["holder"] == {"host": "controller", "user": "tester"}
    assert "tester on controller" in answer["error"] and first.id in answer["error"]
    assert site.podnet("rollback", first.id)[1]["state"] == "rolled_back"
    assert site.bridges() == []


def test_a_confirmation_proves_a_new_way(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move")
    code, answer = site.podnet("confirm", move.id, move.nonce, connection=move.connection)
    assert (code, answer["kind"]) == (1, "same_connection")
    assert site.podnet("confirm", move.id, move.nonce, connection="")[1]["kind"] == "same_connection"
    assert site.podnet("confirm", move.id, "guess")[1]["kind"] == "wrong_nonce"
    assert site.podnet("confirm", "nobody", "guess")[1]["kind"] == "unknown"
    assert site.state(move)["state"] == "applied"
    assert site.podnet("rollback")[1] == {"id": move.id, "state": "rolled_back", "reason": "somebody asked for it"}


def test_what_is_asked_twice_is_done_once(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move")
    code, answer = site.begin(move)
    assert (code, answer["state"]) == (0, "applied")
    for _again in range(2):
        assert site.podnet("confirm", move.id, move.nonce)[0] == 0
    site.wait(move, "committed")
    assert site.podnet("confirm", move.id, move.nonce)[1] == {"state": "committed"}
    assert site.begin(move)[1]["state"] == "committed"
    assert site.podnet("rollback", move.id)[1]["kind"] == "lost"
    other = Move("move", id=move.id)
    assert site.begin(other)[1]["kind"] == "refused"
    site.whole("unbridge")
    site.node.run("ovs-vsctl", "del-br", BRIDGE)


def test_a_deadline_is_put_off(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move", site.short)
    assert site.podnet("extend", move.id, "25")[1]["deadline_in"] > 20
    time.sleep(site.short)
    assert site.state(move)["state"] == "applied" and site.reachable()
    assert site.podnet("confirm", move.id, move.nonce)[0] == 0
    site.wait(move, "committed")
    site.whole("unbridge")
    site.node.run("ovs-vsctl", "del-br", BRIDGE)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_worker_that_dies_or_hangs_is_noticed(site: Site, before: dict[str, Any], number: signal.Signals) -> None:
    move = Move("move", site.short)
    assert site.begin(move)[0] == 0
    worker = until(lambda: site.journal(move)["worker"].get("pid"), 40, "the worker", 0.02)
    assert worker in site.workers()
    os.kill(worker, number)
    found = site.wait(move, "rolled_back", seconds=site.short + 10)
    wanted = "at its deadline" if number == signal.SIGSTOP else "the process that carried it out ended"
    assert wanted in found["reason"]
    assert site.bridges() == []


def test_without_a_switch_the_nic_gets_the_addresses_all_the_same(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move", site.short)
    site.node.ovs.stop()
    found = site.wait(move, "rollback_failed", seconds=site.short + 40)
    assert "nobody confirmed it" in found["reason"] and "the way back failed" in found["reason"]
    until(site.reachable, 10, "the node on its addresses", 0.2)
    code, answer = site.begin(Move("move"))
    assert (code, answer["kind"]) == (1, "busy"), "a node in this state is looked at before it moves again"
    site.node.ovs.start()
    site.wait(move, "rolled_back", seconds=60)
    assert site.bridges() == []


def test_on_a_full_disk_it_goes_back_too(site: Site, before: dict[str, Any]) -> None:
    folder = "/var/lib/podnet"
    disk = site.node.folder / "small-disk"
    site.node.sh(f"truncate -s 48M {disk}; mkfs.ext4 -q -m 0 {disk}; mkdir -p {folder}; mount -o loop {disk} {folder}")
    try:
        move = site.applied("move", site.short)
        site.node.run("dd", "if=/dev/zero", f"of={folder}/full", "bs=4k", check=False)
        site.wait(move, "rolled_back", seconds=site.short + 20)
        until(lambda: not site.workers(), 20, "the end of all processes", 0.2)
    finally:
        site.node.run("umount", "--lazy", folder)


def test_the_node_can_be_its_own_witness(site: Site, before: dict[str, Any]) -> None:
    move = Move("move", more={"confirm": "probe", "probes": ["10.88.0.1", "fd88::1"]})
    assert site.begin(move)[0] == 0
    site.wait(move, "committed")
    assert site.reachable()
    site.whole("unbridge")
    site.node.run("ovs-vsctl", "del-br", BRIDGE)


def test_a_bridge_that_was_there_stays(site: Site, before: dict[str, Any]) -> None:
    vsctl = ["ovs-vsctl", "--timeout=10"]
    site.node.run(*vsctl, "add-br", BRIDGE, "--", "set", "Bridge", BRIDGE, f"datapath_type={site.node.datapath}")
    ours = ["external_ids:podnet_owner=node", "external_ids:podnet_schema=1", "external_ids:of=others"]
    site.node.run(*vsctl, "set", "Bridge", BRIDGE, "other_config:hwaddr=52:54:00:00:00:77", *ours)
    columns = ["get", "Bridge", BRIDGE, "other_config", "external_ids", "fail_mode", "stp_enable"]
    was = site.node.run(*vsctl, *columns).stdout
    move = site.applied("move")
    assert site.reachable()
    assert site.podnet("rollback", move.id)[1]["state"] == "rolled_back"
    assert site.node.run(*vsctl, *columns).stdout == was
    site.node.run(*vsctl, "del-br", BRIDGE)


def test_the_console_is_told_in_words(site: Site, before: dict[str, Any]) -> None:
    move = site.applied("move")
    shown = site.node.run(PODNET, "uplink", "status", check=False).stdout
    assert f"{move.id}: {NIC} to {BRIDGE}: applied (goes back in" in shown
    done = site.node.run(PODNET, "uplink", "rollback", check=False).stdout
    assert f"{move.id}: {NIC} to {BRIDGE}: rolled_back: somebody asked for it" in done
    log = site.node.run(PODNET, "uplink", "status", move.id).stdout
    assert [line.split()[2].rstrip(":") for line in log.splitlines()[1:]] == [
        "planned", "armed", "prepared", "cutover", "applied", "rolling_back", "rolled_back",
    ]  # fmt: skip
