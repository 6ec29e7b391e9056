# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owner mark: what rows of ours carry in `external_ids`, and how it is read back.

Rows without the mark belong to somebody else and are never changed or removed unless the user named them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError, OvsdbError
from .vlan import VlanSet

SCHEMA = 1
PREFIX = "podnet_"
OWNER_NODE = "node"
"""Bridges, uplinks and VLAN interfaces of the node's desired state."""
OWNER_OVS = "podnet-ovs"
"""Attachments of the plugin podnet-ovs."""

KEY_SCHEMA = PREFIX + "schema"
KEY_OWNER = PREFIX + "owner"
KEY_CONTAINER_ID = PREFIX + "container_id"
KEY_IFNAME = PREFIX + "ifname"
KEY_NETWORK = PREFIX + "network"
KEY_POD_NAMESPACE = PREFIX + "pod_namespace"
KEY_POD_NAME = PREFIX + "pod_name"
KEY_POD_UID = PREFIX + "pod_uid"
KEY_ADDRESSES = PREFIX + "addresses"
KEY_MTU = PREFIX + "mtu"
KEY_MAC = PREFIX + "mac"
KEY_SPOOF_CHECK = PREFIX + "spoof_check"
KEY_SUBINTERFACES = PREFIX + "subinterfaces"


@dataclass(frozen=True)
class Mark:
    """Who owns a row. Addresses with prefix length, MTU in bytes (None: not ours to set). `subinterfaces`: the VLANs
    that the pod has interfaces of their own for.

    `mac` is only there with `spoof_check`: together with the addresses it says what the pod may send.
    """

    owner: str
    container_id: str = ""
    ifname: str = ""
    network: str = ""
    pod_namespace: str = ""
    pod_name: str = ""
    pod_uid: str = ""
    addresses: tuple[str, ...] = ()
    mtu: int | None = None
    mac: str = ""
    spoof_check: bool = False
    subinterfaces: VlanSet = field(default_factory=VlanSet)

    def to_external_ids(self) -> dict[str, str]:
        """The keys to write; what is empty is left out."""
        pairs = {
            KEY_SCHEMA: str(SCHEMA),
            KEY_OWNER: self.owner,
            KEY_CONTAINER_ID: self.container_id,
            KEY_IFNAME: self.ifname,
            KEY_NETWORK: self.network,
            KEY_POD_NAMESPACE: self.pod_namespace,
            KEY_POD_NAME: self.pod_name,
            KEY_POD_UID: self.pod_uid,
            KEY_ADDRESSES: " ".join(self.addresses),
            KEY_MTU: "" if self.mtu is None else str(self.mtu),
            KEY_MAC: self.mac,
            KEY_SPOOF_CHECK: "true" if self.spoof_check else "",
            KEY_SUBINTERFACES: str(self.subinterfaces),
        }
        return {key: value for key, value in pairs.items() if value}

    @classmethod
    def parse(cls, external_ids: Mapping[str, str]) -> Mark | None:
        """The mark of a row, None if it carries none. Raises OvsdbError if a newer release wrote it."""
        owner = external_ids.get(KEY_OWNER)
        if not owner:
            return None
        schema = external_ids.get(KEY_SCHEMA, "")
        if schema != str(SCHEMA):
            raise OvsdbError(
                f"a row of the Open vSwitch database carries {KEY_SCHEMA}={schema!r}, known here is {SCHEMA}",
                "a newer release of podnet.ovs wrote it: use that one on this node",
            )
        mtu = external_ids.get(KEY_MTU, "")
        return cls(
            owner=owner,
            container_id=external_ids.get(KEY_CONTAINER_ID, ""),
            ifname=external_ids.get(KEY_IFNAME, ""),
            network=external_ids.get(KEY_NETWORK, ""),
            pod_namespace=external_ids.get(KEY_POD_NAMESPACE, ""),
            pod_name=external_ids.get(KEY_POD_NAME, ""),
            pod_uid=external_ids.get(KEY_POD_UID, ""),
            addresses=tuple(external_ids.get(KEY_ADDRESSES, "").split()),
            mtu=int(mtu) if mtu.isdigit() else None,
            mac=external_ids.get(KEY_MAC, ""),
            spoof_check=external_ids.get(KEY_SPOOF_CHECK) == "true",
            subinterfaces=_vlans(external_ids.get(KEY_SUBINTERFACES, "")),
        )


def _vlans(text: str) -> VlanSet:
    """What nobody can read counts as nothing, as an MTU that is no number does."""
    try:
        return VlanSet.parse(text)
    except ConfigError:
        return VlanSet()


def foreign(external_ids: Mapping[str, str]) -> dict[str, str]:
    """The keys that are not part of a mark."""
    return {key: value for key, value in external_ids.items() if not key.startswith(PREFIX)}
