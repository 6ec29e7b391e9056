# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls CNI plugins on a light node as a container runtime does, and looks at what they leave there.

Of libcni it has what tests need: a list's plugins in order, or in reverse for DEL; `prevResult` from one to the next
and from ADD to CHECK and DEL; `runtimeConfig` for declared capabilities only; the list of valid attachments for GC.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Union

from ansible_collections.podnet.ovs.tests.lab import Light, Pod, until

PATH = "/opt/cni/bin:/usr/lib/cni"
"""The plugins of the product, and those of Debian's containernetworking-plugins."""
PLUGIN = "/opt/cni/bin/podnet-ovs"
AGENT = "/opt/podnet/current/bin/podnet-agent"
SOCKET = "/run/podnet/agent.sock"
AGENT_LOG = "/var/log/podnet-agent.log"
ARGS = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=test"
VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
SECONDS = 60.0
"""After that a call has hung."""

Conf = Union[Mapping[str, Any], bytes]


@dataclass(frozen=True)
class At:
    """An attachment as the runtime names it. `netns` is a path, empty for a namespace that is gone."""

    container: str
    netns: str = ""
    ifname: str = "eth0"

    def to_env(self) -> dict[str, str]:
        """The variables of the CNI specification."""
        return {"CNI_CONTAINERID": self.container, "CNI_NETNS": self.netns, "CNI_IFNAME": self.ifname}

    @property
    def key(self) -> dict[str, str]:
        """As GC lists it."""
        return {"containerID": self.container, "ifname": self.ifname}


@dataclass(frozen=True)
class Answer:
    """What a plugin said, and after how many seconds."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def result(self) -> dict[str, Any]:
        """The result of an ADD that succeeded."""
        assert self.code == 0, self
        return dict(json.loads(self.stdout))

    @property
    def error(self) -> dict[str, Any]:
        """The error's JSON: it has what the specification asks for, and a way out."""
        assert self.code != 0, self
        document = dict(json.loads(self.stdout))
        assert {"cniVersion", "code", "msg"} <= set(document), document
        assert "Traceback" not in self.stdout + self.stderr
        return document

    def succeeded(self) -> Answer:
        """Itself, if it is the success of a verb without a result."""
        assert (self.code, self.stdout) == (0, ""), self
        return self


def network(
    name: str = "net100", *, vlan: int | None = 100, version: str = "1.0.0", more: Sequence[Any] = (), **keys: Any
) -> dict[str, Any]:
    """A configuration list with podnet-ovs; `more` are plugins chained behind it. A key that is None is left out."""
    plugin: dict[str, Any] = {"type": "podnet-ovs", "bridge": "br-pod", "vlan": vlan, **keys}
    plugin = {key: value for key, value in plugin.items() if value is not None}
    return {"cniVersion": version, "name": name, "plugins": [plugin, *more]}


def host_local(*subnets: str, **keys: Any) -> dict[str, Any]:
    """Addresses from Debian's host-local, one of each subnet."""
    return {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets], **keys}


def static(*addresses: str) -> dict[str, Any]:
    """Addresses from Debian's static."""
    return {"type": "static", "addresses": [{"address": address} for address in addresses]}


class Caller:
    """A runtime on a node: calls plugins, and keeps the results of ADD as libcni's cache does."""

    def __init__(self, node: Light) -> None:
        self.node = node
        self._results: dict[tuple[str, At], dict[str, Any]] = {}

    def call(
        self,
        verb: str,
        conf: Conf,
        at: At | None = None,
        *,
        env: Mapping[str, str | None] | None = None,
        plugin: str = PLUGIN,
        timeout: float = SECONDS,
    ) -> Answer:
        """One call of one plugin. `env` adds to the environment; a variable that is None is not set.

        Raises subprocess.TimeoutExpired if it hangs.
        """
        data = conf if isinstance(conf, bytes) else json.dumps(conf).encode()
        began = time.monotonic()
        done = self.node.run(plugin, input=data, env=environment(verb, at, env), check=False, timeout=timeout)
        return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def start(self, verb: str, conf: Conf, at: At, plugin: str = PLUGIN) -> subprocess.Popen[bytes]:
        """The same call as a process that the caller may kill; what it says is dropped."""
        null = subprocess.DEVNULL
        process = self.node.popen(plugin, env=environment(verb, at), stdin=subprocess.PIPE, stdout=null, stderr=null)
        assert process.stdin is not None
        process.stdin.write(conf if isinstance(conf, bytes) else json.dumps(conf).encode())
        process.stdin.close()
        return process

    def ask(
        self,
        verb: str,
        conflist: Mapping[str, Any],
        at: At | None = None,
        *,
        runtime: Mapping[str, Any] | None = None,
        valid: Sequence[At] | None = None,
        env: Mapping[str, str | None] | None = None,
    ) -> Answer:
        """One verb for a whole list; the answer is that of the first plugin that fails, or of the last one.

        `runtime`: values for capabilities. `valid`: the attachments that GC keeps.
        """
        previous = self._results.get((conflist["name"], at)) if at and verb != "ADD" else None
        plugins = list(conflist["plugins"])
        answer: Answer | None = None
        for plugin in reversed(plugins) if verb == "DEL" else plugins:
            conf = plugin_conf(conflist, plugin, runtime or {})
            if previous is not None:
                conf["prevResult"] = previous
            if valid is not None:
                conf["cni.dev/valid-attachments"] = [item.key for item in valid]
            answer = self.call(verb, conf, at, env=env, plugin=self.find(plugin["type"]))
            if answer.code:
                return answer
            if verb == "ADD":
                previous = answer.result
        assert answer is not None
        if at and verb == "ADD":
            self._results[conflist["name"], at] = answer.result
        if at and verb == "DEL":
            self._results.pop((conflist["name"], at), None)
        return answer

    def add(self, conflist: Mapping[str, Any], at: At, **keys: Any) -> dict[str, Any]:
        """ADD, which succeeds; gives its result."""
        return self.ask("ADD", conflist, at, **keys).result

    def delete(self, conflist: Mapping[str, Any], at: At, **keys: Any) -> None:
        """DEL, which succeeds and says nothing."""
        self.ask("DEL", conflist, at, **keys).succeeded()

    def forget(self) -> None:
        """Loses the results of ADD."""
        self._results.clear()

    def find(self, plugin: str) -> str:
        """The plugin's path on the node."""
        for folder in PATH.split(":"):
            if os.path.lexists(self.node.host_path(f"{folder}/{plugin}")):
                return f"{folder}/{plugin}"
        raise FileNotFoundError(f"{self.node.name}: no {plugin} in {PATH}")


def environment(verb: str, at: At | None, env: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The environment of a call."""
    pairs = {"CNI_COMMAND": verb, "CNI_PATH": PATH, "CNI_ARGS": ARGS, **(at.to_env() if at else {}), **(env or {})}
    return {key: value for key, value in pairs.items() if value is not None}


def plugin_conf(conflist: Mapping[str, Any], plugin: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """What libcni gives one plugin of a list."""
    conf = {key: value for key, value in plugin.items() if key != "capabilities"}
    wanted = {key: value for key, value in runtime.items() if plugin.get("capabilities", {}).get(key)}
    if wanted:
        conf["runtimeConfig"] = wanted
    return {**conf, "cniVersion": conflist["cniVersion"], "name": conflist["name"]}


# --- what is on a node


@dataclass(frozen=True)
class Left:
    """What attachments have on a node: OVS ports with our mark, links of ours, leases of host-local."""

    ports: frozenset[str]
    links: frozenset[str]
    leases: frozenset[str]

    def __sub__(self, other: Left) -> Left:
        return Left(self.ports - other.ports, self.links - other.links, self.leases - other.leases)

    def __bool__(self) -> bool:
        return bool(self.ports or self.links or self.leases)


def left(node: Light) -> Left:
    """What attachments have on the node now. Leases are written as `network/address`."""
    script = r"""
    ovs-vsctl --timeout=10 --bare --columns=name find Port external_ids:podnet_owner=podnet-ovs | sed '/^$/d;s/^/port /'
    ls /sys/class/net | sed -n 's/^pn/link pn/p'
    [ ! -d /var/lib/cni/networks ] || cd /var/lib/cni/networks && find . -type f -name '*[.:]*' \
        ! -name 'last_reserved_ip*' -printf 'lease %P\n'
    """
    found: dict[str, set[str]] = {"port": set(), "link": set(), "lease": set()}
    for line in node.sh(script).stdout.splitlines():
        kind, _space, name = line.partition(" ")
        found[kind].add(name)
    return Left(*(frozenset(found[kind]) for kind in ("port", "link", "lease")))


def links_in(pod: Pod) -> set[str]:
    """The names of a pod's interfaces, without the loopback."""
    return {link["ifname"] for link in json.loads(pod.run("ip", "-j", "link").stdout)} - {"lo"}


# --- a node that is ready


def prepare(node: Light, document: Mapping[str, Any], agent: bool = True) -> Caller:
    """Installs the runtime, makes the node what the document (as node.json) says, and starts the agent."""
    node.install_runtime()
    text = json.dumps({"schema": 1, **document})
    node.write("/run/wanted.json", text)
    node.run("/opt/podnet/current/bin/podnet", "node", "apply", "/run/wanted.json", timeout=120)
    if agent:
        start_agent(node)
    return Caller(node)


def start_agent(node: Light) -> subprocess.Popen[bytes]:
    """Starts the agent and waits until it takes calls."""
    node.run("rm", "-f", SOCKET)
    process = node.popen("sh", "-c", f"exec {AGENT} --socket {SOCKET} >> {AGENT_LOG} 2>&1", stdout=None, stderr=None)
    until(lambda: os.path.exists(node.host_path(SOCKET)), 30, f"the agent's socket on {node.name}", 0.02)
    return process


# --- traffic

SNIFF = """
import socket, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    data, address = raw.recvfrom(65535)
    if address[2] != socket.PACKET_OUTGOING:
        print(data.hex(), flush=True)
"""


@contextmanager
def capture(pod: Pod, ifname: str = "eth0") -> Iterator[list[bytes]]:
    """The frames that arrive on a pod's interface while the context is open; the list is filled when it closes."""
    frames: list[bytes] = []
    process = pod.popen("/usr/bin/python3", "-IS", "-c", SNIFF, ifname)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield frames
        time.sleep(0.2)
    finally:
        process.kill()
        output, _none = process.communicate()
        frames += [bytes.fromhex(line.decode()) for line in output.splitlines()]


def mac_bytes(mac: str) -> bytes:
    """A MAC address as it is on the wire."""
    return bytes.fromhex(mac.replace(":", ""))


def pings(pod: Pod, address: str, *words: str, count: int = 1, wait: int = 2) -> bool:
    """Whether a pod has exactly one answer to each of `count` echo requests, within so many seconds."""
    done = pod.run("ping", "-n", "-q", f"-c{count}", f"-W{wait}", *words, address, check=False)
    return done.returncode == 0 and f" {count} received" in done.stdout and "duplicates" not in done.stdout


@dataclass
class Stream:
    """Echo requests of one pod to an address; the numbers are known when the stream has ended."""

    sent: int = 0
    lost: int = 0


@contextmanager
def stream(pod: Pod, address: str, every: float = 0.01) -> Iterator[Stream]:
    """Sends an echo request each `every` seconds while the context is open."""
    seen = Stream()
    process = pod.popen("ping", "-n", f"-i{every}", "-W1", address)
    time.sleep(0.3)
    try:
        yield seen
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGINT)
        output, _none = process.communicate(timeout=30)
    text = output.decode()
    seen.sent = int(re.findall(r"(\d+) packets transmitted", text)[0])
    answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)}
    # the last one may have been on its way when the stream was ended
    seen.lost = len(set(range(1, seen.sent)) - answered)
