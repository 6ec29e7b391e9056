# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where things lie on a node. Constants, no knobs: every part of the product agrees by importing them from here."""

from __future__ import annotations

NODE_JSON = "/etc/podnet/node.json"
"""The node's desired state and policy, written by the module `node`."""
OPT = "/opt/podnet"
"""Version folders of the runtime; `current` is a link to the one in use."""
RUNTIME_LIB = OPT + "/current/lib"
"""What a module puts on its path to find pyroute2 and ovsdbapp."""
RUN = "/run/podnet"
NODE_LOCK = RUN + "/node.lock"
"""Who changes bridges, uplinks and interfaces holds its lock: two runs at once would take back each other's work."""
AGENT_SOCKET = RUN + "/agent.sock"
STATE = "/var/lib/podnet"
META = STATE + "/meta"
"""For each attachment of podnet-meta, the networks that it was made of."""
META_RESULTS = RUN + "/meta"
"""For each of them, what its networks gave. A reboot ends the pods, and these."""
NETWORKS = "/etc/podnet/net.d"
"""Configurations of networks that podnet-meta finds by their names."""
UPLINK = STATE + "/uplink"
"""A folder for each move, named by its id, with its journal and its backups."""
UPLINK_LOCK = UPLINK + "/lock"
"""Whose holder may change the state of a move: of confirm and roll back exactly one wins."""
BRIDGES = UPLINK + "/bridges"
"""For each bridge that carries the node, the record of the move that made it so: `<bridge>.json`."""
RESCUED = RUN + "/rescued"
"""For each bridge whose NIC got the node's addresses back directly: `<bridge>.json`, with the reason."""
CONF_DBS = ("/etc/openvswitch/conf.db", "/var/lib/openvswitch/conf.db")
"""Where distributions keep the file of the Open vSwitch database."""
BOOT_ID = "/proc/sys/kernel/random/boot_id"
OVSDB = "unix:/run/openvswitch/db.sock"
"""The endpoint of the node's Open vSwitch database."""
CNI_BIN = "/opt/cni/bin"
"""Where container runtimes look for plugins unless they are told otherwise."""
PLUGINS = "plugins"
"""A link in OPT to the folder where the runtime of this node does."""
NODE_UNIT = "podnet-node.service"
"""The boot unit that gives NICs and VLAN interfaces back what the kernel forgot."""
UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
