# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node and its pod networks should be: typed values, the parser that makes them, and the policy they imply.

Every `parse` takes what YAML or JSON gave and raises ConfigError (UnsupportedField for a key that is not known) with
the path of the bad value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, TypeVar

from ..errors import ConfigError, DecodeError
from .names import parse_address, parse_ifname, parse_mac, parse_mtu, refuse_unknown_keys
from .ownership import PREFIX
from .paths import OVSDB
from .vlan import VlanSet

T = TypeVar("T")

SCHEMA = 1
"""Of node.json: keys may be added within a major version, a newer major is refused."""

DATAPATH_TYPES = ("system", "netdev")
FAIL_MODES = ("standalone", "secure")
BOND_MODES = ("active-backup", "balance-slb", "balance-tcp")
LACP_MODES = ("off", "active", "passive")
CNI_VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
ANY_NAMESPACE = "*"

_AGAIN = "run the role podnet.ovs.node again"
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Uplink:
    """A NIC, or several as an Open vSwitch bond, that leads to the site's switch. `vlans` None: all of them."""

    name: str
    nics: tuple[str, ...]
    bond_mode: str | None = None
    lacp: str | None = None
    vlans: VlanSet | None = None
    native_vlan: int | None = None
    mtu: int | None = None
    move: bool = False
    other_config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: object, path: str) -> Uplink:
        """`name` is the NIC itself, or with several `nics` the name of the bond's port."""
        table = _table(value, path, cls)
        name = parse_ifname(table.get("name"), f"{path}.name")
        nics = tuple(parse_ifname(nic, f"{path}.nics[{i}]") for i, nic in enumerate(_list(table, "nics", path)))
        uplink = cls(
            name=name,
            nics=nics or (name,),
            bond_mode=_choice(table, "bond_mode", path, BOND_MODES),
            lacp=_choice(table, "lacp", path, LACP_MODES),
            vlans=_optional(table, "vlans", path, VlanSet.parse),
            native_vlan=_optional(table, "native_vlan", path, _one_vlan),
            mtu=_optional(table, "mtu", path, _mtu),
            move=_bool(table, "move", path),
            other_config=_strings(table, "other_config", path),
        )
        _check_uplink(uplink, path)
        return uplink


@dataclass(frozen=True)
class Interface:
    """A host interface on a VLAN of a bridge; `vlan` None: untagged. The bridge's own name: its local port.

    `addresses` None: whatever it has; `()`: none of ours.
    """

    name: str
    vlan: int | None = None
    addresses: tuple[str, ...] | None = None
    mtu: int | None = None
    mac: str | None = None

    @classmethod
    def parse(cls, value: object, path: str) -> Interface:
        table = _table(value, path, cls)
        addresses = None
        if table.get("addresses") is not None:
            given = _list(table, "addresses", path)
            addresses = tuple(str(parse_address(item, f"{path}.addresses[{i}]")) for i, item in enumerate(given))
            if len(set(addresses)) != len(addresses):
                raise ConfigError(f"{path}.addresses", "an address is there twice")
        return cls(
            name=parse_ifname(table.get("name"), f"{path}.name"),
            vlan=_optional(table, "vlan", path, _one_vlan),
            addresses=addresses,
            mtu=_optional(table, "mtu", path, _mtu),
            mac=_optional(table, "mac", path, parse_mac),
        )


@dataclass(frozen=True)
class Bridge:
    """An Open vSwitch bridge with what is on it. `vlan_limit` is the switch's, set through any of its bridges."""

    name: str
    datapath_type: str = "system"
    fail_mode: str = "standalone"
    stp: bool = False
    rstp: bool = False
    mtu: int | None = None
    mac: str | None = None
    vlan_limit: int | None = None
    other_config: Mapping[str, str] = field(default_factory=dict)
    external_ids: Mapping[str, str] = field(default_factory=dict)
    uplinks: tuple[Uplink, ...] = ()
    interfaces: tuple[Interface, ...] = ()

    @classmethod
    def parse(cls, value: object, path: str) -> Bridge:
        table = _table(value, path, cls)
        bridge = cls(
            name=parse_ifname(table.get("name"), f"{path}.name"),
            datapath_type=_choice(table, "datapath_type", path, DATAPATH_TYPES) or DATAPATH_TYPES[0],
            fail_mode=_choice(table, "fail_mode", path, FAIL_MODES) or FAIL_MODES[0],
            stp=_bool(table, "stp", path),
            rstp=_bool(table, "rstp", path),
            mtu=_optional(table, "mtu", path, _mtu),
            mac=_optional(table, "mac", path, parse_mac),
            vlan_limit=_optional(table, "vlan_limit", path, _vlan_limit),
            other_config=_strings(table, "other_config", path),
            external_ids=_strings(table, "external_ids", path),
            uplinks=_each(table, "uplinks", path, Uplink.parse),
            interfaces=_each(table, "interfaces", path, Interface.parse),
        )
        _check_bridge(bridge, path)
        return bridge

    def uplink(self, name: str) -> Uplink | None:
        """The declared uplink of that name."""
        return next((uplink for uplink in self.uplinks if uplink.name == name), None)

    def interface(self, name: str) -> Interface | None:
        """The declared interface of that name."""
        return next((interface for interface in self.interfaces if interface.name == name), None)


@dataclass(frozen=True)
class Network:
    """A pod network: a VLAN on a bridge, with its addresses; becomes one NetworkAttachmentDefinition per namespace.

    Without `namespaces` that is one in `default`, and pods of any namespace may attach.
    """

    name: str
    bridge: str
    vlan: int | None = None
    untagged: bool = False
    mtu: int | None = None
    mac: str | None = None
    namespaces: tuple[str, ...] = ()
    ipam: Mapping[str, Any] = field(default_factory=dict)
    cni_version: str = "1.0.0"
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, value: object, path: str) -> Network:
        table = _table(value, path, cls)
        network = cls(
            name=_dns_name(table.get("name"), f"{path}.name", _SUBDOMAIN),
            bridge=parse_ifname(table.get("bridge"), f"{path}.bridge"),
            vlan=_optional(table, "vlan", path, _one_vlan),
            untagged=_bool(table, "untagged", path),
            mtu=_optional(table, "mtu", path, _mtu),
            mac=_optional(table, "mac", path, parse_mac),
            namespaces=_namespaces(table, path, ()),
            ipam=_ipam(table, path),
            cni_version=_choice(table, "cni_version", path, CNI_VERSIONS) or "1.0.0",
            capabilities={
                key: _bool(_map(table, "capabilities", path), key, f"{path}.capabilities")
                for key in _map(table, "capabilities", path)
            },
            annotations=_strings(table, "annotations", path),
        )
        if (network.vlan is None) != network.untagged:
            raise ConfigError(f"{path}.vlan", "a pod network has a VLAN or is untagged", "vlan: 100, or untagged: true")
        return network


@dataclass(frozen=True)
class Rule:
    """What pods of some namespaces may use of a bridge."""

    bridge: str
    vlans: VlanSet = field(default_factory=VlanSet)
    namespaces: tuple[str, ...] = (ANY_NAMESPACE,)
    untagged: bool = False

    @classmethod
    def parse(cls, value: object, path: str) -> Rule:
        table = _table(value, path, cls)
        return cls(
            bridge=parse_ifname(table.get("bridge"), f"{path}.bridge"),
            vlans=_optional(table, "vlans", path, VlanSet.parse) or VlanSet(),
            namespaces=_namespaces(table, path, (ANY_NAMESPACE,)),
            untagged=_bool(table, "untagged", path),
        )

    def is_for(self, bridge: str, namespace: str) -> bool:
        """Whether it speaks of this bridge and of pods of this namespace."""
        return self.bridge == bridge and (ANY_NAMESPACE in self.namespaces or namespace in self.namespaces)


@dataclass(frozen=True)
class Node:
    """The desired state of one node, and what its pods may use."""

    bridges: tuple[Bridge, ...] = ()
    networks: tuple[Network, ...] = ()
    policy: tuple[Rule, ...] = ()
    ovsdb: str = OVSDB

    @classmethod
    def parse(cls, value: object, path: str = "") -> Node:
        table = _table(value, path, cls)
        ovsdb = table.get("ovsdb", OVSDB)
        if not isinstance(ovsdb, str) or not ovsdb.startswith("unix:/"):
            raise ConfigError(_at(path, "ovsdb"), f"{ovsdb!r} is not a local database", f"a unix socket, like {OVSDB}")
        node = cls(
            bridges=_each(table, "bridges", path, Bridge.parse),
            networks=_each(table, "networks", path, Network.parse),
            policy=tuple(
                Rule.parse(item, f"{_at(path, 'policy')}[{i}]") for i, item in enumerate(_list(table, "policy", path))
            ),
            ovsdb=ovsdb,
        )
        _check_node(node, path)
        return node

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The policy: each declared network's own VLAN for its namespaces, then the explicit rules."""
        return tuple(_rule_of(network) for network in self.networks) + self.policy

    def permits(self, bridge: str, namespace: str, vlans: VlanSet, untagged: bool = False) -> bool:
        """Whether pods of `namespace` may use all of these VLANs of `bridge`, and untagged frames if asked."""
        rules = [rule for rule in self.rules if rule.is_for(bridge, namespace)]
        open_vlans = {number for rule in rules for number in rule.vlans}
        return set(vlans) <= open_vlans and (not untagged or any(rule.untagged for rule in rules))

    def open_vlans(self, bridge: str, namespace: str) -> VlanSet:
        """The VLANs of `bridge` that pods of `namespace` may use."""
        rules = [rule for rule in self.rules if rule.is_for(bridge, namespace)]
        return VlanSet.of(number for rule in rules for number in rule.vlans)

    @property
    def vlan_limit(self) -> int | None:
        """The limit of VLAN headers that one of the bridges asks for, for the whole switch."""
        return next((bridge.vlan_limit for bridge in self.bridges if bridge.vlan_limit is not None), None)

    def bridge(self, name: str) -> Bridge | None:
        """The declared bridge of that name."""
        return next((bridge for bridge in self.bridges if bridge.name == name), None)

    def to_json(self) -> str:
        """The text of node.json: stable, so that equal nodes give equal files."""
        return json.dumps({"schema": SCHEMA, **_plain(self)}, indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Node:
        """Reads node.json. Raises DecodeError if it is broken, ConfigError if a release with a newer schema wrote it.

        Keys that a later release with this schema has added are passed over.
        """
        try:
            table = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DecodeError(f"node.json is not JSON: {error}", _AGAIN) from error
        if not isinstance(table, dict):
            raise DecodeError("node.json holds no object", _AGAIN)
        schema = table.pop("schema", None)
        if isinstance(schema, bool) or not isinstance(schema, int):
            raise DecodeError(f"node.json has {schema!r} as its schema", _AGAIN)
        if schema != SCHEMA:
            raise ConfigError(
                "schema", f"node.json has schema {schema!r}, known here is {SCHEMA}", "use the release that wrote it"
            )
        try:
            return cls.parse(_known_keys(table, cls))
        except ConfigError as error:
            raise DecodeError(f"node.json is broken: {error.message}", _AGAIN) from error


_PARTS: Mapping[Any, Mapping[str, Any]] = {
    Node: {"bridges": Bridge, "networks": Network, "policy": Rule},
    Bridge: {"uplinks": Uplink, "interfaces": Interface},
}


def _known_keys(value: Any, kind: Any) -> Any:
    """Without the keys that this release does not know, at every depth."""
    if not isinstance(value, dict):
        return value
    known = {column.name: value[column.name] for column in fields(kind) if column.name in value}
    for key, part in _PARTS.get(kind, {}).items():
        if isinstance(known.get(key), list):
            known[key] = [_known_keys(item, part) for item in known[key]]
    return known


def _check_uplink(uplink: Uplink, path: str) -> None:
    if len(set(uplink.nics)) != len(uplink.nics):
        raise ConfigError(f"{path}.nics", "a NIC is there twice")
    if uplink.vlans is not None and not uplink.vlans:
        raise ConfigError(f"{path}.vlans", "the set is empty", "leave the key away for all VLANs")
    bond = len(uplink.nics) > 1
    if not bond and uplink.nics != (uplink.name,):
        raise ConfigError(f"{path}.nics", "one NIC makes no bond", f"write name: {uplink.nics[0]} alone, or two NICs")
    if bond and uplink.name in uplink.nics:
        raise ConfigError(f"{path}.name", f"{uplink.name} is one of the NICs", "a bond has its own name, like bond0")
    for key, value in (("bond_mode", uplink.bond_mode), ("lacp", uplink.lacp)):
        if not bond and value is not None:
            raise ConfigError(f"{path}.{key}", "only a bond has it", "name two or more nics")
    if uplink.bond_mode == "balance-tcp" and uplink.lacp not in ("active", "passive"):
        raise ConfigError(f"{path}.lacp", "balance-tcp needs LACP with the switch", "lacp: active")


def _check_bridge(bridge: Bridge, path: str) -> None:
    if bridge.stp and bridge.rstp:
        raise ConfigError(f"{path}.rstp", "a bridge runs STP or RSTP, not both")
    if bridge.mac is not None and "hwaddr" in bridge.other_config:
        raise ConfigError(f"{path}.other_config.hwaddr", "the key mac sets it already")
    for key in bridge.external_ids:
        if key.startswith(PREFIX):
            raise ConfigError(f"{path}.external_ids.{key}", f"keys that begin with {PREFIX} are the owner mark's")


def _check_node(node: Node, path: str) -> None:
    owners: dict[str, str] = {}
    for i, bridge in enumerate(node.bridges):
        place = f"{_at(path, 'bridges')}[{i}]"
        names = [(bridge.name, place)]
        for j, uplink in enumerate(bridge.uplinks):
            names += [(name, f"{place}.uplinks[{j}]") for name in {uplink.name, *uplink.nics}]
        names += [
            (item.name, f"{place}.interfaces[{j}]")
            for j, item in enumerate(bridge.interfaces)
            if item.name != bridge.name
        ]
        for name, where in names:
            if name in owners:
                raise ConfigError(where, f"{name} is there already: {owners[name]}", "a name is used once on a node")
            owners[name] = where
    limits = {bridge.vlan_limit for bridge in node.bridges if bridge.vlan_limit is not None}
    if len(limits) > 1:
        raise ConfigError(_at(path, "bridges"), f"vlan_limit is the whole switch's, but bridges say {sorted(limits)}")
    _check_declared(node, _at(path, "networks"), [network.bridge for network in node.networks])
    _check_declared(node, _at(path, "policy"), [rule.bridge for rule in node.policy])


def _check_declared(node: Node, path: str, bridges: list[str]) -> None:
    for i, name in enumerate(bridges):
        if node.bridge(name) is None:
            known = ", ".join(bridge.name for bridge in node.bridges) or "none"
            raise ConfigError(f"{path}[{i}].bridge", f"no bridge {name} is declared", f"declared are: {known}")


def _rule_of(network: Network) -> Rule:
    vlans = VlanSet() if network.vlan is None else VlanSet.of([network.vlan])
    return Rule(network.bridge, vlans, network.namespaces or (ANY_NAMESPACE,), network.untagged)


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _table(value: object, path: str, kind: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(path, f"a map with keys is wanted here, not {value!r}")
    refuse_unknown_keys(value, [column.name for column in fields(kind)], path)
    return value


def _list(table: Mapping[str, Any], key: str, path: str) -> list[Any]:
    value = table.get(key)
    if value is None:
        return []
    if not isinstance(value, (list, tuple)):
        raise ConfigError(_at(path, key), f"a list is wanted here, not {value!r}")
    return list(value)


def _each(table: Mapping[str, Any], key: str, path: str, parse: Callable[[object, str], T]) -> tuple[T, ...]:
    """Things that have a name, each once."""
    place = _at(path, key)
    things = tuple(parse(item, f"{place}[{i}]") for i, item in enumerate(_list(table, key, path)))
    names = [getattr(thing, "name", "") for thing in things]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise ConfigError(f"{place}[{i}].name", f"{name} is there twice")
    return things


def _map(table: Mapping[str, Any], key: str, path: str) -> Mapping[str, Any]:
    value = table.get(key)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise ConfigError(_at(path, key), f"a map is wanted here, not {value!r}")
    return value


def _strings(table: Mapping[str, Any], key: str, path: str) -> dict[str, str]:
    """A map of strings; YAML's own numbers and booleans are written as Open vSwitch reads them."""
    found = {}
    for name, value in _map(table, key, path).items():
        if not isinstance(value, (str, int)) or not str(name):
            raise ConfigError(f"{_at(path, key)}.{name}", f"a string is wanted here, not {value!r}")
        found[str(name)] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def _optional(table: Mapping[str, Any], key: str, path: str, parse: Callable[[Any, str], T]) -> T | None:
    value = table.get(key)
    return None if value is None else parse(value, _at(path, key))


def _choice(table: Mapping[str, Any], key: str, path: str, choices: tuple[str, ...]) -> str | None:
    value = table.get(key)
    if value is None:
        return None
    if value is False and "off" in choices:  # YAML 1.1 reads a bare off so
        return "off"
    if value not in choices:
        raise ConfigError(_at(path, key), f"{value!r} is not known", f"one of {', '.join(choices)}")
    return str(value)


def _bool(table: Mapping[str, Any], key: str, path: str) -> bool:
    value = table.get(key)
    if value is None:
        return False
    if not isinstance(value, bool):
        raise ConfigError(_at(path, key), f"true or false is wanted here, not {value!r}")
    return value


def _one_vlan(value: object, path: str) -> int:
    vlans = VlanSet.parse(value, path)
    if len(vlans) != 1:
        raise ConfigError(path, f"one VLAN is wanted here, not {value!r}")
    return next(iter(vlans))


def _mtu(value: object, path: str) -> int:
    return parse_mtu(int(value) if isinstance(value, str) and value.isdigit() else value, path)


def _vlan_limit(value: object, path: str) -> int:
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if isinstance(number, bool) or number not in (0, 1, 2):
        raise ConfigError(path, f"{value!r} is not a limit", "0 (no limit), 1 or 2 VLAN headers are looked at")
    return int(str(number))


def _dns_name(value: object, path: str, form: re.Pattern[str]) -> str:
    longest = 63 if form is _LABEL else 253
    if not isinstance(value, str) or len(value) > longest or not form.fullmatch(value):
        raise ConfigError(
            path, f"{value!r} is not a name that Kubernetes takes", "lower case letters, digits and dashes (RFC 1123)"
        )
    return value


def _namespaces(table: Mapping[str, Any], path: str, default: tuple[str, ...]) -> tuple[str, ...]:
    given = _list(table, "namespaces", path)
    place = _at(path, "namespaces")
    if default and table.get("namespaces") is not None and not given:
        raise ConfigError(place, "the list is empty", "leave the key away for all namespaces")
    if given == [ANY_NAMESPACE]:
        return (ANY_NAMESPACE,) if default else ()
    return tuple(_dns_name(item, f"{place}[{i}]", _LABEL) for i, item in enumerate(given)) or default


def _ipam(table: Mapping[str, Any], path: str) -> dict[str, Any]:
    ipam = _map(table, "ipam", path)
    if ipam and not (isinstance(ipam.get("type"), str) and ipam["type"]):
        raise ConfigError(f"{_at(path, 'ipam')}.type", "the IPAM plugin is not named", "type: host-local, for example")
    return dict(ipam)


def _plain(thing: Any) -> Any:
    """JSON's own types. What is unset is left out, so that the file says what somebody wanted."""
    if isinstance(thing, VlanSet):
        return str(thing)
    if is_dataclass(thing):
        pairs = ((column.name, getattr(thing, column.name)) for column in fields(thing))
        return {name: _plain(value) for name, value in pairs if value is not None}
    if isinstance(thing, tuple):
        return [_plain(item) for item in thing]
    if isinstance(thing, Mapping):
        return {key: _plain(value) for key, value in thing.items()}
    return thing
