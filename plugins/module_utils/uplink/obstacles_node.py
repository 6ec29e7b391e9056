# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the node stands in the way of a move: disks, kernel, database, programs and files that name the NIC."""

from __future__ import annotations

import os
from collections.abc import Iterator

from ..kernel import mentions as files
from ..kernel.bound import EAPOL, bound_to, commands, hears
from ..kernel.machine import (
    NETWORK_DISKS,
    VOLATILE,
    disk_of,
    has_module,
    kernel_arguments,
    kind_of_disk,
    server_of,
    vendor,
)
from ..kernel.nic import Nic
from ..model.move import MOVE, Request
from ..model.obstacle import BLOCKING, INFO, WARNING, Obstacle
from ..model.paths import CONF_DBS, OPT, STATE, UNIT_FOLDERS
from ..vswitch.managers import managers
from .units import GUARD, have_systemd

ROOM = 20 * 2**20
"""Bytes that a move's journal, its backups and the records may take, with much to spare."""
KERNEL_DATAPATH = "system"
MODULE = "openvswitch"
SUPPLICANTS = ("wpa_supplicant", "hostapd")
_OWN = ("podnet",)
"""Words in the names of files of this collection."""
_LET_GO = (
    "systemd-network",
    "systemd-resolve",
    "NetworkManager",
    "dhclient",
    "dhcpcd",
    "ovs-vswitchd",
    "dhclient-script",
)
"""Programs that the move itself deals with, or that are not harmed."""
_FILTERS = ("VMware", "Amazon", "Google", "Microsoft", "Xen", "Alibaba", "OpenStack")
"""Makers of virtual machines whose switches know one MAC address for each NIC, unless they are told otherwise."""


def of_disks() -> Iterator[Obstacle]:
    """Whether the journal and the configuration can be written, and are there after a loss of power."""
    disk = disk_of(STATE)
    if disk.free < ROOM:
        text = f"{disk.path} has {disk.free // 2**20} MiB free, and the move's journal needs {ROOM // 2**20}"
        yield Obstacle(BLOCKING, text, "make room on that disk")
    if disk.kind in VOLATILE:
        text = f"{disk.path} is in memory ({disk.kind}): after a loss of power nothing would know of the move"
        yield Obstacle(BLOCKING, text, f"put {STATE} on a disk")
    for path in ("/etc", STATE):
        if not disk_of(path).writable:
            yield Obstacle(BLOCKING, f"{disk_of(path).path} is mounted read-only", "mount it for writing")
    kind = kind_of_disk("/")
    if kind in NETWORK_DISKS:
        text = f"the root file system comes over the network ({kind}), and the switch that is to carry it runs from it"
        yield Obstacle(BLOCKING, text, "this node needs a second NIC for its disk")


def of_kernel(request: Request) -> Iterator[Obstacle]:
    """Whether the kernel has the datapath that is asked for."""
    if request.bridge.datapath_type != KERNEL_DATAPATH:
        text = (
            f"bridge {request.bridge.name} has the datapath of ovs-vswitchd: the node is off the network while that is"
        )
        yield Obstacle(
            WARNING, text, "a restart of Open vSwitch costs seconds; the kernel's datapath does not stop for it"
        )
    elif not has_module(MODULE):
        text = f"this kernel has no module {MODULE}"
        yield Obstacle(BLOCKING, text, "install the package that has it, or declare datapath_type: netdev")


def of_database(request: Request) -> Iterator[Obstacle]:
    """Whether the database can be put right before anything runs at boot: a local server, with a file of its own."""
    server = server_of(request.ovsdb)
    way = "the move needs Open vSwitch as a package of the node (role podnet.ovs.openvswitch)"
    if server is None:
        text = f"Open vSwitch does not answer at {request.ovsdb}"
        if any(os.path.exists(path) for path in CONF_DBS):
            yield Obstacle(WARNING, text, "systemctl status ovsdb-server; without it no move begins")
        else:
            yield Obstacle(INFO, f"{text} yet", "the role podnet.ovs.openvswitch installs it")
        return
    if not server.here:
        text = f"the Open vSwitch database at {request.ovsdb} runs in a container: it is not there when the node boots"
        yield Obstacle(BLOCKING, text, way)
    elif server.clustered:
        text = f"the Open vSwitch database {server.database} is one of a cluster, and cannot be put right at boot"
        yield Obstacle(BLOCKING, text, way)
    elif not server.on_disk:
        where = server.database or "in memory"
        yield Obstacle(BLOCKING, f"the Open vSwitch database ({where}) is on no disk of this node", way)
    else:
        for target in managers(request.ovsdb):
            text = f"the Open vSwitch database takes orders from {target}"
            yield Obstacle(WARNING, text, f"see that it leaves the bridge {request.bridge.name} alone")


def of_runtime() -> Iterator[Obstacle]:
    """Whether what watches over a move is there."""
    if not have_systemd():
        text = "systemd does not run here: the watch over the move is a process, and nothing undoes it at the next boot"
        yield Obstacle(
            WARNING, text, "let the node's init run `podnet uplink guard` before Open vSwitch (docs/move.md)"
        )
    if not os.path.exists(f"{OPT}/current/bin/podnet"):
        yield Obstacle(INFO, "the runtime is not on this node yet", "the role podnet.ovs.runtime installs it")
    elif have_systemd() and not any(os.path.exists(f"{folder}/{GUARD}") for folder in UNIT_FOLDERS):
        text = f"there is no {GUARD} yet, which undoes an interrupted move at boot, and without which none begins"
        yield Obstacle(INFO, text, "the role podnet.ovs.runtime installs it")


def of_sockets(request: Request, source: Nic) -> Iterator[Obstacle]:
    """Programs that work on the device and on no other."""
    name, target = source.name, request.target
    for item in bound_to(name):
        if item.process not in _LET_GO:
            who = item.process or "a program"
            text = (
                f"{who} has a socket that is bound to {name} ({item.address}), and hears nothing there after the move"
            )
            yield Obstacle(WARNING, text, f"tell {who} to use {target}, and restart it after the move")
    supplicants = [who for who, words in commands() if who in SUPPLICANTS and any(name in word for word in words[1:])]
    if request.direction == MOVE and (supplicants or hears(source.index, EAPOL)):
        who = supplicants[0] if supplicants else "a program"
        text = f"{who} speaks 802.1X on {name}, which a port of a bridge does not hear"
        yield Obstacle(BLOCKING, text, "the switch would close the port later: let it open this one without 802.1X")


def of_files(request: Request) -> Iterator[Obstacle]:
    """Files that name the device, and will be read again one day."""
    name, target = request.source, request.target
    for item in files.mentions(name, target):
        if item.also or any(word in item.path for word in _OWN):
            continue
        text = f"{item.path}:{item.line} names {name}: {item.text}"
        if item.kind == files.FIREWALL:
            yield Obstacle(WARNING, text, f"at the next boot it is read again: give it the rules for {target} too")
        elif item.kind == files.KERNEL:
            yield Obstacle(INFO, text, f"{target} gets what is set now; for later changes name {target}")
        elif item.kind == files.CNI:
            yield Obstacle(WARNING, text, f"after the move write {target} there, or new pods of that network fail")
        else:
            yield Obstacle(WARNING, text, f"after the move write {target} there and restart what reads it")
    if any("calico" in path for path in files.cni_plugins()):
        text = "Calico runs here, and its setting IP_AUTODETECTION_METHOD, which may name a NIC, is in the cluster"
        yield Obstacle(WARNING, text, f"see that it is not interface={name}: can-reach=… or cidr=… serve as well")
    for word in kernel_arguments():
        if word.startswith("ip=") and (name in word or word in ("ip=dhcp", "ip=on", "ip=any")):
            text = (
                f"the boot loader gives the kernel {word}, with which {name} has the addresses before any bridge is up"
            )
            yield Obstacle(WARNING, text, "take it out of the boot loader's configuration")
    maker = vendor()
    if request.direction == MOVE and any(word in maker for word in _FILTERS):
        text = (
            f"this is a virtual machine ({maker}), whose switch may drop frames of pods, which have MACs of their own"
        )
        yield Obstacle(INFO, text, "allow them there (forged transmits, MAC spoofing); the node itself keeps its MAC")
