# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The switch lets go of a NIC that has the node's addresses back, whatever of the switch works."""

from __future__ import annotations

import sys

from ..errors import OvsdbUnavailable, PodnetError
from ..kernel import datapath
from ..kernel.l3 import wait_master
from ..kernel.links import observe_links
from ..model.paths import OVSDB
from ..vswitch import dbfile, offline
from ..vswitch.fastpath import open_switch
from .record import Record

_SECONDS = 3.0
"""How long the database, and then the switch, may take."""


def let_go(record: Record) -> None:
    """Out of the switch: by the database if it answers, else in its file; then out of the kernel's datapath.

    Raises PodnetError for what cannot be done.
    """
    try:
        with open_switch(str(record.request.get("ovsdb") or OVSDB), _SECONDS) as switch:
            switch.release(record.nic)
    except OvsdbUnavailable:
        _offline(record)
    link = observe_links().get(record.nic)
    if link is not None and link.master:
        try:
            wait_master(record.nic, False, _SECONDS)
        except PodnetError:
            datapath.detach(record.nic)
            wait_master(record.nic, False, _SECONDS)


def _offline(record: Record) -> None:
    """Without a server. Otherwise the switch would take the NIC again as soon as it is there; a failure can wait."""
    if offline.served():
        _log("the database does not answer")
        return
    try:
        dbfile.set_aside(offline.database())
        offline.remove_port(offline.database(), record.bridge, record.nic)
    except PodnetError as error:
        _log(str(error))


def _log(text: str) -> None:
    sys.stderr.write(f"podnet rescue: {text}\n")
    sys.stderr.flush()
