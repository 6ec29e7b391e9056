# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A node with all the layer-3 state that a NIC may have, and a look at it by `ip`, for the move between devices."""

from __future__ import annotations

import json
import textwrap
from typing import Any

from ansible_collections.podnet.ovs.tests.lab import Light

NIC, BRIDGE, OTHER = "eth0", "br-x", "eth1"

CONFIGURATION = """
addr add 10.1.0.5/24 dev eth1
addr add 2001:db8:1::5/64 dev eth1 nodad
addr add 10.0.0.5/24 brd + dev eth0
addr add 10.0.0.6/24 dev eth0 label eth0:1
addr add 10.0.0.8/24 dev eth0
addr add 10.0.0.7/25 dev eth0 valid_lft 3000 preferred_lft 2000
addr add 192.0.2.1 peer 192.0.2.2/32 dev eth0
addr add 10.9.9.9/32 dev eth0
addr add 172.16.0.1/16 dev eth0 noprefixroute metric 77
addr add 172.17.0.1/16 dev eth0 metric 100
addr add 10.7.0.1/24 dev eth0
route del 10.7.0.0/24 dev eth0
addr add 2001:db8::5/64 dev eth0 nodad
addr add 2001:db8::6/64 dev eth0 nodad valid_lft 5000 preferred_lft 0
addr add 2001:db8::7/128 dev eth0 nodad noprefixroute
addr add 2001:db8::9/64 dev eth0
addr add fd00::1/64 dev eth0 noprefixroute
route add default via 10.0.0.1 metric 50 src 10.0.0.6 mtu lock 1400 advmss 1300 proto dhcp
route add default via 10.0.0.2 metric 60 dev eth0
route add 10.55.0.0/16 nexthop via 10.0.0.1 weight 2 nexthop via 10.1.0.1 dev eth1 weight 3
route add 10.56.0.0/16 dev eth0 scope link src 10.9.9.9 table 100
route add default via 10.0.0.9 table 1000 proto bird
route add 198.51.100.1 via 203.0.113.1 dev eth0 onlink
route add 198.51.100.0/24 via inet6 fe80::99 dev eth0
route add 10.62.0.0/16 dev eth1 metric 9
route append 10.62.0.0/16 via 10.0.0.1 dev eth0 metric 9
route add 10.63.0.0/16 tos 0x10 via 10.0.0.1
route add 10.64.0.0/16 via 10.0.0.1 realm 3
route add 10.65.0.0/16 via 10.0.0.1 congctl reno initcwnd 20 quickack 1
route add unreachable 10.57.0.0/16
route add 10.58.0.0/16 dev eth1 src 10.0.0.6
route add local 10.59.0.0/24 dev eth0 table local
route add default via 2001:db8::1 metric 1024 pref high
route add 2001:db8:aa::/48 via fe80::1 dev eth0 src 2001:db8::6 metric 5 expires 900
route add 2001:db8:bb::/48 nexthop via 2001:db8::1 nexthop via 2001:db8::2 weight 4
route add 2001:db8:cc::/48 nexthop via 2001:db8::1 nexthop via 2001:db8:1::2 dev eth1
route add 2001:db8:dd::/48 dev eth0 table 200 mtu 1300
route add 2001:db8:d0::/48 dev eth0 metric 7
route append 2001:db8:d0::/48 dev eth1 metric 7
route append 2001:db8:d0::/48 via 2001:db8::1 dev eth0 metric 7
nexthop add id 7 via 10.0.0.3 dev eth0
nexthop add id 8 via 10.1.0.3 dev eth1
nexthop add id 9 group 7/8
nexthop add id 17 via 2001:db8::3 dev eth0
route add 10.60.0.0/16 nhid 7
route add 10.61.0.0/16 nhid 9
route add 2001:db8:ee::/48 nhid 17
rule add from 10.0.0.6 lookup 100 pref 100
rule add iif eth0 lookup 1000 pref 101
rule add oif eth0 to 10.0.0.0/8 fwmark 3 lookup 1000 pref 102
neigh add 10.0.0.1 lladdr 52:54:00:00:00:aa dev eth0 nud reachable
neigh add 10.0.0.77 lladdr 52:54:00:00:00:ab dev eth0 nud permanent
neigh add fe80::1 lladdr 52:54:00:00:00:aa dev eth0 nud stale router
neigh add proxy 10.0.0.200 dev eth0
link add vx0 type vxlan id 5 dev eth0 dstport 8472 local 10.0.0.5 nolearning
link set vx0 up
"""
"""Lines for `ip -batch`: each kind of address, route, rule and neighbour that a NIC may have."""

IPV6_RULE = "rule add iif eth0 not from 2001::/16 lookup 200 pref 103"

SETTINGS = {
    "ipv4/conf/eth0/rp_filter": "1",
    "ipv4/conf/eth0/forwarding": "1",
    "ipv4/neigh/eth0/gc_stale_time": "77",
    "ipv6/conf/eth0/hop_limit": "60",
}

BEGIN = r"""
import json, subprocess, sys, time
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.kernel import l3
from podnet.kernel.l3_plan import Work, moving
from podnet.kernel.l3_read import look, now
from podnet.kernel.l3_wire import Rtnetlink
from podnet.model.l3 import L3
NIC, BRIDGE = "eth0", "br-x"
LIVES = ("valid_life_time", "preferred_life_time", "expires")

def read(*words):
    return json.loads(subprocess.run(["ip", "-d", "-j", *words], check=True, capture_output=True).stdout or "[]")

def renamed(value, device):
    if isinstance(value, dict):
        return {key: renamed(item, device) for key, item in value.items() if key not in LIVES}
    if isinstance(value, list):
        return [renamed(item, device) for item in value]
    return value.replace(device, "DEV") if isinstance(value, str) else value

def ends(life):
    # when a lifetime is over, by the clock; never, or long since, as it is said
    return life + time.time() if 0 < life < 2**31 else life

def state(device):
    # all that a device carries, and all of the rest of the node, with DEV for its name
    (link,) = read("addr", "show", "dev", device)
    lives = {item["local"]: [ends(item[life]) for life in LIVES[:2]] for item in link["addr_info"]}
    routes = [item for family in ("-4", "-6") for item in read(family, "route", "show", "table", "all")]
    lives.update({item["dst"]: [ends(item["expires"])] for item in routes if item.get("expires")})
    routes = [item for item in routes if item.get("type") not in ("multicast", "anycast")]
    neighbours = [*read("neigh", "show", "nud", "permanent"), *read("neigh", "show", "proxy")]
    return {
        "lives": lives,
        "addresses": renamed(link["addr_info"], device),
        "routes": sorted(renamed(routes, device), key=lambda item: json.dumps(item, sort_keys=True)),
        "rules": [renamed(rule, device) for family in ("-4", "-6") for rule in read(family, "rule", "show")],
        "nexthops": renamed(read("nexthop"), device),
        "neighbours": renamed([item for item in neighbours if item["dev"] == device], device),
        "vxlan": [[item["mtu"], renamed(item["linkinfo"], device)] for item in read("link", "show", "type", "vxlan")],
    }

def carries(device):
    # what a device still has of its own
    (link,) = read("addr", "show", "dev", device)
    routes = [item for family in ("-4", "-6") for item in read(family, "route", "show", "table", "all", "dev", device)]
    return [*link["addr_info"], *[item for item in routes if item.get("type") != "multicast"]]

def part(x, source, target, count=None, keep=False):
    # the first changes of the batch only, as if the process was killed there; how many there are
    with Rtnetlink() as wire:
        changes = moving(Work(x, look(wire), source, target, now().seconds_since(x.taken)), keep)
        wire.change(changes[:count])
    return len(changes)
"""


def configure(node: Light) -> None:
    """Gives a node's NIC everything, and makes the bridge that it may go to."""
    make_bridge(node)
    node.run("ip", "-batch", "-", input=f"link set {NIC} up\nlink set {OTHER} up\n")
    for path, value in SETTINGS.items():
        node.run("sh", "-c", 'echo "$2" > "$1"', "sh", f"/proc/sys/net/{path}", value)
    node.run("ip", "-batch", "-", input=CONFIGURATION)
    node.run("ip", "-6", *IPV6_RULE.split())


def make_bridge(node: Light) -> None:
    """Makes the bridge, with the NIC's MAC address and without the NIC."""
    ovs = ["add-br", BRIDGE, "--", "set", "bridge", BRIDGE, f"datapath_type={node.datapath}"]
    node.ovs.vsctl(*ovs, f"other_config:hwaddr={json.dumps(node.ports[NIC].mac)}")


def act(node: Light, script: str, *words: str, timeout: float = 120) -> Any:
    """Runs lines of Python with the product in a node, and gives what they print as JSON."""
    done = node.run(
        "/usr/bin/python3", "-IS", "-c", BEGIN + textwrap.dedent(script), *words, check=False, timeout=timeout
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
