# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving all layer-3 state of a device to another one with no packet lost: snapshot, stage, swap.

First the addresses are on both devices, then each route changes its device in one batch, then the old device loses its
addresses. Each function looks at what is, so that it may be repeated from any half-done state, in both directions.
"""

from __future__ import annotations

import time

from ..errors import DeadlineExceeded, KernelError
from ..model.l3 import L3
from . import sysctls
from .announce import announce
from .l3_device import is_up, prepare, retire, settle
from .l3_plan import Work, moving, staging
from .l3_read import Seen, links, look, now, taken_from
from .l3_router import give_router_routes
from .l3_seen import lacking
from .l3_wire import GROUP_LINK, Failure, Rtnetlink


def snapshot(device: str) -> L3:
    """All layer-3 state of a device. Raises KernelError, for one that does not exist too."""
    with Rtnetlink() as wire:
        return taken_from(look(wire), device)


def stage(l3: L3, device: str, up: bool = True) -> None:
    """Gives a device all addresses, neighbours, settings and rules of a snapshot, without drawing traffic to it.

    Both devices then take packets whose way back leads over the other. Duplicate address detection is left out: the
    addresses are this node's. What has expired is left out too. Raises KernelError.
    """
    with Rtnetlink() as wire:
        prepare(wire, l3, device, up)
        work = _work(wire, l3, l3.device, device)
        _complain(wire.change(staging(work)), f"cannot prepare {device}")


def swap(l3: L3, source: str, target: str, keep: bool = False) -> None:
    """Moves the routes to the target, which `stage` has prepared, then takes all of the snapshot off the source.

    With `keep` the source keeps its addresses, for as long as frames still arrive there: a second call without it takes
    them off. The source need not exist. Raises KernelError if the target does not carry all of it afterwards.
    """
    with Rtnetlink() as wire:
        work = _work(wire, l3, source, target)
        for device in (source, target):
            sysctls.loosen(device)
        if not is_up(work.seen, target):
            prepare(wire, l3, target, True)
        give_router_routes(work)
        if not keep:
            retire(source)
        failures = wire.change(moving(work, keep))
        # what another process changed meanwhile, and what depends on a change that came later in the batch
        again = moving(_work(wire, l3, source, target), keep)
        if again:
            failures = wire.change(again)
        settle(wire, l3, target)
        seen = look(wire)
        lost = lacking(Work(l3, seen, source, target, now().seconds_since(l3.taken)))
    if lost:
        reasons = "; ".join(str(failure) for failure in failures)
        raise KernelError(f"{target} did not take over {', '.join(lost)}" + (f" ({reasons})" if reasons else ""))


def missing(l3: L3, device: str) -> list[str]:
    """What of a snapshot the device does not carry, in words; empty if it carries all that has not expired."""
    with Rtnetlink() as wire:
        seen = look(wire)
        if device not in seen.links:
            return [f"the device {device}"]
        return lacking(Work(l3, seen, "", device, now().seconds_since(l3.taken)))


def quiet(nic: str) -> None:
    """Makes the kernel deaf to a NIC that a userspace datapath listens on; after `swap`. One that is gone is fine.

    It answers no ARP there for addresses of other devices, takes no packet whose way back leads over another device,
    and has no IPv6. Without it the node answers everything twice.
    """
    for path, value in _QUIET.items():
        sysctls.write(nic, path, value)


def loud(nic: str, l3: L3) -> None:
    """Ends `quiet`, with the values of the snapshot; before `stage`. A NIC that is gone is fine."""
    for path in _QUIET:
        if path in l3.sysctls:
            sysctls.write(nic, path, l3.sysctls[path])


def wait_master(nic: str, enslaved: bool, timeout: float) -> None:
    """Waits until a NIC is a port of the kernel datapath, or no longer. Raises DeadlineExceeded.

    A userspace datapath makes it nobody's port: do not wait there.
    """
    deadline = time.monotonic() + timeout
    with Rtnetlink(GROUP_LINK) as events, Rtnetlink() as wire:
        while True:
            link = links(wire).get(nic)
            if (not enslaved) if link is None else (bool(link.master) == enslaved):
                return
            if not events.heard(deadline - time.monotonic()) and time.monotonic() >= deadline:
                state = "became no port of the switch" if enslaved else "is still a port of the switch"
                raise DeadlineExceeded(f"{nic} {state} in {timeout:g} s")


def announce_device(device: str, l3: L3) -> None:
    """Tells the neighbours three times where the addresses are. A device that is gone or down is no error."""
    announce([(device, "", [address.cidr for address in l3.addresses])])


_QUIET = {sysctls.ARP_IGNORE: "1", sysctls.RP_FILTER: sysctls.STRICT, sysctls.DISABLE_IPV6: "1"}


def _work(wire: Rtnetlink, l3: L3, source: str, target: str) -> Work:
    seen: Seen = look(wire)
    if target not in seen.links:
        raise KernelError(f"the kernel has no link {target}")
    return Work(l3, seen, source if source != target else "", target, now().seconds_since(l3.taken))


def _complain(failures: list[Failure], what: str) -> None:
    if failures:
        raise KernelError(f"{what}: {'; '.join(str(failure) for failure in failures)}")
