# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Configurations that were written for ovs-cni and for Antrea's secondary networks, in the words of `podnet-ovs`."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping
from typing import Any

from ..cni.config import COMMON_KEYS, decode
from ..errors import ConfigError, PodnetError, PolicyError, UnsupportedField
from ..model.node import Node
from ..model.port import EVERYTHING

OVS, ANTREA = "ovs", "antrea"
"""The executables' names."""
OVS_KEYS = (
    "socket_file", "configuration_path", "interface_type", "deviceID", "link_state_check_retries",
    "link_state_check_interval",
)  # fmt: skip
"""The keys that ovs-cni has, and `podnet-ovs` has not. One of them makes a configuration one of ovs-cni's."""
ANTREA_KEY = "networkType"
ANTREA_MTU = 1500
FILE_BYTES = 1 << 16

_IDENTITY = ("cniVersion", "name", "type")
_PORT_KEYS = ("trunk", "untagged", "vlan_mode", "cvlans", "qinq_ethertype")


def own_form(raw: Mapping[str, Any], kind: str, node: Node, strict: bool = True) -> Mapping[str, Any]:
    """The configuration with the keys of `podnet-ovs` alone, and with what the peer's form means by its silence.

    `kind` is the plugin's name in it. Without `strict` what cannot be had is passed over, for CHECK. Raises ConfigError
    (code 7), UnsupportedField (code 2), PolicyError (code 7).
    """
    if kind == ANTREA or ANTREA_KEY in raw:
        return _from_antrea(raw, strict)
    if kind == OVS or any(key in raw for key in OVS_KEYS):
        return _from_ovs(raw, node, strict)
    return raw


def _from_ovs(raw: Mapping[str, Any], node: Node, strict: bool) -> Mapping[str, Any]:
    path = raw.get("configuration_path")
    given = dict(raw) if path in (None, "") else {**_file(path, node), **raw}
    if strict:
        _refuse_elsewhere(given.get("socket_file"), node)
        for key, fine, why in (
            ("deviceID", (None, ""), "pods get veth interfaces, no virtual functions of a NIC"),
            ("interface_type", (None, "", "system"), "pods get veth interfaces, which are of type system"),
        ):
            if given.get(key) not in fine:
                raise UnsupportedField(key, f"{given[key]!r} cannot be had: {why}"[:200], "leave the key away")
    own = {key: value for key, value in given.items() if key not in OVS_KEYS}
    vlan, trunk = own.get("vlan"), own.get("trunk")
    if _is_zero(vlan) and trunk is not None:
        raise ConfigError(
            "vlan",
            "both vlan and trunk are given",
            'for untagged frames beside the trunk: "untagged": true, without vlan',
        )
    if _is_zero(vlan):
        del own["vlan"]
        own["untagged"] = True
    elif vlan is None and trunk is None and not own.get("untagged"):
        own["trunk"] = EVERYTHING
    elif isinstance(trunk, list):
        own["trunk"] = [entry for entry in trunk if not _is_bare(entry)]
        own["untagged"] = len(own["trunk"]) < len(trunk) or own.get("untagged")
        if trunk and not own["trunk"]:
            del own["trunk"]
    return own


def _is_zero(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value == 0


def _is_bare(entry: object) -> bool:
    """Whether a trunk's entry means untagged frames."""
    return isinstance(entry, Mapping) and set(entry) == {"id"} and _is_zero(entry["id"])


def _refuse_elsewhere(endpoint: object, node: Node) -> None:
    if endpoint in (None, ""):
        return
    if not isinstance(endpoint, str) or _normal(endpoint) != _normal(node.ovsdb):
        raise PolicyError(
            f"socket_file: {endpoint!r} is not this node's database"[:300],
            f"leave the key away, or write {node.ovsdb}",
        )


def _normal(endpoint: str) -> str:
    path = endpoint[len("unix:") :] if endpoint.startswith("unix:") else endpoint
    return "/run/" + path[len("/var/run/") :] if path.startswith("/var/run/") else path


def _file(path: object, node: Node) -> dict[str, Any]:
    """The keys of a file that the node allows to name. Those of the configuration count more."""
    key = "configuration_path"
    if path not in node.configuration_paths:
        allowed = ", ".join(node.configuration_paths) or "no file"
        raise PolicyError(
            f"{key}: {path!r} is not a file that this node lets pods name"[:300],
            f"allowed: {allowed}; more in podnet_configuration_paths",
        )
    try:
        # Of a pipe nobody waits for a writer; a link may lead to any file of the node's.
        fd = os.open(str(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise ConfigError(key, f"{path} is not a regular file")
            content = os.read(fd, FILE_BYTES + 1)
        finally:
            os.close(fd)
    except OSError as error:
        reason = "it is a link" if error.errno == errno.ELOOP else error.strerror
        raise ConfigError(key, f"{path} cannot be read: {reason}", "leave the key away, or mend the file") from error
    if len(content) > FILE_BYTES:
        raise ConfigError(key, f"{path} has more than {FILE_BYTES} bytes")
    try:
        table = decode(content)
    except PodnetError as error:
        raise ConfigError(key, f"{path}: {error.message}", error.hint) from error
    for name in sorted(COMMON_KEYS.intersection(table).difference(_IDENTITY)):
        raise ConfigError(key, f"{path} has the key {name}", "which a configuration has to have itself")
    return {name: value for name, value in table.items() if name not in (*_IDENTITY, key)}


def _from_antrea(raw: Mapping[str, Any], strict: bool) -> Mapping[str, Any]:
    own = dict(raw)
    network = own.pop(ANTREA_KEY, None)
    if network is None:
        raise ConfigError(ANTREA_KEY, "it is not given", 'write "networkType": "vlan"')
    if network != "vlan":
        raise UnsupportedField(ANTREA_KEY, f"{network!r} cannot be had"[:200], 'write "networkType": "vlan"')
    for key in _PORT_KEYS:
        if strict and key in own:
            raise UnsupportedField(key, "Antrea's form has no such key", f"leave {ANTREA_KEY} away to have it")
    ipam = own.get("ipam")
    if strict and isinstance(ipam, Mapping) and ipam.get("type") == ANTREA:
        hint = "name another IPAM plugin, or leave ipam away"
        raise ConfigError("ipam.type", "pools of addresses are not here yet", hint)
    vlan = own.get("vlan")
    if vlan is None or _is_zero(vlan):
        own.pop("vlan", None)
        own["untagged"] = True
    if own.get("mtu") is None or _is_zero(own["mtu"]):
        own["mtu"] = ANTREA_MTU
    return own
