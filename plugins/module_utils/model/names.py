# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names and addresses: what the kernel, Open vSwitch and Ethernet take, checked before they are asked."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Union

from ..errors import ConfigError, UnsupportedField

IFNAME_BYTES = 15
"""linux/if.h: IFNAMSIZ is 16, with the closing zero."""
LOWEST_MTU = 68
"""RFC 791: every IPv4 module forwards 68 octets. IPv6 needs 1280 (RFC 8200), which the kernel says itself."""
LOWEST_MTU6 = 1280
HIGHEST_MTU = 65535

InterfaceAddress = Union[ipaddress.IPv4Interface, ipaddress.IPv6Interface]

_RESERVED = {
    "ovs-system": "Open vSwitch names its own devices so",
    "ovs-netdev": "Open vSwitch names its own devices so",
    "all": "the kernel's settings for all interfaces have it",
    "default": "the kernel's settings for new interfaces have it",
}
_PLUGIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.\-]*")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


def parse_ifname(value: object, path: str) -> str:
    """An interface name that the kernel takes (net/core/dev.c, dev_valid_name). Raises ConfigError."""
    if not isinstance(value, str) or not value:
        raise ConfigError(path, f"an interface name is a word, not {value!r}"[:200], "like eth0 or br-pod")
    length = len(value.encode(errors="replace"))
    if length > IFNAME_BYTES:
        raise ConfigError(path, f"the interface name {value[:40]!r} has {length} bytes", f"at most {IFNAME_BYTES} fit")
    if value in (".", "..") or any(sign in "/:%" or sign.isspace() or not sign.isprintable() for sign in value):
        raise ConfigError(
            path, f"{value!r} cannot be an interface name", "no space, slash, colon or %, and not . or .."
        )
    if value in _RESERVED:
        raise ConfigError(path, f"{value!r} cannot be an interface name: {_RESERVED[value]}", "choose another name")
    return value


def parse_plugin_type(value: object, path: str) -> str:
    """The name of an executable in a folder of CNI_PATH, never a path. Raises ConfigError."""
    if not isinstance(value, str) or not _PLUGIN.fullmatch(value):
        raise ConfigError(path, f"{value!r} is not the name of a plugin", "a file's name in a folder of CNI_PATH")
    return value


def parse_mac(value: object, path: str) -> str:
    """A unicast MAC address in lower case with colons. Raises ConfigError, for a multicast or zero one too."""
    text = value.lower().replace("-", ":") if isinstance(value, str) else ""
    if not _MAC.fullmatch(text):
        raise ConfigError(path, f"{value!r} is not a MAC address", "six hexadecimal bytes, like 02:00:5e:10:00:01")
    if int(text[:2], 16) & 1:
        raise ConfigError(path, f"{text} is a multicast address", "the first byte of an interface's MAC is even")
    if text == "00:00:00:00:00:00":
        raise ConfigError(path, f"{text} is no address of an interface")
    return text


def parse_address(value: object, path: str) -> InterfaceAddress:
    """An interface's address with its prefix length, `10.0.0.1/24` or `fd00::1/64`. Raises ConfigError."""
    if not isinstance(value, str) or "/" not in value:
        raise ConfigError(path, f"{value!r} is not an address with a prefix length", "like 10.0.0.1/24 or fd00::1/64")
    try:
        address = ipaddress.ip_interface(value.strip())
    except ValueError as error:
        raise ConfigError(path, str(error), "like 10.0.0.1/24 or fd00::1/64") from error
    if address.ip.is_multicast or address.ip.is_unspecified:
        raise ConfigError(path, f"{value} cannot be an address of an interface")
    return address


def parse_address_alone(value: object, path: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """An address without a prefix length. Raises ConfigError."""
    try:
        return ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise ConfigError(path, f"{value!r} is not an address"[:200], "like 10.0.0.1 or fd00::1") from None


def parse_mtu(value: object, path: str) -> int:
    """An MTU in bytes, without the Ethernet header. Raises ConfigError."""
    if isinstance(value, bool) or not isinstance(value, int) or not LOWEST_MTU <= value <= HIGHEST_MTU:
        raise ConfigError(path, f"{value!r} is not an MTU", f"a whole number of bytes, {LOWEST_MTU} to {HIGHEST_MTU}")
    return value


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` was probably meant to be, or None."""
    from difflib import get_close_matches  # only on the way to an error: the plugins start on every call

    found = get_close_matches(word.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def unknown_keys(mapping: Mapping[str, object], known: Collection[str]) -> list[str]:
    """The keys of `mapping` that are not known, sorted."""
    return sorted(str(key) for key in mapping if key not in known)


def refuse_unknown_keys(mapping: Mapping[str, object], known: Collection[str], path: str) -> None:
    """Raises UnsupportedField for the first key that is not known; the hint names the nearest one that is."""
    for key in unknown_keys(mapping, known):
        guess = nearest(key, known)
        hint = f"did you mean {guess}?" if guess else f"known here: {', '.join(sorted(known))}"
        raise UnsupportedField(f"{path}.{key}" if path else key, "unknown key", hint)
