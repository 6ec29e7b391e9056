# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of `podnet-ovs`, and what the node lets a pod have of it."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..cni.config import COMMON_KEYS, NetConf
from ..cni.request import Request
from ..errors import UNAVAILABLE, ConfigError, PodnetError, PolicyError, UnsupportedField
from ..model.names import nearest, parse_ifname, parse_mac, parse_mtu
from ..model.node import Bridge, Node
from ..model.paths import NODE_JSON
from ..model.vlan import VlanSet, parse_vlan_id

KEYS = ("bridge", "vlan", "untagged", "mtu", "mac")
ETHERNET_MTU = 1500
_PREPARE = "prepare the node: ansible-playbook podnet.ovs.site"


@dataclass(frozen=True)
class Wish:
    """What a pod asked for. `vlan` None: an access port for untagged frames. `mac` None: not given. `mtu`: bytes, the
    bridge's own if none is given.

    `userspace`: whether the bridge switches outside of the kernel.
    """

    bridge: str
    vlan: int | None
    mtu: int
    mac: str | None
    userspace: bool


_known: tuple[tuple[int, ...], Node] | None = None
"""The file as last read, with what tells whether it still is the same."""


def load_node() -> Node:
    """The node's own file. Raises PodnetError with code 50 if it is not there or cannot be read."""
    global _known
    try:
        with open(NODE_JSON, encoding="utf-8") as file:
            stat = os.fstat(file.fileno())
            seal = (stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns)
            if _known is None or _known[0] != seal:
                _known = (seal, Node.from_json(file.read()))
            return _known[1]
    except FileNotFoundError as error:
        raise PodnetError(f"this node is not prepared: no {NODE_JSON}", _PREPARE, UNAVAILABLE) from error
    except (OSError, UnicodeDecodeError, PodnetError) as error:
        raise PodnetError(f"{NODE_JSON} cannot be used: {error}", _PREPARE, UNAVAILABLE) from error


def parse_wish(conf: NetConf, request: Request, node: Node) -> Wish:
    """Reads the plugin's own keys strictly. Raises ConfigError (code 7), UnsupportedField (code 2)."""
    _refuse_unknown(conf.raw)
    vlan = conf.raw.get("vlan")
    untagged = conf.raw.get("untagged", False)
    if not isinstance(untagged, bool):
        raise ConfigError("untagged", f"{untagged!r} is neither true nor false", "leave it away for a tagged network")
    if untagged == (vlan is not None):
        message = "both vlan and untagged are given" if untagged else "neither vlan nor untagged is given"
        raise ConfigError("vlan", message, 'write "vlan": 100 for a tagged network, or "untagged": true')
    bridge = _bridge(conf.raw, node)
    declared = node.bridge(bridge)
    return Wish(
        bridge=bridge,
        vlan=None if vlan is None else parse_vlan_id(vlan, "vlan"),
        mtu=_mtu(conf.raw.get("mtu"), declared),
        mac=_mac(conf, request),
        userspace=declared is not None and declared.datapath_type == "netdev",
    )


def refuse_closed(wish: Wish, request: Request, node: Node) -> None:
    """Raises PolicyError for a bridge or VLAN that the node does not open to this pod's namespace."""
    namespace = request.pod_namespace
    vlans = VlanSet() if wish.vlan is None else VlanSet.of([wish.vlan])
    if node.permits(wish.bridge, namespace, vlans, untagged=wish.vlan is None):
        return
    what = "untagged frames" if wish.vlan is None else f"VLAN {wish.vlan}"
    whom = f"pods of namespace {namespace}" if namespace else "pods without a namespace"
    open_to = str(node.open_vlans(wish.bridge, namespace)) or "none"
    raise PolicyError(
        f"vlan: {what} of bridge {wish.bridge} is not open to {whom}",
        f"open to them: {open_to}; declare a network in podnet_networks, or a rule in podnet_policy",
    )


def host_name(container_id: str, ifname: str) -> str:
    """The host's end of an attachment's veth pair: 14 bytes that follow from its key."""
    return "pn" + _digest(container_id, ifname).hex()[:12]


def derived_mac(container_id: str, ifname: str) -> str:
    """A MAC address that follows from the attachment: locally administered, unicast (IEEE 802-2014, clause 8.4)."""
    octets = bytearray(_digest(container_id, ifname)[6:12])
    octets[0] = octets[0] & 0xFC | 0x02
    return ":".join(f"{octet:02x}" for octet in octets)


def host_mac(container_id: str, ifname: str) -> str:
    """The MAC address of the host's end, which nobody speaks to."""
    return derived_mac(container_id, "/" + ifname)


def _digest(container_id: str, ifname: str) -> bytes:
    return hashlib.sha256(f"{container_id}/{ifname}".encode()).digest()


def _refuse_unknown(raw: Mapping[str, Any]) -> None:
    known = (*COMMON_KEYS, *KEYS)
    for key in sorted(raw):
        # A key with a dot is somebody's own by the reverse-domain convention, or the protocol's cni.dev/*.
        if key in known or "." in key:
            continue
        if key == "trunk":
            raise UnsupportedField(key, "this version makes access ports only", 'write "vlan": 100')
        guess = nearest(key, known)
        hint = f"did you mean {guess}?" if guess else f"known here: {', '.join(KEYS)}"
        raise UnsupportedField(key, f"unknown key with value {raw[key]!r}"[:200], hint)


def _bridge(raw: Mapping[str, Any], node: Node) -> str:
    name = raw.get("bridge")
    if name is None:
        if not node.bridges:
            raise ConfigError("bridge", "none is given, and the node declares none", _PREPARE)
        return node.bridges[0].name
    return parse_ifname(name, "bridge")


def _mtu(value: object, bridge: Bridge | None) -> int:
    if value is None or (value == 0 and not isinstance(value, bool)):
        return (bridge.mtu if bridge else None) or ETHERNET_MTU
    return parse_mtu(value, "mtu")


def _mac(conf: NetConf, request: Request) -> str | None:
    """The runtime's request counts most, then args.cni, CNI_ARGS, and the configuration's own key."""
    for path, value in _macs(conf, request):
        if value not in (None, ""):
            return parse_mac(value, path)
    return None


def _macs(conf: NetConf, request: Request) -> Iterator[tuple[str, Any]]:
    yield "runtimeConfig.mac", conf.runtime.get("mac")
    yield "args.cni.mac", conf.args.get("mac")
    yield "CNI_ARGS MAC", request.args.get("MAC")
    yield "mac", conf.raw.get("mac")
