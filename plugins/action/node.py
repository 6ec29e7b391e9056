# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from ansible_collections.podnet.ovs.plugins.plugin_utils.moving import MovingAction


class ActionModule(MovingAction):
    """Of `node` and of all modules that work on a node's switch, through meta/runtime.yml.

    They need libraries that the role runtime installs. Where these are not there yet, as in check mode on a fresh node,
    the module says so, and is run once more with the archive. Moves that `node` needs are carried out in between.
    """
