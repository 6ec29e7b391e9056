# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod's port of a bridge may carry: VLANs in one of Open vSwitch's modes, and how many bits per second. Pure.

One parser for NADs, for peers' configurations and for `podnet_networks`. Source of the modes: ovs-vswitchd.conf.db(5),
table Port, "VLAN Configuration".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from ..errors import ConfigError
from .names import refuse_unknown_keys
from .tables import at, choice, flag, optional
from .vlan import HIGHEST, LOWEST, VlanSet, parse_vlan_id, ranges_of

ACCESS, TRUNK, NATIVE_TAGGED, NATIVE_UNTAGGED, TUNNEL = MODES = (
    "access", "trunk", "native-tagged", "native-untagged", "dot1q-tunnel",
)  # fmt: skip
ETHERTYPES = ("802.1ad", "802.1q")
UNTAGGED = 0
"""The VLAN in which a bridge has untagged frames."""
EVERYTHING = VlanSet(((UNTAGGED, HIGHEST),))
"""As the value of `trunk`: all VLANs and untagged frames. No configuration can say it, only a peer's that is silent."""
ALL_VLANS = VlanSet(((LOWEST, HIGHEST),))

_HIGHEST_RATE = (2**32 - 1) * 1000
"""Bits per second: Interface.ingress_policing_rate becomes 32 bits of kbit/s on its way to the kernel."""
_HIGHEST_BURST = 8 * (2**32 - 1)
"""Bits: less than 4 GiB, as the reference plugin `bandwidth` has it."""
_WITH_VLAN = 'write "vlan": 100 for a tagged network, "trunk": "100,200" for several, or "untagged": true'
_NEEDS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    TRUNK: (("trunk",), ("vlan",)),
    NATIVE_TAGGED: (("vlan", "trunk"), ("untagged",)),
    NATIVE_UNTAGGED: (("vlan", "trunk"), ("untagged",)),
    TUNNEL: (("vlan",), ("trunk",)),
}
"""The keys that each mode needs, and those that it cannot have. An access port has `vlan` or `untagged`, never both."""
_REASONS = {
    (TRUNK, "vlan"): 'write "vlan_mode": "native-untagged" or "native-tagged" to have it beside the trunk',
    (TUNNEL, "trunk"): 'the VLANs that the pod sends are named by "cvlans"',
    (NATIVE_TAGGED, "untagged"): "untagged frames are those of the native VLAN",
    (NATIVE_UNTAGGED, "untagged"): "untagged frames are those of the native VLAN",
}


@dataclass(frozen=True)
class PortVlans:
    """The VLANs of a port. `tag` 0: untagged frames. `trunks` ascend; 0 among them: untagged frames as well; none on a
    port of mode trunk: everything. `cvlans`, of a tunnel: what the pod may send inside; none: whatever it sends.

    `ethertype`: of a tunnel's outer tag, one of `ETHERTYPES`; empty: Open vSwitch's own, 802.1ad.
    """

    mode: str
    tag: int | None = None
    trunks: tuple[int, ...] = ()
    cvlans: tuple[int, ...] = ()
    ethertype: str = ""

    def columns(self) -> dict[str, Any]:
        """What the row in the table Port gets. `other_config` only where something is to be in it."""
        columns: dict[str, Any] = {
            "tag": self.tag, "vlan_mode": self.mode, "trunks": list(self.trunks), "cvlans": list(self.cvlans),
        }  # fmt: skip
        if self.ethertype:
            columns["other_config"] = {"qinq-ethtype": self.ethertype}
        return columns

    @property
    def vlans(self) -> VlanSet:
        """All VLANs of the bridge that the port reaches; of a tunnel that is the outer one alone."""
        carried = VlanSet(ranges_of(number for number in self.trunks if number != UNTAGGED))
        if self.mode not in (ACCESS, TUNNEL) and not self.trunks:
            carried = ALL_VLANS
        return carried | VlanSet.of([self.tag]) if self.tag else carried

    @property
    def untagged(self) -> bool:
        """Whether the port reaches the bridge's untagged frames."""
        if self.mode in (ACCESS, TUNNEL):
            return self.tag == UNTAGGED
        return not self.trunks or UNTAGGED in self.trunks

    @property
    def tagged(self) -> VlanSet:
        """The VLANs whose frames the pod sends and gets with their tag; of a tunnel those that it has inside."""
        if self.mode == ACCESS:
            return VlanSet()
        if self.mode == TUNNEL:
            return VlanSet(ranges_of(number for number in self.cvlans if number)) if self.cvlans else ALL_VLANS
        native = VlanSet.of([self.tag]) if self.tag else VlanSet()
        return self.vlans - native if self.mode == NATIVE_UNTAGGED else self.vlans

    @property
    def plain(self) -> bool:
        """Whether the pod's own untagged frames pass in both directions."""
        if self.mode in (ACCESS, NATIVE_UNTAGGED):
            return True
        if self.mode == TUNNEL:
            return not self.cvlans or UNTAGGED in self.cvlans
        return self.mode == TRUNK and self.untagged

    def words(self) -> str:
        """The port in words, for a message: `an access port of VLAN 100`."""
        if self.mode == ACCESS:
            return f"an access port of VLAN {self.tag}" if self.tag else "an access port for untagged frames"
        if self.mode == TUNNEL:
            inner = VlanSet(ranges_of(number for number in self.cvlans if number != UNTAGGED))
            names = [*([f"VLANs {inner}"] if inner else []), *(["untagged frames"] if UNTAGGED in self.cvlans else [])]
            return f"a tunnel in VLAN {self.tag} for {' and '.join(names) or 'everything'}"
        trunk = VlanSet(ranges_of(number for number in self.trunks if number != UNTAGGED))
        carried = f"VLANs {trunk}" if self.trunks else "everything"
        if self.trunks and self.untagged:
            carried += " and untagged frames"
        return f"a {self.mode} port of {carried}" + (f" with the native VLAN {self.tag}" if self.tag else "")


@dataclass(frozen=True)
class Bandwidth:
    """Limits of an attachment, rates in bits per second and bursts in bits, 0: none. Ingress is towards the container
    (CNI conventions, capability `bandwidth`).
    """

    ingress_rate: int = 0
    ingress_burst: int = 0
    egress_rate: int = 0
    egress_burst: int = 0

    @classmethod
    def parse(cls, value: object, path: str = "bandwidth") -> Bandwidth:
        """From `{ingressRate, ingressBurst, egressRate, egressBurst}`. Raises ConfigError that names the key.

        A rate needs its burst and a burst its rate, as the reference plugin has it.
        """
        if not isinstance(value, Mapping):
            raise ConfigError(path, f"an object is wanted, not {value!r}"[:200], f"with {', '.join(_BANDWIDTH_KEYS)}")
        refuse_unknown_keys(value, _BANDWIDTH_KEYS, path)
        numbers = {key: _bits(value.get(key), f"{path}.{key}", key.endswith("Rate")) for key in _BANDWIDTH_KEYS}
        for way in ("ingress", "egress"):
            for given, missing in (("Rate", "Burst"), ("Burst", "Rate")):
                if numbers[way + given] and not numbers[way + missing]:
                    raise ConfigError(f"{path}.{way}{missing}", f"it is not given, but {way}{given} is", "give both")
        return cls(*numbers.values())

    def __bool__(self) -> bool:
        return bool(self.ingress_rate or self.egress_rate)

    def to_cni(self) -> dict[str, int]:
        """The CNI form, of what is limited."""
        pairs = ((key, getattr(self, column.name)) for key, column in zip(_BANDWIDTH_KEYS, fields(self)))
        return {key: number for key, number in pairs if number}


_BANDWIDTH_KEYS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")


def parse_port(table: Mapping[str, Any], path: str = "") -> PortVlans:
    """The port that `vlan`, `trunk`, `untagged`, `vlan_mode`, `cvlans` and `qinq_ethertype` of a table ask for.

    Raises ConfigError that names the key and the way out; `path` is the table's own place.
    """
    untagged = flag(table, "untagged", path)
    vlan = optional(table, "vlan", path, parse_vlan_id)
    given = {"vlan": vlan is not None, "trunk": table.get("trunk") is not None, "untagged": untagged}
    mode = _mode(choice(table, "vlan_mode", path, MODES), given, path)
    cvlans = _vlans(table, "cvlans", path)
    ethertype = choice(table, "qinq_ethertype", path, ETHERTYPES)
    if mode == TUNNEL:
        return PortVlans(mode, vlan, (), _inner(cvlans, untagged, path), ethertype or "")
    for key in ("cvlans", "qinq_ethertype"):
        if table.get(key) is not None:
            raise ConfigError(at(path, key), f"a port of mode {mode} has none", "it goes with vlan_mode dot1q-tunnel")
    if mode == ACCESS:
        return PortVlans(mode, UNTAGGED if vlan is None else vlan)
    if table["trunk"] == EVERYTHING:
        return PortVlans(mode, vlan)
    return PortVlans(mode, vlan, (*([UNTAGGED] if untagged else []), *_vlans(table, "trunk", path)))


def _mode(mode: str | None, given: Mapping[str, bool], path: str) -> str:
    """The mode that is asked for or meant, after a look whether the given keys go with it."""
    if not any(given.values()):
        raise ConfigError(at(path, "vlan"), "neither vlan, trunk nor untagged is given", _WITH_VLAN)
    if not mode and given["vlan"] and given["trunk"]:
        raise ConfigError(
            at(path, "vlan_mode"), "both vlan and trunk are given",
            "say what the pod has of the VLAN: native-untagged (its untagged frames) or native-tagged",
        )  # fmt: skip
    mode = mode or (TRUNK if given["trunk"] else ACCESS)
    if mode == ACCESS:
        if given["trunk"]:
            raise ConfigError(at(path, "trunk"), "an access port has one VLAN", 'leave "vlan_mode" away for a trunk')
        if given["vlan"] == given["untagged"]:
            raise ConfigError(at(path, "vlan"), "both vlan and untagged are given", _WITH_VLAN)
        return mode
    needed, refused = _NEEDS[mode]
    for key in needed:
        if not given[key]:
            raise ConfigError(at(path, key), f"a port of mode {mode} needs it", _WITH_VLAN)
    for key in refused:
        if given[key]:
            raise ConfigError(at(path, key), f"a port of mode {mode} has none", _REASONS[mode, key])
    return mode


def _inner(cvlans: tuple[int, ...], untagged: bool, path: str) -> tuple[int, ...]:
    if untagged and not cvlans:
        hint = "leave it away, or name the VLANs inside with cvlans"
        raise ConfigError(at(path, "untagged"), "a tunnel without cvlans carries untagged frames anyway", hint)
    return (UNTAGGED, *cvlans) if untagged else cvlans


def _vlans(table: Mapping[str, Any], key: str, path: str) -> tuple[int, ...]:
    if table.get(key) is None:
        return ()
    vlans = VlanSet.parse(table[key], at(path, key))
    if not vlans:
        raise ConfigError(at(path, key), "the set is empty", "name its VLANs, or leave the key away")
    return tuple(vlans)


def _bits(value: object, path: str, rate: bool) -> int:
    highest = _HIGHEST_RATE if rate else _HIGHEST_BURST
    if value is None:
        return 0
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= highest:
        what = "bits per second" if rate else "bits"
        raise ConfigError(path, f"{value!r} is not a number of {what}"[:200], f"a whole number, 0 to {highest}")
    return value
