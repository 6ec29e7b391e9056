# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls CNI plugins in a node as a container runtime does, and looks at what they leave."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light, Node

Json = dict[str, Any]

PLUGIN = "/opt/cni/bin/podnet-ovs"
PEERS = "/usr/lib/cni"
"""Debian's containernetworking-plugins, with host-local."""
PATH = f"/opt/cni/bin:{PEERS}"
SOCKET = "/run/podnet/agent.sock"
BRIDGE = "br-pod"
GREEN, BLUE, CLOSED = 100, 200, 300
"""Two VLANs that pods may use, and one that they may not."""
LEASES = "/var/lib/cni/networks"


def node_document(datapath: str, **bridge: Any) -> Json:
    """A node with one bridge on eth1 and two pod networks."""
    own = {"name": BRIDGE, "datapath_type": datapath, "uplinks": [{"name": "eth1"}], **bridge}
    networks = [{"name": "green", "bridge": BRIDGE, "vlan": GREEN}, {"name": "blue", "bridge": BRIDGE, "vlan": BLUE}]
    return {"schema": 1, "bridges": [own], "networks": networks}


def prepare(node: Light, document: Json) -> None:
    """Makes the node what the document says, by the product's own means."""
    node.install_runtime()
    node.write("/run/node.json", json.dumps(document))
    node.run("/opt/podnet/current/bin/podnet", "node", "apply", "/run/node.json")


def ipam(low: str = "10.10.0.2", low6: str = "fd00:10::2") -> Json:
    """host-local, both families, from an address on."""
    ranges = [[{"subnet": "10.10.0.0/16", "rangeStart": low}], [{"subnet": "fd00:10::/64", "rangeStart": low6}]]
    return {"type": "host-local", "ranges": ranges}


def configuration(vlan: Any = GREEN, name: Any = "green", **keys: Any) -> Json:
    """A network configuration of podnet-ovs; a key that is None is left out."""
    plain = {
        "cniVersion": "1.0.0", "name": name, "type": "podnet-ovs", "bridge": BRIDGE, "vlan": vlan, "ipam": ipam(),
        **keys,
    }  # fmt: skip
    return {key: value for key, value in plain.items() if value is not None}


@dataclass(frozen=True)
class Answer:
    """What a plugin gave back. `seconds` holds the start of the process, and `nsenter`."""

    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def document(self) -> Json:
        """Standard output as JSON, empty without any."""
        found: Json = json.loads(self.stdout or "{}")
        return found


def environment(verb: str, container: str, pod: str) -> dict[str, str]:
    """A call's environment."""
    return {
        "CNI_COMMAND": verb,
        "CNI_CONTAINERID": container,
        "CNI_NETNS": f"/run/netns/{pod}" if pod else "",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": PATH,
        "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}",
    }


def call(
    node: Node, verb: str, conf: Json | str | bytes, container: str = "c1", pod: str = "p1",
    env: Mapping[str, str] | None = None, timeout: float = 60,
) -> Answer:  # fmt: skip
    """One call of podnet-ovs; `env` are further variables."""
    stdin = json.dumps(conf) if isinstance(conf, dict) else conf
    began = time.monotonic()
    variables = {**environment(verb, container, pod), **(env or {})}
    done = node.run(PLUGIN, input=stdin, env=variables, check=False, timeout=timeout)
    return Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)


def add(
    node: Node, conf: Json, container: str = "c1", pod: str = "p1", env: Mapping[str, str] | None = None
) -> Json:  # fmt: skip
    """An ADD that must succeed; gives its result."""
    answer = call(node, "ADD", conf, container, pod, env)
    assert answer.code == 0, answer
    return answer.document


def delete(
    node: Node, conf: Json | bytes, container: str = "c1", pod: str = "p1", env: Mapping[str, str] | None = None
) -> None:  # fmt: skip
    """A DEL that must succeed, and say nothing."""
    answer = call(node, "DEL", conf, container, pod, env)
    assert (answer.code, answer.stdout) == (0, ""), answer


def ports(node: Light) -> list[str]:
    """The ports of pods in the database."""
    where = "external_ids:podnet_owner=podnet-ovs"
    return node.ovs.vsctl("--bare", "--columns=name", "find", "Port", where).stdout.split()


def links(node: Light) -> list[str]:
    """The node's ends of pods' link pairs."""
    names = [link["ifname"] for link in json.loads(node.run("ip", "-j", "link").stdout)]
    return sorted(name for name in names if name.startswith("pn"))


def leases(node: Light) -> dict[str, str]:
    """Addresses that host-local has given away, each with its container."""
    script = (
        f"cd {LEASES} 2> /dev/null || exit 0; for f in */*[.:]*; do [ -e $f ] && echo $f $(head -n 1 $f); done; true"
    )
    lines = (line.split() for line in node.run("sh", "-c", script).stdout.splitlines())
    return {words[0]: words[1] for words in lines if len(words) == 2 and "last_reserved" not in words[0]}


def leftovers(node: Light) -> tuple[list[str], list[str], dict[str, str]]:
    """Ports, links and leases of pods: three times nothing when no pod is attached."""
    return ports(node), links(node), leases(node)


def clear(node: Light) -> None:
    """Takes away whatever is left of pods, by other means than the product's, and has addresses start anew."""
    for port in ports(node):
        node.ovs.vsctl("--if-exists", "del-port", port)
    for name in links(node):
        node.run("ip", "link", "delete", name, check=False)
    node.run("rm", "-rf", LEASES)


NOTHING: tuple[list[str], list[str], dict[str, str]] = ([], [], {})


@contextlib.contextmanager
def tidy(node: Light, *pods: str) -> Iterator[None]:
    """Namespaces for pods; afterwards nothing of them may be left, and what is left is cleared for who comes next."""
    node.sh(f"for pod in {' '.join(pods)}; do [ -e /run/netns/$pod ] || ip netns add $pod; done")
    yield
    left = leftovers(node)
    if left != NOTHING:
        clear(node)
    assert left == NOTHING
    node.run("rm", "-rf", LEASES)


@contextlib.contextmanager
def serving(node: Light, way: str) -> Iterator[None]:
    """The agent at work, or for the way "in-process" none."""
    with agent(node) if way == "agent" else contextlib.nullcontext():
        yield


@contextlib.contextmanager
def agent(node: Light) -> Iterator[subprocess.Popen[bytes]]:
    """The agent at work in a node; ended by SIGTERM, and with status 0."""
    process = node.popen("/opt/podnet/current/bin/podnet-agent", "--socket", SOCKET, stdout=None, stderr=None)
    try:
        node.sh(f"for i in $(seq 200); do [ -S {SOCKET} ] && exit; sleep 0.05; done; exit 1")
        yield process
    finally:
        process.terminate()
        assert process.wait(timeout=40) == 0
    assert node.run("test", "-e", SOCKET, check=False).returncode == 1, "the agent leaves its socket behind"


def start(node: Node, verb: str, conf: Mapping[str, Any], container: str, pod: str) -> subprocess.Popen[bytes]:
    """Begins a call and does not wait for it. The process is the plugin."""
    process = node.popen(
        PLUGIN, env=environment(verb, container, pod), stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )  # fmt: skip
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        process.stdin.write(json.dumps(conf).encode())
        process.stdin.close()
    process.stdin = None
    return process


def children(pid: int) -> list[int]:
    """The processes that a process of this machine has started and that still run."""
    path = f"/proc/{pid}/task/{pid}/children"
    return [int(word) for word in open(path, encoding="ascii").read().split()] if os.path.exists(path) else []
