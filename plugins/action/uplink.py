# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.podnet.ovs.plugins.plugin_utils.moving import MovingAction


class ActionModule(MovingAction):
    """Runs the module; a NIC that carries the node's addresses is moved by the node, and confirmed from here."""
