# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Makes a pod's link and port by the short way and by the libraries, and prints what each leaves.

Runs in a light node, on the tree and the runtime's libraries: each line of input is a wish, each line of output what
became of it, both as JSON. The libraries' way is written out here: pyroute2 for the kernel, ovsdbapp for the database.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import socket
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel import fastpath
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.netlink import netlink
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.netns import inside
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.pod import PodRoute, Seen, set_sysctl
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_OVS, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.port import Bandwidth, PortVlans, parse_port
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch import session
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.fastpath import open_switch
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.podport import PodPort, keys

ENDPOINT = "unix:/run/openvswitch/db.sock"
BRIDGE, HOST, IFNAME, POD = "br-pod", "pn0123456789ab", "eth0", "p1"
HOST_MAC = "02:00:00:00:00:01"
SECONDS = 10.0
VOLATILE = {
    "_uuid", "interfaces", "queues", "ifindex", "ofport", "statistics", "status", "mtu", "mac_in_use", "link_speed",
    "duplex", "link_state", "admin_state", "link_resets", "rstp_statistics", "rstp_status",
}  # fmt: skip
"""Columns that name another row, count, or tell what ovs-vswitchd sees at the moment."""
MOVING = (r"^\d+: ", r"@if\d+", r"link-netns(id)? \S+", r"\bstate \w+")
"""Numbers that each new link gets, and a state that the kernel sets when it gets to it."""

Json = dict[str, Any]


@dataclass(frozen=True)
class Wish:
    """What a pod is to have."""

    vlans: PortVlans
    mtu: int
    mac: str
    addresses: list[str]
    routes: list[PodRoute]
    ofport: int | None
    protected: bool
    limits: Bandwidth

    @classmethod
    def parse(cls, table: Json) -> Wish:
        """From JSON."""
        routes = [PodRoute(**route) for route in table["routes"]]
        limits = Bandwidth.parse(table["bandwidth"])
        given = (table["ofport"], table["protected"], limits)
        return cls(parse_port(table["port"]), table["mtu"], table["mac"], table["addresses"], routes, *given)

    @property
    def mark(self) -> Mark:
        """The mark before there are addresses."""
        return Mark(OWNER_OVS, "c1", IFNAME, "green", "shop", "web-0", "uid", (), self.mtu)

    @property
    def final(self) -> Mark:
        """The mark in the end."""
        return replace(self.mark, addresses=tuple(self.addresses))


# The short way, in the order of attach/ovs.py


def short(wish: Wish, netns: int) -> None:
    """Link and port as `podnet-ovs` makes them."""
    port = PodPort(
        HOST, BRIDGE, wish.vlans.columns(), wish.mark, wish.ofport, wish.protected, wish.limits
    )  # fmt: skip
    with fastpath.PodSpace(netns) as space, open_switch(ENDPOINT, SECONDS, HOST) as switch:
        switch.begin(port)
        fastpath.make_veth(HOST, HOST_MAC, IFNAME, wish.mac, wish.mtu, netns)
        fastpath.silence(HOST)
        space.bring_up(IFNAME)
        switch.inserted(port)
        switch.mark(port, wish.final)
        space.configure(IFNAME, wish.addresses, wish.routes)
        switch.settle(port, SECONDS)


def short_end() -> None:
    """Takes them away as `podnet-ovs` does."""
    fastpath.remove_link(HOST)
    with open_switch(ENDPOINT, SECONDS, HOST) as switch:
        switch.detach(HOST)


# The libraries' way


def library(wish: Wish, netns: int) -> None:
    """Link and port as the libraries make them."""
    with netlink() as route:
        peer = {"ifname": IFNAME, "net_ns_fd": netns, "address": wish.mac, "mtu": wish.mtu}
        route.link("add", ifname=HOST, address=HOST_MAC, kind="veth", mtu=wish.mtu, peer=peer)
        set_sysctl(HOST, "disable_ipv6", "1")
        route.link("set", index=socket.if_nametoindex(HOST), state="up")
    with session.Session.open(ENDPOINT) as opened:
        opened.transact(_commands(opened.api, wish))
        opened.ports_ready([HOST])
    inside(netns, lambda: _configure(wish))


def _commands(api: Any, wish: Wish) -> list[Any]:
    """Of a map or a set ovsdbapp adds to what is there: the rows are new, so that is the same."""
    columns = {key: value for key, value in wish.vlans.columns().items() if value not in (None, [])}
    interface: Json = {"external_ids": wish.mark.to_external_ids()}
    if wish.ofport is not None:
        interface["ofport_request"] = wish.ofport
    if wish.limits.egress_rate:
        interface["ingress_policing_rate"] = max(wish.limits.egress_rate // 1000, 1)
        interface["ingress_policing_burst"] = max(wish.limits.egress_burst // 1000, 1)
    commands = [
        api.add_port(BRIDGE, HOST, may_exist=False),
        api.db_set("Port", HOST, *columns.items(), ("external_ids", wish.final.to_external_ids())),
        api.db_set("Interface", HOST, *interface.items()),
    ]
    if wish.protected:
        commands.append(api.db_set("Port", HOST, ("protected", True)))
    if wish.limits.ingress_rate:
        rate, ids = str(wish.limits.ingress_rate), keys("c1", IFNAME)
        shape = {"max-rate": rate, "min-rate": rate, "burst": str(wish.limits.ingress_burst)}
        queue = api.db_create("Queue", other_config=shape, external_ids=ids)
        shaper = {"other_config": {"max-rate": rate}, "queues": {0: queue}, "external_ids": ids}
        quality = api.db_create("QoS", type="linux-htb", **shaper)
        commands = [queue, quality, *commands, api.db_set("Port", HOST, ("qos", quality))]
    return commands


def _configure(wish: Wish) -> None:
    index = socket.if_nametoindex(IFNAME)
    with netlink() as route:
        route.link("set", index=1, state="up")
        route.link("set", index=index, state="up")
        given = [ipaddress.ip_interface(text) for text in wish.addresses]
        for item in given:
            more: Json = {"flags": 2} if item.version == 6 else {}
            if item.version == 4 and item.network.prefixlen < 31:
                more["broadcast"] = str(item.network.broadcast_address)
            route.addr("add", index=index, address=str(item.ip), prefixlen=item.network.prefixlen, **more)
        for wanted in wish.routes:
            _add_route(route, index, wanted, [item.network for item in given])


def _add_route(route: Any, index: int, wanted: PodRoute, networks: list[Any]) -> None:
    destination = ipaddress.ip_network(wanted.destination)
    arguments: Json = {
        "dst": str(destination), "oif": index, "proto": 4,
        "family": socket.AF_INET if destination.version == 4 else socket.AF_INET6,
    }  # fmt: skip
    if wanted.gateway:
        gateway = ipaddress.ip_address(wanted.gateway)
        arguments["gateway"] = wanted.gateway
        if not gateway.is_link_local and not any(gateway in network for network in networks):
            arguments["flags"] = 4
    elif destination.version == 4:
        arguments["scope"] = 253
    if wanted.scope is not None:
        arguments["scope"] = wanted.scope
    arguments.update({key: getattr(wanted, key) for key in ("priority", "table") if getattr(wanted, key)})
    metrics = {key: getattr(wanted, key) for key in ("mtu", "advmss") if getattr(wanted, key)}
    if metrics:
        arguments["metrics"] = metrics
    route.route("replace", **arguments)


def library_end() -> None:
    """Takes away by the libraries what there is of them."""
    with session.Session.open(ENDPOINT) as opened, netlink() as route:
        for index in route.link_lookup(ifname=HOST):
            route.link("del", index=index)
        if opened.api.lookup("Port", HOST, None):
            opened.transact([opened.api.db_clear("Port", HOST, "qos")])
        commands = [opened.api.del_port(HOST, if_exists=True)]
        for table in ("QoS", "Queue"):
            commands += [opened.api.db_destroy(table, uuid) for uuid in opened.api.tables[table].rows]
        opened.transact(commands)


# What is there


def output(*words: str) -> str:
    """What a command prints."""
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def settled(mtu: int) -> None:
    """Waits for what the kernel does in its own time: carrier, and the link-local address."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        seen = output("ip", "addr", "show", HOST) + output("ip", "-n", POD, "addr", "show", IFNAME)
        if "NO-CARRIER" not in seen and "tentative" not in seen and ("fe80::" in seen or mtu < 1280):
            return
        time.sleep(0.01)
    raise TimeoutError(seen)


def state() -> Json:
    """Kernel and database, without the numbers that each new thing gets and the counters."""
    pod = ["ip", "-n", POD, "-d"]
    lists = (
        ["ip", "-d", "addr", "show", HOST],
        [*pod, "addr", "show", IFNAME],
        [*pod, "addr", "show", "lo"],
        [*pod, "route", "show", "table", "all"],
        [*pod, "-6", "route", "show", "table", "all"],
        ["sysctl", "-e", f"net.ipv6.conf.{HOST}.disable_ipv6"],
    )
    kernel = "\n".join(output(*words) for words in lists)
    for pattern in MOVING:
        kernel = re.sub(pattern, "", kernel, flags=re.MULTILINE)
    return {"kernel": [line.rstrip() for line in kernel.splitlines()], **rows()}


def rows() -> Json:
    """The rows of the attachment. Of the name of another row, and of a number, only whether there is one."""
    found: Json = {}
    for table, where in (("Port", f"name={HOST}"), ("Interface", f"name={HOST}"), ("QoS", ""), ("Queue", "")):
        printed = json.loads(output("ovs-vsctl", "--timeout=10", "--format=json", "find", table, *where.split()))
        found[table] = []
        for values in printed["data"]:
            row = dict(zip(printed["headings"], values))
            kept = {key: value for key, value in row.items() if key not in VOLATILE}
            if table == "Port":
                kept["qos"] = row["qos"] != ["set", []]
            if table == "Interface":
                kept["ofport"] = row["ofport"] if row["ofport_request"] != ["set", []] else row["ofport"] > 0
            if table == "QoS":
                kept["queues"] = [number for number, _uuid in row["queues"][1]]
            found[table].append(kept)
    return found


def as_observed(seen: Seen | None) -> Json | None:
    """What `observe` gave, as JSON has it."""
    if seen is None:
        return None
    return {
        "mac": seen.mac, "mtu": seen.mtu, "up": seen.up, "addresses": sorted(seen.addresses),
        "routes": sorted(list(route) for route in seen.routes),
    }  # fmt: skip


def as_listed() -> Json:
    """The same by `ip`."""
    (link,) = json.loads(output("ip", "-n", POD, "-j", "addr", "show", IFNAME))
    routes = set()
    for family, everything, length in (("-4", "0.0.0.0/0", 32), ("-6", "::/0", 128)):
        for route in json.loads(output("ip", "-n", POD, family, "-j", "route", "show", "table", "all")):
            to = everything if route["dst"] == "default" else route["dst"]
            if route.get("dev") == IFNAME:
                routes.add((to if "/" in to else f"{to}/{length}", route.get("gateway", "")))
    return {
        "mac": link["address"], "mtu": link["mtu"], "up": "UP" in link["flags"],
        "addresses": sorted(f"{item['local']}/{item['prefixlen']}" for item in link["addr_info"]),
        "routes": sorted(list(route) for route in routes),
    }  # fmt: skip


def left() -> list[str]:
    """What is there of the attachment after its end."""
    there = [table for table, found in rows().items() if found]
    return there + [name for _index, name in socket.if_nameindex() if name == HOST]


def attempt(wish: Wish, make: Callable[[Wish, int], None], end: Callable[[], None]) -> Json:
    """What one way leaves, or why not; and then what is left after its end, which is the other way's."""
    subprocess.run(["ip", "netns", "add", POD], check=True)
    netns = os.open(f"/run/netns/{POD}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        inside(netns, lambda: set_sysctl("default", "accept_dad", "0"))
        try:
            make(wish, netns)
        except PodnetError as error:
            return {"refused": str(error.message).rpartition(": ")[2]}
        settled(wish.mtu)
        with fastpath.PodSpace(netns) as space:
            observed = as_observed(space.observe(IFNAME))
        return {"state": state(), "observed": observed, "listed": as_listed()}
    finally:
        end()
        os.close(netns)
        subprocess.run(["ip", "netns", "delete", POD], check=True)


def main() -> None:
    """Reads wishes until the end of input."""
    # What no other part of the product reads is not copied.
    session.COLUMNS["Port"].extend(["cvlans", "protected"])
    session.COLUMNS["Interface"].append("ofport_request")
    for line in sys.stdin:
        answer: Json = {}
        try:
            wish = Wish.parse(json.loads(line))
            for name, make, end in (("short", short, library_end), ("library", library, short_end)):
                answer[name] = attempt(wish, make, end)
                answer[name]["left"] = left()
        except Exception:  # the test that asked is to fail, not the next one
            answer = {"broken": traceback.format_exc()}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
