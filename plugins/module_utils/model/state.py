# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is: the rows of its Open vSwitch database and the links of its kernel, as values.

Fields that the switch or the kernel report, and that nobody sets, do not count when two states are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

SYSTEM_INTERFACE = ""
"""Interface.type of a NIC or a veth. The database also takes the word `system` for it."""
INTERNAL = "internal"


@dataclass(frozen=True)
class InterfaceRow:
    """A row of the table Interface. MTU in bytes."""

    name: str
    type: str = SYSTEM_INTERFACE
    mac: str | None = None
    mtu_request: int | None = None
    external_ids: Mapping[str, str] = field(default_factory=dict)
    mtu: int | None = field(default=None, compare=False)
    mac_in_use: str | None = field(default=None, compare=False)
    ofport: int | None = field(default=None, compare=False)
    error: str = field(default="", compare=False)


@dataclass(frozen=True)
class PortRow:
    """A row of the table Port. No tag, no trunks: a trunk of all VLANs."""

    name: str
    interfaces: tuple[InterfaceRow, ...] = ()
    tag: int | None = None
    trunks: frozenset[int] = frozenset()
    vlan_mode: str | None = None
    bond_mode: str | None = None
    lacp: str | None = None
    other_config: Mapping[str, str] = field(default_factory=dict)
    external_ids: Mapping[str, str] = field(default_factory=dict)

    def interface(self, name: str) -> InterfaceRow | None:
        """Its interface of that name."""
        return next((row for row in self.interfaces if row.name == name), None)


@dataclass(frozen=True)
class BridgeRow:
    """A row of the table Bridge with its ports by name."""

    name: str
    datapath_type: str = "system"
    fail_mode: str = "standalone"
    stp_enable: bool = False
    rstp_enable: bool = False
    other_config: Mapping[str, str] = field(default_factory=dict)
    external_ids: Mapping[str, str] = field(default_factory=dict)
    ports: Mapping[str, PortRow] = field(default_factory=dict)
    datapath_id: str = field(default="", compare=False)


@dataclass(frozen=True)
class Link:
    """A link of the kernel. `addresses` are permanent ones with prefix length, without IPv6 link-local ones."""

    name: str
    up: bool = False
    addresses: frozenset[str] = frozenset()
    mtu: int = field(default=0, compare=False)
    mac: str = field(default="", compare=False)
    kind: str = field(default="", compare=False)
    master: str | None = field(default=None, compare=False)
    children: tuple[str, ...] = field(default=(), compare=False)
    dynamic: tuple[str, ...] = field(default=(), compare=False)
    """Addresses that DHCP or a router gave, and that end."""
    duplicate: tuple[str, ...] = field(default=(), compare=False)
    """Addresses that another host on the link has, as duplicate address detection found (RFC 4862)."""
    routes: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class Visit:
    """From where somebody works on the node now, and the address of the node that this one speaks with."""

    peer: str
    address: str


@dataclass(frozen=True)
class Moved:
    """A NIC whose addresses a bridge carries since a move. `rescued`: why the NIC has them again, "" if it has not."""

    nic: str
    bridge: str
    id: str = ""
    rescued: str = ""


@dataclass(frozen=True)
class State:
    """A node: bridges and links by name, the switch's own settings, the text of node.json (None: no file)."""

    bridges: Mapping[str, BridgeRow] = field(default_factory=dict)
    links: Mapping[str, Link] = field(default_factory=dict)
    switch: Mapping[str, str] = field(default_factory=dict)
    """Open_vSwitch.other_config"""
    node_json: str | None = None
    ovs_version: str = field(default="", compare=False)
    visit: Visit | None = field(default=None, compare=False)
    moved: tuple[Moved, ...] = field(default=(), compare=False)

    def moved_to(self, bridge: str) -> Moved | None:
        """What was moved to a bridge, and is there: not what was rescued from it."""
        return next((item for item in self.moved if item.bridge == bridge and not item.rescued), None)

    def port_of(self, interface: str) -> tuple[BridgeRow, PortRow] | None:
        """The bridge and port that an interface belongs to, or that have its name."""
        for bridge in self.bridges.values():
            for port in bridge.ports.values():
                if port.name == interface or port.interface(interface):
                    return bridge, port
        return None

    def with_bridge(self, bridge: BridgeRow) -> State:
        """With this bridge in the place of the one of its name."""
        return replace(self, bridges={**self.bridges, bridge.name: bridge})

    def without_bridge(self, name: str) -> State:
        """Without the bridge, and without the links that go with it."""
        rows = [row for port in self.bridges[name].ports.values() for row in port.interfaces]
        gone = {row.name for row in rows if row.type == INTERNAL}
        return replace(
            self,
            bridges={key: bridge for key, bridge in self.bridges.items() if key != name},
            links={key: link for key, link in self.links.items() if key not in gone},
        )

    def with_port(self, bridge: str, port: PortRow) -> State:
        """With this port on the bridge, in the place of the one of its name."""
        row = self.bridges[bridge]
        return self.with_bridge(replace(row, ports={**row.ports, port.name: port}))

    def without_port(self, bridge: str, name: str) -> State:
        """Without the port, and without the links that go with it."""
        row = self.bridges[bridge]
        gone = {item.name for item in row.ports[name].interfaces if item.type == INTERNAL}
        kept = {key: port for key, port in row.ports.items() if key != name}
        links = {key: link for key, link in self.links.items() if key not in gone}
        return replace(self.with_bridge(replace(row, ports=kept)), links=links)

    def with_link(self, link: Link) -> State:
        """With this link in the place of the one of its name."""
        return replace(self, links={**self.links, link.name: link})
