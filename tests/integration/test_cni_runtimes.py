# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same configuration list through real container runtimes: podman with its CNI backend, and containerd's CRI.

Debian's `bridge` plugin goes through the same rig first, so that what fails with it is not podnet-ovs.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.integration.caller import conflist, podnet, static
from ansible_collections.podnet.ovs.tests.lab import until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

SUBNETS = {
    "podnet-ovs": ("10.40.0.0/24", "fd00:40::/64"),
    "bridge": ("10.41.0.0/24", "fd00:41::/64"),
    "podnet-meta": ("10.42.0.0/24", "fd00:42::/64"),
}
SECOND = ("10.43.0.0/24", "fd00:43::/64")
THIRD = ("10.44.0.7/24", "fd00:44::7/64")
TOOLS = ("sh", "sleep", "ip", "cat")
HOME = "/var/lib/runtimes"
"""A folder of the node for the runtimes' configuration, images and state."""
CGROUP = f"/podnet-runtimes-{os.getpid()}"
"""The control group that pods are put in; the node shares them with the machine."""

CONTAINERS = f"""
[containers]
default_ulimits = ["nofile=1024:4096", "nproc=1024:4096"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
[network]
network_backend = "cni"
network_config_dir = "{HOME}/podman.d"
cni_plugin_dirs = ["/opt/cni/bin", "/usr/lib/cni"]
"""
STORAGE = f"""
[storage]
driver = "vfs"
graphroot = "{HOME}/graph"
runroot = "/run/podman"
"""
CONTAINERD = f"""
version = 2
root = "{HOME}/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "lab.local/pause:1"
  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "{HOME}/containerd.d"
"""
ROOT = """
mkdir -p root/bin root/etc root/proc root/sys root/dev root/tmp root/run
cp /usr/bin/busybox root/bin/
for tool in "$@"; do ln -s busybox root/bin/$tool; done
tar -C root -cf root.tar .
"""
PAUSE = """
umoci init --layout img
umoci new --image img:pause
umoci unpack --image img:pause bundle
cp -a root/. bundle/rootfs/
umoci repack --image img:pause bundle
umoci config --image img:pause --config.entrypoint /bin/sleep --config.cmd 2147483647
echo '{"default":[{"type":"insecureAcceptAnything"}]}' > policy.json
skopeo --policy policy.json copy -q oci:img:pause oci-archive:pause.tar:lab.local/pause:1
"""


def networks(plugin: str) -> dict[str, Any]:
    """The same list for all runtimes. Behind it Debian's `tuning`, as lists have it."""
    if plugin == "podnet-meta":
        return merged()
    ipam = host_local(SUBNETS[plugin])
    own = podnet(mtu=1400, ipam=ipam) if plugin == "podnet-ovs" else {"type": "bridge", "bridge": "cni0", "ipam": ipam}
    return conflist(own, {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}}, name=f"{plugin}-net")


def host_local(subnets: tuple[str, str]) -> dict[str, Any]:
    """Addresses of both families."""
    return {"type": "host-local", "ranges": [[{"subnet": subnet}] for subnet in subnets]}


def merged(version: str = "1.0.0") -> dict[str, Any]:
    """Three networks in one pod and one result: Debian's bridge, podnet-ovs, and a VLAN on that one's interface.

    A kernel without 802.1Q has that interface once more in the place of the VLAN.
    """
    delegates = [
        {"name": "first", "type": "bridge", "bridge": "cni1", "ipam": host_local(SUBNETS["podnet-meta"])},
        {"name": "second", **podnet(mtu=1400, ipam=host_local(SECOND))},
        {
            "name": "third",
            "type": "podnet-vlan",
            "master": "net1",
            "linkInContainer": True,
            "vlanId": 5,
            "ipam": static(*THIRD),
        }
        if has_vlans()
        else {"name": "third", "type": "podnet-adopt", "interface": "net1"},
    ]
    return conflist(
        {"type": "podnet-meta", "delegates": delegates, "result": "merged"},
        {"type": "tuning", "sysctl": {"net.ipv4.conf.eth0.log_martians": "1"}}, name="podnet-meta-net", version=version,
    )  # fmt: skip


def has_vlans() -> bool:
    """Whether this kernel has 802.1Q."""
    return os.path.isdir("/proc/net/vlan")


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Iterator[Light]:
    """A node with the agent, and the configuration of both runtimes. containerd knows one folder of plugins only."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, cni.node_document(datapath))
    node.write(f"{HOME}/containers.conf", CONTAINERS)
    node.write(f"{HOME}/storage.conf", STORAGE)
    node.write(f"{HOME}/containerd.toml", CONTAINERD)
    node.sh("cd /usr/lib/cni; cp -n host-local static bridge tuning loopback /opt/cni/bin/")
    node.run("sh", "-ec", f"mkdir -p {HOME}; cd {HOME}\n{ROOT}", "sh", *TOOLS)
    with cni.agent(node):
        yield node
    # What runtimes made around their containers' control groups stays empty, on the machine.
    node.sh(f"find /sys/fs/cgroup -mindepth 2 -depth -type d -path '/sys/fs/cgroup/*{CGROUP}*' -exec rmdir {{}} +")


def nothing_is_left(node: Light) -> bool:
    """Whether neither port nor link nor lease is left, of whatever plugin."""
    veths = node.run("ip", "-br", "link", "show", "type", "veth").stdout
    others = [line for line in veths.splitlines() if not line.startswith("eth1@")]
    return cni.leftovers(node) == cni.NOTHING and not others


def check_interface(text: str, plugin: str) -> None:
    """What `ip addr` said in the container: eth0 with an address of each family."""
    found = [ipaddress.ip_interface(text).network for text in re.findall(r"inet6? (\S+)", text)]
    assert {ipaddress.ip_network(subnet) for subnet in SUBNETS[plugin]} <= set(found), text
    assert re.search(r"eth0.*[<,]UP", text), text
    if plugin == "podnet-ovs":
        assert "mtu 1400" in text


# --- podman


@pytest.fixture(scope="module")
def image(node: Light) -> str:
    """An image in podman's store."""
    podman(node, "import", "--quiet", f"{HOME}/root.tar", "lab.local/busybox:1")
    return "lab.local/busybox:1"


def podman(node: Light, *words: str) -> str:
    """Runs podman in the node; gives its standard output."""
    env = {"CONTAINERS_CONF": f"{HOME}/containers.conf", "CONTAINERS_STORAGE_CONF": f"{HOME}/storage.conf"}
    return node.run("podman", *words, env=env, timeout=120).stdout


@pytest.mark.holds("the same conflist through podman: the pod gets its interface, removal leaves nothing")
@pytest.mark.parametrize("plugin", ["bridge", "podnet-ovs"])
def test_podman(node: Light, image: str, plugin: str) -> None:
    network = networks(plugin)
    node.write(f"{HOME}/podman.d/{network['name']}.conflist", json.dumps(network))
    assert nothing_is_left(node)
    options = ["--cgroup-parent", CGROUP, "--network", network["name"]]
    seen = podman(node, "run", "--rm", *options, image, "/bin/ip", "addr")
    check_interface(seen, plugin)
    assert nothing_is_left(node)
    for name in ("one", "two"):
        podman(node, "run", "-d", "--name", name, *options, image, "/bin/sleep", "1000")
    if plugin == "podnet-ovs":
        assert (len(cni.ports(node)), len(cni.links(node)), len(cni.leases(node))) == (2, 2, 4)
    podman(node, "rm", "-f", "-t", "0", "one", "two")
    assert nothing_is_left(node)


@pytest.mark.holds("merged result through podman: the pod's address as it reports it is the primary's")
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_podman_reports_the_primary_networks_addresses(node: Light, image: str, version: str) -> None:
    network = merged(version)
    node.write(f"{HOME}/podman.d/{network['name']}.conflist", json.dumps(network))
    options = ["--cgroup-parent", CGROUP, "--network", network["name"]]
    podman(node, "run", "-d", "--name", "three", *options, image, "/bin/sleep", "1000")
    settings = json.loads(podman(node, "inspect", "three"))[0]["NetworkSettings"]
    (reported,) = settings["Networks"].values()
    check_reported([reported["IPAddress"], reported["GlobalIPv6Address"]])
    check_pod(podman(node, "exec", "three", "/bin/ip", "addr"))
    podman(node, "rm", "-f", "-t", "0", "three")
    assert nothing_is_left(node)


def check_reported(addresses: list[str]) -> None:
    """The first of each family are the primary network's."""
    subnets = [ipaddress.ip_network(subnet) for subnet in SUBNETS["podnet-meta"]]
    assert [ipaddress.ip_address(text) in subnet for text, subnet in zip(addresses, subnets)] == [True, True], addresses


def check_pod(text: str) -> None:
    """What `ip addr` said in the pod: each network has its interface."""
    found = [ipaddress.ip_interface(text) for text in re.findall(r"inet6? (\S+)", text)]
    networks = {str(address.network) for address in found}
    assert {*SUBNETS["podnet-meta"], *SECOND} <= networks, text
    assert not has_vlans() or {ipaddress.ip_interface(text) for text in THIRD} <= set(found), text


# --- containerd, by its CRI


def field(number: int, value: str | bytes) -> bytes:
    """A field of a protobuf message that is a string, bytes or a message."""
    data = value.encode() if isinstance(value, str) else value
    length, size = len(data), b""
    while length > 127:
        size += bytes([length & 127 | 128])
        length >>= 7
    return bytes([number << 3 | 2]) + size + bytes([length]) + data


class Cri:
    """The few calls of the CRI that run a pod's sandbox (k8s.io/cri-api, runtime/v1/api.proto)."""

    def __init__(self, socket: Path) -> None:
        self._channel = grpc.insecure_channel(f"unix:{socket}")

    def call(self, method: str, message: bytes) -> bytes:
        """One call of the RuntimeService, in protobuf."""
        return bytes(self._channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(message, timeout=60))

    def run_sandbox(self, name: str) -> str:
        """Starts a sandbox and gives its id."""
        metadata = field(1, name) + field(2, f"uid-{name}") + field(3, "default")
        config = field(1, metadata) + field(3, "/tmp") + field(8, field(1, CGROUP))
        answer = self.call("RunPodSandbox", field(1, config))
        return answer[2:].decode()

    def stop_and_remove(self, sandbox: str) -> None:
        """Ends a sandbox."""
        self.call("StopPodSandbox", field(1, sandbox))
        self.call("RemovePodSandbox", field(1, sandbox))


@pytest.fixture(scope="module")
def cri(node: Light) -> Iterator[Cri]:
    """containerd at work in the node."""
    node.run("sh", "-ec", f"cd {HOME}\n{PAUSE}", timeout=120)
    node.run("mkdir", "-p", f"{HOME}/containerd.d")
    log = f"{HOME}/containerd.log"
    daemon = node.popen("sh", "-c", f"exec containerd -c {HOME}/containerd.toml > {log} 2>&1", stdout=None, stderr=None)
    # A socket's path is short; the node's /run is reached through the process that holds it.
    socket = node.host_path("/run/containerd.sock")
    until(socket.exists, 30, "containerd")
    words = ["ctr", "-a", "/run/containerd.sock", "-n", "k8s.io", "images", "import", f"{HOME}/pause.tar"]
    until(lambda: node.run(*words, check=False).returncode == 0, 30, "the import of an image", 0.3)
    yield Cri(socket)
    daemon.terminate()
    daemon.wait(timeout=20)


@pytest.mark.holds("the same conflist through containerd's CRI: the pod gets its interface, removal leaves nothing")
@pytest.mark.parametrize("plugin", ["bridge", "podnet-ovs"])
def test_containerd(node: Light, cri: Cri, plugin: str) -> None:
    network = networks(plugin)
    node.sh(f"rm -f {HOME}/containerd.d/*")
    node.write(f"{HOME}/containerd.d/10-{network['name']}.conflist", json.dumps(network))
    assert nothing_is_left(node)
    sandbox = until(lambda: try_sandbox(cri, f"pod-{plugin}"), 20, "a sandbox", 0.5)
    pid = node.run("cat", f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{sandbox}/init.pid").stdout
    seen = node.run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "addr").stdout
    check_interface(seen, plugin)
    if plugin == "podnet-ovs":
        assert (len(cni.ports(node)), len(cni.links(node)), len(cni.leases(node))) == (1, 1, 2)
        marks = node.ovs.vsctl("--bare", "--columns=external_ids", "list", "Port", cni.ports(node)[0]).stdout
        assert "podnet_pod_namespace=default" in marks and f"podnet_pod_name=pod-{plugin}" in marks
        assert f"podnet_pod_uid=uid-pod-{plugin}" in marks and sandbox in marks
    status = cri.call("PodSandboxStatus", field(1, sandbox))
    assert SUBNETS[plugin][0].rpartition(".")[0].encode() in status, "the CRI reports the pod's address"
    cri.stop_and_remove(sandbox)
    assert nothing_is_left(node)


def try_sandbox(cri: Cri, name: str) -> str:
    """A sandbox's id; "" while containerd has not read the network's configuration."""
    try:
        return cri.run_sandbox(name)
    except grpc.RpcError as error:
        if "network is not ready" in str(error) or "cni plugin not initialized" in str(error):
            return ""
        raise


@pytest.mark.holds("merged result through containerd: the pod's address as it reports it is the primary's")
@pytest.mark.parametrize("version", ["0.4.0", "1.0.0"])
def test_containerd_reports_the_primary_networks_addresses(node: Light, cri: Cri, version: str) -> None:
    network = merged(version)
    node.sh(f"rm -f {HOME}/containerd.d/*")
    node.write(f"{HOME}/containerd.d/10-{network['name']}.conflist", json.dumps(network))
    sandbox = until(lambda: try_sandbox(cri, f"pod-{version}"), 20, "a sandbox", 0.5)
    pid = node.run("cat", f"/run/containerd/io.containerd.runtime.v2.task/k8s.io/{sandbox}/init.pid").stdout
    check_pod(node.run("nsenter", f"--net=/proc/{pid}/ns/net", "ip", "addr").stdout)
    status = cri.call("PodSandboxStatus", field(1, sandbox))
    check_reported(cri_addresses(status))
    cri.stop_and_remove(sandbox)
    assert nothing_is_left(node)


def cri_addresses(message: bytes) -> list[str]:
    """The addresses of a PodSandboxStatusResponse: field 1, then `network` (5), its `ip` (1), `additional_ips` (2)."""
    network = fields(fields(fields(message)[1][0])[5][0])
    return [network[1][0].decode(), *(fields(item)[1][0].decode() for item in network.get(2, ()))]


def fields(message: bytes) -> dict[int, list[bytes]]:
    """The length-delimited fields of a protobuf message; numbers are passed over."""
    found: dict[int, list[bytes]] = {}
    place = 0
    while place < len(message):
        key, place = varint(message, place)
        value, place = varint(message, place)
        if key & 7 == 2:
            found.setdefault(key >> 3, []).append(message[place : place + value])
            place += value
    return found


def varint(message: bytes, place: int) -> tuple[int, int]:
    """A number, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return value, place
