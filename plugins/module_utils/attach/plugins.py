# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The CNI plugins by type. Each is loaded when it is asked for: a process of a single call pays for no other one."""

from __future__ import annotations

from importlib import import_module

from .plugin import Plugin

PLUGINS = {"podnet-ovs": "ovs", "podnet-vlan": "vlan", "podnet-adopt": "adopt", "podnet-routed": "routed"}
"""Types, and the files here that they are in. `podnet-meta`, which is made of these, is loaded in serve.py."""


def load(kind: str) -> Plugin:
    """The plugin of a type. Raises KeyError for one that is not known."""
    plugin: Plugin = import_module(f".{PLUGINS[kind]}", __package__).PLUGIN
    return plugin
