# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The protocol: environment, configuration, errors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils import client
from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import derived_mac, host_name, parse_wish
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import (
    MAX_BYTES,
    decode,
    decode_result,
    parse_netconf,
    valid_attachments,
)
from ansible_collections.podnet.ovs.plugins.module_utils.cni.reply import DelegateError, failure, success
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import parse_request
from ansible_collections.podnet.ovs.plugins.module_utils.cni.versions import (
    NEWEST,
    SUPPORTED,
    at_least,
    knows_newest,
    parse_version,
)
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, DecodeError, PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.announce import frames
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node

ENV = {
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "c1",
    "CNI_NETNS": "/run/netns/p",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
}
NODE = Node.parse({"bridges": [{"name": "br-pod"}], "networks": [{"name": "a", "bridge": "br-pod", "vlan": 100}]})

# Environment


def test_request_is_read() -> None:
    args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;OTHER=x"
    request = parse_request({**ENV, "CNI_ARGS": args})
    assert (request.verb, request.container_id, request.ifname) == ("ADD", "c1", "eth0")
    assert request.pod_namespace == "shop"
    assert request.path == ("/opt/cni/bin", "/usr/lib/cni")


@pytest.mark.parametrize("name", ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"])
def test_a_missing_variable_is_named(name: str) -> None:
    with pytest.raises(PodnetError, match=name) as caught:
        parse_request({**ENV, name: ""})
    assert caught.value.code == 4


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("CNI_COMMAND", "RUN"),
        ("CNI_CONTAINERID", "../c1"),
        ("CNI_CONTAINERID", "c1\n"),
        ("CNI_CONTAINERID", "c" * 256),
        ("CNI_IFNAME", "\udcff"),
        ("CNI_PATH", "bin"),
        ("CNI_PATH", "::"),
        ("CNI_ARGS", "K8S_POD_NAME=a\nb"),
        ("CNI_ARGS", "K8S_POD_UID=" + "u" * 254),
        ("CNI_IFNAME", "a-name-too-long0"),
        ("CNI_IFNAME", "eth/0"),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "eth 0"),
        ("CNI_ARGS", "UNKNOWN=1"),
        ("CNI_ARGS", "no-equals"),
    ],
)
def test_a_bad_variable_is_refused(name: str, value: str) -> None:
    with pytest.raises(PodnetError, match=name) as caught:
        parse_request({**ENV, name: value})
    assert caught.value.code == 4


def test_del_needs_no_namespace_and_forgives_arguments() -> None:
    request = parse_request({**ENV, "CNI_COMMAND": "DEL", "CNI_NETNS": "", "CNI_PATH": "", "CNI_ARGS": "X=1;y"})
    assert request.verb == "DEL"


# Configuration


@pytest.mark.parametrize(
    ("stdin", "word"),
    [
        (b"", "not JSON"),
        (b"[]", "list"),
        (b'{"name": "a", "name": "b"}', "'name' is there twice"),
        (b'{"mtu": NaN}', "NaN"),
        (b'{"mtu": Infinity}', "Infinity"),
        (b'{"name": "\xff"}', "UTF-8"),
        (b'{"a":' + b"[" * 10000 + b"]" * 10000 + b"}", "nested"),
        (b'{"a": "' + b"x" * MAX_BYTES + b'"}', "bytes"),
        (b'{"a": 1', "not JSON"),
    ],
)
def test_what_is_no_configuration_is_code_6(stdin: bytes, word: str) -> None:
    with pytest.raises(DecodeError, match=word) as caught:
        decode(stdin)
    assert caught.value.code == 6


@pytest.mark.parametrize(
    "value",
    ["NaN", "[" * 63 + "]" * 63, "[" * 99999, '"\\ud800"', f'"{"x" * MAX_BYTES}"', "9" * 5000, '"\udcff"'],
    ids=["no number", "deep", "very deep", "half", "big", "number", "no UTF-8"],
)
def test_a_result_that_no_configuration_can_bring_back_is_refused(value: str) -> None:
    result = b'{"cniVersion": "1.0.0", "x": ' + value.encode("utf-8", "surrogateescape") + b"}"
    with pytest.raises(DecodeError, match="what it printed"):
        decode_result(result)
    with pytest.raises(DecodeError):
        decode(b'{"name": "a", "prevResult": ' + result + b"}")


@pytest.mark.parametrize("value", ["[" * 59 + "]" * 59, f'"{"x" * (MAX_BYTES // 2 - 50)}"', '1, "x": 2', "1e300"])
def test_a_result_that_is_taken_comes_back(value: str) -> None:
    found = decode_result(b'{"cniVersion": "1.0.0", "x": ' + value.encode() + b"}")
    assert decode(json.dumps({"name": "a", "prevResult": {"podnet.ovs/merged": found}}).encode())["name"] == "a"


@pytest.mark.parametrize(
    ("raw", "path", "code"),
    [
        ({"cniVersion": "9.9.9", "name": "a"}, "cniVersion", 1),
        ({"cniVersion": 1, "name": "a"}, "cniVersion", 1),
        ({}, "name", 7),
        ({"name": "../a"}, "name", 7),
        ({"name": "a", "ipam": []}, "ipam", 7),
        ({"name": "a", "ipam": {"type": "/bin/sh"}}, "ipam.type", 7),
        ({"name": "a", "ipam": {"subnet": "10.0.0.0/24"}}, "ipam.type", 7),
        ({"name": "a", "prevResult": []}, "prevResult", 7),
        ({"name": "a", "args": {"cni": 1}}, "args.cni", 7),
    ],
)
def test_a_bad_protocol_key_is_named(raw: dict[str, Any], path: str, code: int) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_netconf(raw, b"")
    assert (caught.value.path, caught.value.code) == (path, code)


def test_valid_attachments() -> None:
    one = {"containerID": "c", "ifname": "eth0"}
    assert valid_attachments({}) is None
    assert valid_attachments({"cni.dev/valid-attachments": []}) == frozenset()
    assert valid_attachments({"cni.dev/attachments": [one]}) == frozenset({("c", "eth0")})
    with pytest.raises(ConfigError, match=r"cni.dev/valid-attachments\[0\]"):
        valid_attachments({"cni.dev/valid-attachments": ["c"]})


def wish_of(**keys: Any) -> Any:
    raw = {"cniVersion": "1.0.0", "name": "a", "type": "podnet-ovs", **keys}
    return parse_wish(parse_netconf(raw, b""), parse_request(ENV), NODE)


@pytest.mark.parametrize(
    ("keys", "path", "code"),
    [
        ({}, "vlan", 7),
        ({"vlan": True}, "vlan", 7),
        ({"vlan": 100.0}, "vlan", 7),
        ({"vlan": 1e3}, "vlan", 7),
        ({"vlan": "0100"}, "vlan", 7),
        ({"vlan": 0}, "vlan", 7),
        ({"vlan": 4095}, "vlan", 7),
        ({"vlan": -1}, "vlan", 7),
        ({"vlan": 100, "untagged": True}, "vlan", 7),
        ({"untagged": "yes"}, "untagged", 7),
        ({"vlan": 100, "bridge": "br/pod"}, "bridge", 7),
        ({"vlan": 100, "mtu": True}, "mtu", 7),
        ({"vlan": 100, "mtu": 10}, "mtu", 7),
        ({"vlan": 100, "mac": "01:00:5e:00:00:01"}, "mac", 7),
        ({"vlan": 100, "runtimeConfig": {"mac": "x"}}, "runtimeConfig.mac", 7),
        ({"vlna": 100}, "vlna", 2),
        ({"vlan": 100, "trunk": [{"id": 1}]}, "vlan_mode", 7),
    ],
)
def test_a_bad_key_of_the_plugin_is_named(keys: dict[str, Any], path: str, code: int) -> None:
    with pytest.raises(ConfigError) as caught:
        wish_of(**keys)
    assert (caught.value.path, caught.value.code) == (path, code)
    assert caught.value.hint


def test_what_a_wish_takes() -> None:
    wish = wish_of(vlan=100, mac="02-00-5E-10-00-01", mtu=1400, **{"example.org/key": 1, "cni.dev/x": 2})
    assert (wish.bridge, wish.vlans.tag, wish.mac, wish.mtu) == ("br-pod", 100, "02:00:5e:10:00:01", 1400)
    runtime = wish_of(vlan=100, mac="02:00:00:00:00:01", runtimeConfig={"mac": "02:00:00:00:00:02"})
    assert runtime.mac == "02:00:00:00:00:02"
    assert wish_of(untagged=True).vlans.tag == 0


@given(st.text(min_size=1, max_size=80), st.text(min_size=1, max_size=15))
def test_derived_names_fit_and_addresses_are_local_unicast(container_id: str, ifname: str) -> None:
    assert len(host_name(container_id, ifname)) == 14
    assert int(derived_mac(container_id, ifname)[:2], 16) & 3 == 2


# Replies


def test_an_error_is_the_specifications_json() -> None:
    reply = failure(ConfigError("vlan", "is wrong", "write 100"), "0.4.0")
    assert reply.code == 1
    document = json.loads(reply.stdout)
    assert document == {"cniVersion": "0.4.0", "code": 7, "msg": "vlan: is wrong", "details": "write 100"}
    assert json.loads(failure(PodnetError("x"), ["not", "a", "version"]).stdout)["cniVersion"] == NEWEST
    passed_on = json.loads(failure(DelegateError("full", code=110, details="10.0.0.0/24")).stdout)
    assert (passed_on["code"], passed_on["details"]) == (110, "10.0.0.0/24")


def test_success_without_a_document_is_silent() -> None:
    assert success().stdout == b""


def test_versions() -> None:
    assert parse_version(None) == "0.2.0"
    assert at_least("1.1.0", "0.4.0") and not at_least("0.3.1", "0.4.0")


@pytest.mark.parametrize("offered", [True, None, 5, "1.1.0", {"1.1.0": 1}, ["1.0.0"], [["1.1.0"]]])
def test_what_a_plugin_says_of_its_versions_may_be_anything(offered: Any) -> None:
    assert not knows_newest({"supportedVersions": offered}) and not knows_newest(offered)
    assert knows_newest({"supportedVersions": ["1.0.0", "1.1.0"]})


# Announcements


def test_announcements_are_well_formed() -> None:
    arp, advertisement = frames("02:00:00:00:00:01", ["10.0.0.2/24", "fd00::2/64"])
    assert arp[:6] == b"\xff" * 6 and arp[12:14] == b"\x08\x06"
    assert arp[28:32] == arp[38:42] == bytes([10, 0, 0, 2])
    assert advertisement[:6] == b"\x33\x33\0\0\0\x01" and advertisement[12:14] == b"\x86\xdd"
    payload = advertisement[54:]
    pseudo = advertisement[22:54] + len(payload).to_bytes(4, "big") + b"\0\0\0\x3a"
    total = sum(int.from_bytes((pseudo + payload)[i : i + 2], "big") for i in range(0, len(pseudo + payload), 2))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    assert total == 0xFFFF, "RFC 1071: the sum over a message with its checksum is all ones"


# The client


def test_the_clients_versions_are_the_packages() -> None:
    document = json.loads(client.VERSIONS)
    assert document == {"cniVersion": NEWEST, "supportedVersions": list(SUPPORTED)}
