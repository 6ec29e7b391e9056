# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is, read from its Open vSwitch database, its kernel and its node.json."""

from __future__ import annotations

import json
from dataclasses import replace

from ..kernel.files import read_text
from ..kernel.links import observe_links
from ..kernel.visit import current_visit
from ..model.paths import NODE_JSON, RESCUED
from ..model.state import Moved, State
from ..vswitch.bridges import observe_switch
from ..vswitch.session import Session
from . import record


def observe(session: Session | None) -> State:
    """The node's state; without a session as if the database were empty. Raises PodnetError."""
    switch = observe_switch(session) if session else State()
    return replace(
        switch,
        links=observe_links(),
        node_json=read_text(NODE_JSON),
        visit=current_visit(),
        moved=tuple(Moved(item.nic, item.bridge, item.id, rescued_because(item.bridge)) for item in record.load_all()),
    )


def rescued_because(bridge: str) -> str:
    """Why the NIC of a bridge has the node's addresses back; "" if it has not."""
    text = read_text(f"{RESCUED}/{bridge}.json")
    if text is None:
        return ""
    try:
        return str(json.loads(text)["why"])
    except (ValueError, KeyError, TypeError):
        return "the bridge did not carry the node's addresses"
