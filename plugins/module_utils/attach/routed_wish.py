# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of `podnet-routed`, and what becomes of the addresses that an IPAM plugin gives."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass

from ..cni.config import NetConf
from ..cni.request import Request
from ..cni.result import Address, Result, Route
from ..errors import ConfigError, PolicyError
from ..kernel.pod import PodRoute
from ..model.names import LOWEST_MTU6, parse_ifname, parse_mtu
from ..model.node import Node
from ..model.routing import GATEWAYS, Way, host_prefix
from ..model.tables import flag, optional
from .keys import DEVICE_FILE, UPLINK_KEY, asks_for_uplink, refuse_requests, refuse_unknown
from .uplinks import Home
from .wish import given_mac

KEYS = ("uplink", UPLINK_KEY, "onLink", "mtu", "mac")
CAPABILITIES = ("mac", "ips", "ipRanges")
_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}


@dataclass(frozen=True)
class Wish:
    """What a pod asked for. `uplink` empty: the IPAM plugin names it (`from_ipam`), which may be asked beside a name.

    `on_link`: an address without a gateway has all destinations as neighbours on its uplink. `mtu` None: the uplink's.
    """

    uplink: str
    from_ipam: bool
    on_link: bool
    mtu: int | None
    mac: str | None


def parse_wish(conf: NetConf, request: Request, strict: bool = True) -> Wish:
    """Reads the plugin's own keys. Without `strict`, for CHECK, others are passed over.

    Raises ConfigError (code 7), UnsupportedField (code 2).
    """
    raw = conf.raw
    if strict:
        refuse_unknown(raw, KEYS)
        refuse_requests(conf, CAPABILITIES, DEVICE_FILE)
    if not conf.ipam:
        raise ConfigError("ipam", "a layer-3 attachment needs addresses", "name an IPAM plugin, such as host-local")
    wish = Wish(
        uplink=optional(raw, "uplink", "", parse_ifname) or "",
        from_ipam=asks_for_uplink(raw, conf),
        on_link=flag(raw, "onLink", ""),
        mtu=None if raw.get("mtu") in (None, 0) else parse_mtu(raw["mtu"], "mtu"),
        mac=given_mac(raw, conf, request),
    )
    if not wish.uplink and not wish.from_ipam:
        raise ConfigError("uplink", "none is given", f'like eth1; or "{UPLINK_KEY}": true, if the IPAM plugin says it')
    return wish


def refuse_closed(home: Home, request: Request, node: Node) -> None:
    """Raises PolicyError for an uplink by which the node does not let pods of this namespace out."""
    namespace = request.pod_namespace
    if node.permits_routing(home.name, namespace):
        return
    whom = f"pods of namespace {namespace}" if namespace else "pods without a namespace"
    key = "bridge" if home.bridge else "interface"
    raise PolicyError(
        f"uplink: no packets are routed by {home.name} for {whom}",
        f"a rule in podnet_policy opens it: {key}: {home.name}, routed: true",
    )


def refuse_useless(given: Result, wish: Wish, plugin: str) -> None:
    """Raises ConfigError for addresses or routes of an IPAM plugin that no layer-3 attachment can have."""
    if not given.addresses:
        raise ConfigError("ipam", f"{plugin} gave no address", "a layer-3 attachment needs one")
    if wish.mtu and wish.mtu < LOWEST_MTU6 and any(item.family == 6 for item in given.addresses):
        raise ConfigError("mtu", f"{wish.mtu} is too little for IPv6", f"at least {LOWEST_MTU6}, or no IPv6 addresses")
    plain = [str(ipaddress.ip_interface(item.address).ip) for item in given.addresses]
    for text in plain:
        address = ipaddress.ip_address(text)
        if address.is_multicast or address.is_unspecified or address.is_link_local or address.is_loopback:
            raise ConfigError("ipam", f"{plugin} gave {text}, which cannot be routed", "take another range")
        if plain.count(text) > 1:
            raise ConfigError("ipam", f"{plugin} gave {text} twice", "it is a fault of that plugin")
    for text, item in zip(plain, given.addresses):
        if not item.gateway:
            if not wish.on_link:
                raise ConfigError(
                    "ipam", f"{plugin} gave no gateway for {text}",
                    'configure one there, or "onLink": true if all destinations are neighbours on the uplink',
                )  # fmt: skip
            continue
        gateway = _address(item.gateway)
        if gateway.version != item.family or str(gateway) == text:
            raise ConfigError("ipam", f"{plugin} gave {text} the gateway {gateway}", "a router on the uplink")
    known = {item.gateway for item in given.addresses} | set(GATEWAYS.values()) | {""}
    for route in given.routes:
        if route.gateway not in known:
            raise ConfigError(
                "ipam", f"the route to {route.destination} has the gateway {route.gateway}, which no address has",
                "all routes of a layer-3 attachment lead to its uplink's gateway: leave gw away",
            )  # fmt: skip
        if not any(item.family == route.family for item in given.addresses):
            raise ConfigError("ipam", f"a route to {route.destination} without an address of its family", "add a range")


def ways(given: Result, homes: Sequence[Home]) -> tuple[Way, ...]:
    """By which uplink each address leaves, and the gateway in the kernel's spelling."""
    return tuple(
        Way(
            str(ipaddress.ip_interface(item.address).ip),
            home.device,
            str(_address(item.gateway)) if item.gateway else "",
            home.named,
        )
        for item, home in zip(given.addresses, homes)
    )


def in_pod(given: Result) -> Result:
    """What the pod has: each address alone, for no neighbour is on its link; and routes.

    What the IPAM plugin says counts: with routes of a family the pod has those, and else a default route.
    """
    routes = list(given.routes)
    for family in (4, 6):
        if any(item.family == family for item in given.addresses) and not any(r.family == family for r in given.routes):
            routes.append(Route(_ANYWHERE[family]))
    alone = (
        Address(host_prefix(str(ipaddress.ip_interface(item.address).ip)), item.gateway) for item in given.addresses
    )
    return Result((), tuple(alone), tuple(routes), given.dns)


def pod_routes(result: Result) -> list[PodRoute]:
    """The pod's routes for the kernel: all by the gateway that is nobody's."""
    return [PodRoute(item.destination, GATEWAYS[item.family], **item.extra) for item in result.routes]


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Without the zone that a link-local one may have: it is on the uplink, whatever it is called."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        hint = "it is an address without a prefix length"
        raise ConfigError("ipam", f"{text!r} is given as a gateway"[:200], hint) from None
