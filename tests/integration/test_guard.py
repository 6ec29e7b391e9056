# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The guard over journals in each state, with the database of a real Open vSwitch that is off, as at boot."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.model.move import OPEN, STATES, UNCONFIRMED

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

UPLINK, DB = "/var/lib/podnet/uplink", "/etc/openvswitch/conf.db"
KEPT, WRITTEN, VOLATILE = "/etc/site-network", "/etc/podnet-network", "/run/podnet-network"
WRITE = """
import json, sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.uplink import journal as j
from podnet.model.move import Request
given = json.load(sys.stdin)
with j.turn():
    made = j.Journal.create(j.Journal(
        id=given["id"], state="planned", nonce_hash="0" * 64, request=Request.parse(given["request"]), deadline=1.0,
        boot_id=given["boot_id"] or j.boot_id(), values=given["values"], program="/opt/podnet/current/bin/podnet"))
if given["state"] != "planned":
    made.advance(given["state"], ("planned",))
"""


@pytest.fixture(scope="module")
def machine(lab: Lab, datapath: str) -> Light:
    """A node with its runtime, and database files as a move leaves them, under the names of `half_moved`."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth0", lab.lan("trunk"))], datapath=datapath)
    node.install_runtime()
    node.ovs.stop("ovs-vswitchd")
    node.ovs.vsctl("--no-wait", "add-br", "br-y", "--", "add-port", "br-y", "other0")
    mark = "external_ids:podnet_move=m1"
    files = {
        "plain": [],
        "existing": ["add-br", "br-x"],
        "half": ["set", "Bridge", "br-x", mark],
        "shared": ["add-port", "br-x", "pod1"],
    }
    for name, words in files.items():
        if words:
            node.ovs.vsctl("--no-wait", *words)
        if name == "existing":
            port = ["set", "Port", "eth0", mark, "other_config:transient=true"]
            node.ovs.vsctl("--no-wait", "add-port", "br-x", "eth0", "--", *port)
        node.sh(f"cp -p {DB} /run/{name}.db")
    node.ovs.stop("ovsdb-server")
    return node


@pytest.fixture
def node(machine: Light) -> Iterator[Light]:
    """The node without a move, and Open vSwitch off, with a bridge br-y that is none of ours."""
    half_moved(machine, "plain")
    yield machine
    machine.sh(f"rm -rf {UPLINK} {KEPT} {WRITTEN} {VOLATILE} /run/podnet")


def half_moved(node: Light, name: str = "half") -> None:
    """The database as the unconfirmed move m1 leaves it: "half"; its bridge was there before ("existing"), or has got
    somebody else's port ("shared").
    """
    node.sh(f"cp -p /run/{name}.db {DB}")


def journal(
    node: Light, state: str, move: str = "m1", direction: str = "move", boot_id: str = "before", **values: Any
) -> None:
    """Writes the journal of a move of an earlier boot."""
    request = {"direction": direction, "nic": "eth0", "bridge": {"name": "br-x", "uplinks": [{"name": "eth0"}]}}
    given = {
        "id": move,
        "state": state,
        "boot_id": boot_id,
        "request": request,
        "values": {
            "l3": {},
            "managed": {"manager": "none"},
            "files": [
                {"path": WRITTEN, "text": "the bridge's\n", "mode": 0o600},
                {"path": KEPT, "text": None, "mode": 0o644},
            ],
            "originals": {
                WRITTEN: {"text": None, "mode": 0o644},
                KEPT: {"text": "the NIC's\n", "mode": 0o644},
            },
            "rescue_files": [],
            "volatile": [{"path": VOLATILE, "text": "for now\n", "mode": 0o644}],
            "volatile_before": [{"path": VOLATILE, "text": None, "mode": 0o644}],
            "switch": {"bridge": None, "own": None, "port": None},
            **values,
        },
    }
    node.run("/usr/bin/python3", "-c", WRITE, input=json.dumps(given))
    node.write(KEPT, "the NIC's\n")
    node.write(VOLATILE, "for now\n")


def guard(node: Light) -> str:
    """What the guard says."""
    return node.run("/opt/podnet/current/bin/podnet", "uplink", "guard", timeout=30).stdout


def state_of(node: Light, move: str = "m1") -> tuple[str, str]:
    """State and reason of a move."""
    found = json.loads(node.get(f"{UPLINK}/{move}/journal.json"))
    return found["state"], found["reason"]


def ports(node: Light) -> dict[str, list[str]]:
    """The ports of each bridge but its own, from the database's file."""
    columns = {"Bridge": ["name", "ports"], "Port": ["_uuid", "name"]}
    question = [{"op": "select", "table": table, "where": [], "columns": names} for table, names in columns.items()]
    words = ["ovsdb-tool", "query", DB, json.dumps(["Open_vSwitch", *question])]
    bridges, rows = json.loads(node.run(*words).stdout)
    names = {row["_uuid"][1]: row["name"] for row in rows["rows"]}
    found = {}
    for row in bridges["rows"]:
        kind, value = row["ports"]
        members = [names[item[1]] for item in value] if kind == "set" else [names[value]]
        found[row["name"]] = sorted(set(members) - {row["name"]})
    return found


def there(node: Light, path: str) -> str | None:
    """The content of a file, None if there is none."""
    done = node.run("cat", path, check=False)
    return done.stdout if done.returncode == 0 else None


UNDONE = [state for state in OPEN if state != "committing"]


@pytest.mark.parametrize("state", UNDONE)
def test_what_nobody_confirmed_is_undone(node: Light, state: str) -> None:
    half_moved(node)
    journal(node, state)
    said = guard(node)
    assert "move m1: it was not confirmed and is undone" in said
    assert state_of(node) == ("rolled_back", "the node was started anew before the move was confirmed")
    assert ports(node) == {"br-y": ["other0"]}
    assert there(node, KEPT) == "the NIC's\n" and there(node, WRITTEN) is None and there(node, VOLATILE) is None
    assert guard(node) == "", "nothing is left to do"


def test_a_bridge_that_was_there_before_stays(node: Light) -> None:
    half_moved(node, "existing")
    journal(node, "applied", switch={"bridge": {"name": "br-x"}, "own": None, "port": None})
    guard(node)
    assert ports(node) == {"br-x": [], "br-y": ["other0"]}


def test_a_bridge_on_which_others_have_ports_by_now_stays(node: Light) -> None:
    half_moved(node, "shared")
    journal(node, "applied")
    guard(node)
    assert ports(node) == {"br-x": ["pod1"], "br-y": ["other0"]}


def test_what_was_confirmed_is_completed(node: Light) -> None:
    half_moved(node)
    journal(node, "committing")
    assert "it was confirmed and is now complete" in guard(node)
    assert state_of(node) == ("committed", "")
    assert ports(node) == {"br-x": ["eth0"], "br-y": ["other0"]}
    assert there(node, WRITTEN) == "the bridge's\n" and there(node, KEPT) is None and there(node, VOLATILE) is None
    record = json.loads(node.get(f"{UPLINK}/bridges/br-x.json"))
    assert (record["nic"], record["id"]) == ("eth0", "m1")
    assert record["originals"][KEPT] == {"text": "the NIC's\n", "mode": 0o644}


@pytest.mark.parametrize("state", ["cutover", "applied", "rolling_back", "committing"])
def test_the_way_back_is_mirrored(node: Light, state: str) -> None:
    journal(node, "committing", move="m1")
    half_moved(node)
    guard(node)
    journal(node, state, move="m2", direction="unbridge")
    guard(node)
    record = there(node, f"{UPLINK}/bridges/br-x.json")
    if state == "committing":
        assert state_of(node, "m2")[0] == "committed" and record is None
        assert ports(node) == {"br-x": [], "br-y": ["other0"]}
    else:
        assert state_of(node, "m2")[0] == "rolled_back" and record is not None


def test_moves_of_this_boot_and_those_that_are_over_are_left_alone(node: Light) -> None:
    half_moved(node)
    journal(node, "applied", boot_id="")
    for number, state in enumerate(set(STATES) - set(OPEN)):
        journal(node, state, move=f"over{number}")
    assert guard(node) == ""
    assert state_of(node)[0] == "applied" and ports(node)["br-x"] == ["eth0"]


@pytest.mark.parametrize("broken", ["", "{", '{"schema": 99}', "\\0\\0\\0"])
def test_a_broken_journal_does_not_hide_the_others_nor_its_own_port(node: Light, broken: str) -> None:
    half_moved(node)
    journal(node, "applied", move="m1")
    node.sh(f"printf '{broken}' > {UPLINK}/m1/journal.json")
    journal(node, "applied", move="m2", direction="unbridge")
    said = guard(node)
    assert "move m1: its journal cannot be read, and eth0 was taken out of br-x" in said
    assert state_of(node, "m2")[0] == "rolled_back" and ports(node)["br-x"] == []


@pytest.mark.parametrize("damage", ["rm", "truncate -s 0", "truncate -s 4000", "truncate -s -7"])
def test_a_damaged_database(node: Light, damage: str) -> None:
    half_moved(node)
    journal(node, "applied")
    node.sh(f"{damage} {DB}")
    guard(node)
    assert state_of(node)[0] == "rolled_back"
    if damage.endswith("-7"):
        assert "eth0" not in ports(node).get("br-x", []), "the server reads what was whole, and so does the guard"


def test_a_full_disk_is_no_excuse(node: Light) -> None:
    half_moved(node)
    journal(node, "applied")
    script = r"""
    size=$(du -sk /etc/openvswitch /var/lib/podnet | awk '{sum += $1} END {print sum + 16}')
    mkdir -p /run/disk
    mount -t tmpfs -o size=${size}k podnet-test /run/disk
    cp -a /etc/openvswitch /var/lib/podnet /run/disk
    mount --bind /run/disk/openvswitch /etc/openvswitch
    mount --bind /run/disk/podnet /var/lib/podnet
    dd if=/dev/zero of=/run/disk/filler bs=1k 2> /dev/null || true
    """
    node.sh(script)
    try:
        guard(node)
        node.sh("rm /run/disk/filler")
        assert ports(node) == {"br-y": ["other0"]}
        guard(node)
        assert state_of(node)[0] == "rolled_back"
    finally:
        node.sh("umount /etc/openvswitch /var/lib/podnet; umount /run/disk")


def test_a_version_of_the_runtime_stays_for_as_long_as_an_open_move_uses_it(node: Light) -> None:
    journal(node, UNCONFIRMED[-1])
    script = """
    import json, sys
    sys.path.insert(0, "/opt/podnet/current/lib")
    from podnet import runtime
    place = runtime.Place()
    state = runtime.State("3", "2", ("1", "2", "3"))
    print(json.dumps(runtime.wanted(state, place, runtime.Manifest("4", (), ())).versions))
    """
    text = node.get(f"{UPLINK}/m1/journal.json").decode()
    node.write(f"{UPLINK}/m1/journal.json", text.replace("/opt/podnet/current/bin", "/opt/podnet/1/bin"))
    versions = json.loads(node.run("/usr/bin/python3", "-c", textwrap.dedent(script)).stdout)
    assert versions == ["1", "3", "4"]
