# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CNI plugins by type."""

from __future__ import annotations

from . import adopt, ovs, routed, vlan
from .plugin import Plugin

PLUGINS: dict[str, Plugin] = {plugin.type: plugin for plugin in (ovs.PLUGIN, vlan.PLUGIN, adopt.PLUGIN, routed.PLUGIN)}
