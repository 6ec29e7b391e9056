# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What serves a call, as far as it goes without a node: delegates, turns, the node's file, what DEL forgives."""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach import leased, owed, turns, wish
from ansible_collections.podnet.ovs.plugins.module_utils.attach.call import Means
from ansible_collections.podnet.ovs.plugins.module_utils.attach.delegate import Delegate, find_plugin
from ansible_collections.podnet.ovs.plugins.module_utils.attach.serve import serve
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import parse_netconf
from ansible_collections.podnet.ovs.plugins.module_utils.cni.reply import DelegateError, Reported
from ansible_collections.podnet.ovs.plugins.module_utils.errors import DeadlineExceeded, PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.fastpath import open_switch

SCALAR = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text())
JSON = st.recursive(SCALAR, lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(), item, max_size=3))
KEYS = st.sampled_from(["cniVersion", "name", "type", "ipam", "dns", "args", "runtimeConfig", "prevResult", "vlan"])


@given(st.dictionaries(KEYS, JSON))
def test_del_forgives_any_value(raw: dict[str, Any]) -> None:
    conf = parse_netconf(raw, b"", forgiving=True)
    assert isinstance(conf.ipam_type, str)


@given(st.dictionaries(KEYS, JSON))
def test_a_strict_configuration_is_taken_or_named(raw: dict[str, Any]) -> None:
    try:
        parse_netconf(raw, b"")
    except PodnetError as error:
        assert error.code in (1, 7) and any(key in error.message for key in ("cniVersion", "name", *raw))


@given(st.binary(max_size=200), st.dictionaries(st.sampled_from(["CNI_IFNAME", "CNI_ARGS", "CNI_PATH"]), st.text()))
def test_whatever_comes_an_error_is_the_specifications_json(stdin: bytes, env: dict[str, str]) -> None:
    means = Means(lambda *_args: None, open_switch)
    served = serve("podnet-ovs", {"CNI_COMMAND": "ADD", **env}, stdin, None, means)
    document = json.loads(served.reply.stdout)
    assert (
        served.reply.code == 1
        and served.code == document["code"]
        and set(document) >= {"cniVersion", "code", "msg"}
        and document["code"] != 999
    )


# Delegates


def plugin(folder: Path, text: str, name: str = "odd") -> str:
    """A plugin that is a shell script; gives its path."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def soon() -> float:
    """A deadline that a quick plugin keeps."""
    return time.monotonic() + 10


def test_a_plugin_gets_verb_environment_and_standard_input(tmp_path: Path) -> None:
    script = plugin(tmp_path, """printf '{"verb": "%s", "id": "%s", "secret": "%s", "in": %s}' """
                    '"$CNI_COMMAND" "$CNI_CONTAINERID" "$SECRET" "$(cat)"')  # fmt: skip
    env = {"CNI_CONTAINERID": "c1", "SECRET": "x", "PATH": os.environ["PATH"]}
    document = Delegate(script, "ADD", env, b'{"a": 1}').result(soon())
    assert document == {"verb": "ADD", "id": "c1", "secret": "", "in": {"a": 1}}


def test_a_plugin_that_reads_nothing_and_one_that_is_silent(tmp_path: Path) -> None:
    assert Delegate(plugin(tmp_path, "exit 0"), "DEL", {}, b"x" * 1_000_000).result(soon()) is None


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        ("""echo '{"code": 7, "msg": "no range"}'; exit 1""", 7, "no range"),
        ("echo broken >&2; exit 2", 999, "broken"),
        ("""echo '{"code": "x"}'; exit 1""", 999, "status 1"),
        ("""echo '{"code": true}'; exit 1""", 999, "status 1"),
        ("""echo '{"code": 0}'; exit 1""", 999, "status 1"),
        ("""echo '{"code": -7}'; exit 1""", 999, "status 1"),
        ("""echo '{"code": 1099511627776}'; exit 1""", 999, "status 1"),
        ("kill -TERM $$", 999, "signal 15"),
        ("echo '[1]'", 999, "no JSON"),
        ("exec cat /dev/zero", 999, "stop talking"),
    ],
)
def test_a_plugins_failure_is_told(tmp_path: Path, text: str, code: int, word: str) -> None:
    with pytest.raises(DelegateError, match=word) as caught:
        Delegate(plugin(tmp_path, text), "ADD", {"PATH": os.environ["PATH"]}, b"{}").result(soon())
    assert caught.value.code == code
    assert isinstance(caught.value, Reported) == (code == 7)


def _content(path: Path) -> bytes:
    with contextlib.suppress(OSError):
        return path.read_bytes()
    return b""


def test_a_plugin_is_ended_at_its_deadline_with_all_that_it_started(tmp_path: Path) -> None:
    script = plugin(tmp_path, f"sleep 1000 & echo $! > {tmp_path}/pid; wait")
    began = time.monotonic()
    with pytest.raises(DeadlineExceeded, match="odd did not end its ADD") as caught:
        Delegate(script, "ADD", {"PATH": os.environ["PATH"]}, b"").result(time.monotonic() + 0.5)
    assert caught.value.code == 11 and time.monotonic() - began < 3
    pid = (tmp_path / "pid").read_text(encoding="ascii").strip()
    path, end = Path(f"/proc/{pid}/cmdline"), time.monotonic() + 5
    while _content(path):  # it was killed, but by the kernel's own time
        assert time.monotonic() < end
        time.sleep(0.01)


def test_the_first_folder_that_has_it(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "a" / "odd").mkdir()
    (tmp_path / "b" / "odd").write_text("not to be run", encoding="utf-8")
    script = plugin(tmp_path / "c", "exit 0")
    assert find_plugin("odd", [str(tmp_path / name) for name in ("a", "b", "none", "c")]) == script
    assert find_plugin("odd", []) is None


# Turns, debts, the node's file


def test_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FOLDER", str(tmp_path / "turns"))
    with turns.turn("c1", "eth0", 1):
        with turns.turn("c2", "eth0", 0), pytest.raises(PodnetError) as caught, turns.turn("c1", "eth0", 0.05):
            pass
        assert caught.value.code == 11
    with turns.turn("c1", "eth0", 5):  # the one that gave up may get it for a moment
        pass


def test_a_delegate_holds_the_turn_as_long_as_it_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "FOLDER", str(tmp_path / "turns"))
    with turns.turn("c1", "eth0", 1) as (fd, waited):
        assert not waited
        running = Delegate(plugin(tmp_path, "sleep 0.5"), "ADD", {"PATH": os.environ["PATH"]}, b"", fd)
    with pytest.raises(PodnetError), turns.turn("c1", "eth0", 0.05):
        pass
    running.result(soon())
    with turns.turn("c1", "eth0", 1):
        pass


def test_debts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owed, "FOLDER", str(tmp_path / "owed"))
    owed.forget("pn0")
    owed.remember("pn0")
    owed.remember("pn0")
    assert owed.is_owed("pn0") and not owed.is_owed("pn1")
    owed.forget("pn0")
    assert not owed.is_owed("pn0")


def test_what_is_leased_by_further_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leased, "FOLDER", str(tmp_path / "leased"))
    assert not list(leased.all_leased())
    first, second = (leased.Leased("c1", "eth0", "net", (f"eth0.{number}",)) for number in (3, 4))
    for item in (first, second, leased.Leased("c2", "eth0", "net", ())):
        leased.remember(item)
    assert sorted(leased.all_leased(), key=lambda item: list(item.names)) == [first, second]
    Path(first.path).write_text("{", encoding="utf-8")
    assert list(leased.all_leased()) == [second], "a torn one is passed over"
    for item in (first, first, second):
        leased.forget(item)
    assert not list((tmp_path / "leased").iterdir())


def test_the_nodes_file_is_read_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "node.json"
    monkeypatch.setattr(wish, "NODE_JSON", str(path))
    monkeypatch.setattr(wish, "_known", None)
    with pytest.raises(PodnetError) as caught:
        wish.load_node()
    assert caught.value.code == 50
    for name in ("br-a", "br-b", "br-longer"):
        new = tmp_path / "new"
        new.write_text(json.dumps({"schema": 1, "bridges": [{"name": name}]}), encoding="utf-8")
        new.replace(path)
        first, second = wish.load_node(), wish.load_node()
        assert first is second and first.bridges[0].name == name
