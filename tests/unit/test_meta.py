# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The configuration of podnet-meta, lists of networks, and what is kept of an attachment."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach import meta_state
from ansible_collections.podnet.ovs.plugins.module_utils.attach.meta_wish import KEYS, Member, args_of, parse_plan
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import parse_netconf
from ansible_collections.podnet.ovs.plugins.module_utils.cni.netlist import NetworkList
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import Request
from ansible_collections.podnet.ovs.plugins.module_utils.cni.versions import SUPPORTED
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, DecodeError, PodnetError

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
SELECTED = (
    "name", "interface", "ips", "mac", "cni-args", "portMappings", "bandwidth", "default-route", "config", "type",
    "plugins", "namespace", "args",
)  # fmt: skip
SELECTION = st.dictionaries(
    st.sampled_from(SELECTED),
    JSON,
    max_size=4,
)
REQUEST = Request("ADD", "c1", "/run/netns/p1", "eth0")


def plan(raw: dict[str, Any], strict: bool = True) -> Any:
    conf = parse_netconf({"cniVersion": "1.0.0", "name": "multi", "type": "podnet-meta", **raw}, b"")
    return parse_plan(conf, REQUEST, strict)


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(SELECTION | JSON, max_size=3)))
def test_any_configuration_is_taken_or_named(raw: dict[str, Any]) -> None:
    try:
        found = plan(raw)
    except PodnetError as error:
        assert error.code in (1, 2, 7, 50) and error.message  # 50: this machine has no node.json
    else:
        assert found.members[0].ifname == "eth0"
        assert len({member.ifname for member in found.members}) == len(found.members)
        assert plan(raw, strict=False).members == found.members, "DEL finds what ADD has found"


@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.lists(SELECTION | JSON, max_size=3)))
def test_del_takes_of_any_configuration_what_can_be_used(raw: dict[str, Any]) -> None:
    for member in plan(raw, strict=False).members:
        assert member.network.plugins and member.ifname


def test_names_follow_from_the_place_in_the_list_though_one_cannot_be_used() -> None:
    raw = {"delegates": [{"type": "bridge"}, {"type": "no/plugin"}, {"type": "ptp"}]}
    assert [(member.ifname, member.place) for member in plan(raw, strict=False).members] == [
        ("eth0", "delegates[0]"),
        ("net2", "delegates[2]"),
    ]


@pytest.mark.parametrize("selection", [{}, {"interface": "lan0"}, {"name": "", "config": None}])
def test_a_selection_without_a_name_says_that_it_lacks_one(selection: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="no network is named") as caught:
        plan({"delegates": [{"type": "bridge"}, selection]})
    assert caught.value.path == "delegates[1].name"


@pytest.mark.parametrize("value", [7, "10.0.0.1", [7], [["10.0.0.1"]], ["everywhere"], ["10.0.0.1/99"]])
def test_addresses_that_are_asked_for_are_some(value: Any) -> None:
    network = {"name": "fixed", "type": "podnet-ovs", "capabilities": {"ips": True}}
    with pytest.raises(ConfigError, match=r"runtimeConfig\.ips"):
        plan({"delegates": [network], "runtimeConfig": {"ips": value}})
    with pytest.raises(ConfigError, match=r"delegates\[1\]\.ips"):
        plan({"delegates": [network, {"config": network, "ips": value}]})


def test_what_arguments_say_of_one_interface_is_said_of_the_first() -> None:
    first, second = plan({"delegates": [{"type": "bridge"}, {"type": "ptp"}]}).members
    args = {"K8S_POD_NAME": "p", "IP": "10.0.0.1", "MAC": "02:00:00:00:00:01", "gateway": "10.0.0.254"}
    assert args_of(first, args) == args
    assert args_of(second, args) == {"K8S_POD_NAME": "p"}


def test_arguments_for_one_network_come_to_each_of_its_plugins_beside_its_own() -> None:
    config = {"plugins": [{"type": "bridge", "args": {"cni": {"a": 1}}}, {"type": "tuning"}]}
    (member,) = plan({"delegates": [{"config": config, "cni-args": {"b": 2}}]}).members
    assert [plugin["args"] for plugin in member.network.plugins] == [{"cni": {"a": 1, "b": 2}}, {"cni": {"b": 2}}]


@pytest.mark.parametrize(
    ("value", "version"),
    [
        ({}, "1.0.0"),
        ({"cniVersion": "0.4.0"}, "0.4.0"),
        ({"cniVersion": "0.4.0", "cniVersions": ["0.3.1", "1.1.0", "7.0.0"]}, "1.1.0"),
        ({"cniVersion": "1.1.0", "cniVersions": ["0.3.1"]}, "1.1.0"),
        ({"cniVersions": ["0.3.1", "0.4.0"]}, "0.4.0"),
    ],
)
def test_the_version_of_a_list(value: dict[str, Any], version: str) -> None:
    assert NetworkList.parse({"type": "bridge", "name": "a", **value}, "x", version="1.0.0").version == version


@given(st.sampled_from(SUPPORTED), st.dictionaries(st.sampled_from(["mac", "ips", "bandwidth"]), st.just("x")))
def test_a_plugin_gets_the_values_that_it_declares(version: str, runtime: dict[str, Any]) -> None:
    plugins = [{"type": "a", "capabilities": {"mac": True, "ips": False}}, {"type": "b", "runtimeConfig": {"old": 1}}]
    network = NetworkList.parse({"cniVersion": version, "name": "n", "plugins": plugins}, "x")
    first, second = (network.conf(plugin, runtime) for plugin in network.plugins)
    assert first.get("runtimeConfig", {}) == {key: value for key, value in runtime.items() if key == "mac"}
    assert "runtimeConfig" not in second and second["name"] == "n" and second["cniVersion"] == version
    assert network.undeclared(runtime) == sorted(set(runtime) - {"mac"})
    assert NetworkList.parse(network.to_dict(), "x") == network


@pytest.mark.parametrize("value", [7, {}, {"type": "a/b"}, {"plugins": []}, {"plugins": [7]}, {"plugins": {}}])
def test_what_is_no_list(value: Any) -> None:
    with pytest.raises(ConfigError, match="here"):
        NetworkList.parse(value, "here", "name", "1.0.0")


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what is kept."""
    for name in ("META", "META_RESULTS"):
        monkeypatch.setattr(meta_state, name, str(tmp_path / name))
    return tmp_path


def attachment(*members: Member) -> meta_state.Attachment:
    return meta_state.Attachment("multi", "c1", "eth0", members, "/run/netns/p1", 7)


def keep(found: meta_state.Attachment) -> None:
    meta_state.Writing(found).wait(10)


def test_what_is_kept_comes_back(state: Path) -> None:
    selection = {"config": {"type": "ptp", "capabilities": {"mac": True}}, "mac": "02:00:00:00:00:01"}
    found = attachment(*plan({"delegates": [{"type": "bridge"}, selection]}).members)
    keep(found)
    meta_state.keep_results("c1", "eth0", [{"a": 1}, {"b": 2}])
    assert meta_state.read("c1", "eth0") == found
    assert list(meta_state.of_network("multi")) == [found] and not list(meta_state.of_network("other"))
    assert meta_state.results("c1", "eth0", 2) == [{"a": 1}, {"b": 2}]
    assert meta_state.results("c1", "eth0", 1) is None, "of another configuration"
    (file,) = (state / "META").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for _turn in range(2):
        meta_state.forget("c1", "eth0")
        assert meta_state.read("c1", "eth0") is None and meta_state.results("c1", "eth0", 2) is None


@given(st.data())
def test_a_file_that_is_cut_anywhere_counts_as_none(data: st.DataObject) -> None:
    whole = json.dumps({"schema": 1, "network": "n", "container_id": "c", "ifname": "e", "members": []})
    size = data.draw(st.integers(0, len(whole) - 1))
    path = Path(__file__).with_name(f".cut-{size}")
    path.write_text(whole[:size], encoding="utf-8")
    try:
        assert meta_state._read(str(path)) is None
    finally:
        path.unlink()


def test_the_state_of_a_newer_release_is_not_guessed(state: Path) -> None:
    keep(attachment())
    (file,) = (state / "META").iterdir()
    document = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps({**document, "schema": 2}), encoding="utf-8")
    with pytest.raises(DecodeError, match="schema 2"):
        meta_state.read("c1", "eth0")


def test_state_that_cannot_be_written_is_an_error(state: Path) -> None:
    (state / "META").write_text("a file in the folder's place", encoding="utf-8")
    with pytest.raises(PodnetError, match="META"):
        keep(attachment())
