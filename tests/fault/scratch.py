# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node on which disks after a power cut are put, one after the other, and the boot guard is run on each, offline."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import OPEN
from ansible_collections.podnet.ovs.plugins.module_utils.model.paths import BRIDGES, UPLINK
from ansible_collections.podnet.ovs.tests.fault.crashes import Crash, Entry, Trace, cut
from ansible_collections.podnet.ovs.tests.fault.harness import BRIDGE, NIC, PODNET
from ansible_collections.podnet.ovs.tests.lab import Light

STATE, UNITS = "/var/lib/podnet", "/etc/systemd/system"
OF_MANAGERS = ("/etc/systemd/network", "/etc/netplan", "/etc/network", "/etc/cloud")
FOLDERS = (STATE, UNITS, *OF_MANAGERS)
"""What is recorded of a node's disk, besides the database."""
DATABASE = "/etc/openvswitch/conf.db"
RECORDED_DATABASE = "/var/lib/openvswitch/conf.db"
"""Where that link leads on a node that Debian's package has set up."""
OTHER_BOOT = "11111111-2222-4333-8444-555555555555"
CLEAR = rf"rm -rf {' '.join(FOLDERS)} {DATABASE}* /etc/openvswitch/.conf* /run/podnet; mkdir -p /etc/openvswitch"
LOOK = r"""
for top in "$@"; do [ ! -e $top ] || find $top -printf '%y %m %p\t%l\n'; done
echo ==
for top in "$@"; do [ ! -e $top ] || find $top -type f -exec sha256sum {} +; done
"""
QUERY = json.dumps(
    ["Open_vSwitch"]
    + [{"op": "select", "table": table, "where": [], "columns": ["name"]} for table in ("Bridge", "Port")]
)


@dataclass(frozen=True)
class Aftermath:
    """What a disk holds after the guard: network managers' files, open moves, records, and the database's names."""

    files: Mapping[str, Entry]
    open: tuple[str, ...]
    states: tuple[str, ...]
    records: tuple[str, ...]
    bridges: tuple[str, ...]
    ports: tuple[str, ...]
    broken: str


class Scratch:
    """A light node without a running Open vSwitch, which believes that it has just booted."""

    def __init__(self, node: Light) -> None:
        self.node = node
        node.write("/opt/boot_id", f"{OTHER_BOOT}\n")
        node.sh("mount --bind /opt/boot_id /proc/sys/kernel/random/boot_id")

    def path(self, path: str) -> Path:
        """Where a file of the node lies on this machine."""
        return self.node.host_path(path)

    def put(self, trace: Trace, crash: Crash) -> None:
        """Makes the disk what it is after a power cut."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w") as tar:
            for path, entry in crash.entries.items():
                _pack(tar, path, entry, trace.content(entry) if entry[0] == "file" else b"")
            if crash.database is not None:
                _pack(tar, DATABASE, ("file", "", 0o640), crash.database)
        self.node.run("sh", "-ec", f"{CLEAR}; tar -xf - -C /", input=packed.getvalue())

    def guard(self) -> str:
        """Runs the boot guard as its unit does, and gives what it said. Raises AssertionError if it fails."""
        done = self.node.run(PODNET, "uplink", "guard", check=False, timeout=60)
        assert done.returncode == 0, f"guard: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stderr

    def aftermath(self) -> Aftermath:
        """Looks at the disk."""
        queried = self.node.run("ovsdb-tool", "query", DATABASE, QUERY, check=False)
        if queried.returncode:  # ovsdb-server leaves out a last record that is not whole, ovsdb-tool refuses it
            whole = cut(self.path(DATABASE).read_bytes(), 0)
            self.path(f"{DATABASE}.whole").write_bytes(whole)
            queried = self.node.run("ovsdb-tool", "query", f"{DATABASE}.whole", QUERY, check=False)
        broken = queried.stderr if queried.returncode else ""
        tables = json.loads(queried.stdout) if not broken else [{"rows": []}, {"rows": []}]
        bridges, ports = (tuple(sorted(row["name"] for row in table["rows"])) for table in tables)
        files = self.files(*OF_MANAGERS)
        states = []
        for path in self.files(UPLINK):
            if path.endswith("/journal.json"):
                states.append(str(json.loads(self.node.get(path))["state"]))
        records = tuple(path for path in self.files(BRIDGES) if path.endswith(".json"))
        still = tuple(state for state in states if state in OPEN)
        return Aftermath(files, still, tuple(states), records, bridges, ports, broken)

    def files(self, *tops: str) -> dict[str, Entry]:
        """What is below some folders, as in a trace."""
        entries, sums = self.node.run("sh", "-ec", LOOK, "sh", *tops).stdout.split("==\n")
        digests = {line[66:]: line[:64] for line in sums.splitlines()}
        kinds = {"f": "file", "l": "link", "d": "folder"}
        found = {}
        for line in entries.splitlines():
            kind, mode, rest = line.split(" ", 2)
            path, _tab, target = rest.partition("\t")
            found[path] = (kinds[kind], digests.get(path, "") or target, int(mode, 8))
        return found

    def ensure(self) -> None:
        """Starts Open vSwitch on the disk's database and lets the boot unit's command make the bridge.

        Raises AssertionError if the NIC is then no port of it.
        """
        self.node.ovs.start()
        try:
            done = self.node.run(PODNET, "uplink", "ensure", BRIDGE, check=False, timeout=60)
            assert done.returncode == 0, f"ensure: {done.stdout}{done.stderr}"
            assert self.node.ovs.vsctl("port-to-br", NIC).stdout.strip() == BRIDGE
        finally:
            self.node.ovs.vsctl("--if-exists", "del-br", BRIDGE, check=False)
            self.node.ovs.stop()


def _pack(tar: tarfile.TarFile, path: str, entry: Entry, content: bytes) -> None:
    kind, data, mode = entry
    info = tarfile.TarInfo(path.lstrip("/"))
    info.mode = mode
    if kind == "folder":
        info.type = tarfile.DIRTYPE
    elif kind == "link":
        info.type, info.linkname = tarfile.SYMTYPE, data
    else:
        info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def of_managers(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The part of a disk that belongs to network managers, without the folders themselves."""
    return {
        path: entry
        for path, entry in entries.items()
        if entry[0] != "folder" and any(path.startswith(f"{top}/") for top in OF_MANAGERS)
    }


def digest(content: bytes) -> str:
    """As traces name contents."""
    return hashlib.sha256(content).hexdigest()
