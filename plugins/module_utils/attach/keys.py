# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The keys of a configuration, and what a runtime asks for beside it: the part that all plugins share."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from ..cni.config import COMMON_KEYS, NetConf
from ..errors import ConfigError, UnsupportedField
from ..model.names import nearest
from ..model.tables import flag

ASKS_NOTHING: tuple[Any, ...] = (None, "", [], {})
DEVICE_FILE = "CNIDeviceInfoFile"
"""Where Multus lets a plugin describe a hardware device. Ours have none."""

UPLINK_KEY = "uplinkFromIPAM"
"""Says that an IPAM plugin's result names the uplink of its addresses: see uplinks.py."""


def refuse_unknown(raw: Mapping[str, Any], keys: Iterable[str], peers: Iterable[str] = ()) -> None:
    """Raises UnsupportedField for a key that is none of the plugin's `keys` nor of the protocol's; the hint names the
    nearest, also among those of peers.
    """
    own = tuple(keys)
    known = (*COMMON_KEYS, *own)
    for key in sorted(raw):
        # A key with a dot is somebody's own by the reverse-domain convention, or the protocol's cni.dev/*.
        if key in known or "." in key:
            continue
        guess = nearest(key, (*known, *peers))
        hint = f"did you mean {guess}?" if guess else f"known here: {', '.join(own)}"
        raise UnsupportedField(key, f"unknown key with value {raw[key]!r}"[:200], hint)


def refuse_requests(conf: NetConf, able: Collection[str], *ignored: str) -> None:
    """What a runtime asks for and this plugin or this configuration cannot give is an error, never left out.

    `able`: the capabilities that the plugin has. Raises ConfigError.
    """
    declared = conf.raw.get("capabilities")
    if declared is not None and not isinstance(declared, Mapping):
        raise ConfigError("capabilities", f"an object is wanted, not {declared!r}"[:200], 'like {"mac": true}')
    for key in sorted(conf.runtime):
        if "." in key or key in ignored or conf.runtime[key] in ASKS_NOTHING:
            continue
        place = f"runtimeConfig.{key}"
        if key not in able:
            hint = f"take the capability {key} out of this plugin; it can do: {', '.join(able) or 'none'}"
            raise ConfigError(place, f"{conf.type} cannot do that", hint)
        if declared is not None and declared.get(key) is not True:
            raise ConfigError(place, "the configuration does not declare it", f'"capabilities": {{"{key}": true}}')
        if key in ("ips", "ipRanges") and not conf.ipam:
            raise ConfigError(place, "it is for an IPAM plugin, and none is named", "name one in ipam")
    _refuse_addresses(conf.runtime)


def asks_for_uplink(raw: Mapping[str, Any], conf: NetConf) -> bool:
    """Whether the configuration takes the uplink from the IPAM plugin. Raises ConfigError if it names none."""
    asks = flag(raw, UPLINK_KEY, "")
    if asks and not conf.ipam:
        raise ConfigError(UPLINK_KEY, "there is no IPAM plugin that could name an uplink", "name one in ipam")
    return asks


def _refuse_addresses(runtime: Mapping[str, Any]) -> None:
    """What an IPAM plugin gets to read is of the shape that the conventions give it (CNI conventions, "ips")."""
    ips, ranges = runtime.get("ips") or [], runtime.get("ipRanges") or []
    for place, given in (("runtimeConfig.ips", ips), ("runtimeConfig.ipRanges", ranges)):
        if not isinstance(given, list):
            raise ConfigError(place, f"a list is wanted, not {given!r}"[:200])
    for index, address in enumerate(ips):
        try:
            ipaddress.ip_interface(address if isinstance(address, str) else "")
        except ValueError:
            place = f"runtimeConfig.ips[{index}]"
            raise ConfigError(place, f"{address!r} is not an address"[:200], "like 10.0.0.7/24 or fd00::7/64") from None
    for index, entries in enumerate(ranges):
        if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
            hint = 'like [[{"subnet": "10.0.0.0/24"}]]'
            raise ConfigError(f"runtimeConfig.ipRanges[{index}]", "a list of ranges is wanted", hint)


def folded(args: Mapping[str, Any], name: str) -> Any:
    """The argument of that name, which ovs-cni takes in any case of letters."""
    return next((value for key, value in args.items() if key.lower() == name), None)
