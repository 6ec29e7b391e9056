# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node and its pod networks should be: typed values, the parser that makes them, and the policy they imply.

Every `parse` takes what YAML or JSON gave and raises ConfigError (UnsupportedField for a key that is not known) with
the path of the bad value.
"""

from __future__ import annotations

import json
import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from typing import Any

from ..errors import ConfigError, DecodeError
from .names import parse_address, parse_ifname, parse_mac
from .network import Network, Rule
from .ownership import PREFIX
from .paths import OVSDB
from .port import Bandwidth, PortVlans
from .tables import any_mtu, as_list, as_table, at, choice, each, flag, one_vlan, optional, strings
from .vlan import VlanSet

SCHEMA = 1
"""Of node.json: keys may be added within a major version, a newer major is refused."""

DATAPATH_TYPES = ("system", "netdev")
FAIL_MODES = ("standalone", "secure")
BOND_MODES = ("active-backup", "balance-slb", "balance-tcp")
LACP_MODES = ("off", "active", "passive")

_AGAIN = "run the role podnet.ovs.node again"


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
        table = as_table(value, path, cls)
        name = parse_ifname(table.get("name"), f"{path}.name")
        nics = tuple(parse_ifname(nic, f"{path}.nics[{i}]") for i, nic in enumerate(as_list(table, "nics", path)))
        uplink = cls(
            name=name,
            nics=nics or (name,),
            bond_mode=choice(table, "bond_mode", path, BOND_MODES),
            lacp=choice(table, "lacp", path, LACP_MODES),
            vlans=optional(table, "vlans", path, VlanSet.parse),
            native_vlan=optional(table, "native_vlan", path, one_vlan),
            mtu=optional(table, "mtu", path, any_mtu),
            move=flag(table, "move", path),
            other_config=strings(table, "other_config", path),
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
        table = as_table(value, path, cls)
        addresses = None
        if table.get("addresses") is not None:
            given = as_list(table, "addresses", path)
            addresses = tuple(str(parse_address(item, f"{path}.addresses[{i}]")) for i, item in enumerate(given))
            if len(set(addresses)) != len(addresses):
                raise ConfigError(f"{path}.addresses", "an address is there twice")
        return cls(
            name=parse_ifname(table.get("name"), f"{path}.name"),
            vlan=optional(table, "vlan", path, one_vlan),
            addresses=addresses,
            mtu=optional(table, "mtu", path, any_mtu),
            mac=optional(table, "mac", path, parse_mac),
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
        table = as_table(value, path, cls)
        bridge = cls(
            name=parse_ifname(table.get("name"), f"{path}.name"),
            datapath_type=choice(table, "datapath_type", path, DATAPATH_TYPES) or DATAPATH_TYPES[0],
            fail_mode=choice(table, "fail_mode", path, FAIL_MODES) or FAIL_MODES[0],
            stp=flag(table, "stp", path),
            rstp=flag(table, "rstp", path),
            mtu=optional(table, "mtu", path, any_mtu),
            mac=optional(table, "mac", path, parse_mac),
            vlan_limit=optional(table, "vlan_limit", path, _vlan_limit),
            other_config=strings(table, "other_config", path),
            external_ids=strings(table, "external_ids", path),
            uplinks=each(table, "uplinks", path, Uplink.parse),
            interfaces=each(table, "interfaces", path, Interface.parse),
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
class Node:
    """The desired state of one node, and what its pods may use."""

    bridges: tuple[Bridge, ...] = ()
    networks: tuple[Network, ...] = ()
    policy: tuple[Rule, ...] = ()
    configuration_paths: tuple[str, ...] = ()
    ovsdb: str = OVSDB

    @classmethod
    def parse(cls, value: object, path: str = "") -> Node:
        table = as_table(value, path, cls)
        ovsdb = table.get("ovsdb", OVSDB)
        if not isinstance(ovsdb, str) or not ovsdb.startswith("unix:/"):
            raise ConfigError(at(path, "ovsdb"), f"{ovsdb!r} is not a local database", f"a unix socket, like {OVSDB}")
        rules, files = at(path, "policy"), at(path, "configuration_paths")
        node = cls(
            bridges=each(table, "bridges", path, Bridge.parse),
            networks=each(table, "networks", path, Network.parse),
            policy=tuple(Rule.parse(item, f"{rules}[{i}]") for i, item in enumerate(as_list(table, "policy", path))),
            configuration_paths=tuple(
                _file(item, f"{files}[{i}]") for i, item in enumerate(as_list(table, "configuration_paths", path))
            ),
            ovsdb=ovsdb,
        )
        _check_node(node, path)
        return node

    @cached_property
    def rules(self) -> tuple[Rule, ...]:
        """The policy: what each declared network's port reaches for its namespaces, then the explicit rules."""
        return tuple(network.rule for network in self.networks) + self.policy

    def permits(self, bridge: str, namespace: str, vlans: VlanSet, untagged: bool = False) -> bool:
        """Whether pods of `namespace` may use all of these VLANs of `bridge`, and untagged frames if asked."""
        return vlans <= self.open_vlans(bridge, namespace) and not (
            untagged and not any(rule.untagged for rule in self._rules_for(bridge, namespace))
        )

    def open_vlans(self, bridge: str, namespace: str) -> VlanSet:
        """The VLANs of `bridge` that pods of `namespace` may use."""
        return VlanSet.union(rule.vlans for rule in self._rules_for(bridge, namespace))

    def open_on_interface(self, interface: str, namespace: str) -> VlanSet:
        """The VLANs that pods of `namespace` may have right on an interface of the host: none without such a rule."""
        return VlanSet.union(rule.vlans for rule in self.rules if rule.is_for_interface(interface, namespace))

    def permits_routing(self, uplink: str, namespace: str) -> bool:
        """Whether layer-3 attachments of pods of `namespace` may leave by this bridge, or interface of the host."""
        return any(
            rule.routed and (rule.is_for(uplink, namespace) or rule.is_for_interface(uplink, namespace))
            for rule in self.rules
        )

    def demands_spoof_check(self, bridge: str, namespace: str, vlans: VlanSet, untagged: bool = False) -> bool:
        """Whether a rule for pods of `namespace` asks for the check on one of these VLANs, or on untagged frames."""
        return any(
            rule.spoof_check and (rule.vlans & vlans or (rule.untagged and untagged))
            for rule in self._rules_for(bridge, namespace)
        )

    def _rules_for(self, bridge: str, namespace: str) -> list[Rule]:
        return [rule for rule in self.rules if rule.is_for(bridge, namespace)]

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


def refuse_egress(node: Node, bridge: str, bandwidth: Bandwidth, path: str = "") -> None:
    """Raises ConfigError for a limit of what a pod sends, on a declared bridge of the userspace datapath.

    ovs-vswitchd.conf.db(5), table Interface, "Ingress Policing": it is the kernel that polices. `path`: of the table.
    """
    declared = node.bridge(bridge)
    if bandwidth.egress_rate and declared is not None and declared.datapath_type == "netdev":
        raise ConfigError(
            at(path, "bandwidth.egressRate"), f"{bridge} switches in userspace, where nothing limits what a pod sends",
            "leave egressRate and egressBurst away, or take a bridge with datapath_type system",
        )  # fmt: skip


ONE_HEADER = "it takes a look at two VLAN headers, and this switch looks at one"
TWO_HEADERS = "vlan_limit: 2 of a bridge in podnet_bridges"


def refuse_tunnel(node: Node, port: PortVlans, path: str = "") -> None:
    """Raises ConfigError for inner VLANs of a tunnel on a switch that is declared to look at the outer one alone.

    ovs-vswitchd.conf.db(5), `vlan-limit`: what is behind is payload, which a tunnel for everything passes on.
    """
    if port.cvlans and node.vlan_limit == 1:
        raise ConfigError(at(path, "cvlans"), ONE_HEADER, TWO_HEADERS)


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
        place = f"{at(path, 'bridges')}[{i}]"
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
        raise ConfigError(at(path, "bridges"), f"vlan_limit is the whole switch's, but bridges say {sorted(limits)}")
    _check_declared(node, at(path, "networks"), [network.bridge for network in node.networks])
    for i, network in enumerate(node.networks):
        place = f"{at(path, 'networks')}[{i}]"
        refuse_egress(node, network.bridge, Bandwidth.parse(network.bandwidth), place)
        refuse_tunnel(node, network.port, place)
    _check_declared(node, at(path, "policy"), [rule.bridge for rule in node.policy])


def _check_declared(node: Node, path: str, bridges: list[str | None]) -> None:
    for i, name in enumerate(bridges):
        if name is not None and node.bridge(name) is None:
            known = ", ".join(bridge.name for bridge in node.bridges) or "none"
            raise ConfigError(f"{path}[{i}].bridge", f"no bridge {name} is declared", f"declared are: {known}")


def _file(value: object, path: str) -> str:
    if not isinstance(value, str) or not value.isprintable() or value != "/" + os.path.normpath(value).lstrip("/"):
        raise ConfigError(path, f"{value!r} is not the path of a file", "from the root on, without . and ..")
    return value


def _vlan_limit(value: object, path: str) -> int:
    number = int(value) if isinstance(value, str) and value.isdigit() else value
    if isinstance(number, bool) or number not in (0, 1, 2):
        raise ConfigError(path, f"{value!r} is not a limit", "0 (no limit), 1 or 2 VLAN headers are looked at")
    return int(str(number))


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
