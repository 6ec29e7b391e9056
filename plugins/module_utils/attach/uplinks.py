# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The uplink that an IPAM plugin names for its addresses: an interface of the host in its result.

The specification does not let such a result name interfaces, so that this is read where a configuration says
`uplinkFromIPAM`, and passed over elsewhere.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..cni.result import Interface, Result
from ..errors import TRY_AGAIN, ConfigError, PodnetError
from ..kernel import hostlink, pod
from ..model.names import parse_ifname, parse_mac
from ..vswitch.fastpath import Switch
from .keys import UPLINK_KEY

WAIT_SECONDS = 2.0
"""How long a call waits for an uplink that is not there: a node may just be making it."""
_PAUSE = 0.05


@dataclass(frozen=True)
class Home:
    """Where an uplink leads: `device` is the link that has its addresses, `bridge` that of Open vSwitch that it is on,
    empty if it is on none. A NIC on a bridge has its addresses at the bridge's local port. `named`: what it was
    called.
    """

    device: str
    bridge: str = ""
    named: str = ""

    @property
    def name(self) -> str:
        """What a policy calls it."""
        return self.bridge or self.device


def hints(result: Result, plugin: str) -> list[Interface]:
    """The host's interface for each address of an IPAM plugin's result: the one that the address names if that is one
    of the host, else the first one of the host. Raises ConfigError.
    """
    mine = [item for item in result.interfaces if not item.sandbox]
    if not mine:
        raise ConfigError(
            UPLINK_KEY,
            f"{plugin} named no interface of the host",
            f"leave {UPLINK_KEY} away, or have the plugin name an uplink",
        )
    found = []
    for address in result.addresses:
        index = address.interface
        named = result.interfaces[index] if index is not None else mine[0]
        found.append(mine[0] if named.sandbox else named)
    return found or mine[:1]


def refuse_lost_indices(document: Mapping[str, Any], plugin: str) -> None:
    """Raises ConfigError for an address of an IPAM plugin's result that names an interface which is not there.

    Elsewhere such an index counts as none; here it would be another uplink than the one that was meant.
    """
    count = len(document.get("interfaces") or ())
    for number, item in enumerate(document.get("ips") or ()):
        index = item.get("interface")
        if index is not None and index not in range(count):
            raise ConfigError(
                UPLINK_KEY,
                f"ips[{number}] of {plugin} names interface {index}, of {count}",
                "it is a fault of that plugin",
            )


def find(switch: Switch, hint: Interface, seconds: float, key: str = UPLINK_KEY) -> Home:
    """The uplink that is meant, by its name, or else by its MAC address.

    Raises ConfigError for what cannot be one, and PodnetError with code 11 if there is none within `seconds`.
    """
    name = parse_ifname(hint.name, f"{key}: name") if hint.name else ""
    mac = parse_mac(hint.mac, f"{key}: mac") if hint.mac else ""
    if not name and not mac:
        raise ConfigError(key, "the uplink has neither name nor MAC address", "it is a fault of the IPAM plugin")
    deadline = time.monotonic() + seconds
    while True:
        home = _by_name(switch, name, key) if name else None
        if home is not None:
            return replace(home, named=name)
        home = _by_mac(switch, mac, key) if mac else None
        if home is not None:
            return replace(home, named=home.device)
        if time.monotonic() >= deadline:
            words = " with the MAC address ".join(item for item in (name, mac) if item)
            raise PodnetError(
                f"{key}: there is no link {words} on this node", "plug it in, or name another one", TRY_AGAIN
            )
        time.sleep(_PAUSE)


def now(switch: Switch, named: str) -> str:
    """The link that has the addresses of an uplink by this name at the moment: a NIC may have been put on a bridge, or
    taken off. Raises OvsdbUnavailable.
    """
    home = _on_bridge(switch, named)
    return home.device if home else named


def one_bridge(homes: Mapping[str, Home], given: str | None) -> str:
    """The bridge that all these uplinks, by name, are on. Raises ConfigError if there is none, or it is not `given`."""
    for name, home in homes.items():
        if not home.bridge:
            raise ConfigError(
                UPLINK_KEY, f"{name} is on no bridge of Open vSwitch", "put it on one: podnet_bridges, uplinks"
            )
    bridges = sorted({home.bridge for home in homes.values()})
    if len(bridges) > 1:
        raise ConfigError(
            UPLINK_KEY, f"the addresses belong to several bridges: {', '.join(bridges)}", "one for an interface"
        )
    if given is not None and given != bridges[0]:
        raise ConfigError(
            "bridge", f"{given} is given, but the uplink {', '.join(homes)} is on {bridges[0]}", "leave bridge away"
        )
    return bridges[0]


def _by_name(switch: Switch, name: str, key: str) -> Home | None:
    home = _on_bridge(switch, name)
    if home is not None:
        return home
    link = hostlink.link(name)
    if link is None:
        return None
    if link.member_of:
        raise ConfigError(key, f"{name} is part of a {link.member_of}", "name that one")
    return Home(name)


def _by_mac(switch: Switch, mac: str, key: str) -> Home | None:
    """A bridge has the MAC address of its NIC, and the parts of a bond have one."""
    there = [link for link in hostlink.links() if link.mac == mac]
    homes = {_on_bridge(switch, link.name) or Home(link.name) for link in there if not _is_part(switch, link)}
    if len(homes) > 1:
        names = ", ".join(sorted(home.device for home in homes))
        raise ConfigError(key, f"several links have the MAC address {mac}: {names}", "have the IPAM plugin name one")
    return next(iter(homes), None)


def _is_part(switch: Switch, link: hostlink.HostLink) -> bool:
    return bool(link.member_of) and _on_bridge(switch, link.name) is None


def _on_bridge(switch: Switch, name: str) -> Home | None:
    """Where a port of a bridge, or a NIC in one, belongs. A port of the switch's own is a link of the host itself."""
    link = switch.column("Interface", [["name", "==", name]], "_uuid")
    where = ["name", "==", name] if link is None else ["interfaces", "includes", link]
    port = switch.column("Port", [where], "_uuid")
    bridge = switch.column("Bridge", [["ports", "includes", port]], "name") if port is not None else None
    if bridge is None:
        return None
    internal = link is not None and switch.column("Interface", [["name", "==", name]], "type") == "internal"
    return Home(name if internal else str(bridge), str(bridge))


def index_of(home: Home) -> int:
    """The index of the link that an uplink's addresses are on. Raises PodnetError with code 11 without one."""
    index = pod.index_of(home.device)
    if index is None:
        raise PodnetError(f"{home.device} is not there", "is ovs-vswitchd running?", TRY_AGAIN)
    return index
