# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a node is, read from its Open vSwitch database, its kernel and its node.json."""

from __future__ import annotations

from dataclasses import replace

from ..kernel.files import read_text
from ..kernel.links import observe_links
from ..kernel.visit import current_visit
from ..model.paths import NODE_JSON
from ..model.state import State
from ..vswitch.bridges import observe_switch
from ..vswitch.session import Session


def observe(session: Session | None) -> State:
    """The node's state; without a session as if the database were empty. Raises PodnetError."""
    switch = observe_switch(session) if session else State()
    return replace(switch, links=observe_links(), node_json=read_text(NODE_JSON), visit=current_visit())
