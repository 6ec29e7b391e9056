# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the tests of the years after a move share: the move itself, and what its node says of it later."""

from __future__ import annotations

import hashlib
import json
import secrets
import subprocess
import time
from typing import TYPE_CHECKING, Any, Union

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Full, Light, Machine as Virtual

    Machine = Union[Full, Light, Virtual]

PODNET = "/opt/podnet/current/bin/podnet"
LIMIT = 90.0
"""Seconds within which the old address must answer."""
DB = "/etc/openvswitch/conf.db"
CRASH = "[Service]\nExecStart=\nExecStart=/bin/false\n"
"""Of a unit's drop-in: it ends as soon as it starts."""
FILL_THE_DISK = """
cat > /etc/systemd/system/full-disk.service <<'.'
[Unit]
DefaultDependencies=no
Before=local-fs.target podnet-guard.service
[Service]
Type=oneshot
ExecStart=/bin/sh -ec 'mkdir -p /run/disk; mount -t tmpfs -o size=2m full /run/disk; \
    for f in /etc/openvswitch /var/lib/openvswitch /var/lib/podnet; do cp -a --parents $f /run/disk; done; \
    dd if=/dev/zero of=/run/disk/filler bs=1k 2>/dev/null || true; \
    for f in /etc/openvswitch /var/lib/openvswitch /var/lib/podnet; do mount --bind /run/disk$f $f; done'
RemainAfterExit=yes
[Install]
WantedBy=local-fs.target
.
systemctl -q enable full-disk.service
"""
"""A script: from the next boot on, the folders of Open vSwitch and of the moves are on a disk without room."""


def begin(node: Machine, direction: str = "move") -> dict[str, Any]:
    """Moves the node's NIC under br-x, or out of it, to the end; gives its journal."""
    move, nonce = secrets.token_hex(6), secrets.token_hex(16)
    bridge = {"name": "br-x", "datapath_type": node.datapath, "uplinks": [{"name": "eth0", "move": True}]}
    order = {
        "schema": 1,
        "id": move,
        "nonce_hash": hashlib.sha256(nonce.encode()).hexdigest(),
        "request": {"direction": direction, "nic": "eth0", "bridge": bridge, "confirm": "none", "timeout": 120},
        "holder": {"host": "test", "user": "test"},
    }
    done = node.run(PODNET, "uplink", "begin", "--json", input=json.dumps(order), check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    path = f"/var/lib/podnet/uplink/{move}/journal.json"
    deadline = time.monotonic() + 150
    while True:
        journal: dict[str, Any] = json.loads(node.get(path))
        if journal["state"] in ("committed", "rolled_back", "rollback_failed") or time.monotonic() > deadline:
            return journal
        time.sleep(0.3)


def story(node: Machine) -> str:
    """What an operator would look at."""
    script = f"""
    ip -br address; ip route; ovs-vsctl --timeout=3 show; {PODNET} uplink status; cat /run/podnet/rescued/*
    journalctl --no-pager --boot -o short-monotonic -u 'podnet-[bgru]*' -n 60
    """
    done = node.run("sh", "-c", script, check=False, timeout=60)
    return done.stdout + done.stderr


def bridge_state(node: Machine) -> tuple[str, str]:
    """What `podnet uplink status` says of the bridge: "ok", "rescued" or "broken", and why."""
    done = node.run(PODNET, "uplink", "status", "--json", check=False, timeout=60)
    (found,) = json.loads(done.stdout)["bridges"]
    return found["state"], found["why"]


def wait_for_state(node: Machine, wanted: str, limit: float = LIMIT) -> str:
    """Waits until the bridge is in that state; gives the reason."""
    deadline = time.monotonic() + limit
    while True:
        state, why = bridge_state(node)
        if state == wanted:
            return why
        assert time.monotonic() < deadline, f"{state} instead of {wanted}: {why}\n{story(node)}"
        time.sleep(1)


def reached(node: Full, limit: float = LIMIT) -> float:
    """Seconds until the node answers ssh on the address that it has always had."""
    began = time.monotonic()
    while True:
        try:
            if node.ssh("true", check=False, timeout=8).returncode == 0:
                return time.monotonic() - began
        except subprocess.TimeoutExpired:
            pass
        assert time.monotonic() - began < limit, f"not reached in {limit} s:\n{story(node)}"
        time.sleep(0.5)
