# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The key `subinterfaces` of `podnet-ovs`: which VLAN interfaces a pod is to have on its trunk. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..cni.config import parse_ipam
from ..errors import ConfigError
from ..model.names import IFNAME_BYTES, parse_mtu, refuse_unknown_keys
from ..model.port import ETHERTYPES, PortVlans
from ..model.tables import as_list, choice, optional
from ..model.vlan import VlanSet
from .vlan_wish import PROTOCOLS

KEY = "subinterfaces"
ENTRY_KEYS = ("vlan", "ipam", "mtu", "protocol")


@dataclass(frozen=True)
class Subinterface:
    """One VLAN interface; `name` is also what IPAM plugins know it by. `mtu` None: the trunk's. `path`: its entry."""

    name: str
    vlan: int
    protocol: int
    ipam: Mapping[str, Any]
    mtu: int | None
    path: str


def parse_subinterfaces(raw: Mapping[str, Any], ifname: str, strict: bool = True) -> tuple[Subinterface, ...]:
    """What the key asks for, ascending within an entry. Without `strict`, for other verbs than ADD, unknown keys are
    passed over. Raises ConfigError (code 7), UnsupportedField (code 2).
    """
    found: dict[int, Subinterface] = {}
    for number, entry in enumerate(as_list(raw, KEY, "")):
        path = f"{KEY}[{number}]"
        if not isinstance(entry, Mapping):
            raise ConfigError(path, f"an object is wanted, not {entry!r}"[:200], 'like {"vlan": "100-199"}')
        if strict:
            refuse_unknown_keys(entry, ENTRY_KEYS, path)
        given = parse_ipam(entry, raw.get("type"), path)
        mtu = optional(entry, "mtu", path, parse_mtu)
        protocol = PROTOCOLS[choice(entry, "protocol", path, ETHERTYPES) or "802.1q"]
        vlans = VlanSet.parse(entry.get("vlan"), f"{path}.vlan")
        if not vlans:
            raise ConfigError(f"{path}.vlan", "the set is empty", 'write "vlan": 100, or "100-199,300"')
        for vlan in vlans:
            name = name_of(ifname, vlan)
            if vlan in found:
                raise ConfigError(f"{path}.vlan", f"VLAN {vlan} is there already: {found[vlan].path}", "name it once")
            if len(name.encode()) > IFNAME_BYTES:
                raise ConfigError(
                    f"{path}.vlan", f"the interface name {name} would have more than {IFNAME_BYTES} bytes",
                    "have the runtime give the interface a shorter name, such as net1",
                )  # fmt: skip
            found[vlan] = Subinterface(name, vlan, protocol, given, mtu, path)
    return tuple(found.values())


def refuse_unfit(wanted: Iterable[Subinterface], port: PortVlans, mtu: int) -> None:
    """Raises ConfigError for one whose frames the port does not pass, tagged, or that is larger than the trunk."""
    tagged = port.tagged
    for item in wanted:
        if item.vlan not in tagged:
            hint = f"within: {tagged}" if tagged else 'write "trunk": "100-199", for example'
            raise ConfigError(f"{item.path}.vlan", f"VLAN {item.vlan} does not pass tagged by {port.words()}", hint)
        if item.mtu is not None and item.mtu > mtu:
            hint = "leave the key away for the port's own, or give that one more"
            raise ConfigError(f"{item.path}.mtu", f"{item.mtu} bytes are more than the {mtu} of the port", hint)


def name_of(ifname: str, vlan: int) -> str:
    """The name of the interface for a VLAN."""
    return f"{ifname}.{vlan}"
