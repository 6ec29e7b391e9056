# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The database as a file, with the real ovsdb-tool: whole, cut anywhere, not there, and on a full disk."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import OvsdbError, OvsdbUnavailable
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch import dbfile, offline

SCHEMA = Path("/usr/share/openvswitch/vswitch.ovsschema")

pytestmark = pytest.mark.skipif(
    not (shutil.which("ovsdb-tool") and SCHEMA.exists()), reason="Open vSwitch is not installed on this machine"
)


def tool(*words: str) -> str:
    """Runs ovsdb-tool."""
    return subprocess.run(["ovsdb-tool", *words], check=True, capture_output=True, text=True).stdout


def port(name: str, *nics: str) -> list[dict[str, Any]]:
    """What inserts a port with its interfaces; its row can be named by the port's name."""
    rows = [
        {"op": "insert", "table": "Interface", "uuid-name": f"i_{nic.replace('-', '_')}", "row": {"name": nic}}
        for nic in nics
    ]
    links = ["set", [["named-uuid", f"i_{nic.replace('-', '_')}"] for nic in nics]]
    row = {"name": name, "interfaces": links}
    return [*rows, {"op": "insert", "table": "Port", "uuid-name": f"p_{name.replace('-', '_')}", "row": row}]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A database of two bridges: br-x with eth0 and a bond of eth1 and eth2, br-y with nothing."""
    path = tmp_path / "conf.db"
    tool("create", str(path), str(SCHEMA))
    operations = [
        {
            "op": "insert",
            "table": "Open_vSwitch",
            "row": {"bridges": ["set", [["named-uuid", "x"], ["named-uuid", "y"]]]},
        },
        {
            "op": "insert",
            "table": "Bridge",
            "uuid-name": "x",
            "row": {
                "name": "br-x",
                "ports": ["set", [["named-uuid", f"p_{name}"] for name in ("br_x", "eth0", "bond")]],
            },
        },
        {
            "op": "insert",
            "table": "Bridge",
            "uuid-name": "y",
            "row": {"name": "br-y", "ports": ["named-uuid", "p_br_y"]},
        },
        *port("br-x", "br-x"),
        *port("eth0", "eth0"),
        *port("bond", "eth1", "eth2"),
        *port("br-y", "br-y"),
    ]
    results = json.loads(tool("transact", str(path), json.dumps(["Open_vSwitch", *operations])))
    assert not [result for result in results if "error" in result], results
    path.chmod(0o640)
    return path


WHOLE = {"br-x": ("br-x", "eth0", "eth1", "eth2"), "br-y": ("br-y",)}


def test_a_nic_leaves_its_bridge_and_nothing_else_changes(db: Path) -> None:
    assert offline.bridges(str(db)) == WHOLE
    assert offline.remove_port(str(db), "br-x", "eth0")
    assert offline.bridges(str(db)) == {**WHOLE, "br-x": ("br-x", "eth1", "eth2")}
    assert not offline.remove_port(str(db), "br-x", "eth0"), "it is gone already"
    assert not offline.remove_port(str(db), "br-z", "eth1"), "there is no such bridge"
    assert not offline.remove_port(str(db), "br-y", "eth1"), "that is another's NIC"
    assert offline.remove_port(str(db), "br-x", "eth1")
    assert offline.bridges(str(db))["br-x"] == ("br-x", "eth2"), "of a bond one NIC goes"
    assert db.stat().st_mode & 0o777 == 0o640
    assert json.loads(
        tool("query", str(db), '["Open_vSwitch",{"op":"select","table":"Interface","where":[],"columns":["name"]}]')
    )
    assert [path.name for path in db.parent.iterdir() if "podnet" in path.name] == []


def test_a_bridge_goes_with_its_ports(db: Path) -> None:
    assert offline.remove_bridge(str(db), "br-x")
    assert offline.bridges(str(db)) == {"br-y": ("br-y",)}
    assert not offline.remove_bridge(str(db), "br-x")
    rows = tool("query", str(db), '["Open_vSwitch",{"op":"select","table":"Interface","where":[],"columns":["name"]}]')
    assert [row["name"] for row in json.loads(rows)[0]["rows"]] == ["br-y"], "rows were left behind"


def test_without_a_file_or_with_an_empty_one_there_is_nothing_to_do(tmp_path: Path) -> None:
    missing, empty = tmp_path / "missing.db", tmp_path / "empty.db"
    empty.touch()
    for path in (missing, empty):
        assert offline.bridges(str(path)) == {}
        assert not offline.remove_port(str(path), "br-x", "eth0")
        assert not offline.remove_bridge(str(path), "br-x")
    assert not missing.exists() and empty.stat().st_size == 0
    with pytest.raises(OvsdbError, match=r"missing\.db"):
        dbfile.sync_database(str(missing))


def test_a_file_that_lost_its_end_is_read_as_the_server_reads_it(db: Path) -> None:
    before = dbfile.whole_length(str(db))
    step = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
    tool("transact", str(db), json.dumps(["Open_vSwitch", step]))
    last = db.read_bytes()
    assert before < len(last) == dbfile.whole_length(str(db))
    for length in (before, before + 1, before + 30, len(last) - 1):
        db.write_bytes(last[:length])
        assert dbfile.whole_length(str(db)) == before
        assert offline.bridges(str(db)) == WHOLE
        assert offline.remove_port(str(db), "br-x", "eth0")
        assert offline.bridges(str(db))["br-x"] == ("br-x", "eth1", "eth2")
        assert dbfile.whole_length(str(db)) == db.stat().st_size, "what was torn is still there"


@pytest.mark.parametrize("damage", ["cut", "noise", "zeros"])
def test_what_is_no_database_is_left_alone_with_a_clear_error(db: Path, damage: str) -> None:
    data = db.read_bytes()
    broken = {"cut": data[:8000], "noise": b"x" + data, "zeros": bytes(len(data))}[damage]
    db.write_bytes(broken)
    for change in (offline.remove_port, offline.remove_bridge):
        with pytest.raises(OvsdbError, match=r"conf\.db is no Open vSwitch database"):
            change(str(db), "br-x", *(["eth0"] if change is offline.remove_port else []))
    assert db.read_bytes() == broken
    assert [path.name for path in db.parent.iterdir() if "podnet" in path.name] == []


def test_only_what_is_no_database_is_set_aside(db: Path) -> None:
    assert dbfile.set_aside(str(db)) is None
    assert dbfile.set_aside(str(db.parent / "missing.db")) is None
    data = db.read_bytes()
    for broken in (b"", b"x", data[:8000], bytes(100)):
        db.write_bytes(broken)
        aside = dbfile.set_aside(str(db))
        assert aside == f"{db}.broken" and not db.exists() and Path(aside).read_bytes() == broken
    for sound in (data, data[:-1], b"OVSDB CLUSTER 1 x"):
        db.write_bytes(sound)
        assert dbfile.set_aside(str(db)) is None and db.read_bytes() == sound


def test_without_the_tool_the_file_stays(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = db.read_bytes()
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(OvsdbUnavailable, match="ovsdb-tool is not there"):
        offline.remove_port(str(db), "br-x", "eth0")
    assert db.read_bytes() == data


def test_a_link_to_the_file_stays_a_link(db: Path) -> None:
    link = db.parent / "link.db"
    link.symlink_to(db)
    assert offline.remove_port(str(link), "br-x", "eth0")
    assert link.is_symlink() and offline.bridges(str(db))["br-x"] == ("br-x", "eth1", "eth2")


@pytest.mark.skipif(os.geteuid() != 0, reason="a disk of its own needs root")
def test_on_a_full_disk_the_file_is_changed_in_its_place(db: Path, tmp_path: Path) -> None:
    script = r"""
    mount -t tmpfs -o size=256k podnet-test "$1"
    cp -p "$2" "$1/conf.db"
    dd if=/dev/zero of="$1/filler" bs=4k 2> /dev/null || true
    mkdir -p /run/podnet
    "$3" -c '
    import sys
    from ansible_collections.podnet.ovs.plugins.module_utils.vswitch import dbfile, offline
    db = sys.argv[1]
    assert offline.remove_port(db, "br-x", "eth0")
    assert not offline.remove_port(db, "br-x", "eth0")
    print(offline.bridges(db)["br-x"], dbfile.whole_length(db))' "$1/conf.db"
    ls -A "$1"
    """
    disk = tmp_path / "disk"
    disk.mkdir()
    words = ["unshare", "--mount", "--propagation=private", "sh", "-ec", textwrap.dedent(script), "sh"]
    done = subprocess.run(
        [*words, disk, db, sys.executable],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    said, *left = done.stdout.splitlines()
    assert said.startswith("('br-x', 'eth1', 'eth2')")
    assert left == ["conf.db", "filler"] or left == [".conf.db.~lock~", "conf.db", "filler"]
