# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a pod may ask of `podnet-ovs`: its own form and those of peers, capabilities, bad input, policy."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from ansible_collections.podnet.ovs.plugins.module_utils.attach.wish import KEYS, Wish, parse_wish, refuse_closed
from ansible_collections.podnet.ovs.plugins.module_utils.cni.config import MAX_BYTES, decode, parse_netconf
from ansible_collections.podnet.ovs.plugins.module_utils.cni.request import parse_request
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError, PolicyError
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Node
from ansible_collections.podnet.ovs.plugins.module_utils.model.port import Bandwidth, PortVlans, parse_port
from ansible_collections.podnet.ovs.tests.unit.strategies import any_of

LIMITS = {"ingressRate": 1_000_000, "ingressBurst": 80_000, "egressRate": 2_000_000, "egressBurst": 90_000}
IPAM = {"type": "host-local"}
ALL = {"bridge": "br-pod", "vlans": "1-4094", "untagged": True, "namespaces": ["admin"]}


def node_of(**keys: Any) -> Node:
    """A node with a bridge of each datapath, VLAN 100 open to all and everything to `admin`."""
    bridges = [{"name": "br-pod", "mtu": 9000, "vlan_limit": 2}, {"name": "br-user", "datapath_type": "netdev"}]
    networks = [{"name": "a", "bridge": "br-pod", "vlan": 100}]
    return Node.parse({"bridges": bridges, "networks": networks, "policy": [ALL], **keys})


NODE = node_of()


def wish_of(
    keys: dict[str, Any], cni_args: str = "", node: Node = NODE, kind: str = "podnet-ovs", strict: bool = True
) -> Wish:
    """What the plugin reads, from the bytes of a call on."""
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "a", "type": kind, **keys}).encode()
    env = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": "/p"}
    conf, request = parse_netconf(decode(stdin), stdin), parse_request({**env, "CNI_ARGS": cni_args})
    return parse_wish(conf, request, node, strict)


def fails(keys: dict[str, Any], **more: Any) -> PodnetError:
    """The error of a configuration."""
    with pytest.raises(PodnetError) as caught:
        wish_of(keys, **more)
    assert caught.value.hint, caught.value
    return caught.value


# The own form


def test_all_that_a_pod_can_ask() -> None:
    keys = {
        "bridge": "br-pod", "vlan": 7, "trunk": "10,20-21", "vlan_mode": "native-untagged", "mtu": 1400,
        "mac": "02-00-5E-10-00-01", "ofport_request": 65279, "spoof_check": True, "port_isolation": True,
        "bandwidth": LIMITS, "example.org/key": 1, "cni.dev/x": 2,
    }  # fmt: skip
    assert wish_of(keys) == Wish(
        bridge="br-pod",
        vlans=PortVlans("native-untagged", 7, (10, 20, 21)),
        mtu=1400,
        mac="02:00:5e:10:00:01",
        userspace=False,
        bandwidth=Bandwidth(1_000_000, 80_000, 2_000_000, 90_000),
        spoof_check=True,
        isolated=True,
        ofport_request=65279,
        vlan_limit=2,
    )


def test_what_silence_means() -> None:
    wish = wish_of({"vlan": 100})
    assert wish == Wish("br-pod", PortVlans("access", 100), 9000, None, False, vlan_limit=2)
    user = wish_of({"vlan": 100, "bridge": "br-user", "mtu": 0})
    assert user.userspace and user.mtu == 1500
    assert wish_of({"vlan": 100, "bridge": "elsewhere"}).bridge == "elsewhere"


@pytest.mark.parametrize(
    ("keys", "path", "code"),
    [
        ({}, "vlan", 7),
        ({"vlan": 1e3}, "vlan", 7),
        ({"vlan": 100.0}, "vlan", 7),
        ({"vlan": None, "trunk": None}, "vlan", 7),
        ({"trunk": "everything"}, "trunk", 7),
        ({"trunk": [{"minID": 0, "maxID": 4094}]}, "trunk[0].minID", 7),
        ({"vlna": 100}, "vlna", 2),
        ({"vlan": 100, "Vlan": 100}, "Vlan", 2),
        ({"vlan": 100, "isGateway": True}, "isGateway", 2),
        *[({"vlan": 100, "mtu": bad}, "mtu", 7) for bad in any_of(True, "1500", 67, 65536, 1500.0, [], -1)],
        *[({"vlan": 100, "mac": bad}, "mac", 7) for bad in any_of("01:00:5e:00:00:01", 5, "0:0", [], {"a": 1}, False)],
        *[
            ({"vlan": 100, "bridge": bad}, "bridge", 7)
            for bad in any_of("", "a" * 16, "br\n", "..", 5, [], True, "br/x")
        ],
        *[
            ({"vlan": 100, "ofport_request": bad}, "ofport_request", 7)
            for bad in any_of(0, 65280, -1, True, "1", 1.0, [])
        ],
        *[({"vlan": 100, "spoof_check": bad}, "spoof_check", 7) for bad in any_of(1, "yes", [], 0)],
        *[({"vlan": 100, "port_isolation": bad}, "port_isolation", 7) for bad in any_of(1, "yes", {}, 0.0)],
        ({"vlan": 100, "bandwidth": {"ingressRate": 1e6, "ingressBurst": 5}}, "bandwidth.ingressRate", 7),
        ({"vlan": 100, "bandwidth": {"rate": 5}}, "bandwidth.rate", 2),
        ({"vlan": 100, "bandwidth": LIMITS, "bridge": "br-user"}, "bandwidth.egressRate", 7),
        ({"vlan": 100, "capabilities": ["mac"]}, "capabilities", 7),
        ({"vlan": 100, "args": {"cni": {"mac": "x"}}}, "args.cni.mac", 7),
        ({"vlan": 100, "args": {"cni": {"ovnPort": "x"}}}, "args.cni.ovnPort", 2),
    ],
)
def test_a_bad_value_is_named(keys: dict[str, Any], path: str, code: int) -> None:
    error = fails(keys)
    assert isinstance(error, ConfigError) and (error.path, error.code) == (path, code)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 70000) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5) | st.sampled_from(["vlan", "unix:/x", "trunk", "id", "br-pod"]),
    lambda item: st.lists(item, max_size=3) | st.dictionaries(st.text(max_size=4), item, max_size=3),
)  # fmt: skip
PEERS_KEYS = ("socket_file", "configuration_path", "interface_type", "deviceID", "link_state_check_retries")


@given(
    st.dictionaries(st.sampled_from([*KEYS, *PEERS_KEYS, "networkType", "args", "runtimeConfig", "x"]), JSON),
    st.sampled_from(["podnet-ovs", "ovs", "antrea"]),
    st.booleans(),
)
def test_whatever_comes_is_a_wish_or_an_error_that_names_a_key(keys: dict[str, Any], kind: str, strict: bool) -> None:
    try:
        wish = wish_of(keys, kind=kind, strict=strict)
    except PodnetError as error:
        key = error.message.split(":")[0].split("[")[0].split(".")[0]
        assert error.code in (2, 7) and key in {"vlan", "trunk", "vlan_mode", "networkType", *keys}
        return
    assert wish.vlans.vlans or wish.vlans.untagged


# Capabilities


def test_the_runtimes_requests_count_most() -> None:
    asked = {"mac": "02:00:00:00:00:02", "ips": ["10.0.0.5/24"], "bandwidth": {"ingressRate": 8, "ingressBurst": 8}}
    keys = {"vlan": 100, "mac": "02:00:00:00:00:01", "bandwidth": LIMITS, "ipam": IPAM, "runtimeConfig": asked}
    for declared in ({}, {"capabilities": {"mac": True, "ips": True, "bandwidth": True}}):
        wish = wish_of({**keys, **declared})
        assert wish.mac == "02:00:00:00:00:02" and wish.bandwidth == Bandwidth(8, 8)


def test_requests_for_nothing_ask_nothing() -> None:
    nothing: dict[str, Any] = {
        "portMappings": [],
        "mac": "",
        "ips": None,
        "bandwidth": {},
        "CNIDeviceInfoFile": "/x",
        "a.org/b": 1,
    }
    wish = wish_of({"vlan": 100, "runtimeConfig": nothing, "bandwidth": dict.fromkeys(LIMITS, 0)})
    assert wish.mac is None and wish.bandwidth is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("portMappings", [{"hostPort": 80}]),
        ("infinibandGUID", "c2:11:22:33:44:55:66:77"),
        ("aliases", {"a": ["b"]}),
        ("dns", {"servers": ["10.0.0.53"]}),
        ("cgroupPath", "/x"),
        ("deviceID", "0000:00:00.1"),
    ],
)
def test_multus_180_requests_that_nobody_can_serve_are_errors(key: str, value: Any) -> None:
    error = fails({"vlan": 100, "runtimeConfig": {key: value}})
    assert error.code == 7 and error.message == f"runtimeConfig.{key}: podnet-ovs cannot do that"
    assert wish_of({"vlan": 100, "runtimeConfig": {key: value}, "what": "ever"}, strict=False).vlans.tag == 100


@pytest.mark.parametrize("key", ["mac", "ips", "ipRanges", "bandwidth"])
@pytest.mark.parametrize("declared", [{}, {"portMappings": True}, {"KEY": False}, {"KEY": "true"}])
def test_multus_266_undeclared_requests_are_errors(key: str, declared: dict[str, Any]) -> None:
    value = {"mac": "02:00:00:00:00:02", "bandwidth": LIMITS}.get(key, ["10.0.0.5"])
    capabilities = {key if name == "KEY" else name: value for name, value in declared.items()}
    error = fails({"vlan": 100, "ipam": IPAM, "runtimeConfig": {key: value}, "capabilities": capabilities})
    assert error.code == 7 and error.message.startswith(f"runtimeConfig.{key}:") and key in error.hint


def test_addresses_are_asked_of_an_ipam_plugin() -> None:
    for key in ("ips", "ipRanges"):
        error = fails({"vlan": 100, "runtimeConfig": {key: ["10.0.0.5"]}})
        assert error.message.startswith(f"runtimeConfig.{key}:") and "ipam" in error.hint


def test_what_a_pod_sends_is_not_limited_in_userspace() -> None:
    error = fails({"vlan": 100, "bridge": "br-user", "runtimeConfig": {"bandwidth": LIMITS}})
    assert error.message.startswith("runtimeConfig.bandwidth.egressRate:") and "userspace" in error.message
    towards = {key: value for key, value in LIMITS.items() if key.startswith("ingress")}
    assert wish_of({"vlan": 100, "bridge": "br-user", "bandwidth": towards}).bandwidth == Bandwidth(1_000_000, 80_000)


# MAC addresses of peers


@pytest.mark.parametrize("key", ["mac", "MAC", "Mac"])
@pytest.mark.parametrize("kind", ["podnet-ovs", "ovs"])
def test_a_mac_in_arguments_is_taken_in_any_case(key: str, kind: str) -> None:
    mac = "02:00:00:00:00:05"
    assert wish_of({"vlan": 100, "args": {"cni": {key: mac}}}, kind=kind).mac == mac
    assert wish_of({"vlan": 100}, cni_args=f"{key}={mac}", kind=kind).mac == mac
    both = wish_of({"vlan": 100, "args": {"cni": {key: mac}}}, cni_args="MAC=02:00:00:00:00:06", kind=kind)
    assert both.mac == mac
    bad = fails({"vlan": 100}, cni_args=f"{key}=01:00:00:00:00:05", kind=kind)
    assert bad.code == 7 and "CNI_ARGS MAC" in bad.message and "multicast" in bad.message


def test_ports_of_ovn_are_refused() -> None:
    for key in ("OvnPort", "ovnPort"):
        error = fails({"vlan": 100}, cni_args=f"{key}=x", kind="ovs")
        assert (error.code, error.message.split(":")[0]) == (2, "CNI_ARGS OvnPort")


# The form of ovs-cni


@pytest.mark.parametrize(
    ("keys", "vlans"),
    [
        ({"bridge": "br-pod", "vlan": 100}, PortVlans("access", 100)),
        ({"bridge": "br-pod", "vlan": 0}, PortVlans("access", 0)),
        ({"bridge": "br-pod"}, PortVlans("trunk")),
        ({"bridge": "br-pod", "vlan": None}, PortVlans("trunk")),
        ({"trunk": [{"id": 42}, {"minID": 1000, "maxID": 1001}]}, PortVlans("trunk", None, (42, 1000, 1001))),
        ({"trunk": [{"minID": 5, "maxID": 6}, {"id": 6}, {"id": 0}]}, PortVlans("trunk", None, (0, 5, 6))),
        ({"trunk": [{"id": 0}]}, PortVlans("access", 0)),
        ({"untagged": True}, PortVlans("access", 0)),
        ({"vlan": 5, "trunk": [{"id": 6}], "vlan_mode": "native-tagged"}, PortVlans("native-tagged", 5, (6,))),
        ({"vlan": 5, "link_state_check_retries": 5, "link_state_check_interval": 600}, PortVlans("access", 5)),
        ({"vlan": 5, "interface_type": "system", "deviceID": ""}, PortVlans("access", 5)),
    ],
)
def test_a_configuration_of_ovs_cni(keys: dict[str, Any], vlans: PortVlans) -> None:
    assert wish_of(keys, kind="ovs").vlans == vlans
    assert wish_of({**keys, "socket_file": ""}).vlans == vlans, "one of its keys makes it its form"


@pytest.mark.parametrize(
    ("keys", "key", "code", "words"),
    [
        ({"vlan": 5, "trunk": [{"id": 6}]}, "vlan_mode", 7, "native-untagged"),
        ({"vlan": 0, "trunk": [{"id": 6}]}, "vlan", 7, '"untagged": true'),
        ({"vlan": 5, "trunk": [{"id": 0}]}, "vlan", 7, "both"),
        ({"trunk": []}, "trunk", 7, "empty"),
        ({"trunk": [{"minID": 7, "maxID": 5}]}, "trunk[0]", 7, "backwards"),
        ({"trunk": [{"id": False}]}, "trunk[0].id", 7, "whole number"),
        ({"trunk": [{"id": 0.0}]}, "trunk[0].id", 7, "whole number"),
        ({"trunk": [{"id": 4095}]}, "trunk[0].id", 7, "out of range"),
        ({"vlan": 4095}, "vlan", 7, "out of range"),
        ({"vlan": False}, "vlan", 7, "whole number"),
        ({"vlan": 0.0}, "vlan", 7, "whole number"),
        ({"vlan": 5, "deviceID": "0000:05:00.3"}, "deviceID", 2, "virtual functions"),
        ({"vlan": 5, "interface_type": "dpdk"}, "interface_type", 2, "veth"),
        ({"vlan": 5, "socket_fil": "x"}, "socket_fil", 2, "socket_file"),
    ],
)
def test_what_ovs_cni_lets_pass_and_cannot_be(keys: dict[str, Any], key: str, code: int, words: str) -> None:
    error = fails(keys, kind="ovs")
    assert (error.message.split(":")[0], error.code) == (key, code) and words in str(error)


@pytest.mark.parametrize(
    "endpoint",
    [
        "unix:/run/openvswitch/db.sock", "unix:/var/run/openvswitch/db.sock", "/var/run/openvswitch/db.sock",
        "/run/openvswitch/db.sock",
    ],
)  # fmt: skip
def test_the_nodes_own_database_may_be_named(endpoint: str) -> None:
    assert wish_of({"vlan": 100, "socket_file": endpoint}).vlans.tag == 100


@pytest.mark.parametrize(
    "endpoint",
    [
        "tcp:127.0.0.1:6640", "ssl:10.0.0.1:6640", "unix:/run/openvswitch/../x.sock", "unix:/tmp/x", "ptcp:6640", "x",
        "unix:/run/openvswitch/db.sock,tcp:10.0.0.1:6640", 5, True, ["unix:/run/openvswitch/db.sock"], {"a": 1},
    ],
)  # fmt: skip
def test_another_database_is_refused(endpoint: Any) -> None:
    error = fails({"vlan": 100, "socket_file": endpoint})
    assert isinstance(error, PolicyError) and error.code == 7
    assert error.message.startswith(f"socket_file: {endpoint!r} ") and NODE.ovsdb in error.hint


# Files of ovs-cni's form


def test_a_file_that_the_node_allows_lies_under_the_configuration(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"type": "ovs", "bridge": "br-user", "vlan": 5, "mac": "02:00:00:00:00:09"}))
    node = node_of(configuration_paths=[str(path)])
    wish = wish_of({"configuration_path": str(path), "vlan": 6}, node=node)
    assert (wish.bridge, wish.vlans.tag, wish.mac) == ("br-user", 6, "02:00:00:00:00:09")
    assert wish_of({"configuration_path": "", "vlan": 6}).bridge == "br-pod"


@pytest.mark.parametrize("path", ["/etc/passwd", "/var/tmp/../tmp/pods.json", "pods.json", 5, True, ["/x"], {"a": 1}])
def test_a_file_that_the_node_does_not_allow_is_not_opened(path: Any) -> None:
    error = fails({"configuration_path": path, "vlan": 6}, node=node_of(configuration_paths=["/tmp/pods.json"]))
    assert isinstance(error, PolicyError) and error.code == 7 and "/tmp/pods.json" in error.hint
    assert error.message.startswith(f"configuration_path: {path!r} ")


def _link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda path: None, "No such file"),
        (_link, "it is a link"),
        (os.mkdir, "regular file|directory"),
        (os.mkfifo, "regular file"),
        (lambda path: path.write_bytes(b"{" + b" " * 70_000 + b"}"), "more than"),
        (lambda path: path.write_bytes(b'{"vlan": 1, "vlan": 2}'), "twice"),
        (lambda path: path.write_bytes(b"[1]"), "list"),
        (lambda path: path.write_bytes(b'{"ipam": {}}'), "has the key ipam"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_at_once(tmp_path: Path, make: Any, words: str) -> None:
    path = tmp_path / "pods.json"
    make(path)
    keys = {"configuration_path": str(path), "vlan": 6}
    began = time.monotonic()
    with pytest.raises(ConfigError, match=words) as caught:
        wish_of(keys, node=node_of(configuration_paths=[str(path)]))
    assert caught.value.path == "configuration_path" and str(path) in str(caught.value)
    assert time.monotonic() - began < 1


def test_a_file_cannot_name_another_database(tmp_path: Path) -> None:
    path = tmp_path / "pods.json"
    path.write_text(json.dumps({"socket_file": "tcp:10.0.0.1:6640"}))
    error = fails({"configuration_path": str(path), "vlan": 6}, node=node_of(configuration_paths=[str(path)]))
    assert error.message.startswith("socket_file:")


# The form of Antrea


@pytest.mark.parametrize(
    ("keys", "vlans", "mtu"),
    [
        ({}, PortVlans("access", 0), 1500),
        ({"vlan": 0}, PortVlans("access", 0), 1500),
        ({"vlan": 101, "mtu": 0}, PortVlans("access", 101), 1500),
        ({"vlan": 101, "mtu": 1400, "ipam": IPAM}, PortVlans("access", 101), 1400),
    ],
)
def test_a_configuration_of_antrea(keys: dict[str, Any], vlans: PortVlans, mtu: int) -> None:
    for kind in ("antrea", "podnet-ovs"):
        wish = wish_of({"networkType": "vlan", **keys}, kind=kind)
        assert (wish.vlans, wish.mtu, wish.bridge) == (vlans, mtu, "br-pod")


@pytest.mark.parametrize(
    ("keys", "key", "code"),
    [
        ({"networkType": "sriov"}, "networkType", 2),
        ({"networkType": ["vlan"]}, "networkType", 2),
        ({"networkType": None}, "networkType", 7),
        ({"networkType": "vlan", "vlan": 4095}, "vlan", 7),
        ({"networkType": "vlan", "vlan": False}, "vlan", 7),
        ({"networkType": "vlan", "vlan": 5, "trunk": "6"}, "trunk", 2),
        ({"networkType": "vlan", "untagged": True}, "untagged", 2),
        ({"networkType": "vlan", "socket_file": ""}, "socket_file", 2),
        ({"networkType": "vlan", "mtu": False}, "mtu", 7),
        ({"networkType": "vlan", "ipam": {"type": "antrea", "ippools": ["a"]}}, "ipam.type", 7),
    ],
)
def test_what_is_refused_in_antreas_form(keys: dict[str, Any], key: str, code: int) -> None:
    error = fails(keys)
    assert (error.message.split(":")[0], error.code) == (key, code)
    assert fails({"vlan": 5}, kind="antrea").message.startswith("networkType:")


# Policy


def closed(keys: dict[str, Any], namespace: str, node: Node = NODE, kind: str = "podnet-ovs") -> str:
    """The error of the policy, or an empty text."""
    env = {"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "c1", "CNI_IFNAME": "eth0"}
    request = parse_request({**env, "CNI_ARGS": f"K8S_POD_NAMESPACE={namespace}" if namespace else ""})
    wish = wish_of(keys, cni_args=f"K8S_POD_NAMESPACE={namespace}", node=node, kind=kind)
    try:
        refuse_closed(wish, request, node)
    except PolicyError as error:
        assert error.code == 7 and "podnet_policy" in error.hint
        return error.message
    return ""


@pytest.mark.parametrize(
    ("keys", "kind", "message"),
    [
        ({"vlan": 101}, "podnet-ovs", "vlan: VLAN 101 "),
        ({"untagged": True}, "podnet-ovs", "untagged: untagged frames "),
        ({"trunk": "100-102"}, "podnet-ovs", "trunk: VLAN 101-102 "),
        ({"trunk": "100", "untagged": True}, "podnet-ovs", "untagged: untagged frames "),
        ({"trunk": "2,4,6,8,10,12,14"}, "podnet-ovs", "trunk: VLAN 2,4,6,8,10 and more "),
        ({"trunk": "1-4094"}, "podnet-ovs", "trunk: VLAN 1-99,101-4094 "),
        ({"vlan": 5, "trunk": "100", "vlan_mode": "native-tagged"}, "podnet-ovs", "vlan: VLAN 5 "),
        ({"vlan": 100, "trunk": "5", "vlan_mode": "native-untagged"}, "podnet-ovs", "trunk: VLAN 5 "),
        ({"vlan": 5, "vlan_mode": "dot1q-tunnel", "cvlans": "100"}, "podnet-ovs", "vlan: VLAN 5 "),
        ({"vlan": 100, "bridge": "br-user"}, "podnet-ovs", "vlan: VLAN 100 of bridge br-user "),
        ({"vlan": 100, "bridge": "br-none"}, "podnet-ovs", "vlan: VLAN 100 of bridge br-none "),
        ({}, "ovs", "trunk: VLAN 1-99,101-4094 "),
        ({"vlan": 0}, "ovs", "untagged: untagged frames "),
        ({"trunk": [{"id": 7}]}, "ovs", "trunk: VLAN 7 "),
        ({"networkType": "vlan"}, "antrea", "untagged: untagged frames "),
        ({"networkType": "vlan", "vlan": 9}, "antrea", "vlan: VLAN 9 "),
    ],
)
def test_what_is_not_open_is_refused_in_every_form_and_mode(keys: dict[str, Any], kind: str, message: str) -> None:
    for namespace, whom in (("shop", "pods of namespace shop"), ("", "pods without a namespace")):
        found = closed(keys, namespace, kind=kind)
        assert found.startswith(message) and found.endswith(f" is not open to {whom}")
    if keys.get("bridge") is None:
        assert not closed(keys, "admin", kind=kind), "whose rule opens everything"


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ({"vlan": 100}, "podnet-ovs"),
        ({"trunk": [100]}, "podnet-ovs"),
        ({"vlan": 100, "vlan_mode": "dot1q-tunnel"}, "podnet-ovs"),
        ({"vlan": 100, "trunk": "100", "vlan_mode": "native-untagged"}, "podnet-ovs"),
        ({"vlan": 100}, "ovs"),
        ({"networkType": "vlan", "vlan": 100}, "antrea"),
    ],
)
def test_what_is_open_is_open_in_every_form(keys: dict[str, Any], kind: str) -> None:
    assert not closed(keys, "shop", kind=kind)


def test_the_policy_demands_the_spoof_check_whatever_a_nad_says() -> None:
    node = node_of(policy=[{"bridge": "br-pod", "vlans": "10", "spoof_check": True, "namespaces": ["shop"]}])
    for keys in ({"vlan": 10}, {"trunk": "9-11", "spoof_check": False}):
        assert wish_of(keys, cni_args="K8S_POD_NAMESPACE=shop", node=node).spoof_check
        assert not wish_of(keys, cni_args="K8S_POD_NAMESPACE=other", node=node).spoof_check
    assert wish_of({}, cni_args="K8S_POD_NAMESPACE=shop", node=node, kind="ovs").spoof_check
    assert not wish_of({"vlan": 11}, cni_args="K8S_POD_NAMESPACE=shop", node=node).spoof_check


# Standard input


@pytest.mark.parametrize(
    ("stdin", "word"),
    [
        (b'{"vlan": ' + b"9" * 1_000_000 + b"}", "1000000 digits"),
        (b'{"vlan": -' + b"9" * 30 + b"}", "digits"),
        (b'{"vlan": NaN}', "NaN"),
        (b'{"vlan": -Infinity}', "Infinity"),
        (b'{"vlan": 1e400}', "1e400 is more than any number"),
        (b'{"bridge": "\\ud800"}', "half of a character"),
        (b'{"vlan": 0100}', "not JSON"),
        (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", "nested"),
        (b'{"a":' * 10_000 + b"1" + b"}" * 10_000, "nested"),
        (b"[" * MAX_BYTES, "nested"),
        (b'{"vlan": 1, "vlan": 1}', "'vlan' is there twice"),
        (b'{"a": {"b": {"c": 1, "c": 1}}}', "'c' is there twice"),
        (b"{" + b",".join(b'"k%d": 1' % (number // 2) for number in range(60_000)) + b"}", "twice"),
        (
            b"{" + b",".join(b'"k%d": 1' % number for number in (*range(60_000), 59_999)) + b"}",
            "'k59999' is there twice",
        ),
        (b'{"a": "\xed\xa0\x80"}', "UTF-8"),
        (b"\xff\xfe{\x00}\x00", "UTF-8"),
        (b" " * (MAX_BYTES + 1), "bytes"),
        (b'{"a": 1}{"b": 2}', "not JSON"),
    ],
)
def test_hostile_input_is_refused_quickly(stdin: bytes, word: str) -> None:
    began = time.process_time()
    with pytest.raises(PodnetError, match=word) as caught:
        decode(stdin)
    assert caught.value.code == 6 and time.process_time() - began < 0.5


@pytest.mark.parametrize("word", ["1e3", "100.0", "1E2", "-0.0"])
def test_a_number_with_a_fraction_or_an_exponent_is_no_vlan(word: str) -> None:
    raw = decode(b'{"cniVersion": "1.0.0", "name": "a", "type": "podnet-ovs", "vlan": %s}' % word.encode())
    with pytest.raises(ConfigError, match="vlan: a VLAN id is a whole number") as caught:
        parse_port(raw)
    assert caught.value.code == 7
