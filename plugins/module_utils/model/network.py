# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod networks, and what pods may use: typed values and the parsers that make them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ..errors import ConfigError
from .names import parse_ifname, parse_mac, parse_plugin_type, refuse_unknown_keys
from .port import ETHERTYPES, MODES, Bandwidth, PortVlans, parse_port
from .tables import any_mtu, as_list, as_map, as_table, at, choice, flag, one_vlan, optional, strings
from .vlan import VlanSet

CNI_VERSIONS = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
ANY_NAMESPACE = "*"

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@dataclass(frozen=True)
class Network:
    """A pod network: what its pods' ports carry of a bridge, with their addresses.

    It becomes one NetworkAttachmentDefinition per namespace. Without `namespaces` that is one in `default`, and pods
    of any namespace may attach. `bandwidth` is in the CNI form. `chain`: the plugins that follow in the list, each with
    keys of its own.
    """

    name: str
    bridge: str
    vlan: int | None = None
    untagged: bool = False
    trunk: VlanSet | None = None
    vlan_mode: str | None = None
    cvlans: VlanSet | None = None
    qinq_ethertype: str | None = None
    mtu: int | None = None
    mac: str | None = None
    spoof_check: bool = False
    port_isolation: bool = False
    bandwidth: Mapping[str, int] = field(default_factory=dict)
    namespaces: tuple[str, ...] = ()
    ipam: Mapping[str, Any] = field(default_factory=dict)
    cni_version: str = "1.0.0"
    capabilities: Mapping[str, bool] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    chain: tuple[Mapping[str, Any], ...] = ()
    subinterfaces: tuple[Mapping[str, Any], ...] = ()

    @classmethod
    def parse(cls, value: object, path: str) -> Network:
        table = as_table(value, path, cls)
        network = cls(
            name=_dns_name(table.get("name"), f"{path}.name", _SUBDOMAIN),
            bridge=parse_ifname(table.get("bridge"), f"{path}.bridge"),
            vlan=optional(table, "vlan", path, one_vlan),
            untagged=flag(table, "untagged", path),
            trunk=optional(table, "trunk", path, VlanSet.parse),
            vlan_mode=choice(table, "vlan_mode", path, MODES),
            cvlans=optional(table, "cvlans", path, VlanSet.parse),
            qinq_ethertype=choice(table, "qinq_ethertype", path, ETHERTYPES),
            mtu=optional(table, "mtu", path, any_mtu),
            mac=optional(table, "mac", path, parse_mac),
            spoof_check=flag(table, "spoof_check", path),
            port_isolation=flag(table, "port_isolation", path),
            bandwidth=_bandwidth(table, path),
            namespaces=_namespaces(table, path, ()),
            ipam=_ipam(table, path),
            cni_version=choice(table, "cni_version", path, CNI_VERSIONS) or "1.0.0",
            capabilities={
                key: flag(as_map(table, "capabilities", path), key, f"{path}.capabilities")
                for key in as_map(table, "capabilities", path)
            },
            annotations=strings(table, "annotations", path),
            chain=_chain(table, path),
            subinterfaces=_subinterfaces(table, path),
        )
        _refuse_untagged(network.subinterfaces, network.port_at(path), at(path, "subinterfaces"))
        return network

    def port_at(self, path: str) -> PortVlans:
        """The port of a pod, read as the plugin reads it. Raises ConfigError, with `path` as the network's place."""
        keys = ("vlan", "untagged", "trunk", "vlan_mode", "cvlans", "qinq_ethertype")
        return parse_port({key: getattr(self, key) for key in keys}, path)

    @cached_property
    def port(self) -> PortVlans:
        """The port of each of its pods."""
        return self.port_at(self.name)

    @property
    def rule(self) -> Rule:
        """What it opens to its namespaces: all that its port reaches."""
        namespaces = self.namespaces or (ANY_NAMESPACE,)
        return Rule(self.bridge, self.port.vlans, namespaces, self.port.untagged, self.spoof_check)


@dataclass(frozen=True)
class Rule:
    """What pods of some namespaces may use of a bridge, with `spoof_check` only under that check; or which VLANs they
    may have right on a host's `interface`, beside any bridge.

    `routed`: layer-3 attachments may leave by it, as by an uplink.
    """

    bridge: str | None
    vlans: VlanSet = field(default_factory=VlanSet)
    namespaces: tuple[str, ...] = (ANY_NAMESPACE,)
    untagged: bool = False
    spoof_check: bool = False
    interface: str | None = None
    routed: bool = False

    @classmethod
    def parse(cls, value: object, path: str) -> Rule:
        """Either `bridge` or `interface` says where."""
        table = as_table(value, path, cls)
        interface = optional(table, "interface", path, parse_ifname)
        for key in ("bridge", "untagged", "spoof_check") if interface else ():
            if table.get(key):
                raise ConfigError(f"{path}.{key}", "a rule for an interface has none", "make it a rule of its own")
        if not interface and table.get("bridge") is None:
            raise ConfigError(f"{path}.bridge", "neither bridge nor interface is given", "one of them says where")
        return cls(
            bridge=None if interface else parse_ifname(table.get("bridge"), f"{path}.bridge"),
            vlans=optional(table, "vlans", path, VlanSet.parse) or VlanSet(),
            namespaces=_namespaces(table, path, (ANY_NAMESPACE,)),
            untagged=flag(table, "untagged", path),
            spoof_check=flag(table, "spoof_check", path),
            interface=interface,
            routed=flag(table, "routed", path),
        )

    def is_for(self, bridge: str, namespace: str) -> bool:
        """Whether it speaks of this bridge and of pods of this namespace."""
        return self.bridge == bridge and self._is_for_pods_of(namespace)

    def is_for_interface(self, interface: str, namespace: str) -> bool:
        """Whether it speaks of this host interface and of pods of this namespace."""
        return self.interface == interface and self._is_for_pods_of(namespace)

    def _is_for_pods_of(self, namespace: str) -> bool:
        return ANY_NAMESPACE in self.namespaces or namespace in self.namespaces


def _dns_name(value: object, path: str, form: re.Pattern[str]) -> str:
    longest = 63 if form is _LABEL else 253
    if not isinstance(value, str) or len(value) > longest or not form.fullmatch(value):
        raise ConfigError(
            path, f"{value!r} is not a name that Kubernetes takes", "lower case letters, digits and dashes (RFC 1123)"
        )
    return value


def _namespaces(table: Mapping[str, Any], path: str, default: tuple[str, ...]) -> tuple[str, ...]:
    given = as_list(table, "namespaces", path)
    place = at(path, "namespaces")
    if default and table.get("namespaces") is not None and not given:
        raise ConfigError(place, "the list is empty", "leave the key away for all namespaces")
    if given == [ANY_NAMESPACE]:
        return (ANY_NAMESPACE,) if default else ()
    return tuple(_dns_name(item, f"{place}[{i}]", _LABEL) for i, item in enumerate(given)) or default


def _ipam(table: Mapping[str, Any], path: str) -> dict[str, Any]:
    ipam = as_map(table, "ipam", path)
    if ipam and not (isinstance(ipam.get("type"), str) and ipam["type"]):
        raise ConfigError(f"{at(path, 'ipam')}.type", "the IPAM plugin is not named", "type: host-local, for example")
    return dict(ipam)


def _chain(table: Mapping[str, Any], path: str) -> tuple[dict[str, Any], ...]:
    place = at(path, "chain")
    found = []
    for index, plugin in enumerate(as_list(table, "chain", path)):
        if not isinstance(plugin, Mapping):
            raise ConfigError(f"{place}[{index}]", f"a plugin's keys are wanted here, not {plugin!r}", "with type")
        parse_plugin_type(plugin.get("type"), f"{place}[{index}].type")
        found.append(dict(plugin))
    return tuple(found)


def _subinterfaces(table: Mapping[str, Any], path: str) -> tuple[dict[str, Any], ...]:
    """As the plugin takes them, but for VLANs in any form; their `ipam` is passed on."""
    place = at(path, "subinterfaces")
    found = []
    for index, entry in enumerate(as_list(table, "subinterfaces", path)):
        where = f"{place}[{index}]"
        if not isinstance(entry, Mapping):
            raise ConfigError(where, f"a map with keys is wanted here, not {entry!r}", 'like {"vlan": "100-199"}')
        refuse_unknown_keys(entry, ("vlan", "ipam", "mtu", "protocol"), where)
        mtu, protocol = optional(entry, "mtu", where, any_mtu), choice(entry, "protocol", where, ETHERTYPES)
        keys = {"vlan": str(VlanSet.parse(entry.get("vlan"), f"{where}.vlan")), "mtu": mtu, "protocol": protocol}
        found.append({key: value for key, value in {**keys, "ipam": _ipam(entry, where)}.items() if value})
    return tuple(found)


def _refuse_untagged(entries: Iterable[Mapping[str, Any]], port: PortVlans, path: str) -> None:
    """Raises ConfigError for VLANs that the port does not pass tagged."""
    for index, entry in enumerate(entries):
        closed = VlanSet.parse(entry.get("vlan", ""), f"{path}[{index}].vlan") - port.tagged
        if closed or "vlan" not in entry:
            what = f"VLAN {closed} does not pass tagged by {port.words()}" if closed else "no VLAN is given"
            raise ConfigError(
                f"{path}[{index}].vlan", what, f"within: {port.tagged}" if port.tagged else "give a trunk"
            )


def _bandwidth(table: Mapping[str, Any], path: str) -> dict[str, int]:
    """Numbers may be texts of digits, as YAML has them after a template."""
    given = {
        key: int(value) if isinstance(value, str) and value.isdecimal() else value
        for key, value in as_map(table, "bandwidth", path).items()
    }
    return Bandwidth.parse(given, at(path, "bandwidth")).to_cni()
