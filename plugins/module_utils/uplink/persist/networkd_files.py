# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of systemd-networkd that say which device has the node's layer 3, made from those of the NIC. Pure.

See systemd.network(5). The first file that matches a device, by name, is its only one; the same name in /etc hides the
one in /run. So the names here sort before those of the site, and the volatile ones before the persistent ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ...errors import RefusedError
from ...model.move import FileChange
from .base import SIGN, Managed
from .links import PERSISTENT, VOLATILE, link_file, volatile_link_file
from .sections import parse, values

HOLD = f"{VOLATILE}/0-podnet-hold.network"
"""Devices that networkd shall not touch for the moment."""
_SWITCH = "devices-of-open-vswitch"
"""In a file's name: longer than any device's."""

_REFUSED = ("Bridge", "Bond", "BatmanAdvanced", "VRF", "MACVLAN", "MACVTAP", "IPVLAN", "IPVTAP", "IPoIB")
_OF_THE_NIC = ("VLAN", "LLDP", "EmitLLDP")
"""Settings of [Network] that belong to the link and not to the addresses."""
_NIC_LINK = ("MACAddress", "Promiscuous", "Unmanaged", "ActivationPolicy")
"""Settings of [Link] that the bridge does not take over: its MAC address is set in Open vSwitch."""
_ONLINE = ("RequiredForOnline", "RequiredFamilyForOnline", "Unmanaged")
_NIC_SECTIONS = frozenset(
    [
        "SR-IOV",
        "CAN",
        "IPoIB",
        "QDisc",
        "NetworkEmulator",
        "TokenBucketFilter",
        "PIE",
        "FlowQueuePIE",
        "StochasticFairBlue",
        "StochasticFairnessQueueing",
        "BFIFO",
        "PFIFO",
        "PFIFOHeadDrop",
        "PFIFOFast",
        "CAKE",
        "ControlledDelay",
        "FairQueueing",
        "DeficitRoundRobinScheduler",
        "DeficitRoundRobinSchedulerClass",
        "EnhancedTransmissionSelection",
        "GenericRandomEarlyDetection",
        "FairQueueingControlledDelay",
        "TrivialLinkEqualizer",
        "HierarchyTokenBucket",
        "HierarchyTokenBucketClass",
        "HeavyHitterFilter",
        "QuickFairQueueing",
        "QuickFairQueueingClass",
        "BandMultiQueueing",
    ]
)
"""Sections of the link's own: virtual functions and queues (systemd.network(5), tc(8))."""

_NO_LAYER_3 = """\
[Network]
DHCP=no
LinkLocalAddressing=no
IPv6AcceptRA=no
KeepConfiguration=yes

[Link]
RequiredForOnline=no
"""
_STAYS = """\
[Network]
KeepConfiguration=yes
ConfigureWithoutCarrier=yes
IgnoreCarrierLoss=yes
"""
MANNERS = f"""{SIGN}routes and rules that others made on this node stay when networkd reads its files.
[Network]
ManageForeignRoutes=no
ManageForeignRoutingPolicyRules=no
"""
_DUID_TYPES = {1: "link-layer-time", 2: "vendor", 3: "link-layer", 4: "uuid"}
"""RFC 8415, 11.1, and systemd.network(5), DUIDType=."""


def check_text(text: str, nic: str) -> None:
    """Raises RefusedError for a configuration that a bridge cannot take over."""
    sections = parse(text)
    for key in _REFUSED:
        found = values(sections, "Network", key)
        if found:
            raise RefusedError(
                f"systemd-networkd makes {nic} part of something else: {key}={found[-1]}",
                f"take that out of the configuration of {nic}, or name another NIC",
            )


def method(text: str) -> dict[str, bool]:
    """Whether networkd asks for addresses: `dhcp4`, `dhcp6`, `ra` (router advertisements, unless told not to)."""
    sections = parse(text)
    asked = (values(sections, "Network", "DHCP") or ("no",))[-1].lower()
    both = asked in ("yes", "true", "on", "1", "y", "t", "both")
    heard = (values(sections, "Network", "IPv6AcceptRA") or ("yes",))[-1].lower()
    return {
        "dhcp4": both or asked in ("ipv4", "v4"),
        "dhcp6": both or asked in ("ipv6", "v6"),
        "ra": heard not in ("no", "false", "off", "0", "n", "f"),
    }


def identity(client_id: str, duid: str, iaid: str) -> dict[str, Any]:
    """The DHCP identity in use, from hexadecimal text; "" for one that there is not.

    `client_id` is option 61 of DHCPv4: a hardware address (RFC 2132, 9.14), or IAID and DUID (RFC 4361, 6.1).
    Raises RefusedError for another form.
    """
    found: dict[str, Any] = {}
    if client_id:
        octets = bytes.fromhex(client_id)
        if octets[0] == 0xFF and len(octets) > 7:
            found["dhcp4"] = {"iaid": int.from_bytes(octets[1:5], "big"), "duid": octets[5:].hex()}
        elif octets[0] == 1 and len(octets) == 7:
            found["dhcp4"] = {"mac": octets[1:].hex(":")}
        else:
            raise RefusedError(
                f"the DHCP client identifier in use, {client_id}, cannot be pinned",
                "set ClientIdentifier=mac or duid in [DHCPv4] and renew the lease",
            )
    if duid and iaid:
        found["dhcp6"] = {"iaid": int(iaid, 0), "duid": duid}
    return found


def bridge_text(managed: Managed, bridge: str) -> str:
    """The bridge's file: all that the NIC's says, but for what is the link's own."""
    parts = []
    for section in parse(managed["text"]):
        if section.name == "Match" or section.name in _NIC_SECTIONS:
            continue
        gone = {"Link": _NIC_LINK, "Network": _OF_THE_NIC}.get(section.name, ())
        parts.append(section.without(gone).render())
    why = f"{SIGN}the bridge {bridge} has the addresses of {managed['device']}, as {managed['file']} has them."
    return "\n".join([f"{why}\n[Match]\nName={bridge}\n", *parts, _STAYS, *_pins(managed)])


def nic_text(managed: Managed, bridge: str) -> str:
    """The NIC's file while the bridge has its addresses: what is the link's own."""
    nic = managed["device"]
    parts = []
    for section in parse(managed["text"]):
        if section.name == "Link":
            parts.append(section.without(_ONLINE).render())
        elif section.name == "Network":
            parts.append(section.only(_OF_THE_NIC).render())
        elif section.name in _NIC_SECTIONS:
            parts.append(section.render())
    parts = [part for part in parts if "=" in part]
    why = f"{SIGN}{nic} is an uplink of the bridge {bridge}, which has its addresses."
    return "\n".join([f"{why}\n[Match]\nName={nic}\n", *parts, _NO_LAYER_3])


def own_text(managed: Managed) -> str:
    """The NIC's own configuration, in which nothing is dropped or released while it changes hands."""
    parts = [section.render() for section in parse(managed["text"]) if section.name != "Match"]
    why = f"{SIGN}{managed['device']} is configured as by {managed['file']}, without a gap."
    keep = "[Network]\nKeepConfiguration=yes\n"
    return "\n".join([f"{why}\n[Match]\nName={managed['device']}\n", *parts, keep, *_pins(managed)])


def unmanaged_text(devices: Iterable[str], why: str) -> str:
    """A file that makes networkd leave devices alone."""
    return f"{SIGN}{why}\n[Match]\nName={' '.join(devices)}\n\n[Link]\nUnmanaged=yes\n"


def persistent_path(managed: Managed, device: str) -> str:
    """Before the file that the site has for the NIC."""
    ahead = "05-podnet" if str(managed["sorted"]) > "05-podnet~" else "0-podnet-use"
    return f"{PERSISTENT}/{ahead}-{device}.network"


def volatile_path(device: str) -> str:
    """Before all others."""
    return f"{VOLATILE}/0-podnet-run-{device}.network"


def devices_of(names: Iterable[str]) -> set[str]:
    """The devices that files of these names are about, if the files are of this program."""
    found = (re.fullmatch(r"(?:0-podnet-run|0-podnet-use|05-podnet)-(.+)\.network", name) for name in names)
    return {match.group(1) for match in found if match} - {_SWITCH}


def persistent(managed: Managed, nic: str, bridge: str) -> tuple[FileChange, ...]:
    """After the move."""
    files = [
        link_file(bridge),
        FileChange("/etc/systemd/networkd.conf.d/05-podnet.conf", MANNERS),
        FileChange(persistent_path(managed, nic), nic_text(managed, bridge)),
        FileChange(persistent_path(managed, bridge), bridge_text(managed, bridge)),
    ]
    if managed["wild"]:
        files.append(FileChange(persistent_path(managed, _SWITCH), _switch_text(managed)))
    return tuple(files)


def volatile(managed: Managed, source: str, target: str) -> tuple[FileChange, ...]:
    """While a move in either direction is not confirmed."""
    back = target == managed["device"]
    alone = unmanaged_text([source], f"the addresses of {source} are on their way to {target}.")
    text = own_text(managed) if back else bridge_text(managed, target)
    files = [
        FileChange("/run/systemd/networkd.conf.d/05-podnet.conf", MANNERS),
        FileChange(volatile_path(source), alone),
        FileChange(volatile_path(target), text),
    ]
    if managed["wild"] and not back:
        files.append(FileChange(volatile_path(_SWITCH), _switch_text(managed)))
    return tuple(files) if back else (volatile_link_file(target), *files)


def _switch_text(managed: Managed) -> str:
    why = f"{managed['file']} does not name its NIC, and would match what Open vSwitch makes."
    return unmanaged_text(["ovs-system", "ovs-netdev"], why)


def _pins(managed: Managed) -> list[str]:
    """The identity towards DHCP and routers that is in use now: its defaults come from the name of the device."""
    pins = []
    found: Mapping[str, Any] = managed["identity"]
    if "dhcp4" in found:
        pins.append("\n".join(["[DHCPv4]", *_dhcp4(found["dhcp4"]), "SendRelease=no"]) + "\n")
    elif managed["dhcp4"]:
        pins.append("[DHCPv4]\nSendRelease=no\n")
    if "dhcp6" in found:
        pins.append("\n".join(["[DHCPv6]", *_duid(found["dhcp6"]), "SendRelease=no"]) + "\n")
    if managed["tokens"]:
        lines = [f"Token=static:{token}" for token in managed["tokens"]]
        pins.append("\n".join(["[IPv6AcceptRA]", "Token=", *lines]) + "\n")
    return pins


def _dhcp4(found: Mapping[str, Any]) -> list[str]:
    return ["ClientIdentifier=mac"] if "mac" in found else ["ClientIdentifier=duid", *_duid(found)]


def _duid(found: Mapping[str, Any]) -> list[str]:
    octets = bytes.fromhex(found["duid"])
    kind = _DUID_TYPES.get(int.from_bytes(octets[:2], "big"))
    lines = [f"IAID={found['iaid']}"]
    return [*lines, f"DUIDType={kind}", f"DUIDRawData={octets[2:].hex(':')}"] if kind else lines
