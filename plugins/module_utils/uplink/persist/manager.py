# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out which network manager configures a NIC."""

from __future__ import annotations

from ...errors import RefusedError
from .base import Manager
from .networkd import Networkd, claims as networkd_claims
from .nobody import Nobody

MANAGERS: dict[str, Manager] = {manager.name: manager for manager in (Networkd(), Nobody())}


def named(name: str) -> Manager:
    """The manager of a name, as a journal has it in `managed["manager"]`. Raises RefusedError."""
    if name not in MANAGERS:
        raise RefusedError(f"the network manager {name} is not known here", f"one of {', '.join(MANAGERS)}")
    return MANAGERS[name]


def detect(nic: str, wanted: str = "auto") -> Manager:
    """Who configures the NIC. Raises RefusedError, with the way out, for several, for one that cannot be served, and
    if it is not the `wanted` one.
    """
    if networkd_claims(nic):
        return MANAGERS["networkd"]
    return named("none" if wanted == "auto" else wanted)
