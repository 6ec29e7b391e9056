# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Moving all layer-3 state of a device to another one with no packet lost: snapshot, stage, swap.

First the addresses are on both devices, then each route changes its device in one batch, then the old device loses its
addresses. Each function looks at what is, so that it may be repeated from any half-done state, in both directions.
"""

from __future__ import annotations

from ..model.l3 import L3


def snapshot(device: str) -> L3:
    """All layer-3 state of a device. Raises KernelError, for one that does not exist too."""
    raise NotImplementedError


def stage(l3: L3, device: str, up: bool = True) -> None:
    """Gives a device all addresses, neighbours, settings and rules of a snapshot, without drawing traffic to it.

    What has expired is left out. Raises KernelError.
    """
    raise NotImplementedError


def swap(l3: L3, source: str, target: str, keep: bool = False) -> None:
    """Moves the routes to the target, which `stage` has prepared, then takes all of the snapshot off the source.

    With `keep` the source keeps its addresses, for as long as frames still arrive there: a second call without it takes
    them off. The source need not exist. Raises KernelError if the target does not carry all of it afterwards.
    """
    raise NotImplementedError


def missing(l3: L3, device: str) -> list[str]:
    """What of a snapshot the device does not carry, in words; empty if it carries all that has not expired."""
    raise NotImplementedError


def quiet(nic: str) -> None:
    """Makes the kernel deaf to a NIC that a userspace datapath listens on; after `swap`. One that is gone is fine."""
    raise NotImplementedError


def loud(nic: str, l3: L3) -> None:
    """Ends `quiet`, with the values of the snapshot; before `stage`. A NIC that is gone is fine."""
    raise NotImplementedError


def wait_master(nic: str, enslaved: bool, timeout: float) -> None:
    """Waits until a NIC is a port of the kernel datapath, or no longer. Raises DeadlineExceeded."""
    raise NotImplementedError


def announce_device(device: str, l3: L3) -> None:
    """Tells the neighbours three times where the addresses are. A device that is gone or down is no error."""
    raise NotImplementedError
