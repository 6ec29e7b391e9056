# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ifupdown, with ISC's DHCP client.

ifupdown has no daemon: only its DHCP client has to be moved, and its note of what is up. The bridge is a plain
interface to it; Open vSwitch makes it before networking.service starts.
"""

from __future__ import annotations

import contextlib
import glob
import ipaddress
import os
import re
import time
from typing import TYPE_CHECKING, Any

from ...errors import DeadlineExceeded, PodnetError, RefusedError
from ...kernel.files import read_text, remove, write_text
from ...kernel.links import change_addresses
from ...model.move import FileChange
from . import dhclient
from .addresses import addresses, addresses_of
from .base import SIGN, Managed, Manager
from .cloud_init import cloud_init_files
from .command import find, run, tried
from .interfaces import brought_up, methods, moved, sources
from .links import link_file, volatile_link_file

if TYPE_CHECKING:
    from ...model.l3 import L3

_MAIN = "/etc/network/interfaces"
_STATE = "/run/network/ifstate"
_SERVICE = "/etc/systemd/system/networking.service.d"
_CONFIG = "/etc/dhcp/dhclient.conf"
_LAYER_3 = ("static", "dhcp", "auto", "v4tunnel", "6to4", "ppp", "wvdial", "bootp", "ipv4ll")


class Ifupdown(Manager):
    """ifupdown with static addresses, or with dhclient."""

    name = "ifupdown"

    def describe(self, nic: str) -> dict[str, Any]:
        """The files that name the NIC, and the words with which its DHCP clients run."""
        texts = {path: text for path, text in _files().items() if _is_about(text, nic)}
        found = [method for text in texts.values() for method in methods(text, nic)]
        for text in texts.values():
            moved(text, nic, nic)  # raises what a bridge cannot take over
        clients = {str(dhclient.version(p.words)): list(p.words) for p in dhclient.clients(nic)}
        if ("inet", "dhcp") in found and "4" not in clients:
            raise RefusedError(
                f"{nic} is configured by DHCP, and ISC's dhclient does not run on it",
                "install isc-dhcp-client and run ifdown and ifup at the console, or give the NIC a static address",
            )
        if re.search(rf'(?m)^\s*interface\s+"{re.escape(nic)}"', read_text(_CONFIG) or ""):
            raise RefusedError(
                f"{_CONFIG} has settings for {nic} alone, which a bridge would not get", "make them general"
            )
        lease = dhclient.newest(read_text(dhclient.lease_path(clients["4"])) or "") if "4" in clients else ""
        return {
            "manager": self.name,
            "device": nic,
            "kind": "dhcp" if clients else "static",
            "dhcp4": "4" in clients,
            "dhcp6": "6" in clients,
            "ra": ("inet6", "auto") in found,
            "files": sorted(texts),
            "texts": texts,
            "clients": clients,
            "address": dhclient.address_of(lease),
        }

    def files(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """The stanzas of the NIC are the bridge's; a lease is kept over a restart."""
        changes = [FileChange(path, moved(text, source, target)) for path, text in managed["texts"].items()]
        if managed["clients"]:
            changes.append(FileChange(f"{_SERVICE}/podnet-{target}.conf", _service(target)))
        return (link_file(target), *changes, *cloud_init_files())

    def volatile(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """ifupdown does nothing by itself."""
        return () if target == managed["device"] else (volatile_link_file(target),)

    def rescue_files(self, managed: Managed, l3: L3, nic: str, bridge: str = "") -> tuple[FileChange, ...]:
        """None: `take` starts the client."""
        return ()

    def release(self, managed: Managed, device: str) -> None:
        """Ends the DHCP clients of the device, without DHCPRELEASE; their leases are kept for `take`."""
        before = addresses(device)
        for version, lease in dhclient.stop(device).items():
            write_text(_kept(managed, version), lease)
        gone = sorted(before - addresses(device))
        if gone:
            raise PodnetError(f"{device} lost {', '.join(gone)} when its DHCP client was ended")

    def take(self, managed: Managed, l3: L3, device: str, timeout: float, wait: bool = True) -> None:
        """Starts the DHCP clients on the device; see `Manager.take`."""
        running = {dhclient.version(process.words) for process in dhclient.clients(device)}
        for key, words in managed["clients"].items():
            version = int(key)
            if version in running:
                continue
            mine = dhclient.moved_words(words, managed["device"], device)
            if device != managed["device"]:
                mine = dhclient.volatile_words(mine)
            lease = read_text(_kept(managed, version)) or read_text(dhclient.lease_path(words)) or ""
            dhclient.start(mine, device, lease)
            _renewed(device, dhclient.newest(lease))
            if version == 4 and wait:
                self._await_lease(managed, device, dhclient.lease_path(mine), lease, timeout)
        if device == managed["device"]:
            _forget_leases()

    def settle(self, managed: Managed, source: str, target: str) -> None:
        """The client's lease goes where ifupdown looks for it, and ifupdown takes note of what is up."""
        for key, words in managed["clients"].items():
            mine = dhclient.moved_words(words, managed["device"], target)
            runs = [p for p in dhclient.clients(target) if dhclient.version(p.words) == int(key)]
            if any(dhclient.lease_path(p.words) == dhclient.lease_path(mine) for p in runs):
                continue
            known = dhclient.stop(target).get(int(key)) or read_text(_kept(managed, int(key))) or ""
            dhclient.start(mine, target, known)
            _renewed(target, dhclient.newest(known))
        if target == managed["device"]:
            for words in managed["clients"].values():
                remove(dhclient.lease_path(dhclient.moved_words(words, managed["device"], source)))
        _forget_leases()
        _note_up(source, target)
        if find("systemctl") and os.path.isdir("/run/systemd/system"):
            tried(["systemctl", "daemon-reload"], 30.0)

    def _await_lease(self, managed: Managed, device: str, path: str, before: str, timeout: float) -> None:
        wanted = managed["address"]
        deadline = time.monotonic() + timeout
        known = len(dhclient.leases(dhclient.with_newest(before)))
        found: list[str] = []
        while len(found) <= known and time.monotonic() < deadline:
            time.sleep(0.1)
            found = dhclient.leases(read_text(path) or "")
        lease = found[-1] if len(found) > known else ""
        got = dhclient.address_of(lease)
        if got == wanted:
            _renewed(device, lease)
            return
        dhclient.stop(device)
        if not got:
            raise DeadlineExceeded(
                f"no DHCP server answered on {device} within {timeout:.0f} seconds; {wanted} was leased before",
                "look at the VLAN, the cable and the DHCP server",
            )
        change_addresses(device, remove=addresses_of(device, got))
        raise PodnetError(
            f"DHCP gave {device} the address {got} in place of {wanted}",
            "the server goes by something else than the client identifier: reserve the address for its MAC address",
        )


def claims(nic: str) -> bool:
    """Whether ifupdown configures the NIC's addresses, now or at the next boot."""
    if not find("ifup"):
        return False
    texts = _files().values()
    layer_3 = any(method in _LAYER_3 for text in texts for _family, method in methods(text, nic))
    return layer_3 and (any(brought_up(text, nic) for text in texts) or _is_up(nic))


def _files() -> dict[str, str]:
    """Every file of interfaces(5) that is read, with its text."""
    found: dict[str, str] = {}
    waiting = [_MAIN]
    while waiting:
        path = waiting.pop(0)
        text = read_text(path)
        if text is None or path in found:
            continue
        found[path] = text
        for kind, pattern in sources(text):
            full = pattern if pattern.startswith("/") else os.path.join(os.path.dirname(path), pattern)
            names = sorted(glob.glob(f"{full}/*" if kind == "source-directory" else full))
            waiting += [name for name in names if os.path.isfile(name)]
    return found


def _is_about(text: str, nic: str) -> bool:
    return bool(methods(text, nic)) or brought_up(text, nic)


def _is_up(device: str) -> bool:
    return any(line.split("=")[0] == device for line in (read_text(_STATE) or "").splitlines())


def _note_up(source: str, target: str) -> None:
    """ifup and ifdown go by a note of what is up (ifup(8), FILES)."""
    text = read_text(_STATE)
    if text is None:
        return
    lines = [line for line in text.splitlines() if line.split("=")[0] not in (source, target)]
    write_text(_STATE, "\n".join([*lines, f"{target}={target}"]) + "\n")
    with contextlib.suppress(OSError):
        os.rename(f"{_STATE}.{source}", f"{_STATE}.{target}")
    if read_text(f"{_STATE}.{target}") is not None:
        write_text(f"{_STATE}.{target}", f"{target}\n")


def _kept(managed: Managed, version: int) -> str:
    return f"{dhclient.RUN}/kept{version}-{managed['device']}"


def _forget_leases() -> None:
    for path in glob.glob(f"{dhclient.RUN}/*"):
        remove(path)
    with contextlib.suppress(OSError):
        os.rmdir(dhclient.RUN)


def _renewed(device: str, lease: str) -> None:
    """What dhclient-script leaves out for an address that is there already: how long it is good for."""
    seconds = dhclient.lifetime(lease)
    for cidr in addresses_of(device, dhclient.address_of(lease)):
        words = ["valid_lft", str(seconds), "preferred_lft", str(seconds)] if seconds else []
        brd = str(ipaddress.ip_interface(cidr).network.broadcast_address)
        run(["ip", "-4", "address", "change", cidr, "broadcast", brd, "dev", device, "label", device, *words])


def _service(bridge: str) -> str:
    why = f"{SIGN}the DHCP lease of {bridge} is not given back when the node restarts."
    down = f"/sbin/ifdown -a --read-environment --exclude=lo --exclude={bridge}"
    return f"{why}\n[Service]\nExecStop=\nExecStop={down}\nKillMode=process\n"
