# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of `podnet-meta`: which networks make up a pod's, and what the runtime gets to see of them."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cni.config import NetConf
from ..cni.netlist import NetworkList
from ..cni.request import Request
from ..errors import ConfigError, PodnetError, PolicyError, UnsupportedField
from ..model.names import parse_address_alone, parse_ifname, parse_mac, refuse_unknown_keys
from ..model.paths import NETWORKS
from ..model.port import Bandwidth
from ..model.tables import as_list, as_map, choice
from .keys import ASKS_NOTHING, refuse_unknown
from .netdir import find_network
from .wish import load_node

TYPE = "podnet-meta"
PRIMARY, MERGED, VENDOR = MODES = ("primary", "merged", "vendor")
MOST = 64
"""Networks of one pod."""
KEYS = ("delegates", "result", "confDir", "clusterNetwork", "defaultNetworks", "readinessindicatorfile")
MULTUS_KEYS = ("logLevel", "logFile", "logToStderr", "logOptions", "cniDir", "binDir", "capabilities")
"""Keys of Multus that change nothing of what a pod gets; its log and its folders are its own."""
_SELECTION = (
    "name", "interface", "ips", "mac", "infiniband-guid", "cni-args", "portMappings", "bandwidth", "default-route",
    "config",
)  # fmt: skip
"""The keys of a network selection element (NPWG specification 1.3, 4.1.2.1), and `config` in place of a file."""
_BESIDE = ("interface", "infiniband-guid", "cni-args", "default-route", "portMappings")
ADOPT = "podnet-adopt"
"""The type of the plugin that has a key `interface` of its own."""
_CAPABILITY = {"infiniband-guid": "infinibandGUID"}
_FOR_ONE = ("ip", "gateway", "mac")
"""What CNI_ARGS say of one interface (in any case of letters) is said of the primary network's."""


@dataclass(frozen=True)
class Member:
    """One network of a pod. `place` is the key that names it. `runtime` are its values for capabilities.

    `default_route`: gateways of the pod's default routes, which this network gets; empty: it gets none; None: as its
    own plugins have it.
    """

    place: str
    network: NetworkList
    ifname: str
    runtime: Mapping[str, Any] = field(default_factory=dict)
    default_route: tuple[str, ...] | None = None
    primary: bool = False

    @property
    def words(self) -> str:
        """For a message."""
        return f"{self.place} ({self.network.name}, {self.ifname})"

    def to_dict(self) -> dict[str, Any]:
        """What `from_dict` takes."""
        return {
            "place": self.place, "network": self.network.to_dict(), "ifname": self.ifname, "runtime": self.runtime,
            "primary": self.primary,
        }  # fmt: skip

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Member:
        """Raises PodnetError, KeyError or TypeError for what is none."""
        place = str(value["place"])
        network = NetworkList.parse(value["network"], place)
        return cls(place, network, str(value["ifname"]), dict(value["runtime"]), None, bool(value["primary"]))


@dataclass(frozen=True)
class Plan:
    """The networks of a pod, the primary one first."""

    members: tuple[Member, ...]
    mode: str = PRIMARY
    ready_file: str = ""


def parse_plan(conf: NetConf, request: Request, strict: bool = True) -> Plan:
    """Reads the plugin's own keys. Without `strict`, for DEL and GC, what cannot be used is left out: no ADD used it.

    Raises ConfigError (code 7), UnsupportedField (code 2), PolicyError (code 7).
    """
    raw = conf.raw
    if strict:
        _refuse_kubernetes(raw)
        refuse_unknown(raw, (*KEYS, *MULTUS_KEYS))
    members: list[Member] = []
    for index, (place, entry) in enumerate(_entries(raw, strict)):
        try:
            members.append(_member(conf, request, place, entry, index))
        except PodnetError:
            if strict:
                raise
    if strict:
        _addresses(conf.runtime.get("ips") or [], "runtimeConfig.ips")
        _refuse_none_or_twice(members)
        _refuse_undeclared(members)
        return Plan(tuple(members), choice(raw, "result", "", MODES) or PRIMARY, _ready_file(raw))
    return Plan(tuple(members))


def args_of(member: Member, args: Mapping[str, str]) -> dict[str, str]:
    """The pairs of CNI_ARGS for a network."""
    return {key: value for key, value in args.items() if member.primary or key.lower() not in _FOR_ONE}


def _entries(raw: Mapping[str, Any], strict: bool) -> Iterator[tuple[str, Any]]:
    cluster = raw.get("clusterNetwork")
    if cluster not in ASKS_NOTHING:
        yield "clusterNetwork", {"name": cluster}
    for key in ("delegates", "defaultNetworks"):
        try:
            entries = as_list(raw, key, "")
        except ConfigError:
            if strict:
                raise
            continue
        if len(entries) > MOST and strict:
            raise ConfigError(key, f"there are {len(entries)}", f"a pod has at most {MOST} networks here")
        for index, entry in enumerate(entries[:MOST]):
            named = {"name": entry} if key == "defaultNetworks" or isinstance(entry, str) else entry
            yield f"{key}[{index}]", named


def _member(conf: NetConf, request: Request, place: str, entry: object, index: int) -> Member:
    if not isinstance(entry, Mapping):
        raise ConfigError(place, f"a network is wanted, not {entry!r}"[:200], 'a configuration, or {"name": "green"}')
    is_bare = "type" in entry or "plugins" in entry
    if is_bare:
        _refuse_beside(entry, place)
    selection: Mapping[str, Any] = {"config": entry} if is_bare else entry
    for key, why in (("namespace", "networks have none here"), ("ipam-claim-reference", "claims are not read here")):
        if selection.get(key) not in ASKS_NOTHING:
            raise UnsupportedField(f"{place}.{key}", f"{selection[key]!r} cannot be had: {why}"[:200], "leave it away")
    refuse_unknown_keys({key: entry for key in selection if "." not in key}, _SELECTION, place)
    found, where = selection.get("config"), place if is_bare else f"{place}.config"
    if found is None:
        where = f"{place}.name"
        if selection.get("name") in ASKS_NOTHING:
            raise ConfigError(where, "no network is named", "name that of a file, or give config")
        found = find_network(_folder(conf.raw), str(selection.get("name")), where)
    network = NetworkList.parse(found, where, str(selection.get("name") or conf.name), conf.version)
    for plugin in network.plugins:
        if plugin["type"] in (TYPE, conf.type):
            raise ConfigError(where, f"{TYPE} cannot be part of itself", "name the networks themselves")
    network = _with_args(network, as_map(selection, "cni-args", place))
    ifname = request.ifname if index == 0 else f"net{index}"
    if selection.get("interface") not in ASKS_NOTHING:
        asked = parse_ifname(selection["interface"], f"{place}.interface")
        if index == 0 and asked != ifname:
            hint = f"the runtime wants {ifname} of the first network: put this one behind it"
            raise ConfigError(f"{place}.interface", f"{asked} cannot be had", hint)
        ifname = asked
    runtime = {**(conf.runtime if index == 0 else {}), **_runtime(selection, place)}
    runtime = {key: value for key, value in runtime.items() if value not in ASKS_NOTHING}
    return Member(place, network, ifname, runtime, _default_route(selection, place), index == 0)


def _refuse_beside(entry: Mapping[str, Any], place: str) -> None:
    """A selection's keys in a configuration itself would be read by nobody, and most plugins do not say so."""
    if "type" in entry and "plugins" in entry:
        raise ConfigError(place, "both type and plugins are given", "a configuration has one, and a list the other")
    for key in _BESIDE:
        if entry.get(key) is not None and not (key == "interface" and entry.get("type") == ADOPT):
            hint = f'put the configuration into "config", and {key} beside it'
            raise ConfigError(f"{place}.{key}", "it is a key of a selection, not of a configuration", hint)


def _folder(raw: Mapping[str, Any]) -> str:
    """Where networks are found by name: in the node's own folder, or in one that the node lets be named."""
    folder = raw.get("confDir")
    if folder in (None, "", NETWORKS):
        return NETWORKS
    allowed = (NETWORKS, *load_node().configuration_paths)
    if folder not in allowed:
        raise PolicyError(
            f"confDir: {folder!r} is not a folder that this node lets be named"[:300],
            f"allowed: {', '.join(allowed)}; more in podnet_configuration_paths",
        )
    return str(folder)


def _ready_file(raw: Mapping[str, Any]) -> str:
    path = raw.get("readinessindicatorfile")
    if path in (None, ""):
        return ""
    allowed = load_node().configuration_paths
    if path not in allowed:
        raise PolicyError(
            f"readinessindicatorfile: {path!r} is not a file that this node lets be named"[:300],
            f"allowed: {', '.join(allowed) or 'no file'}; more in podnet_configuration_paths",
        )
    return str(path)


def _with_args(network: NetworkList, args: Mapping[str, Any]) -> NetworkList:
    """What a pod says to the plugins of one network (`cni-args`) comes to each of them in `args.cni`."""
    if not args:
        return network

    def joined(plugin: Mapping[str, Any]) -> dict[str, Any]:
        own = as_map(plugin, "args", network.name)
        return {**plugin, "args": {**own, "cni": {**as_map(own, "cni", f"{network.name}.args"), **args}}}

    plugins = tuple(joined(plugin) for plugin in network.plugins)
    return NetworkList(network.name, network.version, plugins, network.disable_check, network.disable_gc)


def _runtime(selection: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Values for capabilities, of the shape that the conventions give them."""
    checks: dict[str, Callable[[Any, str], object]] = {
        "ips": _addresses, "mac": parse_mac, "portMappings": _maps, "bandwidth": Bandwidth.parse,
        "infiniband-guid": _text,
    }  # fmt: skip
    found = {}
    for key, check in checks.items():
        value = selection.get(key)
        if value not in ASKS_NOTHING:
            check(value, f"{place}.{key}")
            found[_CAPABILITY.get(key, key)] = value
    return found


def _addresses(value: object, path: str) -> None:
    if not isinstance(value, list):
        raise ConfigError(path, f"a list of addresses is wanted, not {value!r}"[:200], 'like ["10.0.0.7/24"]')
    for index, item in enumerate(value):
        try:
            ipaddress.ip_interface(item if isinstance(item, str) else "")
        except ValueError:
            hint = "like 10.0.0.7/24 or fd00::7/64"
            raise ConfigError(f"{path}[{index}]", f"{item!r} is not an address"[:200], hint) from None


def _maps(value: object, path: str) -> None:
    if not isinstance(value, list) or not all(isinstance(item, Mapping) for item in value):
        raise ConfigError(path, "a list of objects is wanted", 'like [{"hostPort": 80, "containerPort": 80}]')


def _text(value: object, path: str) -> None:
    if not isinstance(value, str):
        raise ConfigError(path, f"a text is wanted, not {value!r}"[:200])


def _default_route(selection: Mapping[str, Any], place: str) -> tuple[str, ...] | None:
    if selection.get("default-route") is None:
        return None
    given = as_list(selection, "default-route", place)
    found = tuple(str(parse_address_alone(item, f"{place}.default-route[{index}]")) for index, item in enumerate(given))
    if len({":" in item for item in found}) < len(found):
        raise ConfigError(f"{place}.default-route", "two gateways of one family", "one for IPv4 and one for IPv6")
    return found


def _refuse_kubernetes(raw: Mapping[str, Any]) -> None:
    if raw.get("kubeconfig") not in ASKS_NOTHING:
        raise UnsupportedField(
            "kubeconfig", "pods' annotations and NetworkAttachmentDefinitions are not read here",
            "leave it away, and name the networks in delegates; Multus reads annotations, and can call this plugin",
        )  # fmt: skip


def _refuse_none_or_twice(members: list[Member]) -> None:
    if not members:
        raise ConfigError("delegates", "no network is named", 'like [{"name": "green"}, {"type": "bridge", ...}]')
    for index, member in enumerate(members):
        for other in members[:index]:
            if other.ifname == member.ifname:
                hint = "give one of them another name in its key interface"
                raise ConfigError(member.place, f"{member.ifname} is the interface of {other.place} already", hint)
    wanted = [member.place for member in members if member.default_route]
    if len(wanted) > 1:
        raise ConfigError(f"{wanted[1]}.default-route", f"{wanted[0]} has one already", "a pod has one default route")


def _refuse_undeclared(members: list[Member]) -> None:
    """What is asked for and no plugin of the network can give is an error (NPWG specification 1.3, section 4.1.2.1)."""
    for member in members:
        for key in member.network.undeclared(member.runtime):
            raise ConfigError(
                f"{member.place}: {key}", f"no plugin of the network {member.network.name} declares that capability",
                f'"capabilities": {{"{key}": true}} in the plugin that has it, or do not ask for it',
            )  # fmt: skip
