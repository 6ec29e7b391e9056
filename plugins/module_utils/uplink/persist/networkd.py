# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd-networkd: how it is told, and how it lets go of a device without a word on the wire.

An orderly stop of its DHCP client would give the lease back, and a reload counts for the client under the settings of
before. So networkd is killed, and comes back with files that say otherwise: what it finds on devices is then foreign
to it, and stays because of KeepConfiguration=.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ...errors import DeadlineExceeded, PodnetError, RefusedError
from ...kernel.files import read_text, remove, write_text
from ...kernel.links import change_addresses
from ...model.move import FileChange
from . import networkd_files as texts
from .addresses import addresses, interface_ids, mac
from .base import Managed, Manager
from .cloud_init import cloud_init_files
from .command import run, tried
from .networkd_state import OURS, config_files, daemon, file_for, link_state, names_only
from .processes import kill
from .sections import parse

if TYPE_CHECKING:
    from ...model.l3 import L3

UNIT = "systemd-networkd.service"
_START_SECONDS = 15.0
_PATIENCE = 5.0
"""Seconds for what the device has already, and networkd looks through: it may wait for a host that is not there."""
_READY = ("configuring", "configured")


class Networkd(Manager):
    """systemd-networkd with the site's own .network files."""

    name = "networkd"

    def describe(self, nic: str) -> dict[str, Any]:
        """The text of the NIC's file with its drop-ins, and the identity towards DHCP and routers that is in use."""
        state = link_state(nic)
        path = site_file(nic)
        text = "\n".join(read_text(part) or "" for part in (path, *config_files(path)))
        texts.check_text(text, nic)
        asks = texts.method(text)
        identity = texts.identity(state.lease.get("CLIENTID", ""), _duid(state.duid6), state.iaid6)
        return {
            "manager": self.name,
            "device": nic,
            "kind": "dhcp" if asks["dhcp4"] or asks["dhcp6"] else "static",
            **asks,
            "file": path,
            "files": [path, *config_files(path)],
            "sorted": os.path.basename(path),
            "text": text,
            "wild": not names_only(parse(text), nic),
            "identity": identity,
            "tokens": interface_ids(nic) if asks["ra"] else [],
            "address": state.lease.get("ADDRESS", ""),
        }

    def files(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """One file for the NIC, one for the bridge, and that what others made on the node is not networkd's."""
        return (*texts.persistent(managed, source, target), *cloud_init_files())

    def volatile(self, managed: Managed, l3: L3, source: str, target: str) -> tuple[FileChange, ...]:
        """The same in /run, and in both directions: the source is left alone, the target configured."""
        return texts.volatile(managed, source, target)

    def rescue_files(self, managed: Managed, l3: L3, nic: str, bridge: str = "") -> tuple[FileChange, ...]:
        """The NIC's own configuration, ahead of the persistent files."""
        own = FileChange(texts.volatile_path(nic), texts.own_text(managed))
        if not bridge:
            return (own,)
        alone = texts.unmanaged_text([bridge], f"{nic} has its addresses back for the time being.")
        return (FileChange(texts.volatile_path(bridge), alone), own)

    def release(self, managed: Managed, device: str) -> None:
        """Kills networkd, which comes back and leaves the device alone. Raises PodnetError, also if addresses went."""
        process = daemon()
        if process is None:
            return
        before = addresses(device)
        held = {device, managed["device"], *texts.devices_of(_listed(texts.VOLATILE) + _listed(texts.PERSISTENT))}
        write_text(texts.HOLD, texts.unmanaged_text(sorted(held), "these are being moved."))
        _start_again()
        _until(lambda: not link_state(device).managed, f"systemd-networkd leaves {device} alone")
        gone = sorted(before - addresses(device))
        if gone:
            raise PodnetError(
                f"systemd-networkd took {', '.join(gone)} off {device} when it was told to leave it alone"
            )

    def take(self, managed: Managed, l3: L3, device: str, timeout: float, wait: bool = True) -> None:
        """Lets networkd have the device; see `Manager.take`."""
        held = os.path.exists(texts.HOLD)
        if daemon() is None:
            remove(texts.HOLD)
            return
        if held and link_state(device).managed:  # it was told to let go, and has not read it
            _start_again()
            _until(lambda: not link_state(device).managed, f"systemd-networkd leaves {device} alone")
        # What it has never let go of stays untouched: with another file it would take the addresses off and begin anew.
        if not link_state(device).managed:
            with self._own_file(managed, device):
                remove(texts.HOLD)
                run(["networkctl", "reload"])
                _until(lambda: link_state(device).managed, f"systemd-networkd takes {device}")
        if not wait:
            return
        deadline = time.monotonic() + timeout
        if managed["address"]:
            self._await_lease(managed, device, deadline, timeout)
        else:
            end = min(deadline, time.monotonic() + _PATIENCE)
            _until(lambda: link_state(device).admin == "configured", "it is done", end, fatal=False)
        if link_state(device).admin == "failed":
            raise PodnetError(f"systemd-networkd failed to configure {device}", f"networkctl status {device}")

    def settle(self, managed: Managed, source: str, target: str) -> None:
        """networkd reads the persistent files; what it has configured stays as it is."""
        remove(texts.HOLD)
        if daemon() is None:
            return
        if target == managed["device"]:
            # Its own file may not keep what a start of networkd finds, so only what needs no other host is read anew.
            if not (managed["dhcp4"] or managed["dhcp6"] or managed["ra"]):
                run(["networkctl", "reload"])
            return
        before = addresses(target)
        _start_again()
        _until(lambda: link_state(target).admin in _READY, f"systemd-networkd takes {target}")
        used = link_state(target).file
        if used != texts.persistent_path(managed, target):
            raise PodnetError(
                f"systemd-networkd configures {target} by {used or 'no file'}", f"networkctl status {target}"
            )
        gone = sorted(before - addresses(target))
        if gone:
            raise PodnetError(f"{target} lost {', '.join(gone)} when systemd-networkd read its files anew")

    @contextlib.contextmanager
    def _own_file(self, managed: Managed, device: str) -> Iterator[None]:
        """For the way back, when nothing but the site's own file speaks for the NIC: one that drops nothing.

        It is needed at the moment of reading only.
        """
        path = texts.volatile_path(device)
        needed = device == managed["device"] and not os.path.exists(path)
        if needed:
            write_text(path, texts.own_text(managed))
        try:
            yield
        finally:
            if needed:
                remove(path)

    def _await_lease(self, managed: Managed, device: str, deadline: float, timeout: float) -> None:
        wanted = managed["address"]
        lease: dict[str, str] = {}
        while not lease.get("ADDRESS") and time.monotonic() < deadline:
            lease = link_state(device).lease
            time.sleep(0.1)
        got = lease.get("ADDRESS")
        if got == wanted and any(address.split("/")[0] == got for address in addresses(device)):
            return
        self.release(managed, device)
        if not got:
            raise DeadlineExceeded(
                f"no DHCP server answered on {device} within {timeout:.0f} seconds; {wanted} was leased before",
                "look at the VLAN, the cable and the DHCP server",
            )
        wrong = ipaddress.ip_interface(f"{got}/{lease.get('NETMASK', '32')}")
        change_addresses(device, remove=[str(wrong)])
        raise PodnetError(
            f"DHCP gave {device} the address {got} in place of {wanted}",
            "the server goes by something else than the client identifier: reserve the address for its MAC address",
        )


def claims(nic: str) -> bool:
    """Whether networkd configures the NIC."""
    return daemon() is not None and link_state(nic).managed


def site_file(nic: str) -> str:
    """The site's own file for a NIC that networkd configures, also while one of this program is in its place.

    Raises RefusedError if there is none, or none that another could come before.
    """
    used = link_state(nic).file
    path = used
    if os.path.basename(used).startswith(OURS) or not os.path.exists(used):
        path = file_for(nic, mac(nic)) or ""
    if not path:
        raise RefusedError(
            f"the file by which systemd-networkd configures {nic}, {used or 'unknown'}, is gone",
            "put it back, or run networkctl reload",
        )
    if os.path.basename(path) < "0-podnet-use":
        raise RefusedError(f"{path} sorts before any file that could replace it", "give it a name like 10-…")
    return path


def _start_again() -> None:
    process = daemon()
    tried(["systemctl", "reset-failed", UNIT])
    if process is not None:
        kill(process)
    _until(lambda: daemon() is not None, "systemd-networkd comes back", time.monotonic() + 3.0, fatal=False)
    run(["systemctl", "start", UNIT], timeout=_START_SECONDS)


def _until(
    reached: Callable[[], bool], what: str, deadline: float | None = None, pause: float = 0.05, fatal: bool = True
) -> None:
    end = time.monotonic() + _START_SECONDS if deadline is None else deadline
    while not reached():
        if time.monotonic() >= end:
            if fatal:
                raise DeadlineExceeded(f"waited in vain until {what}", "journalctl -u systemd-networkd")
            return
        time.sleep(pause)


def _listed(folder: str) -> list[str]:
    return os.listdir(folder) if os.path.isdir(folder) else []


def _duid(text: str) -> str:
    """ "DUID-EN/Vendor:0000ab11…" is type 2 and what follows."""
    kinds = {"DUID-LLT": 1, "DUID-EN/Vendor": 2, "DUID-LL": 3, "UUID": 4}
    kind, colon, rest = text.partition(":")
    return f"{kinds[kind]:04x}{rest}" if colon and kind in kinds else ""
