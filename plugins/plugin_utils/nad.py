# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pod networks as Kubernetes objects: NetworkAttachmentDefinitions, as the NPWG's specification v1.3 has them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from ansible_collections.podnet.ovs.plugins.module_utils.model.network import Network

API_VERSION = "k8s.cni.cncf.io/v1"
KIND = "NetworkAttachmentDefinition"
DEFAULT_NAMESPACE = "default"
CNI_TYPE = "podnet-ovs"


def cni_config(network: Network) -> dict[str, Any]:
    """The CNI configuration list of a pod network, its keys in a fixed order."""
    keys: dict[str, Any] = {
        "type": CNI_TYPE,
        "bridge": network.bridge,
        "vlan": network.vlan,
        "trunk": network.trunk.to_trunk() if network.trunk else None,
        "untagged": network.untagged,
        "vlan_mode": network.vlan_mode,
        "cvlans": network.cvlans.to_trunk() if network.cvlans else None,
        "qinq_ethertype": network.qinq_ethertype,
        "mtu": network.mtu,
        "mac": network.mac,
        "spoof_check": network.spoof_check,
        "port_isolation": network.port_isolation,
        "bandwidth": dict(network.bandwidth),
        "capabilities": dict(network.capabilities),
        "subinterfaces": [dict(entry) for entry in network.subinterfaces],
        "ipam": dict(network.ipam),
    }
    plugin = {key: value for key, value in keys.items() if value}
    return {"cniVersion": network.cni_version, "name": network.name, "plugins": [plugin, *map(dict, network.chain)]}


def manifests(networks: Iterable[Network]) -> list[dict[str, Any]]:
    """One manifest per pod network and namespace; a network without namespaces gets one in `default`."""
    return [
        _manifest(network, namespace)
        for network in networks
        for namespace in network.namespaces or (DEFAULT_NAMESPACE,)
    ]


def _manifest(network: Network, namespace: str) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": network.name, "namespace": namespace}
    if network.annotations:
        metadata["annotations"] = dict(sorted(network.annotations.items()))
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"config": json.dumps(cni_config(network))},
    }
