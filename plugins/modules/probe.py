#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: probe
short_description: Attach probes to pod networks and measure what they reach
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Makes a network namespace for each pod network, attaches it through the CNI plugin as a container runtime would, and
    measures from inside what the probe of another node answers.
  - The probes have addresses of their own, from C(198.18.0.0/15) (RFC 2544) and C(fd70:6f64:6e65:7400::/64), so that no
    address of the networks' pools is taken.
  - A network whose pods only have tagged frames (a trunk without C(untagged), native-tagged, a tunnel with C(cvlans))
    is attached, but not measured. A row of the check C(not-probed) says so.
  - The role P(podnet.ovs.verify#role) uses it. It leaves nothing behind if V(detached) is run in the end.
options:
  state:
    description:
      - V(attached) makes and attaches the probes, V(measured) measures, V(detached) detaches and removes them.
    type: str
    choices:
      - attached
      - measured
      - detached
    required: true
  nads:
    description:
      - The networks, as the filter P(podnet.ovs.to_nad#filter) renders them. Of those of one name the first counts.
    type: list
    elements: dict
    required: true
  networks:
    description:
      - The names of all pod networks of the site in an order that is the same on all nodes. Addresses follow from it.
    type: list
    elements: str
    required: true
  nodes:
    description:
      - The number of nodes of the site.
    type: int
    required: true
  place:
    description:
      - Which of the nodes this is, from 0.
    type: int
    required: true
  peer:
    description:
      - Which of the nodes is measured.
    type: int
  peer_networks:
    description:
      - The names of the pod networks that the peer has.
    type: list
    elements: str
    default: []
  bin_dir:
    description:
      - The folder with the CNI plugins.
    type: path
    default: /opt/cni/bin
  seconds:
    description:
      - How long a network gets until its first answer.
    type: int
    default: 10
  _podnet_archive:
    description:
      - Set by the collection itself, where the runtime's libraries travel with the module. Not for tasks.
    type: path
attributes:
  check_mode:
    description: Can run in C(check_mode) and say what it would change, without changing it.
    support: none
  diff_mode:
    description: Returns what differs in C(diff) mode.
    support: none
  idempotent:
    description: A second run with the same options changes nothing.
    support: full
    details:
      - Attaching what is attached detaches it first.
  platform:
    description: Platforms that the module runs on.
    platforms: linux
    support: full
"""

EXAMPLES = r"""
- name: Attach a probe to each pod network of this node, the first of two
  podnet.ovs.probe:
    state: attached
    nads: "{{ podnet_networks | podnet.ovs.to_nad }}"
    networks: "{{ podnet_networks | map(attribute='name') }}"
    nodes: 2
    place: 0
"""

RETURN = r"""
rows:
  description:
    - One for each network and check.
    - That of the check C(not-probed) has C(ok) true, and the reason in C(detail).
  returned: success
  type: list
  elements: dict
  sample:
    - network: tenant-a
      check: icmp
      ok: true
      detail: 0.21 ms
"""

import ipaddress
import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import fail, require_runtime
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel import netns, reach
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import CNI_BIN
from ansible_collections.podnet.ovs.plugins.module_utils.model.port import parse_port

IFNAME = "probe0"
IPV4 = ipaddress.IPv4Network("198.18.0.0/15")
IPV6 = ipaddress.IPv6Network("fd70:6f64:6e65:7400::/64")
DEFAULT_MTU = 1500
CALL_SECONDS = 60.0
SILENCE_SECONDS = 1.0
NOT_PROBED = "not-probed"
"""The check of a network whose pods only have tagged frames. Not every kernel has VLAN interfaces to answer those."""

Row = dict[str, Any]


def row(network: str, check: str, ok: bool, detail: str) -> Row:
    """One result."""
    return {"network": network, "check": check, "ok": ok, "detail": detail}


class Probe:
    """The probe of one network, on this node or another: `number` is its own in the site, and gives its addresses."""

    def __init__(self, nad: dict[str, Any], number: int) -> None:
        listed = json.loads(nad["spec"]["config"])
        plugin = {key: value for key, value in listed["plugins"][0].items() if key != "ipam"}
        self.config: dict[str, Any] = {"cniVersion": listed["cniVersion"], "name": listed["name"], **plugin}
        self.network: str = listed["name"]
        self.namespace: str = nad["metadata"]["namespace"]
        self.port = parse_port(plugin)
        self.vlan = self.port.tag or None
        self.mtu: int = plugin.get("mtu") or DEFAULT_MTU
        self.name = f"podnet-probe-{number}"
        self.path = f"/run/netns/{self.name}"
        self.addresses = (str(IPV4[number]), str(IPV6[number]))

    def call(self, verb: str, bin_dir: str) -> str:
        """Runs the CNI plugin as a container runtime would; gives its error, or an empty text."""
        env = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": self.name,
            "CNI_NETNS": self.path,
            "CNI_IFNAME": IFNAME,
            "CNI_PATH": bin_dir,
            "CNI_ARGS": f"IgnoreUnknown=true;K8S_POD_NAMESPACE={self.namespace};K8S_POD_NAME={self.name}",
        }
        words = [os.path.join(bin_dir, self.config["type"])]
        try:
            done = subprocess.run(
                words, input=json.dumps(self.config), env=env, capture_output=True, text=True, timeout=CALL_SECONDS,
                check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if done.returncode == 0:
            return ""
        try:
            answer = json.loads(done.stdout)
            return f"{answer['msg']} {answer.get('details', '')} (code {answer['code']})"
        except (ValueError, KeyError, TypeError):
            return f"{words[0]} ended with {done.returncode}: {done.stdout} {done.stderr}"

    def inside(self, work: Callable[[], list[Row]], seconds: float, check: str) -> list[Row]:
        """The rows that `work` gives in the probe's network namespace, or one that says why there are none."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return netns.inside(handle, work, seconds)
            finally:
                os.close(handle)
        except (PodnetError, OSError) as error:
            return [row(self.network, check, False, str(error))]

    def configure(self) -> list[Row]:
        """Gives the probe its addresses. They are its own, so nobody is asked whether they are free."""
        from ansible_collections.podnet.ovs.plugins.module_utils.kernel import links

        with open(f"/proc/sys/net/ipv6/conf/{IFNAME}/accept_dad", "w", encoding="ascii") as file:
            file.write("0")
        own = zip(self.addresses, (IPV4.prefixlen, IPV6.prefixlen))
        links.change_addresses(IFNAME, add=[f"{address}/{length}" for address, length in own])
        return []


def not_probed(probe: Probe) -> Row:
    """Why there is no measurement. It is no failure: the network is as it was declared."""
    return row(probe.network, NOT_PROBED, True, f"{probe.port.words()} passes no untagged frames, which a probe speaks")


def detach(module: AnsibleModule, probe: Probe) -> list[Row]:
    """Removes a probe. Only what fails is a row."""
    error = probe.call("DEL", module.params["bin_dir"])
    if os.path.exists(probe.path):
        code, _text, fault = module.run_command(["ip", "netns", "delete", probe.name])
        error = error or (fault.strip() if code else "")
    return [row(probe.network, "detach", False, error)] if error else []


def attach(module: AnsibleModule, probe: Probe) -> list[Row]:
    """Makes a probe; one that an earlier run left behind goes first."""
    if os.path.exists(probe.path):
        detach(module, probe)
    module.run_command(["ip", "netns", "add", probe.name], check_rc=True)
    began = time.monotonic()
    error = probe.call("ADD", module.params["bin_dir"])
    milliseconds = (time.monotonic() - began) * 1000
    attached = row(probe.network, "attach", not error, error or f"{milliseconds:.0f} ms")
    if error:
        return [attached]
    if not probe.port.plain:
        return [attached, not_probed(probe)]
    return [attached, *probe.inside(probe.configure, CALL_SECONDS, "addresses")]


def measure(probe: Probe, peer: Probe, others: list[Probe], seconds: float) -> Iterator[Row]:
    """What the peer's probe on the same network answers, and that those on other VLANs are not heard. Runs inside.

    A probe that was not attached has no rows here; its attachment has one.
    """
    if not os.path.exists(f"/proc/sys/net/ipv4/conf/{IFNAME}"):
        return
    for address, suffix in zip(peer.addresses, ("", "6")):
        took = reach.echo(address, seconds)
        yield _echoed(probe, f"icmp{suffix}", took)
        if took is None:
            continue
        for name, kind in (("tcp", socket.SOCK_STREAM), ("udp", socket.SOCK_DGRAM)):
            ok = reach.refuses(address, kind, seconds)
            yield row(probe.network, f"{name}{suffix}", ok, "" if ok else "no answer")
        yield _echoed(probe, f"{probe.mtu}-bytes{suffix}", reach.echo(address, seconds, probe.mtu))
    owners = {address: other.network for other in others for address in other.addresses}
    if owners:
        heard = sorted({owners[address] for address in reach.answering(owners, SILENCE_SECONDS)})
        yield row(probe.network, "isolation", not heard, f"hears {', '.join(heard)}" if heard else "")


def _echoed(probe: Probe, check: str, seconds: float | None) -> Row:
    return row(
        probe.network, check, seconds is not None, "no answer" if seconds is None else f"{seconds * 1000:.2f} ms"
    )


def measured(params: dict[str, Any], probes: list[Probe], peers: list[Probe]) -> Iterator[Row]:
    """The rows of all probes whose network the peer has too."""
    seconds = float(params["seconds"])
    by_network = {peer.network: peer for peer in peers if peer.network in params["peer_networks"]}
    for probe in probes:
        peer = by_network.get(probe.network)
        if peer is None or not (probe.port.plain and peer.port.plain):
            continue
        # untagged frames get their VLAN from the site's switch, which may well be another network's
        others = [it for it in by_network.values() if None not in (probe.vlan, it.vlan) and probe.vlan != it.vlan]

        def work(probe: Probe = probe, peer: Probe = peer, others: list[Probe] = others) -> list[Row]:
            return list(measure(probe, peer, others, seconds))

        yield from probe.inside(work, 10 * seconds + 10, "measure")


def probes_of(params: dict[str, Any], place: int) -> list[Probe]:
    """The probes of the node in this place, one for each network. Raises PodnetError if there are too many."""
    order, nodes = params["networks"], params["nodes"]
    if len(order) * nodes >= IPV4.num_addresses - 2:
        raise PodnetError(f"{len(order)} networks on {nodes} nodes are more than {IPV4} has addresses")
    first: dict[str, dict[str, Any]] = {}
    for nad in params["nads"]:
        first.setdefault(nad["metadata"]["name"], nad)
    return [Probe(nad, order.index(name) * nodes + place + 1) for name, nad in first.items()]


def main() -> None:
    """The module."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["attached", "measured", "detached"], "required": True},
            "nads": {"type": "list", "elements": "dict", "required": True},
            "networks": {"type": "list", "elements": "str", "required": True},
            "nodes": {"type": "int", "required": True},
            "place": {"type": "int", "required": True},
            "peer": {"type": "int"},
            "peer_networks": {"type": "list", "elements": "str", "default": []},
            "bin_dir": {"type": "path", "default": CNI_BIN},
            "seconds": {"type": "int", "default": 10},
            "_podnet_archive": {"type": "path"},
        },
    )
    require_runtime(module)
    params = module.params
    rows: list[Row] = []
    try:
        probes = probes_of(params, params["place"])
        if params["state"] == "attached":
            rows = [found for probe in probes for found in attach(module, probe)]
        elif params["state"] == "detached":
            rows = [found for probe in probes for found in detach(module, probe)]
        elif params["peer"] is not None:
            rows = list(measured(params, probes, probes_of(params, params["peer"])))
    except PodnetError as error:
        fail(module, error)
    module.exit_json(changed=params["state"] != "measured", rows=rows)


if __name__ == "__main__":
    main()
