# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of `podnet-vlan`: which VLANs, and how each is known. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..cni.config import NetConf, parse_ipam
from ..cni.request import Request
from ..errors import ConfigError, PolicyError
from ..model.names import IFNAME_BYTES, parse_ifname, parse_mac, parse_mtu, refuse_unknown_keys
from ..model.node import Node
from ..model.port import ETHERTYPES
from ..model.tables import as_list, at, choice, flag, optional
from ..model.vlan import VlanSet, parse_vlan_id
from .keys import ASKS_NOTHING, DEVICE_FILE, refuse_requests, refuse_unknown

KEYS = ("vlanId", "vlans", "parent", "master", "linkInContainer", "mtu", "protocol")
ENTRY_KEYS = ("id", "name", "ipam", "mtu", "protocol")
CAPABILITIES = ("mac", "ips", "ipRanges")
BASE, PREVIOUS = PARENTS = ("base", "previous")
PROTOCOLS = {"802.1q": 0x8100, "802.1ad": 0x88A8}
MARK = "podnet-vlan:"
_ALONE = ("ipam", "mtu", "protocol")
"""What a list has in its entries."""
_NAME_IT = 'give the VLAN a name of its own: "vlans": [{"id": 100, "name": "v100"}]'


@dataclass(frozen=True)
class Vlan:
    """One VLAN. `name` empty: it follows from the parent. `key` is its interface name towards IPAM. `mtu` None: the
    parent's. `path`: its place in the configuration.
    """

    vlan: int
    protocol: int
    name: str
    key: str
    ipam: Mapping[str, Any]
    mtu: int | None
    path: str


@dataclass(frozen=True)
class VlanWish:
    """What a configuration asks for. `nested`: each VLAN stands on the one before, else side by side. `master` empty:
    the parent follows from the plugins before. `in_container`: it is told to be in the pod. `on_host`: it is one of
    the node. `mac` None: the parent's.
    """

    vlans: tuple[Vlan, ...]
    nested: bool
    master: str
    in_container: bool
    on_host: bool
    mac: str | None


def parse_vlan_wish(conf: NetConf, request: Request, strict: bool = True) -> VlanWish:
    """Reads the plugin's own keys. Without `strict`, for other verbs than ADD, unknown keys and requests are passed
    over. Raises ConfigError (code 7), UnsupportedField (code 2).
    """
    raw = conf.raw
    if strict:
        refuse_unknown(raw, KEYS)
    nested = choice(raw, "parent", "", PARENTS) == PREVIOUS
    vlans = _vlans(conf, request.ifname, nested, strict)
    alone = len(vlans) == 1
    if strict:
        refuse_requests(replace(conf, ipam=vlans[0].ipam), CAPABILITIES if alone else (), DEVICE_FILE)
        _refuse_alike(vlans, nested)
    mac = conf.runtime.get("mac") if alone else None
    master = raw.get("master")
    in_container = flag(raw, "linkInContainer", "")
    wish = VlanWish(
        vlans=vlans,
        nested=nested,
        master="" if master in (None, "") else parse_ifname(master, "master"),
        in_container=in_container,
        on_host=not in_container and conf.prev_result is None,
        mac=None if mac in ASKS_NOTHING else parse_mac(mac, "runtimeConfig.mac"),
    )
    if wish.on_host and not wish.master and strict:
        raise ConfigError(
            "master", "it is not given, and no plugin comes before this one in the list",
            "name the parent, or put the plugin behind one that makes an interface, such as podnet-ovs or podnet-adopt",
        )  # fmt: skip
    return wish


def refuse_closed_master(wish: VlanWish, request: Request, node: Node) -> None:
    """Raises PolicyError for a VLAN on an interface of the host that the node does not open to this pod's namespace."""
    namespace = request.pod_namespace
    outer = wish.vlans[:1] if wish.nested else wish.vlans
    closed = VlanSet.of(item.vlan for item in outer) - node.open_on_interface(wish.master, namespace)
    if closed:
        whom = f"pods of namespace {namespace}" if namespace else "pods without a namespace"
        raise PolicyError(
            f"master: VLAN {closed} on the host interface {wish.master} is not open to {whom}",
            f"open it by a rule in podnet_policy with interface: {wish.master} and vlans: {closed}; for a parent in "
            "the pod give linkInContainer, or put the plugin behind another one",
        )


def names_of(conf: NetConf, request: Request, ifname: str) -> list[str]:
    """The names by which IPAM plugins know an attachment with this interface."""
    return [item.key for item in parse_vlan_wish(conf, replace(request, ifname=ifname), strict=False).vlans]


def mark_of(network: str, ifname: str, key: str) -> str:
    """The alias of a VLAN's link, by which it is found again: of the list's name, CNI_IFNAME and the key."""
    return MARK + hashlib.sha256("\0".join((network, ifname, key)).encode()).hexdigest()[:24]


def link_name(item: Vlan, parent: str, ifname: str, is_main: bool) -> str:
    """The name of a VLAN's link. `is_main`: it is what the runtime calls CNI_IFNAME. Raises ConfigError."""
    if item.name:
        return item.name
    if is_main:
        return ifname
    name = f"{parent}.{item.vlan}"
    if len(name.encode()) > IFNAME_BYTES:
        raise ConfigError(item.path, f"the interface name {name} would have more than {IFNAME_BYTES} bytes", _NAME_IT)
    return name


def _vlans(conf: NetConf, ifname: str, nested: bool, strict: bool) -> tuple[Vlan, ...]:
    raw = conf.raw
    if raw.get("vlans") is None:
        if raw.get("vlanId") is None:
            raise ConfigError("vlanId", "neither vlanId nor vlans is given", '"vlanId": 100, or a list in "vlans"')
        return (_vlan(raw, "", conf.ipam, ifname, (), nested, strict),)
    if strict and raw.get("vlanId") is not None:
        raise ConfigError("vlanId", "both vlanId and vlans are given", "write all of them in vlans")
    for key in _ALONE if strict else ():
        if raw.get(key) not in ASKS_NOTHING:
            raise ConfigError(key, "it is given beside vlans", "each entry of vlans has its own")
    found: list[Vlan] = []
    for number, entry in enumerate(as_list(raw, "vlans", "")):
        path = f"vlans[{number}]"
        if not isinstance(entry, Mapping):
            raise ConfigError(path, f"an object is wanted, not {entry!r}"[:200], 'like {"id": 100}')
        if strict:
            refuse_unknown_keys(entry, ENTRY_KEYS, path)
        given = parse_ipam(entry, raw.get("type"), path) if conf.name else {}
        below = tuple(item.vlan for item in found) if nested else ()
        found.append(_vlan(entry, path, given, ifname, below, nested, strict))
    if not found:
        raise ConfigError("vlans", "the list is empty", 'name at least one: [{"id": 100}]')
    return tuple(found)


def _vlan(
    table: Mapping[str, Any], path: str, given: Mapping[str, Any], ifname: str, below: Collection[int], nested: bool,
    strict: bool,
) -> Vlan:  # fmt: skip
    place = f"{path}.id" if path else "vlanId"
    vlan = _vlan_id(table.get("id" if path else "vlanId"), place)
    name = optional(table, "name", path, parse_ifname) if path else None
    key = name or f"{ifname}." + ("p" if nested else "") + ".".join(map(str, (*below, vlan)))
    if given and len(key.encode()) > IFNAME_BYTES:
        if strict:
            what = f"its name towards IPAM, {key}, would have more than {IFNAME_BYTES} bytes"
            raise ConfigError(place, what, _NAME_IT)
        given = {}  # nothing was leased by it
    mtu = table.get("mtu")
    return Vlan(
        vlan=vlan,
        protocol=PROTOCOLS[choice(table, "protocol", path, ETHERTYPES) or "802.1q"],
        name=name or "",
        key=key,
        ipam=given,
        mtu=None if mtu in (None, 0) and mtu is not False else parse_mtu(mtu, at(path, "mtu")),
        path=place,
    )


def _vlan_id(value: object, path: str) -> int:
    if value == 0 and not isinstance(value, bool):
        raise ConfigError(path, "0 gives frames a priority and no VLAN", "1 to 4094")
    return parse_vlan_id(value, path)


def _refuse_alike(vlans: Collection[Vlan], nested: bool) -> None:
    """Two that could not be told apart: by their tags, or towards IPAM."""
    tags: dict[tuple[int, int], str] = {}
    keys: dict[str, str] = {}
    for item in vlans:
        other = tags.setdefault((item.vlan, item.protocol), item.path)
        if not nested and other != item.path:
            raise ConfigError(item.path, f"VLAN {item.vlan} is there already: {other}", "a parent has a VLAN once")
        other = keys.setdefault(item.key, item.path)
        if other != item.path:
            raise ConfigError(item.path, f"{other} has the name {item.key} as well", "give each a name of its own")
