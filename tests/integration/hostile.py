# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Input that no runtime should send and any tenant may write: each with the word that the error must say."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

MEGABYTE = 1 << 20
ALLOWED_FILES = [
    f"/etc/podnet/files/{name}" for name in ("good", "link", "fifo", "folder", "other", "big", "ours", "gone")
]
"""Files that the node lets configurations name. Not all of them are any good."""
MAKE_FILES = r"""
mkdir -p /etc/podnet/files/folder /run/hostile
cd /etc/podnet/files
echo '{"mtu": 1400}' > good
ln -sf /etc/shadow link
[ -p fifo ] || mkfifo fifo
[ -p /run/hostile/fifo ] || mkfifo /run/hostile/fifo
echo '{"socket_file": "/run/hostile/db.sock"}' > other
echo '{"ipam": {"type": "host-local"}}' > ours
head -c 100000 /dev/zero | tr '\0' ' ' > big
echo '{"mtu": 1400}' > /run/hostile/file
ln -sf /etc/podnet/files/good /run/hostile/link
ln -sf /run/openvswitch/db.sock /run/hostile/db.link
"""


@dataclass(frozen=True)
class Case:
    """A call. `word` is in the message of its error; `paths` are what it names and nobody may touch.

    `text` replaces the configuration, `keys` change it. Of `env` a value of None takes the variable away.
    """

    word: str
    keys: Mapping[str, Any] = field(default_factory=dict)
    text: bytes | None = None
    env: Mapping[str, str | None] = field(default_factory=dict)
    paths: tuple[str, ...] = ()
    code: int = 7
    del_code: int = 0
    """The code of DEL, 0 for success: only what DEL cannot do without keeps it from that."""

    @property
    def stdin(self) -> bytes:
        if self.text is not None:
            return self.text
        return json.dumps(cni.configuration(**self.keys)).encode()


def of_text(word: str, text: bytes | str) -> Case:
    """What is no configuration."""
    return Case(word, text=text if isinstance(text, bytes) else text.encode(), code=6)


def with_value(key: str, text: str, word: str = "", code: int = 7) -> Case:
    """A configuration with a value as it is written."""
    marker = "put here"
    whole = json.dumps(cni.configuration(**{key: marker}))
    return Case(word or key, text=whole.replace(f'"{marker}"', text).encode(), code=code)


def of_env(name: str, value: str | None, *, del_code: int = 0, word: str = "") -> Case:
    """A variable."""
    return Case(word or name, env={name: value}, code=4, del_code=del_code)


def of_netns(path: str, paths: tuple[str, ...] = ()) -> Case:
    """Something that is no pod's namespace."""
    return Case("CNI_NETNS", env={"CNI_NETNS": path}, paths=paths, code=8)


def of_file(path: Any) -> Case:
    """A file that a configuration names."""
    return Case("configuration_path", {"configuration_path": path}, paths=(str(path),))


def of_socket(endpoint: Any) -> Case:
    """A database that a configuration names."""
    path = str(endpoint).partition(":")[2] or str(endpoint)
    return Case("socket_file", {"socket_file": endpoint}, paths=(path,))


def ovs(**keys: Any) -> dict[str, Any]:
    """In ovs-cni's words, which say by silence what ours do not."""
    return {"type": "ovs", **keys}


PREFIX = '{"cniVersion": "1.0.0", "name": "green", "type": "podnet-ovs", "bridge": "br-pod", "vlan": 100'
DEEP = 10_000
MANY_FOLDERS = ":".join(f"/run/hostile/{number}" for number in range(6000))

TYPES: dict[str, Case] = {
    f"vlan {text}"[:40]: with_value("vlan", text)
    for text in (
        "true", "false", "100.0", "1e3", "1E2", '"100"', '"0100"', "-0.0", "-1", "0", "4095", "4096", "99999999999999",
        "[100]", '{"id": 100}', "[]", '""', '"100\\n"',
    )
}  # fmt: skip
TYPES.update({
    f"{key} {text}"[:40]: with_value(key, text, word)
    for key, text, word in (
        ("mtu", "true", ""), ("mtu", "1e3", ""), ("mtu", '"1500"', ""), ("mtu", "67", ""), ("mtu", "65536", ""),
        ("mtu", "-1", ""), ("mtu", "[]", ""), ("bridge", "1", ""), ("bridge", "[]", ""), ("bridge", '""', ""),
        ("bridge", "{}", ""), ("untagged", "1", ""), ("untagged", '"false"', ""), ("vlan_mode", "[]", ""),
        ("vlan_mode", '"ACCESS"', ""), ("ofport_request", "0", ""), ("ofport_request", "70000", ""),
        ("ofport_request", "true", ""), ("ofport_request", "1e3", ""), ("spoof_check", '"yes"', ""),
        ("port_isolation", "0", ""), ("qinq_ethertype", '"802.1x"', ""), ("bandwidth", "[]", ""),
        ("bandwidth", '{"ingressRate": 1e9, "ingressBurst": 1}', "bandwidth.ingressRate"),
        ("bandwidth", '{"ingressRate": true, "ingressBurst": 1}', "bandwidth.ingressRate"),
        ("bandwidth", '{"ingressRate": 100}', "bandwidth.ingressBurst"),
        ("ipam", "[]", ""), ("ipam", '"host-local"', ""), ("ipam", '{"type": []}', "ipam.type"), ("ipam", "true", ""),
        ("dns", "[]", ""), ("dns", '"x"', ""), ("args", "[]", ""), ("args", '{"cni": []}', "args.cni"),
        ("args", '{"cni": {"mac": ["02:00:00:00:00:01"]}}', "args.cni.mac"), ("runtimeConfig", "[]", ""),
        ("runtimeConfig", '{"mac": 5}', "runtimeConfig.mac"), ("runtimeConfig", '{"bandwidth": 1}', "bandwidth"),
        ("runtimeConfig", '{"portMappings": [{"hostPort": 1}]}', "runtimeConfig.portMappings"),
        ("runtimeConfig", '{"infinibandGUID": "x"}', "runtimeConfig.infinibandGUID"),
        ("capabilities", '"mac"', ""), ("prevResult", "[]", ""), ("prevResult", "5", ""), ("cniVersion", "1.0", ""),
        ("cniVersion", "[]", ""), ("cniVersion", '"9.9.9"', ""), ("name", "5", ""), ("name", "null", ""),
        ("mac", "5", ""), ("mac", '"02:00:5e:10:00"', ""), ("mac", '"00:00:00:00:00:00"', ""),
        ("mac", '"01:00:5e:00:00:01"', ""), ("mac", '"ff:ff:ff:ff:ff:ff"', ""), ("mac", '"02:00:5e:10:00:01\\n"', ""),
    )
})  # fmt: skip
TYPES["cniVersion 1.0"] = with_value("cniVersion", "1.0", code=1)
TYPES["cniVersion []"] = with_value("cniVersion", "[]", code=1)
TYPES['cniVersion "9.9.9"'] = with_value("cniVersion", '"9.9.9"', code=1)

NAMES: dict[str, Case] = {
    "name with newline": with_value("name", '"green\\nblue"'),
    "name a path": with_value("name", '"../green"'),
    "name dots": with_value("name", '".."'),
    "name of a megabyte": with_value("name", '"' + "a" * 900_000 + '"'),
    "name half a character": with_value("name", '"\\ud800"', "\\ud800", 6),
    "bridge half a character": with_value("bridge", '"\\udfff"', "\\udfff", 6),
    "bridge with newline": with_value("bridge", '"br-pod\\n"'),
    "bridge dots": with_value("bridge", '".."'),
    "bridge a path": with_value("bridge", '"../br-pod"'),
    "bridge of 16 characters": with_value("bridge", '"sixteen-letters0"'),
    "bridge of a megabyte": with_value("bridge", '"' + "b" * 900_000 + '"'),
    "bridge an option": with_value("bridge", '"--help"'),
    "bridge that is none": with_value("bridge", '"nobr"'),
    "unknown key": Case("vlna", {"vlna": 100}, code=2),
    "unknown key of a megabyte": Case("v" * 500, {"v" * 900_000: 100}, code=2),
    "unknown key with newline": Case("unknown key", {"a\nb": 100}, code=2),
    "value of a megabyte": Case("colour", {"colour": "x" * 900_000}, code=2),
}

TEXTS: dict[str, Case] = {
    "nothing": of_text("JSON", ""),
    "cut off": of_text("JSON", PREFIX),
    "a list": of_text("list", "[]"),
    "a number": of_text("int", "5"),
    "null": of_text("NoneType", "null"),
    "two documents": of_text("JSON", PREFIX + "}" + PREFIX + "}"),
    "leading zero": of_text("JSON", PREFIX.replace("100", "0100") + "}"),
    "key twice": of_text("'vlan'", PREFIX + ', "vlan": 200}'),
    "key twice inside": of_text("'type'", PREFIX + ', "ipam": {"type": "host-local", "type": "static"}}'),
    "the last of many keys twice": of_text(
        "'k59999'", "{" + ",".join(f'"k{number}":1' for number in [*range(60_000), 59_999]) + "}"
    ),
    "lists, deep": of_text("nested", "[" * DEEP + "]" * DEEP),
    "maps, deep": of_text("nested", '{"a":' * DEEP + "1" + "}" * DEEP),
    "ipam, deep": of_text("nested", PREFIX + ', "ipam": ' + "[" * DEEP + "]" * DEEP + "}"),
    "never closed": of_text("nested", "[" * MEGABYTE),
    "NaN": of_text("NaN", PREFIX + ', "mtu": NaN}'),
    "Infinity": of_text("Infinity", PREFIX + ', "mtu": Infinity}'),
    "-Infinity": of_text("Infinity", PREFIX + ', "mtu": -Infinity}'),
    "more than any number": of_text("1e999", PREFIX + ', "mtu": 1e999}'),
    "more than any number, inside": of_text(
        "1e999", PREFIX + ', "prevResult": {"routes": [{"dst": "10.0.0.0/8", "mtu": 1e999}]}}'
    ),
    "many digits": of_text("digits", PREFIX + ', "mtu": ' + "9" * 900_000 + "}"),
    "not UTF-8": of_text("UTF-8", b'{"name": "\xff\xfe"}'),
    "UTF-16": of_text("UTF-8", (PREFIX + "}").encode("utf-16")),
    "a surrogate, encoded": of_text("UTF-8", b'{"name": "\xed\xa0\x80"}'),
    "a byte order mark": of_text("JSON", b"\xef\xbb\xbf" + PREFIX.encode() + b"}"),
    "a zero byte": of_text("JSON", PREFIX.encode() + b"\0}"),
    "more than a megabyte": of_text("bytes", PREFIX + ', "dns": {"domain": "' + "x" * MEGABYTE + '"}}'),
    "ten megabytes": of_text("bytes", b"x" * (10 * MEGABYTE)),
    "a megabyte of spaces": of_text("JSON", b" " * MEGABYTE),
    "a megabyte of lists": Case("name", text=('{"a": [' + "[]," * 340_000 + "[]]}").encode()),
}

TRUNKS: dict[str, Case] = {
    f"trunk {text}"[:40]: Case("trunk", text=(PREFIX.replace(', "vlan": 100', "") + f', "trunk": {text}}}').encode())
    for text in (
        '"1-4094"', '[{"minID": 1, "maxID": 4094}]', '[{"minID": 0, "maxID": 4095}]', '"0-4095"', '"100-99"', "true",
        '[{"minID": 200, "maxID": 100}]', '[{"id": 100.0}]', '[{"id": "100"}]', '[{"id": true}]', '[{"minID": 1}]',
        '[{"id": 100, "minID": 1, "maxID": 2}]', "[[[[[[100, 101]]]]]]", '"1,,2"', '"-1"', "{}", "[]", '""', '"100-"',
        '"١٠٠"', "[null]",
    )
}  # fmt: skip
TRUNKS.update({
    "trunk of a megabyte of numbers": Case(
        "trunk", text=(PREFIX.replace(', "vlan": 100', "") + ', "trunk": [' + "7," * 450_000 + "7]}").encode()
    ),
    "trunk of a megabyte of text": Case(
        "trunk", text=(PREFIX.replace(', "vlan": 100', "") + ', "trunk": "' + "7," * 450_000 + '7"}').encode()
    ),
    "everything, in ovs-cni's words": Case("trunk", ovs(vlan=None)),
    "everything and nothing, in ovs-cni's words": Case("untagged", ovs(vlan=0)),
    "a virtual function": Case("deviceID", ovs(deviceID="0000:00:00.0"), code=2),
    "tunnel in a closed VLAN": Case("vlan", {"vlan": cni.CLOSED, "vlan_mode": "dot1q-tunnel"}),
    "closed native VLAN": Case("vlan", {"vlan": cni.CLOSED, "trunk": "100", "vlan_mode": "native-untagged"}),
    "untagged": Case("untagged", {"vlan": None, "untagged": True}),
    "Antrea's silence": Case("untagged", {"vlan": None, "networkType": "vlan"}),
    "Antrea's SR-IOV": Case("networkType", {"networkType": "sriov"}, code=2),
})  # fmt: skip

PATHS: dict[str, Case] = {
    f"ipam.type {name!r}"[:40]: Case("ipam.type", {"ipam": {"type": name}}, paths=(name, f"/opt/cni/bin/{name}"))
    for name in (
        "../../../bin/sh", "/bin/sh", "./host-local", "..", ".", "host-local/../host-local", "host-local\n", "a b",
        "-c",
        "$(touch /run/hostile/made)", "podnet-ovs",
    )
}  # fmt: skip
PATHS["ipam.type ''"] = Case("ipam.type", {"ipam": {"type": ""}})
PATHS["ipam.type of nobody"] = Case("nosuch", {"ipam": {"type": "nosuch"}})
PATHS["ipam.type, long"] = Case("ipam.type", {"ipam": {"type": "n" * 900_000}})
for _path in (
    "/run/hostile/file", "/run/hostile/link", "/run/hostile/fifo", "/etc/shadow", "/proc/self/environ",
    "/proc/1/environ",
    "/dev/zero", "files/good", "../etc/podnet/files/good", "/etc/podnet/files/../files/good",
    "/etc/podnet//files/good",
    "/etc/podnet/files/good\n", "/etc/podnet/node.json", "/" + "a" * 5000, ["/etc/podnet/files/good"], 5, True,
    {"a": 1},
):  # fmt: skip
    PATHS[f"configuration_path {_path!r}"[:60]] = of_file(_path)
for _name, _word in (
    ("link", "it is a link"), ("fifo", "not a regular file"), ("folder", "not a regular file"),
    ("other", "socket_file"), ("big", "bytes"), ("ours", "ipam"), ("gone", "No such file"),
):  # fmt: skip
    _place = f"/etc/podnet/files/{_name}"
    PATHS[f"configuration_path that is {_name}"] = Case(
        _word, {"configuration_path": _place}, paths=("/etc/shadow", "/run/hostile/db.sock")
    )
for _endpoint in (
    "/run/hostile/db.sock", "unix:/run/hostile/db.sock", "/run/hostile/db.link", "tcp:127.0.0.1:6640",
    "tcp:192.0.2.1:6640",
    "ssl:192.0.2.1:6640", "ptcp:6640", "punix:/run/hostile/made.sock", "run/openvswitch/db.sock", "db.sock",
    "/run/openvswitch/../openvswitch/db.sock", "/etc/shadow", "/run/hostile/fifo",
    "/proc/1/root/run/openvswitch/db.sock",
    "unix:unix:/run/openvswitch/db.sock", "/" + "a" * 5000, ["/run/openvswitch/db.sock"], 5, {"a": 1},
):  # fmt: skip
    PATHS[f"socket_file {_endpoint!r}"[:60]] = of_socket(_endpoint)

RESULTS: dict[str, Case] = {
    f"prevResult {text}"[:60]: with_value("prevResult", text, code=6)
    for text in (
        '{"ips": [{"address": "x"}]}', '{"ips": [{"address": ["10.0.0.1/8"]}]}', '{"ips": 5}', '{"ips": [5]}',
        '{"ips": [{"address": "10.0.0.1/8", "interface": true}]}', '{"interfaces": 5}', '{"interfaces": [{}]}',
        '{"interfaces": {"name": "eth0"}}', '{"routes": [{"dst": 5}]}',
        '{"routes": [{"dst": "10.0.0.0/8", "mtu": "x"}]}',
        '{"dns": 5}', '{"ip4": 5}', '{"ip4": {"ip": "::/x"}}', '{"ips": [{"address": "' + "1" * 900_000 + '"}]}',
    )
}  # fmt: skip
RUNTIME: dict[str, Case] = {
    f"runtimeConfig.{key} {value!r}"[:60]: Case(f"runtimeConfig.{key}", {"runtimeConfig": {key: value}})
    for key, value in (
        ("ips", "10.10.0.7/16"), ("ips", [5]), ("ips", {"a": 1}), ("ips", ["10.10.0.7/16\n"]), ("ips", ["x"]),
        ("ips", ["10.10.0.7/99"]), ("ipRanges", "x"), ("ipRanges", [[5]]), ("mac", "01:00:5e:00:00:01"),
        ("mac", ["x"]), ("mac", "x" * 900_000), ("bandwidth", {"ingressRate": -1, "ingressBurst": 1}),
        ("dns", {"servers": ["x"]}), ("bandwidth", {"colour": 1}), ("aliases", ["x"]), ("x" * 900, 1),
    )
}  # fmt: skip
RUNTIME["runtimeConfig.bandwidth {'colour': 1}"] = Case(
    "runtimeConfig.bandwidth.colour", {"runtimeConfig": {"bandwidth": {"colour": 1}}}, code=2
)

ENVIRONMENT: dict[str, Case] = {
    "no CNI_COMMAND": of_env("CNI_COMMAND", None, del_code=4),
    "no CNI_CONTAINERID": of_env("CNI_CONTAINERID", None, del_code=4),
    "no CNI_NETNS": of_env("CNI_NETNS", None),
    "no CNI_IFNAME": of_env("CNI_IFNAME", None, del_code=4),
    "no CNI_PATH": of_env("CNI_PATH", None),
    "CNI_COMMAND add": of_env("CNI_COMMAND", "add", del_code=4),
    "CNI_COMMAND with newline": of_env("CNI_COMMAND", "ADD\n", del_code=4),
    "CNI_COMMAND of 100000": of_env("CNI_COMMAND", "A" * 100_000, del_code=4),
    "CNI_PATH relative": of_env("CNI_PATH", "bin"),
    "CNI_PATH dots": of_env("CNI_PATH", f"{cni.PATH}:../bin"),
    "CNI_PATH of nothing": of_env("CNI_PATH", ":::"),
    "CNI_PATH with thousands of folders": Case("nosuch", {"ipam": {"type": "nosuch"}}, env={"CNI_PATH": MANY_FOLDERS}),
}
for _value in (
    "../c1", "..", ".", "/c1", "c1\n", "c1;x", "c 1", "$(id)", "c" * 100_000, "-c", "\udcff", "c\u202e1",
):  # fmt: skip
    ENVIRONMENT[f"CNI_CONTAINERID {_value!r}"[:50]] = of_env("CNI_CONTAINERID", _value)
for _value in (
    "sixteen-letters0", "..", ".", "eth0\n", "a/b", "a b", "a:b", "%d", "\udcff", "\u202e", "all", "default",
    "e" * 100_000,
):  # fmt: skip
    ENVIRONMENT[f"CNI_IFNAME {_value!r}"[:50]] = of_env("CNI_IFNAME", _value)
for _value in (
    "COLOUR=green", "=", "K8S_POD_NAME", "X=" + "x" * 100_000, "K8S_POD_NAME=a\nb", "K8S_POD_NAMESPACE=\udcff",
    "K8S_POD_UID=" + "u" * 100_000, "IgnoreUnknown=1;K8S_POD_NAMESPACE=\x1b[2J",
    "IgnoreUnknown=1;MAC=01:00:5e:00:00:01",
    "IgnoreUnknown=1;mac=x",
):  # fmt: skip
    ENVIRONMENT[f"CNI_ARGS {_value!r}"[:60]] = of_env("CNI_ARGS", _value)
for _key in ("IgnoreUnknown=1;MAC=01:00:5e:00:00:01", "IgnoreUnknown=1;mac=x"):
    ENVIRONMENT[f"CNI_ARGS {_key!r}"[:60]] = Case("CNI_ARGS", env={"CNI_ARGS": _key})
for _path in (
    "/run/netns/gone", "/etc/hostname", "/run/hostile/fifo", "/dev/zero", "/dev/null", "/run/netns", "/proc/1/ns/mnt",
    "/proc/self/ns/net", "/proc/1/environ", "/proc/self/fd/0", "relative", "/run/netns/p1\n", "/" + "n" * 100_000,
    "\udcff",
):  # fmt: skip
    ENVIRONMENT[f"CNI_NETNS {_path!r}"[:50]] = of_netns(_path)

CASES: dict[str, Case] = {**TYPES, **NAMES, **TEXTS, **TRUNKS, **PATHS, **RESULTS, **RUNTIME, **ENVIRONMENT}
SEED = int(os.environ.get("PODNET_SEED") or 1)
SAMPLE = frozenset(random.Random(SEED).sample(sorted(CASES), 20))
"""What is shown without the agent in each tier."""


def environment(verb: str, case: Case) -> dict[str, str]:
    """The variables of a call."""
    env: dict[str, str | None] = {**cni.environment(verb, "c1", "p1"), **case.env}
    return {key: value for key, value in env.items() if value is not None}


def make_node(lab: Lab, datapath: str) -> Light:
    """A node with one bridge, which lets configurations name some files."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    node = lab.light("n1", nics=[Nic("eth1", lab.lan("trunk"))], datapath=datapath)
    cni.prepare(node, {**cni.node_document(datapath), "configuration_paths": ALLOWED_FILES})
    node.sh(MAKE_FILES)
    return node
