# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Finds out which network manager configures a NIC."""

from __future__ import annotations

import ipaddress

from ...errors import RefusedError
from . import ifupdown, networkd, networkmanager
from .addresses import dynamic
from .base import Manager
from .ifupdown import Ifupdown
from .netplan import GENERATED, Netplan
from .networkd import Networkd
from .nobody import Nobody
from .processes import processes

MANAGERS: dict[str, Manager] = {manager.name: manager for manager in (Networkd(), Netplan(), Ifupdown(), Nobody())}
_NETWORK_MANAGER = "networkmanager"
_CLIENTS = ("dhclient", "dhcpcd", "udhcpc", "pump", "connmand", "wickedd")


def named(name: str) -> Manager:
    """The manager of a name, as a journal has it in `managed["manager"]`. Raises RefusedError."""
    if name not in MANAGERS:
        raise RefusedError(f"the network manager {name} is not known here", f"one of {', '.join(MANAGERS)}")
    return MANAGERS[name]


def detect(nic: str, wanted: str = "auto") -> Manager:
    """Who configures the NIC. Raises RefusedError, with the way out, for several, for one that cannot be served, and
    if it is not the `wanted` one.
    """
    found = _claiming(nic)
    if len(found) > 1:
        raise RefusedError(
            f"{' and '.join(found)} both configure {nic}", f"take {nic} out of the configuration of all but one"
        )
    if _NETWORK_MANAGER in found:
        raise networkmanager.refuse(nic)
    name = found[0] if found else "none"
    if wanted not in ("auto", name):
        raise RefusedError(
            f"{nic} is configured by {_words(name)}, not by {wanted}", "leave manager out, or make it true first"
        )
    if name == "none":
        _check_unmanaged(nic)
    return MANAGERS[name]


def _claiming(nic: str) -> list[str]:
    found = []
    if networkd.claims(nic):
        found.append("netplan" if networkd.site_file(nic).startswith(GENERATED) else "networkd")
    if ifupdown.claims(nic):
        found.append("ifupdown")
    if networkmanager.claims(nic):
        found.append(_NETWORK_MANAGER)
    return found


def _check_unmanaged(nic: str) -> None:
    """What nobody is known to manage must not end by itself."""
    programs = [process for process in processes(*_CLIENTS) if nic in process.words]
    if programs:
        raise RefusedError(
            f"{programs[0].name} runs on {nic}, and no network manager that is known here has started it",
            "have systemd-networkd, netplan or ifupdown configure the NIC, or give it static addresses",
        )
    ending = sorted(cidr for cidr in dynamic(nic) if ipaddress.ip_interface(cidr).version == 4)
    if ending:
        raise RefusedError(
            f"{ending[0]} of {nic} ends unless somebody renews it, and it is not known who does",
            "have systemd-networkd, netplan or ifupdown configure the NIC, or give it a static address",
        )


def _words(name: str) -> str:
    return "nobody" if name == "none" else name
