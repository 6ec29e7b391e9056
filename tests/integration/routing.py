# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with three ways out, calls of CNI plugins in it, and a look at where packets really go.

eth1 and eth2 are plain NICs, and the main table's default route leads by eth1. eth3 is a port of the bridge br-pod,
whose local port has its addresses. Behind each is a LAN of its own, and each LAN has the same address far away, which
counts who asks for it.

No IPAM plugin of Debian's names interfaces of the host. The test's own, `hinting`, wraps one of those.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ansible_collections.podnet.ovs.tests.integration import cni
from ansible_collections.podnet.ovs.tests.lab import Pod, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Lan

FAR = {4: "198.51.100.1", 6: "2001:db8:99::1"}
LANS = ("a", "b", "c")
NICS = {"a": "eth1", "b": "eth2", "c": "eth3"}
DEVICES = {"a": "eth1", "b": "eth2", "c": cni.BRIDGE}
SCRIPTS = "/opt/scripts"
PATH = {"CNI_PATH": f"{SCRIPTS}:{cni.PATH}"}

COUNT = f"""
add table inet seen
add counter inet seen four
add counter inet seen six
add chain inet seen far {{ type filter hook prerouting priority 0; }}
add rule inet seen far ip daddr {FAR[4]} icmp type echo-request counter name four
add rule inet seen far ip6 daddr {FAR[6]} icmpv6 type echo-request counter name six
"""

HINTING = """#!/usr/bin/python3 -IS
# The IPAM plugin that `of` names, whose result then says interfaces as well, and which of them its addresses belong to;
# `more` is what else it says.
import json, os, subprocess, sys
conf = json.load(sys.stdin)
ipam = conf.get("ipam") or {"of": "static"}  # VERSION brings none
inner = {key: ipam[key] for key in ipam if key not in ("of", "interfaces", "indices", "more")}
conf["ipam"] = {**inner, "type": ipam["of"]}
done = subprocess.run(["/usr/lib/cni/" + ipam["of"]], input=json.dumps(conf).encode(), stdout=subprocess.PIPE)
if done.returncode or os.environ["CNI_COMMAND"] != "ADD":
    sys.stdout.buffer.write(done.stdout)
    sys.exit(done.returncode)
result = {**json.loads(done.stdout), **ipam.get("more", {})}
if "interfaces" in ipam:
    result["interfaces"] = ipam["interfaces"]
for item, index in zip(result["ips"], ipam.get("indices", [])):
    if index is not None:
        item["interface"] = index
print(json.dumps(result))
"""


def number(lan: str) -> int:
    """A LAN's number in its addresses."""
    return LANS.index(lan) + 1


def address(lan: str, host: int, family: int) -> str:
    """An address of a LAN."""
    return f"10.{number(lan)}.0.{host}" if family == 4 else f"fd00:{number(lan)}::{host}"


def ipam(lan: str, host: int = 100, families: tuple[int, ...] = (4, 6), **keys: Any) -> cni.Json:
    """Debian's static, with addresses of a LAN and its gateway."""
    addresses = [
        {"address": f"{address(lan, host, family)}/{24 if family == 4 else 64}", "gateway": address(lan, 1, family)}
        for family in families
    ]
    return {"type": "static", "addresses": addresses, **keys}


def hinting(plugin: cni.Json, *interfaces: cni.Json, indices: tuple[int | None, ...] = ()) -> cni.Json:
    """The same by the test's own IPAM plugin, whose result names interfaces."""
    return {**plugin, "type": "hinting", "of": plugin["type"], "interfaces": list(interfaces), "indices": list(indices)}


def configuration(lan: str, host: int = 100, **keys: Any) -> cni.Json:
    """A network of podnet-routed by a LAN's NIC. A key that is None is left out."""
    plain = {
        "cniVersion": "1.1.0", "name": f"routed-{lan}", "type": "podnet-routed", "uplink": NICS[lan],
        "ipam": ipam(lan, host), **keys,
    }  # fmt: skip
    return {key: value for key, value in plain.items() if value is not None}


def by_hint(plugin: cni.Json, **keys: Any) -> cni.Json:
    """A network of podnet-routed whose IPAM plugin names the uplink."""
    return configuration("a", uplink=None, uplinkFromIPAM=True, ipam=plugin, **keys)


class Bench:
    """The node with its LANs."""

    def __init__(self, lab: Lab, datapath: str, name: str = "n1") -> None:
        from ansible_collections.podnet.ovs.tests.lab import Nic

        self.lans: dict[str, Lan] = {}
        for lan in LANS:
            made = lab.lan(f"{lan}-{name}", ipv4=f"10.{number(lan)}.0.0/24", ipv6=f"fd00:{number(lan)}::/64")
            made.run("sh", "-ec", f"ip addr add {FAR[4]}/32 dev lo; ip addr add {FAR[6]}/128 dev lo nodad")
            made.run("sh", "-ec", "echo 0 > /proc/sys/net/ipv6/conf/lo/disable_ipv6", check=False)
            # As a router does that is not the far end itself: it asks for neighbours with its address of that LAN.
            made.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv4.conf.all.arp_announce=2")
            made.run("nft", "-f", "-", input=COUNT)
            self.lans[lan] = made
        nics = [Nic("eth1", self.lans["a"], mode="static"), Nic("eth2", self.lans["b"]), Nic("eth3", self.lans["c"])]
        self.node = lab.light(name, nics=nics, datapath=datapath)
        if datapath == "netdev":
            self.node.drop_ingress("eth2", False)
        self.node.write(f"{SCRIPTS}/hinting", HINTING, "755")
        cni.prepare(self.node, self.document(datapath))
        self.node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        self.lay_eth2()
        self.wait_for_addresses()

    def wait_for_addresses(self) -> None:
        """Until the node uses all its addresses of IPv6: before, it asks no neighbour for another's sake."""
        until(lambda: not self.node.run("ip", "-6", "addr", "show", "tentative").stdout, 10, "the node's addresses")

    @staticmethod
    def document(datapath: str) -> cni.Json:
        """What the node is to be."""
        local = {"name": cni.BRIDGE, "addresses": [f"{address('c', 11, 4)}/24", f"{address('c', 11, 6)}/64"]}
        document = cni.node_document(datapath, uplinks=[{"name": "eth3"}], interfaces=[local])
        document["policy"] = [
            {"interface": "eth1", "routed": True},
            {"interface": "eth2", "routed": True, "namespaces": ["default", "blue"]},
            {"bridge": cni.BRIDGE, "routed": True},
        ]
        return document

    def lay_eth2(self, device: str = "eth2") -> None:
        """Gives eth2 its addresses, once it is there; or those to the bridge that it is on."""
        if device != "eth2":
            self.node.run("ip", "addr", "flush", "dev", "eth2")
        self.node.sh(
            f"ip link set {device} up; ip addr replace {address('b', 11, 4)}/24 dev {device};"
            f"ip addr replace {address('b', 11, 6)}/64 dev {device} nodad"
        )

    def make_eth2_anew(self) -> None:
        """eth2 goes, and comes again as another link."""
        self.node.run("ip", "link", "delete", "eth2")
        lan, port = self.lans["b"], self.node.ports["eth2"]
        batch = "\n".join(lan.link_commands(port, self.node.netns_name))
        lan.run("ip", "-batch", "-", input=batch)

    def call(
        self, verb: str, conf: Mapping[str, Any], container: str = "c1", pod: str = "p1",
        env: Mapping[str, str] | None = None,
    ) -> cni.Answer:  # fmt: skip
        """One call of the plugin that the configuration names."""
        began = time.monotonic()
        variables = {**cni.environment(verb, container, pod), **PATH, **(env or {})}
        done = self.node.run(f"/opt/cni/bin/{conf['type']}", input=json.dumps(conf), env=variables, check=False)
        return cni.Answer(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def add(self, conf: Mapping[str, Any], container: str = "c1", pod: str = "p1") -> cni.Json:
        """An ADD that succeeds; gives its result."""
        answer = self.call("ADD", conf, container, pod)
        assert answer.code == 0, answer
        return answer.document

    def delete(self, conf: Mapping[str, Any], container: str = "c1", pod: str = "p1", **env: str) -> None:
        """A DEL that succeeds and says nothing."""
        answer = self.call("DEL", conf, container, pod, env)
        assert (answer.code, answer.stdout) == (0, ""), answer

    def fails(self, conf: Mapping[str, Any], container: str = "c1", pod: str = "p1", **env: str) -> tuple[int, str]:
        """An ADD that fails and leaves nothing behind; gives code and message, with the hint."""
        before = self.state()
        answer = self.call("ADD", conf, container, pod, env)
        assert answer.code == 1, answer
        after = self.state()
        assert after == before, {key: (before[key], after[key]) for key in before if before[key] != after[key]}
        document = answer.document
        return document["code"], f"{document['msg']} {document.get('details', '')}"

    def collect(self, conf: Mapping[str, Any], *valid: tuple[str, str]) -> None:
        """A GC that keeps these attachments."""
        listed = [{"containerID": container, "ifname": ifname} for container, ifname in valid]
        answer = self.call("GC", {**conf, "cni.dev/valid-attachments": listed}, "", "", {"CNI_IFNAME": ""})
        assert (answer.code, answer.stdout) == (0, ""), answer

    def state(self) -> dict[str, Any]:
        """All routes, rules, proxy entries, links and records of the node."""
        found: dict[str, Any] = {}
        for family in ("-4", "-6"):
            routes = self.node.run("ip", family, "route", "show", "table", "all").stdout.splitlines()
            # Those of the kernel's own come when it has found that no neighbour has its link-local addresses.
            mine = ("ff00::/8", "fe80::", "table local")
            found[f"routes {family}"] = sorted(line for line in routes if not any(word in line for word in mine))
            found[f"rules {family}"] = self.rules(family)
            found[f"proxies {family}"] = sorted(
                self.node.run("ip", family, "neigh", "show", "proxy").stdout.split("\n")
            )
        found["left"] = cni.leftovers(self.node)
        found["records"] = self.node.run("sh", "-c", "ls -A /run/podnet/routed 2> /dev/null; true").stdout
        return found

    def rules(self, family: str = "-4") -> list[str]:
        """The node's rules, in order."""
        return self.node.run("ip", family, "rule").stdout.splitlines()

    def table(self, device: str, family: str = "-4") -> list[str]:
        """The routes in the table of an uplink."""
        index = json.loads(self.node.run("ip", "-j", "link", "show", device).stdout)[0]["ifindex"]
        printed = self.node.run("ip", family, "route", "show", "table", str(20000 + index), check=False).stdout
        return [" ".join(line.split()) for line in printed.splitlines()]

    def asked(self) -> dict[str, tuple[int, int]]:
        """How often each LAN was asked for the address far away, by family, since the last look."""
        found = {}
        for name, lan in self.lans.items():
            table = json.loads(lan.run("nft", "-j", "reset", "counters", "table", "inet", "seen").stdout)["nftables"]
            counts = {item["counter"]["name"]: item["counter"]["packets"] for item in table if "counter" in item}
            found[name] = counts["four"], counts["six"]
        return found

    def leaves_by(self, pod: str = "p1", families: tuple[int, ...] = (4, 6)) -> dict[str, tuple[int, int]]:
        """Which LANs hear of a pod that asks once for the address far away, in each family."""
        self.asked()
        for family in families:
            Pod(self.node, pod).run("ping", "-c", "1", "-W", "1", FAR[family], check=False)
        return {lan: counts for lan, counts in self.asked().items() if any(counts)}

    def table_lines(self, word: str) -> list[str]:
        """The routes of all tables with this word in them."""
        printed = "".join(
            self.node.run("ip", family, "route", "show", "table", "all").stdout for family in ("-4", "-6")
        )
        return [line for line in printed.splitlines() if word in line]

    def answers(self, pod: str = "p1", families: tuple[int, ...] = (4, 6)) -> bool:
        """Whether a pod gets answers from far away; what ping says is shown if not."""
        done = [Pod(self.node, pod).run("ping", "-c", "1", "-W", "1", FAR[family], check=False) for family in families]
        for ping in done:
            print(ping.stdout if ping.returncode else "", end="")
        return not any(ping.returncode for ping in done)

    def is_heard(self, lan: str, host: int = 100, families: tuple[int, ...] = (4, 6)) -> bool:
        """Whether a pod answers to the router of a LAN, and to somebody far behind it."""
        return all(
            self.lans[lan]
            .run("ping", "-c", "1", "-W", "2", *source, address(lan, host, family), check=False)
            .returncode
            == 0
            for family in families
            for source in ((), ("-I", FAR[family]))
        )
