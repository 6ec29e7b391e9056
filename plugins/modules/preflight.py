#!/usr/bin/python

# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: preflight
short_description: Find what stands in the way of a node's declared state
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - Looks at what the other modules and roles will need, on a node where nothing is installed yet as well, and changes
    nothing.
options:
  bridges:
    description:
      - The declared bridges, as for M(podnet.ovs.node).
    type: list
    elements: dict
    default: []
  networks:
    description:
      - The declared pod networks.
    type: list
    elements: dict
    default: []
  policy:
    description:
      - The explicit policy.
    type: list
    elements: dict
    default: []
  manager:
    description:
      - Who configures NICs that are to move, as for M(podnet.ovs.node).
    type: str
    choices: [auto, networkd, netplan, ifupdown, networkmanager, none]
    default: auto
  confirm:
    description:
      - Who will confirm a move, as for M(podnet.ovs.node).
    type: str
    choices: [controller, probe, both, none]
    default: controller
  probes:
    description:
      - What must answer after a move, as for M(podnet.ovs.node).
    type: list
    elements: str
    default: []
  bin_dir:
    description:
      - The folder in which the container runtime looks for CNI plugins.
    type: path
    default: /opt/cni/bin
  cni_dirs:
    description:
      - Further folders with CNI plugins, where those for addresses may be.
    type: list
    elements: path
    default:
      - /usr/lib/cni
      - /usr/libexec/cni
extends_documentation_fragment:
  - podnet.ovs.attributes.info
  - podnet.ovs.attributes.switch
seealso:
  - module: podnet.ovs.node_info
"""

EXAMPLES = r"""
- name: Is this NIC fit to be an uplink?
  podnet.ovs.preflight:
    bridges:
      - name: br-pod
        uplinks:
          - name: eth1

- name: What stands in the way of moving the NIC that carries the node?
  podnet.ovs.preflight:
    bridges:
      - name: br-ex
        uplinks:
          - name: eth0
            move: true
"""

RETURN = r"""
findings:
  description: One for each thing that was looked at.
  returned: success
  type: list
  elements: dict
  sample:
    - check: uplink eth1
      level: blocking
      detail: 'it carries the address 192.0.2.11/24; with move: true it moves to br-pod with its addresses'
  contains:
    check:
      description: What was looked at.
      type: str
      returned: always
      sample: uplink eth1
    level:
      description: V(ok), V(info), V(warning) or V(blocking).
      type: str
      returned: always
      sample: blocking
    detail:
      description: What was found.
      type: str
      returned: always
      sample: 'it carries the address 192.0.2.11/24; with move: true it moves to br-pod with its addresses'
blocking:
  description: How many findings are blocking.
  returned: success
  type: int
  sample: 1
hint:
  description: The way out of an error, where one is known.
  returned: failure
  type: str
  sample: run as root (become true)
"""

import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils.ansible_glue import MOVE_ARGUMENTS, OVSDB_ARGUMENT, fail, look
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MOVE, Request, parse_probes
from ansible_collections.podnet.ovs.plugins.module_utils.model.moves import Terms, after_moves, moves_between
from ansible_collections.podnet.ovs.plugins.module_utils.model.network import Network
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Bridge, Node, Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.safety import check_safe
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import Link, State
from ansible_collections.podnet.ovs.plugins.module_utils.model.target import declared, node_state, without_leftovers

OK = "ok"
INFO = "info"
WARNING = "warning"
BLOCKING = "blocking"
OLDEST_PYTHON = (3, 9)
OLDEST_OVS = (2, 17)
ROOM = 100 * 2**20
"""Bytes that two versions of the runtime take, and some."""
DEFAULT_MTU = 1500
_NO_KERNEL_DATAPATH = (
    "this kernel has no module openvswitch: install the package that has it, or declare datapath_type: netdev"
)

Finding = dict[str, str]


def finding(check: str, level: str, detail: str) -> Finding:
    """One row."""
    return {"check": check, "level": level, "detail": detail}


def of_machine() -> Iterator[Finding]:
    """Python, systemd, room for the runtime."""
    version = platform.python_version()
    old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST_PYTHON
    yield finding("python", BLOCKING if old else OK, f"{version}{', but 3.9 is needed' if old else ''}")
    systemd = os.path.isdir("/run/systemd/system")
    yield finding("systemd", OK if systemd else BLOCKING, "runs" if systemd else "does not run; the units need it")
    free = shutil.disk_usage(_nearest(Path("/opt"))).free
    yield finding("room in /opt", OK if free >= ROOM else BLOCKING, f"{free // 2**20} MiB free")


def of_switch(module: AnsibleModule, node: Node, running: bool) -> Iterator[Finding]:
    """Open vSwitch and its datapaths."""
    code, text, _error = (
        module.run_command(["ovs-vsctl", "--version"]) if module.get_bin_path("ovs-vsctl") else (1, "", "")
    )
    if code != 0:
        yield finding("open vswitch", INFO, "is not installed; the role openvswitch installs it")
    else:
        version = text.split("\n", 1)[0].split()[-1]
        old = tuple(int(part) for part in version.split(".")[:2]) < OLDEST_OVS
        level = BLOCKING if old else (OK if running else WARNING)
        yield finding("open vswitch", level, f"{version}{'' if running else ', its database does not answer'}")
    if any(bridge.datapath_type == "system" for bridge in node.bridges):
        loaded = os.path.isdir("/sys/module/openvswitch")
        found = loaded or (
            module.get_bin_path("modprobe", opt_dirs=["/usr/sbin", "/sbin"]) is not None
            and module.run_command(["modprobe", "--dry-run", "openvswitch"])[0] == 0
        )
        yield finding(
            "kernel datapath",
            OK if found else BLOCKING,
            ("loaded" if loaded else "can be loaded") if found else _NO_KERNEL_DATAPATH,
        )


def of_uplink(bridge: Bridge, uplink: Uplink, state: State, needed_mtu: int, terms: Terms) -> Iterator[Finding]:
    """Each NIC: there, free or about to move, up, large enough, and who else manages it."""
    for nic in uplink.nics:
        link = state.links.get(nic)
        name = f"uplink {nic}"
        if link is None:
            yield finding(name, BLOCKING, "there is no such NIC")
            continue
        moves = uplink.move and _carries_node(state, bridge, link)
        occupied = [] if moves else list(_occupied(link, bridge, state))
        yield from (finding(name, BLOCKING, text) for text in occupied)
        carrier = _read(f"/sys/class/net/{nic}/carrier")
        if link.up and carrier != "1":
            yield finding(name, WARNING, "it has no carrier: is the cable in?")
        mtu = uplink.mtu or link.mtu
        if mtu < needed_mtu:
            yield finding(name, BLOCKING, f"its MTU is {mtu}, but a pod network wants {needed_mtu}")
        if moves:
            yield from of_move(bridge, uplink, link, state, terms)
            continue
        manager = _manager(nic)
        if manager and state.moved_to(bridge.name) is None:
            yield finding(name, WARNING, f"{manager} manages it: tell it to leave this NIC alone")
        yield finding(name, INFO if occupied else OK, f"{'up' if link.up else 'down'}, MTU {mtu}, {link.mac}")


def of_move(bridge: Bridge, uplink: Uplink, link: Link, state: State, terms: Terms) -> Iterator[Finding]:
    """What stands in the way of moving a NIC with the node's addresses, or that nothing does."""
    from ansible_collections.podnet.ovs.plugins.module_utils.uplink.obstacles import obstacles

    own = tuple(item for item in bridge.interfaces if item.name == bridge.name)
    part = replace(bridge, uplinks=(uplink,), interfaces=own)
    request = Request(MOVE, link.name, part, terms.ovsdb, terms.manager, terms.confirm, probes=terms.probes)
    name = f"move {link.name}"
    try:
        found = obstacles(request, state, None)
    except PodnetError as error:
        yield finding(name, BLOCKING, str(error))
        return
    yield from (finding(name, item.level, str(item)) for item in found)
    if not any(item.level == BLOCKING for item in found):
        addresses = ", ".join(sorted({*link.addresses, *link.dynamic}))
        yield finding(name, OK, f"moves to {bridge.name} with its addresses {addresses}")


def of_cni(networks: tuple[Network, ...], bin_dir: str, cni_dirs: list[str]) -> Iterator[Finding]:
    """The folder for the plugins, plugins of others, and those that give addresses."""
    there = os.path.isdir(bin_dir)
    yield finding(
        "CNI folder", OK if there else INFO, f"{bin_dir} is {'there' if there else 'made by the role runtime'}"
    )
    if not os.access(_nearest(Path(bin_dir)), os.W_OK):
        yield finding("CNI folder", BLOCKING, f"{bin_dir} cannot be written")
    if os.path.exists(os.path.join(bin_dir, "ovs")):
        yield finding(
            "CNI plugin ovs", INFO, "another plugin for Open vSwitch is there; it and its ports are left alone"
        )
    for kind in sorted({network.ipam["type"] for network in networks if network.ipam}):
        places = [folder for folder in (bin_dir, *cni_dirs) if os.access(os.path.join(folder, kind), os.X_OK)]
        fine = places[:1] == [bin_dir]
        where = f"in {places[0]}" if places else f"is in none of {', '.join([bin_dir, *cni_dirs])}"
        advice = "" if fine else f"; install it in {bin_dir}, where the container runtime looks"
        yield finding(f"IPAM plugin {kind}", OK if fine else WARNING, where + advice)


def of_plan(node: Node, state: State, terms: Terms) -> Iterator[Finding]:
    """Whether the node can be made so at all."""
    try:
        moved = after_moves(state, moves_between(state, node.bridges, terms))
        check_safe(moved, node_state(moved, node, declared(moved)))
    except PodnetError as error:
        yield finding("plan", BLOCKING, str(error))
    else:
        yield finding("plan", OK, "the node can be made as declared")


def _carries_node(state: State, bridge: Bridge, link: Link) -> bool:
    """Whether the NIC, or a VLAN interface on it, has addresses, and is not on the bridge already."""
    above = [state.links[name] for name in link.children if name in state.links]
    busy = any(item.addresses or item.dynamic or item.routes for item in (link, *above))
    owner = state.port_of(link.name)
    rescued = any((item.nic, item.bridge) == (link.name, bridge.name) and item.rescued for item in state.moved)
    return busy and (rescued or owner is None or owner[0].name != bridge.name)


def _occupied(link: Link, bridge: Bridge, state: State) -> Iterator[str]:
    addresses = sorted({*link.addresses, *link.dynamic})
    consent = f"; with move: true it moves to {bridge.name} with its addresses"
    if addresses:
        yield f"it carries the address {', '.join(addresses)}{consent}"
    elif link.routes:
        yield f"routes go through it: {', '.join(link.routes)}{consent}"
    port_of = [name for name, row in state.bridges.items() if _has_nic(row, link.name)]
    if port_of and port_of != [bridge.name]:
        yield f"it is a port of bridge {port_of[0]}"
    if link.master and not port_of:
        yield f"it belongs to {link.master}"
    if link.children:
        yield f"interfaces stand on it: {', '.join(link.children)}"


def _has_nic(bridge: object, nic: str) -> bool:
    ports = getattr(bridge, "ports", {})
    return any(row.name == nic for port in ports.values() for row in port.interfaces)


def _manager(nic: str) -> str:
    """Who configures this NIC, as far as that can be read from files."""
    index = _read(f"/sys/class/net/{nic}/ifindex")
    networkd = _read(f"/run/systemd/netif/links/{index}")
    if "NETWORK_FILE=" in networkd:
        return "systemd-networkd"
    if "managed=true" in _read(f"/run/NetworkManager/devices/{index}"):
        return "NetworkManager"
    folder = Path("/etc/network/interfaces.d")
    files = [Path("/etc/network/interfaces"), *(sorted(folder.iterdir()) if folder.is_dir() else [])]
    if any(line.split()[:2] == ["iface", nic] for file in files for line in _read(str(file)).splitlines()):
        return "ifupdown"
    return ""


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _nearest(path: Path) -> Path:
    """The path, or the nearest folder above it that is there."""
    return path if path.exists() else _nearest(path.parent)


def main() -> None:
    """Ansible's entry."""
    rows = {"type": "list", "elements": "dict", "default": []}
    module = AnsibleModule(
        argument_spec={
            "bridges": rows,
            "networks": rows,
            "policy": rows,
            "bin_dir": {"type": "path", "default": "/opt/cni/bin"},
            "cni_dirs": {"type": "list", "elements": "path", "default": ["/usr/lib/cni", "/usr/libexec/cni"]},
            **{name: MOVE_ARGUMENTS[name] for name in ("manager", "confirm", "probes")},
            **OVSDB_ARGUMENT,
        },
        supports_check_mode=True,
    )
    params = module.params
    try:
        parse_probes(tuple(params["probes"]))
        node = Node.parse({key: params[key] for key in ("bridges", "networks", "policy", "ovsdb")})
    except PodnetError as error:
        fail(module, error)
    terms = Terms(params["ovsdb"], params["manager"], params["confirm"], probes=tuple(params["probes"]))
    state, absent = look(module)
    state = without_leftovers(state)
    found = [*of_machine(), *of_switch(module, node, not absent)]
    for bridge in node.bridges:
        needed = max([network.mtu or DEFAULT_MTU for network in node.networks if network.bridge == bridge.name] or [0])
        for uplink in bridge.uplinks:
            found += of_uplink(bridge, uplink, state, needed, terms)
    found += [*of_cni(node.networks, params["bin_dir"], params["cni_dirs"]), *of_plan(node, state, terms)]
    module.exit_json(findings=found, blocking=sum(row["level"] == BLOCKING for row in found))


if __name__ == "__main__":
    main()
