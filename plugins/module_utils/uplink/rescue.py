# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The last way to a node whose bridge does not carry it: the NIC gets the addresses back directly.

It needs the record of the move and the kernel. Database, switch and network manager are told if they answer; whatever
of them is broken costs a few seconds and nothing else. It writes to /run only, so that a full disk is no obstacle.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

from ..errors import PodnetError, RefusedError
from ..kernel.files import locked
from ..kernel.l3 import announce_device, loud, missing, snapshot, stage, swap
from ..kernel.links import observe_links, set_up, wait_for_links
from ..model.l3 import L3, Moment
from ..model.paths import RUN
from .ensure import ensure
from .journal import boot_id, boottime, open_moves
from .let_go import let_go
from .marks import is_rescued, mark
from .persist.manager import named
from .record import Record, load
from .steps import put_files
from .units import unescaped

_LOCK = f"{RUN}/rescue.lock"
_SECONDS = 3.0
"""How long the network manager may take."""
_NIC_SECONDS = 5.0
_LEASE_SECONDS = 600
"""What an address that DHCP or a router gave has at least, until its server is heard again."""


def rescue(instance: str, why: str) -> tuple[str, ...]:
    """Gives the NIC of a bridge the node's addresses and routes back; may be repeated. `why` goes into the mark.

    Gives what could not be done beside that, in words. Raises RefusedError while a move is under way or where none
    was, KernelError if even the kernel does not do it.
    """
    bridge = unescaped(instance)
    record = load(bridge)
    if record is None:
        raise RefusedError(f"no move brought this node to {bridge}")
    with locked(_LOCK, 60.0):
        under_way = [journal.id for journal in open_moves() if journal.this_boot]
        if under_way:
            raise RefusedError(f"a move is under way: {under_way[0]}", "podnet uplink status")
        return _rescued(record, why)


def repair(instance: str) -> str:
    """Brings the bridge up again, and has the network manager configure it, before a rescue is thought of.

    Gives what was done in words. Raises PodnetError.
    """
    record = load(unescaped(instance))
    done = ensure(instance)
    if record is not None and not is_rescued(record.bridge):
        l3 = _lasting(L3.from_dict(record.l3))
        if missing(l3, record.bridge):
            named(record.manager).take(record.managed, l3, record.bridge, _SECONDS, wait=False)
    return done


def _rescued(record: Record, why: str) -> tuple[str, ...]:
    bridge, nic = record.bridge, record.nic
    failed: list[str] = []

    def attempt(step: Callable[[], object]) -> None:
        """Whatever fails here must not keep the addresses from the NIC."""
        try:
            step()
        except (PodnetError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            failed.append(str(error))
            _log(str(error))

    attempt(lambda: mark(bridge, why))
    wait_for_links([nic], _NIC_SECONDS)
    l3 = _wanted(record)
    attempt(lambda: let_go(record))
    attempt(lambda: loud(nic, l3))
    attempt(lambda: set_up(nic))
    stage(l3, nic)
    swap(l3, bridge, nic)
    attempt(lambda: announce_device(nic, l3))
    attempt(lambda: put_files(record.rescue_files))
    attempt(lambda: _tell(record, l3))
    if missing(l3, nic):
        stage(l3, nic)
        swap(l3, bridge, nic)
    return tuple(failed)


def _wanted(record: Record) -> L3:
    """What the bridge still carries if it is all that it should, for that is newer; else what the record has."""
    l3 = L3.from_dict(record.l3)
    try:
        if record.bridge in observe_links() and not missing(l3, record.bridge):
            living = snapshot(record.bridge)
            if {item.family for item in l3.addresses} <= {item.family for item in living.addresses}:
                return _lasting(living.configured_as(l3))
    except PodnetError as error:
        _log(str(error))
    return _lasting(l3)


def _lasting(l3: L3) -> L3:
    return l3.lasting(_LEASE_SECONDS, Moment(boot_id(), boottime(), time.time()))


def _tell(record: Record, l3: L3) -> None:
    """The network manager runs on the NIC from now on, with what it reads in /run."""
    manager = named(record.manager)
    if record.bridge in observe_links():
        manager.release(record.managed, record.bridge)
    manager.take(record.managed, l3, record.nic, _SECONDS, wait=False)


def _log(text: str) -> None:
    sys.stderr.write(f"podnet rescue: {text}\n")
    sys.stderr.flush()
