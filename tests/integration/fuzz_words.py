# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What calls of CNI plugins are made of, right and wrong. No imports but the standard library's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

IPAM = "fuzz-ipam"
NETNS = "/run/netns/p1"
FOLDER = "/run/fuzz/bin"
HANG, KILL, FLOOD = "hang", "kill", "flood"
_OVS = {"type": "podnet-ovs", "bridge": "br-pod", "vlan": 100, "ipam": {"type": IPAM}}
_BEFORE = {"interfaces": [{"name": "base0", "sandbox": NETNS}]}
BASES: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "podnet-ovs": (
        {"bridge": "br-pod", "vlan": 100},
        {"bridge": "br-pod", "vlan": 200, "mtu": 1400, "mac": "02:00:00:00:00:05"},
        {"bridge": "br-pod", "trunk": [{"id": 100}, {"minID": 200, "maxID": 200}]},
        {"bridge": "br-pod", "vlan": 100, "trunk": "200", "vlan_mode": "native-untagged", "port_isolation": True},
        {"bridge": "br-pod", "vlan": 100, "vlan_mode": "dot1q-tunnel", "cvlans": [5], "qinq_ethertype": "802.1q"},
        {"bridge": "br-pod", "vlan": 100, "link_state_check_retries": 1, "interface_type": "system"},
        {"networkType": "vlan", "vlan": 100},
    ),
    "podnet-vlan": (
        {"master": "base0", "linkInContainer": True, "vlanId": 5},
        {"vlans": [{"id": 5, "ipam": {"type": IPAM}}, {"id": 6, "name": "v6"}], "prevResult": _BEFORE, "ipam": None},
        {"vlans": [{"id": 7}, {"id": 8}], "parent": "previous", "prevResult": _BEFORE, "ipam": None},
        {"master": "eth2", "vlanId": 40},
    ),
    "podnet-adopt": ({"interface": "base0", "ipam": None}, {"prevResult": _BEFORE, "ipam": None}),
    "podnet-routed": ({"uplink": "eth2"}, {"uplink": "eth2", "onLink": True, "mtu": 1400}),
    "podnet-meta": (
        {"delegates": [_OVS], "ipam": None},
        {"delegates": [_OVS, {**_OVS, "vlan": 200, "name": "blue"}], "result": "merged", "ipam": None},
        {
            "delegates": [{"config": {"plugins": [_OVS]}}, {"config": _OVS, "interface": "x"}],
            "result": "vendor",
            "ipam": None,
        },
    ),
}
"""What a plugin's configuration may be, beside the keys of the protocol. A plugin that is not here has no own ones;
None takes a key away.
"""
ELSEWHERE = ("podnet-vlan", "podnet-adopt")
"""Plugins whose interface need not have the name that a call gives."""
HARMLESS = ("podnet-adopt",)
"""Plugins that make nothing, so that a second ADD is no matter."""
NEEDS_VLANS = ("podnet-vlan",)
"""Plugins that can do nothing in a kernel without 802.1Q."""
Words = Mapping[str, tuple[Any, ...]]
PROTOCOL: Words = {
    "ipMasq": (True,), "dns": ({"nameservers": ["10.0.0.53"]},), "capabilities": ({"mac": True}, {"ips": True}),
    "args": ({"cni": {"mac": "02:00:00:00:00:07"}}, {"cni": {"ovnPort": "x"}}),
    "runtimeConfig": ({"mac": "02:00:00:00:00:08"}, {"ips": ["10.0.0.9/24"]}, {"portMappings": [{"hostPort": 1}]}),
    "prevResult": ({"interfaces": [{"name": "lo", "sandbox": NETNS}], "ips": [{"address": "10.1.0.1/24"}]},),
    "cniVersion": ("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", "9.9.9"), "name": ("green", "../x"),
    "type": ("ovs", "antrea", "podnet-ovs"), "ipam": ({}, {"type": IPAM}, {"type": "nosuch"}),
    "cni.dev/valid-attachments": ([], [{"containerID": "c", "ifname": "eth0"}]), "cni.dev/attachments": ([],),
    "example.org/key": (1,),
}  # fmt: skip
WORDS: Mapping[str, Words] = {
    "podnet-ovs": {
        "bridge": ("br-pod", "br-none"), "vlan": (100, 200, 300, 0), "trunk": ("100-200", [{"id": 100}], []),
        "untagged": (True, False), "vlan_mode": ("access", "trunk", "native-tagged", "dot1q-tunnel"),
        "cvlans": ([5], "5-7"), "mtu": (1400, 67, 70000), "mac": ("02:00:00:00:00:06", "01:00:00:00:00:01"),
        "ofport_request": (4000, 0), "spoof_check": (True, False), "port_isolation": (True, False),
        "bandwidth": ({"egressRate": 1000000, "egressBurst": 100000}, {"ingressRate": 1}), "deviceID": ("0000:00:01",),
        "socket_file": ("/run/openvswitch/db.sock", "unix:/nonexistent"), "configuration_path": ("/etc/passwd",),
        "networkType": ("vlan", "sriov"), "subinterfaces": ([{"vlan": 5}],),
    },
    "podnet-meta": {
        "delegates": ([{"type": "podnet-ovs", "vlan": 100}], [_OVS, _OVS, _OVS], ["green"], [{**_OVS, "mtu": 9}]),
        "result": ("merged", "vendor", "x"), "confDir": ("/etc", "/etc/podnet/net.d"), "ips": (["10.0.0.2"],),
        "clusterNetwork": ("green", _OVS), "defaultNetworks": (["green"], [_OVS]), "interface": ("net1", "a/b"),
        "readinessindicatorfile": ("/etc/passwd",), "cni-args": ({"mac": "x"},), "disableCheck": (True, "true"),
        "default-route": (["10.0.0.1"], [], ["fd00::1", "10.0.0.1"]), "plugins": ([], [_OVS]), "namespace": ("x",),
    },
    "podnet-vlan": {
        "parent": ("base", "previous"), "master": ("eth0", "base0", "eth2", "lo"), "vlanId": (5, 41, 0),
        "vlans": ([{"id": 5}], [5, 6], "5-7", [{"id": 5}, {"id": 5, "name": "v5"}]), "linkInContainer": (True, False),
        "protocol": ("802.1ad", "802.1q", "x"), "mtu": (1400, 9000),
    },
    "podnet-adopt": {"interface": ("base0", "base1", "lo", "eth0"), "network": ("green", 5)},
    "podnet-routed": {
        "uplink": ("eth2", "eth1", "br-pod", "lo"), "uplinkFromIPAM": (True, False), "onLink": (True, False),
        "mtu": (1400, 68), "mac": ("02:00:00:00:00:06",),
    },
}  # fmt: skip
"""Keys that plugins of ours and of peers know, with values some of which are right."""
JUNK: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 68, 100, 255, 256, 4094, 4095, 65535, 65536, 2**31, 2**32, 2**63, 2**64, -(2**63),
    1.5, 1e3, -0.0, 1e308, "", " ", "0", "100", "x", "x" * 64, "x" * 300, "x" * 5000, "é", "\u202e", "\0", "\n",
    "\ud800", "😀", "../..", "/etc/passwd", "10.0.0.1", "10.0.0.1/24", "fd00::1/64", "0.0.0.0/0", "::/0", "default",
    "%s%n", "${x}", [], {}, [[]], [{}], {"": ""}, {"type": "x"}, [None], ["x"], list(range(300)),
)  # fmt: skip
SPOILS = (
    b"\0", b"\xff", b"\\ud800", b"\\u0000", b"NaN", b"1e999", b"-", b"0", b"9" * 30, b"{", b"[", b"}", b"]", b'"', b",",
    b":", b"\xef\xbb\xbf", b"\\", b"[" * 200, b'{"a":' * 100, b"null", b"\n", b"//", b"'",
)  # fmt: skip
ENVIRONMENT: Mapping[str, tuple[str, ...]] = {
    "CNI_COMMAND": ("", "add", "ADD ", "VERSION", "GC", "STATUS", "CHECK", "DEL", "UPDATE", "\udcff"),
    "CNI_CONTAINERID": ("", "../x", "a/b", "x" * 255, "x" * 256, "-", ".", "é", "a\nb", "\udcff", "0", "A_b.c-d"),
    "CNI_NETNS": (
        "", "/etc/passwd", "/run", "/dev/null", "/nonexistent", "relative", "/proc/self/ns/net", "/proc/self/ns/mnt",
        "/run/netns/p1/x", "/run/netns/../netns/p1", "\udcff", "x" * 5000,
    ),
    "CNI_IFNAME": (
        "", "lo", "all", "eth1", "-", "é", "0", "x" * 15, "x" * 16, "..", "eth/0", "eth:0", "eth 0", "%d", "a\nb",
        "\udcff", "default", "ovs-system", "\u202e",
    ),
    "CNI_PATH": ("", ":", "relative", "/nonexistent", f":{FOLDER}:", f"/nonexistent:{FOLDER}", f"{FOLDER}:" * 500),
    "CNI_ARGS": (
        "", "IgnoreUnknown=0;X=1", "X=1", "a", ";;;", "=", "IgnoreUnknown=1;K8S_POD_NAMESPACE=other", "MAC=zz", "IP=x",
        "K8S_POD_UID=" + "u" * 300, "K8S_POD_NAME=a\nb", "MAC=02:00:00:00:00:09", "OvnPort=x",
        "IgnoreUnknown=1;\udcff=x",
    ),
    "PATH": ("", "/nonexistent"),
    "CNI_UNKNOWN": ("x",),
}  # fmt: skip
GIVEN: Mapping[str, Any] = {
    "cniVersion": "1.0.0",
    "ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"address": "fd00::2/64", "gateway": "fd00::1"}],
    "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0", "gw": "fd00::1"}, {"dst": "10.9.0.0/16", "gw": "10.0.0.1"}],
    "dns": {"nameservers": ["10.0.0.53"]},
}
OLDEST: Mapping[str, Any] = {
    "cniVersion": "0.2.0",
    "ip4": {"ip": "10.0.0.2/24", "gateway": "10.0.0.1", "routes": [{"dst": "0.0.0.0/0"}]},
    "ip6": {"ip": "fd00::2/64"},
}
NEWER: Mapping[str, Any] = {
    "interfaces": [{"name": "eth1", "mac": "02:00:00:00:00:01", "mtu": 1500}],
    "ips": [{"address": "10.0.0.2/24", "interface": 0, "vendor": 1}],
    "routes": [{"dst": "10.9.0.0/16", "mtu": 1400, "advmss": 1300, "priority": 5, "table": 100, "scope": 253}],
}
ERROR: Mapping[str, Any] = {"cniVersion": "1.0.0", "code": 100, "msg": "no address", "details": "of 254"}
CODES: tuple[Any, ...] = (1, 2, 7, 11, 50, 100, 999, 0, -1, True, 2**40, "7", 7.5, None, [])
