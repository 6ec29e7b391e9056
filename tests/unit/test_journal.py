# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The journal of a move: exactly one wins a change of state, and what is on the disk is always a whole journal."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, DecodeError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel import files
from ansible_collections.podnet.ovs.plugins.module_utils.model import move
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import Probe, Request
from ansible_collections.podnet.ovs.plugins.module_utils.uplink import journal as journals
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.journal import Journal, Lost, UnknownMove

REQUEST = {"direction": "move", "nic": "eth0", "bridge": {"name": "br-x", "uplinks": [{"name": "eth0", "move": True}]}}


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The journals of this test, where its user may write."""
    monkeypatch.setattr(journals, "UPLINK", str(tmp_path / "uplink"))
    monkeypatch.setattr(journals, "UPLINK_LOCK", str(tmp_path / "uplink" / "lock"))


def made(name: str = "m1", **more: Any) -> Journal:
    """A journal on the disk."""
    values: dict[str, Any] = {
        "id": name,
        "state": move.PLANNED,
        "nonce_hash": "0" * 64,
        "request": Request.parse(REQUEST),
        "deadline": journals.boottime() + 60,
        "boot_id": journals.boot_id(),
        **more,
    }
    with journals.turn():
        return Journal.create(Journal(**values))


def test_what_was_written_is_read_back() -> None:
    written = made(holder={"host": "c1"}, connection=("10.0.0.2", "4000", "10.0.0.11", "22"), values={"l3": {"a": 1}})
    assert Journal.load("m1") == written
    assert written.open and written.this_boot and 59 < written.left <= 60


def test_a_state_is_left_only_from_where_the_change_says() -> None:
    first = made().advance(move.ARMED, (move.PLANNED,))
    assert first.state == move.ARMED
    with pytest.raises(Lost) as lost:
        first.advance(move.COMMITTING, (move.APPLIED,))
    assert lost.value.journal.state == move.ARMED
    assert [entry["point"] for entry in Journal.load("m1").log] == [move.PLANNED, move.ARMED]


def test_a_change_is_made_to_what_is_on_the_disk() -> None:
    old = made()
    old.note(worker={"pid": 1, "started": 2}, values={"more": 1})
    now = old.advance(move.ROLLING_BACK, (move.PLANNED,), reason="the gateway is silent")
    assert (now.worker, now.values) == ({"pid": 1, "started": 2}, {"more": 1})
    assert now.log[-1]["reason"] == "the gateway is silent"


def test_the_deadline_is_extended_in_turn() -> None:
    extended = made().note(deadline=journals.boottime() + 300)
    assert Journal.load("m1").left > 299 and extended.state == move.PLANNED


def _advance(folder: str, to: str, go: Any, out: Any) -> None:
    journals.UPLINK, journals.UPLINK_LOCK = folder, f"{folder}/lock"
    mine = Journal.load("m1")
    go.wait()
    try:
        out.put(mine.advance(to, (move.APPLIED,)).state)
    except Lost:
        out.put("lost")


def test_of_two_processes_exactly_one_wins(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    for _round in range(20):
        made(state=move.PLANNED).advance(move.APPLIED, (move.PLANNED,))
        go, out = context.Event(), context.Queue()
        words = [(str(tmp_path / "uplink"), to, go, out) for to in (move.COMMITTING, move.ROLLING_BACK)]
        both = [context.Process(target=_advance, args=args) for args in words]
        for process in both:
            process.start()
        go.set()
        ends = sorted(out.get(timeout=10) for _process in both)
        for process in both:
            process.join(10)
        assert ends in (["committing", "lost"], ["lost", "rolling_back"])
        assert Journal.load("m1").state in ends


def test_every_moment_shows_a_whole_journal(tmp_path: Path) -> None:
    """What a reader without the lock sees while another process writes."""
    made()
    context = multiprocessing.get_context("fork")

    def write() -> None:
        for number in range(100):
            Journal.load("m1").note(reason=f"{number} " * 500)

    writer = context.Process(target=write)
    writer.start()
    while writer.is_alive():
        assert Journal.load("m1").id == "m1"
    writer.join()
    assert writer.exitcode == 0
    assert [name for name in os.listdir(tmp_path / "uplink" / "m1") if name.startswith(".")] == []


def test_an_id_cannot_lead_elsewhere() -> None:
    for name in ("../x", "", "a/b", "bridges", "lock", "-x", "x" * 65):
        with pytest.raises(UnknownMove):
            Journal.load(name)
        with pytest.raises(DecodeError):
            made(name)


def test_a_newer_or_broken_journal_is_not_guessed(tmp_path: Path) -> None:
    made()
    path = tmp_path / "uplink" / "m1" / "journal.json"
    table = json.loads(path.read_text())
    broken: list[Callable[[], str]] = [
        lambda: json.dumps({**table, "schema": 2}),
        lambda: json.dumps({**table, "state": "flying"}),
        lambda: path.read_text()[:100],
        lambda: "[]",
    ]
    for text in broken:
        path.write_text(text())
        with pytest.raises(DecodeError):
            Journal.load("m1")
        assert journals.open_moves() == []


def test_old_journals_go_and_open_ones_stay() -> None:
    for number in range(journals.KEPT + 5):
        made(f"m{number}").advance(move.ROLLED_BACK, (move.PLANNED,))
    made("open")
    with journals.turn():
        journals.prune()
    left = [journal.id for journal in journals.all_moves()]
    assert len(left) == journals.KEPT + 1 and "open" in left
    assert [journal.id for journal in journals.open_moves()] == ["open"]


def test_a_folder_without_a_journal_is_cleared_away(tmp_path: Path) -> None:
    made()
    (tmp_path / "uplink" / "half").mkdir()
    with journals.turn():
        journals.prune()
    assert not (tmp_path / "uplink" / "half").exists()


def test_files_keep_each_byte(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "interfaces"
    data = b"caf\xe9\r\nno newline at the end \xff"
    files.write_bytes(str(path), data, 0o600)
    text = files.read_exact(str(path))
    assert text is not None and files.mode_of(str(path)) == 0o600
    files.write_text(str(path), json.loads(json.dumps(text)))
    assert path.read_bytes() == data
    files.remove(str(path))
    files.remove(str(path))
    assert files.read_exact(str(path)) is None and files.mode_of(str(path)) is None


def test_a_request_says_which_device_gives_and_which_takes() -> None:
    request = Request.parse(REQUEST)
    assert (request.source, request.target) == ("eth0", "br-x")
    assert (request.turned().source, request.turned().target) == ("br-x", "eth0")
    assert Request.parse(request.to_dict()) == request


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"direction": "up"}, "request.direction"),
        ({"timeout": 9}, "request.timeout"),
        ({"timeout": 601}, "request.timeout"),
        ({"timeout": True}, "request.timeout"),
        ({"probes": ["nonsense"]}, "request.probes[0]"),
        ({"probes": ["tcp://x:99999"]}, "request.probes[0]"),
        ({"probes": "10.0.0.1"}, "request.probes"),
        ({"nic": "br-x"}, "request.nic"),
        ({"ovsdb": "tcp:10.0.0.1:6640"}, "request.ovsdb"),
        ({"confirm": "maybe"}, "request.confirm"),
        ({"manager": "wicked"}, "request.manager"),
        ({"schema": 2}, "request.schema"),
        ({"colour": "red"}, "request.colour"),
    ],
)
def test_a_bad_request_is_refused_by_its_path(change: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Request.parse({**REQUEST, **change})
    assert refused.value.path == path


def test_probes() -> None:
    told = ("10.0.0.1", "fd00::1", "tcp://api.example:6443", "tcp://[fd00::1]:22")
    wanted = (Probe("10.0.0.1"), Probe("fd00::1"), Probe("api.example", 6443), Probe("fd00::1", 22))
    assert move.parse_probes(told) == wanted
