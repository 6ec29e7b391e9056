# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where it is measured: a node with Open vSwitch for podnet-ovs and compiled peers of its kind, one that stays without
ports, one each for Debian's plugins, and in each a driver that calls plugins as a container runtime does.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Nic

from . import cpu
from .report import AGENT, BRIDGE, EMPTY, IN_PROCESS, MACVLAN, STANDING, Row, spread

DEBIAN = "/usr/lib/cni"
"""Debian's containernetworking-plugins."""
OURS = "/opt/cni/bin/podnet-ovs"
LAUNCHERS = "/opt/podnet/current/bin"
SOCKET = "/run/podnet/agent.sock"
SWITCH, VLAN = "br-pod", 100
DATABASE = "/run/openvswitch/db.sock"
DAEMONS = ("ovs-vswitchd", "ovsdb-server")
NODE = {
    "schema": 1,
    "bridges": [{"name": SWITCH, "datapath_type": "netdev", "uplinks": [{"name": "eth1", "vlans": str(VLAN)}]}],
    "networks": [{"name": "bench", "bridge": SWITCH, "vlan": VLAN}],
}
AT_ONCE = 16
"""Standing ports are made so many at a time."""
PODS = 64
"""Namespaces for what comes and goes: as many as calls at once."""
Json = dict[str, Any]


class CallFailed(RuntimeError):
    """A call that is no part of what is measured, and failed."""


@dataclass(frozen=True)
class Done:
    """A call that has ended; see driver.py."""

    ms: float
    code: int
    cpu: float
    rss: int
    out: str
    err: str


@dataclass(frozen=True)
class Answer:
    """What a driver says of a request."""

    seconds: float
    cpu: float
    lanes: list[list[Done]]

    @property
    def calls(self) -> list[Done]:
        """All of them."""
        return [done for lane in self.lanes for done in lane]


class Driver:
    """A process in a node that starts plugins and times them. `words` come before its command."""

    def __init__(self, node: Light, *words: str) -> None:
        script = Path(__file__).with_name("driver.py")
        self._process = subprocess.Popen(
            [*node.enter(), *words, "/usr/bin/python3", "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath},
        )

    def run(self, lanes: Sequence[Sequence[Json]]) -> Answer:
        """Lanes of calls side by side."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        stdin.write(json.dumps({"lanes": lanes}).encode() + b"\n")
        stdin.flush()
        answer = json.loads(stdout.readline())
        return Answer(answer["seconds"], answer["cpu"], [[Done(**done) for done in lane] for lane in answer["calls"]])

    def must(self, lanes: Sequence[Sequence[Json]]) -> Answer:
        """The same for calls that have to succeed. Raises CallFailed."""
        answer = self.run(lanes)
        for lane, dones in zip(lanes, answer.lanes):
            for call, done in zip(lane, dones):
                if done.code:
                    raise CallFailed(f"{call['env']['CNI_COMMAND']} by {call['argv'][0]}: {done.out}{done.err}")
        return answer

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


@dataclass(frozen=True)
class Kind:
    """One way to attach a pod: a plugin of a node, called by a driver.

    `ifname` is its own, so that kinds of one node share its pods' namespaces. `watched` tells its node's processes
    apart. `stands`: whether the standing ports of its node are made with it.
    """

    name: str
    driver: Driver
    plugin: str
    conf: Json
    ifname: str
    watched: cpu.Watched
    stands: bool = True

    def call(self, verb: str, label: str, pod: str, previous: str = "") -> Json:
        """A call for a driver. `label` makes the container's id; `previous`: the result of its ADD, for CHECK."""
        conf = {**self.conf, "prevResult": json.loads(previous)} if previous else self.conf
        env = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": f"{self.ifname}-{label}",
            "CNI_NETNS": f"/run/netns/{pod}",
            "CNI_IFNAME": self.ifname,
            "CNI_PATH": f"/opt/cni/bin:{DEBIAN}",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench",
            "PATH": os.defpath,
        }
        return {"argv": [self.plugin], "env": env, "stdin": json.dumps(conf)}


@dataclass(frozen=True)
class Peer:
    """A further plugin for Open vSwitch: its executable on this machine, and keys of its own."""

    name: str
    path: Path
    keys: Json = field(default_factory=dict)

    @classmethod
    def parse(cls, text: str) -> Peer:
        """NAME=PATH[:JSON]. Raises ValueError."""
        name, equals, rest = text.partition("=")
        path, _colon, keys = rest.partition(":")
        found = cls(name, Path(path).absolute(), json.loads(keys or "{}"))
        if not equals or not name or not isinstance(found.keys, dict):
            raise ValueError(f'{text!r} is not NAME=PATH or NAME=PATH:{{"key": value}}')
        if not os.access(found.path, os.X_OK):
            raise ValueError(f"{found.path} is not an executable")
        return found


def netconf(plugin: str, subnet: str, **keys: Any) -> Json:
    """The same for all, but for what makes the link."""
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]]}
    return {"cniVersion": "1.0.0", "name": "bench", "type": plugin, **keys, "ipam": ipam}


def own_conf() -> Json:
    """That of podnet-ovs."""
    return netconf("podnet-ovs", "10.50.0.0/16", bridge=SWITCH, vlan=VLAN)


class Place:
    """The nodes, with drivers and kinds. Pods are namespaces: `p0` … come and go, `s0` … stand."""

    def __init__(self, lab: Lab, peers: Sequence[Peer]) -> None:
        self.ours = lab.light("ours", nics=[Nic("eth1", lab.lan("trunk"))])
        self.empty = lab.light("empty", nics=[Nic("eth1", lab.lan("other"))])
        self.bridge = lab.light("bridge", ovs=False)
        self.macvlan = lab.light("macvlan", ovs=False)
        self.macvlan.sh("ip link add parent up type veth peer name other; ip link set other up")
        self.pods("p", range(PODS))  # first: a driver with mounts of its own sees none that are made later
        self.agent = prepare(self.ours)
        self.daemons = {name: self.ours.ovs.pid(name) for name in DAEMONS}
        self.standing = 0
        self._drivers: list[Driver] = []
        self.kinds = [*self._own(), *self._debian(), *(self._peer(peer) for peer in peers)]
        self.without_ports = self._without_ports()

    @property
    def nodes(self) -> tuple[Light, ...]:
        """All of them."""
        return (self.ours, self.empty, self.bridge, self.macvlan)

    def pods(self, prefix: str, numbers: range) -> None:
        """Makes namespaces in all nodes."""
        batch = "\n".join(f"netns add {prefix}{number}" for number in numbers)
        for node in self.nodes:
            node.run("ip", "-batch", "-", input=batch)

    def stand(self, count: int) -> list[Row]:
        """From now on so many ports stand in each node. Gives a row for each kind that made some.

        An ADD that fails is tried again after its DEL, as a runtime does. Raises CallFailed if none comes of that.
        """
        new = range(self.standing, count)
        self.pods("s", new)
        rows = [self._stand(kind, new, count) for kind in self.kinds if kind.stands and new]
        self.standing = count
        return rows

    @staticmethod
    def _stand(kind: Kind, new: range, count: int) -> Row:
        calls = {verb: [kind.call(verb, f"s{number}", f"s{number}") for number in new] for verb in ("ADD", "DEL")}
        kind.driver.must([[calls["ADD"][0]]])  # alone: Debian's bridge makes its bridge
        wanted = list(range(1, len(new)))
        lanes = [lane for first in range(AT_ONCE) if (lane := wanted[first::AT_ONCE])]
        answer = kind.driver.run([[calls["ADD"][number] for number in lane] for lane in lanes])
        failed = [
            (number, done) for lane, dones in zip(lanes, answer.lanes) for number, done in zip(lane, dones) if done.code
        ]
        for number, _done in failed:
            kind.driver.must([[calls["DEL"][number], calls["ADD"][number]]])
        said = (failed[0][1].out + failed[0][1].err).strip() if failed else ""
        row = {"ports": count, "verb": STANDING, "plugin": kind.name, "seconds": answer.seconds}
        times = [done.ms for done in answer.calls if not done.code]
        return {**row, **spread(times), "failures": len(failed), "said": said}

    def hidden(self, then: str = "") -> Driver:
        """A driver of our node that does not see the agent; `then` is a line of shell that runs where it runs."""
        script = f'mount -t tmpfs none /run/podnet\n{then}\nexec "$@"'
        return self._driver(self.ours, "unshare", "--mount", "sh", "-ec", script, "hidden")

    def close(self) -> None:
        """Ends the drivers."""
        for driver in self._drivers:
            driver.close()

    def _driver(self, node: Light, *words: str) -> Driver:
        self._drivers.append(Driver(node, *words))
        return self._drivers[-1]

    def _without_ports(self) -> Kind:
        """Ours on a node of its own where no port ever stands: what an ADD takes there at the same time."""
        prepare(self.empty)
        return Kind(EMPTY, self._driver(self.empty), OURS, own_conf(), "net0", cpu.Watched(0, {}), stands=False)

    def _own(self) -> list[Kind]:
        conf = own_conf()
        watched, alone = cpu.Watched(self.agent, self.daemons), cpu.Watched(0, self.daemons)
        return [
            Kind(AGENT, self._driver(self.ours), OURS, conf, "net0", watched),
            Kind(IN_PROCESS, self.hidden(), OURS, conf, "net1", alone, stands=False),
        ]

    def _debian(self) -> list[Kind]:
        of_bridge = netconf(BRIDGE, "10.60.0.0/16", bridge="cni0")
        of_macvlan = netconf(MACVLAN, "10.60.0.0/16", master="parent")
        return [
            Kind(name, self._driver(node), f"{DEBIAN}/{name}", conf, "net0", cpu.Watched(0, {}))
            for name, node, conf in ((BRIDGE, self.bridge, of_bridge), (MACVLAN, self.macvlan, of_macvlan))
        ]

    def _peer(self, peer: Peer) -> Kind:
        number = len(self._drivers)
        target = f"/opt/bench/{number}/{peer.path.name}"
        self.ours.put(peer.path, target)
        keys: Mapping[str, Any] = {"bridge": SWITCH, "vlan": VLAN, "socket_file": f"unix:{DATABASE}", **peer.keys}
        # Network and addresses are ours, so that host-local finds as many leases.
        conf = {**netconf(peer.path.name, "10.50.0.0/16"), **keys}
        driver, watched = self._driver(self.ours), cpu.Watched(0, self.daemons)
        return Kind(peer.name, driver, target, conf, f"net{number}", watched, stands=False)


def prepare(node: Light) -> int:
    """Bridge, uplink and agent, by the product's own means; gives the agent's process."""
    node.install_runtime()
    node.write("/run/node.json", json.dumps(NODE))
    node.run(f"{LAUNCHERS}/podnet", "node", "apply", "/run/node.json")
    agent = node.popen(f"{LAUNCHERS}/podnet-agent", "--socket", SOCKET, stdout=subprocess.DEVNULL)
    node.sh(f"for i in $(seq 100); do [ -S {SOCKET} ] && exit; sleep 0.1; done; exit 1")
    return agent.pid
