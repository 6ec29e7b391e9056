# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Versions of the CNI specification that are spoken here."""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import INCOMPATIBLE_VERSION, ConfigError

SUPPORTED = ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
NEWEST = SUPPORTED[-1]
ASSUMED = "0.2.0"
"""What a configuration without `cniVersion` means (specification 0.3.0, section "Network Configuration")."""


def parse_version(value: object) -> str:
    """The version of a configuration. Raises ConfigError with code 1 for one that is not spoken here."""
    if value in (None, ""):
        return ASSUMED
    if value not in SUPPORTED:
        raise ConfigError(
            "cniVersion", f"{value!r} is not supported", f"one of {', '.join(SUPPORTED)}", INCOMPATIBLE_VERSION
        )
    return str(value)


def knows_newest(document: object) -> bool:
    """Whether what a plugin says to VERSION has the newest of these; whatever it says."""
    offered = document.get("supportedVersions") if isinstance(document, Mapping) else None
    return isinstance(offered, list) and NEWEST in offered


def at_least(version: str, floor: str) -> bool:
    """Whether a supported version is `floor` or later."""
    return SUPPORTED.index(version) >= SUPPORTED.index(floor)
