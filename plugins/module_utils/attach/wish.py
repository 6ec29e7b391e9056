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

from ..cni.config import NetConf
from ..cni.request import Request
from ..errors import UNAVAILABLE, ConfigError, PodnetError, PolicyError, UnsupportedField
from ..model.names import parse_ifname, parse_mac, parse_mtu
from ..model.node import Bridge, Node, refuse_egress, refuse_tunnel
from ..model.paths import NODE_JSON
from ..model.port import Bandwidth, PortVlans, parse_port
from ..model.tables import flag, optional
from ..model.vlan import VlanSet
from .keys import (
    ASKS_NOTHING,
    DEVICE_FILE,
    UPLINK_KEY,
    asks_for_uplink,
    folded,
    refuse_requests,
    refuse_unknown,
)
from .peers import ANTREA_KEY, OVS_KEYS, own_form
from .subinterface_wish import Subinterface, parse_subinterfaces, refuse_unfit

KEYS = (
    "bridge", "vlan", "trunk", "untagged", "vlan_mode", "cvlans", "qinq_ethertype", "mtu", "mac", "ofport_request",
    "spoof_check", "port_isolation", "bandwidth", "subinterfaces", UPLINK_KEY,
)  # fmt: skip
CAPABILITIES = ("mac", "ips", "ipRanges", "bandwidth")
ETHERNET_MTU = 1500
HIGHEST_OFPORT = 65279
"""ovs-vswitchd.conf.db(5), table Interface, `ofport_request`: 1 to 65279."""
_PREPARE = "prepare the node: ansible-playbook podnet.ovs.site"


@dataclass(frozen=True)
class Wish:
    """What a pod asked for, and gets if the policy lets it.

    `mac` None: not given. `mtu`: bytes, the bridge's own if none is given. `userspace`: whether the bridge switches
    outside of the kernel. `spoof_check`: asked for, or demanded by the policy. `vlan_limit`: how many VLAN headers the
    node declares that its switch looks at, None if it declares nothing. `from_ipam`: the IPAM plugin names the uplink,
    and `bridge` is to be the one that has it.
    """

    bridge: str
    vlans: PortVlans
    mtu: int
    mac: str | None
    userspace: bool
    bandwidth: Bandwidth | None = None
    spoof_check: bool = False
    isolated: bool = False
    ofport_request: int | None = None
    vlan_limit: int | None = None
    from_ipam: bool = False
    subinterfaces: tuple[Subinterface, ...] = ()


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


def parse_wish(conf: NetConf, request: Request, node: Node, strict: bool = True, bridge: str | None = None) -> Wish:
    """Reads the plugin's own keys, in its own form or a peer's. Without `strict`, for CHECK, others are passed over.
    `bridge`: the one that the IPAM plugin's uplink is on; until that is known the one that would count without it.

    Raises ConfigError (code 7), UnsupportedField (code 2), PolicyError (code 7).
    """
    raw = own_form(conf.raw, conf.type, node, strict)
    if strict:
        refuse_unknown(raw, KEYS, (*OVS_KEYS, ANTREA_KEY))
        refuse_requests(conf, CAPABILITIES, DEVICE_FILE)
        _refuse_ovn(conf, request)
    bridge = bridge or _bridge(raw, node)
    declared = node.bridge(bridge)
    vlans = parse_port(raw)
    bandwidth = _bandwidth(conf, raw, node, bridge)
    refuse_tunnel(node, vlans)
    mtu = _mtu(raw.get("mtu"), declared)
    wanted = parse_subinterfaces(raw, request.ifname, strict)
    if strict:
        refuse_unfit(wanted, vlans, mtu)
    demanded = node.demands_spoof_check(bridge, request.pod_namespace, vlans.vlans, vlans.untagged)
    return Wish(
        bridge=bridge,
        vlans=vlans,
        mtu=mtu,
        mac=given_mac(raw, conf, request),
        userspace=declared is not None and declared.datapath_type == "netdev",
        bandwidth=bandwidth,
        spoof_check=flag(raw, "spoof_check", "") or demanded,
        isolated=flag(raw, "port_isolation", ""),
        ofport_request=optional(raw, "ofport_request", "", _ofport),
        vlan_limit=node.vlan_limit,
        from_ipam=asks_for_uplink(raw, conf),
        subinterfaces=wanted,
    )


def refuse_closed(wish: Wish, request: Request, node: Node) -> None:
    """Raises PolicyError for a bridge or a VLAN that the node does not open to this pod's namespace."""
    namespace, wanted = request.pod_namespace, wish.vlans.vlans
    untagged = wish.vlans.untagged
    if node.permits(wish.bridge, namespace, wanted, untagged):
        return
    open_vlans = node.open_vlans(wish.bridge, namespace)
    closed = wanted - open_vlans
    tag = wish.vlans.tag
    key = "vlan" if tag and tag in closed else "trunk" if closed else "untagged"
    what = f"VLAN {_some(closed)}" if closed else "untagged frames"
    whom = f"pods of namespace {namespace}" if namespace else "pods without a namespace"
    raise PolicyError(
        f"{key}: {what} of bridge {wish.bridge} is not open to {whom}",
        f"open to them: {_some(open_vlans) or 'none'}; more by a network in podnet_networks or a rule in podnet_policy",
    )


def host_name(container_id: str, ifname: str) -> str:
    """The host's end of an attachment's veth pair: 14 bytes that follow from its key."""
    return "pn" + _digest(container_id, ifname).hex()[:12]


def is_host_name(name: str) -> bool:
    """Whether a link may be the host's end of some attachment."""
    return len(name) == 14 and name.startswith("pn") and all(sign in "0123456789abcdef" for sign in name[2:])


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


def _some(vlans: VlanSet) -> str:
    """The first few of them, in words."""
    few = VlanSet(vlans.ranges[:5])
    return str(few) if few == vlans else f"{few} and more"


def _refuse_ovn(conf: NetConf, request: Request) -> None:
    for place, args in (("args.cni.ovnPort", conf.args), ("CNI_ARGS OvnPort", request.args)):
        if folded(args, "ovnport") not in ASKS_NOTHING:
            raise UnsupportedField(place, "ports of OVN are not made here", "leave it away")


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


def given_mac(raw: Mapping[str, Any], conf: NetConf, request: Request) -> str | None:
    """The runtime's request counts most, then args.cni, CNI_ARGS, and the configuration's own key."""
    for path, value in _macs(raw, conf, request):
        if value not in (None, ""):
            return parse_mac(value, path)
    return None


def _macs(raw: Mapping[str, Any], conf: NetConf, request: Request) -> Iterator[tuple[str, Any]]:
    yield "runtimeConfig.mac", conf.runtime.get("mac")
    yield "args.cni.mac", folded(conf.args, "mac")
    yield "CNI_ARGS MAC", folded(request.args, "mac")
    yield "mac", raw.get("mac")


def _bandwidth(conf: NetConf, raw: Mapping[str, Any], node: Node, bridge: str) -> Bandwidth | None:
    """The runtime's request counts more than the configuration's own key."""
    for path, table in (("runtimeConfig", conf.runtime), ("", raw)):
        bandwidth = optional(table, "bandwidth", path, Bandwidth.parse)
        if bandwidth:
            refuse_egress(node, bridge, bandwidth, path)
            return bandwidth
    return None


def _ofport(value: object, path: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= HIGHEST_OFPORT:
        raise ConfigError(path, f"{value!r} is not an OpenFlow port"[:200], f"a whole number, 1 to {HIGHEST_OFPORT}")
    return value
