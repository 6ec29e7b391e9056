# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Layer-3 attachments: the routes, rules and neighbours of an address on its node. Pure.

An address of a pod leaves by the uplink that it belongs to, whatever the node's own default route says: a rule sends
what comes from it to a table of that uplink, whose last resort is `unreachable`, so that nothing ever leaves by another
way. A rule before that one finds the pod itself in the main table, for the node and for other pods on it.

What is here has the routing protocol `kernel`: systemd-networkd takes away rules and routes of any other protocol that
it does not know. So ours are told by what they are: a rule by its priority, its table and its one address, a route by
its table, or by the link of a pod that it leads to.
"""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from ..errors import ConfigError

MAIN = 254
TABLE_BASE = 20000
"""The table of an uplink is this and its index: clear of the reserved ones below 256 (linux/rtnetlink.h)."""
TABLE_END = 1 << 31
TO_POD, FROM_POD = 2010, 2110
"""Priorities of the rules. After those of Cilium and of the AWS VPC CNI (below 1537), before the main table's 32766."""
UNICAST, UNREACHABLE = "unicast", "unreachable"
LAST_RESORT = (1 << 32) - 1
"""The metric that loses against any other."""
GATEWAYS = {4: "169.254.1.1", 6: "fe80::1"}
"""What pods have as their gateway: nobody's address, with the host's end of the pair as a permanent neighbour."""
_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
_METRIC = {4: 0, 6: 1024}
"""Of a route that says nothing (linux/ipv6_route.h, IP6_RT_PRIO_USER)."""


@dataclass(frozen=True)
class Way:
    """By which uplink an address (without prefix length) leaves: a link of the node, and the gateway behind it.

    Without a gateway all destinations are neighbours on that link. `named`: what the uplink was called, which may be a
    NIC on a bridge, while `uplink` is the bridge's local port.
    """

    address: str
    uplink: str
    gateway: str = ""
    named: str = ""

    @property
    def family(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.address).version


@dataclass(frozen=True)
class HostRoute:
    """`destination` is a CIDR. An unreachable one has neither `device` (an index) nor gateway."""

    destination: str
    table: int
    device: int = 0
    gateway: str = ""
    kind: str = UNICAST
    metric: int = 0

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.destination else 4


@dataclass(frozen=True)
class HostRule:
    """All that is for an address (TO_POD), or from it (FROM_POD), is looked up in a table."""

    priority: int
    address: str
    table: int

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4


@dataclass(frozen=True)
class Proxy:
    """The node answers for the address on a link (an index)."""

    address: str
    device: int

    @property
    def family(self) -> int:
        """4 or 6."""
        return 6 if ":" in self.address else 4


@dataclass(frozen=True)
class Plan:
    """What has to be there for an address; the uplink's own routes in the order in which they find each other."""

    to_pod: HostRoute
    uplink: tuple[HostRoute, ...]
    rules: tuple[HostRule, HostRule]
    proxies: tuple[Proxy, ...] = ()

    @property
    def routes(self) -> tuple[HostRoute, ...]:
        """The uplink's and the pod's."""
        return (*self.uplink, self.to_pod)


def table_of(index: int) -> int:
    """The table of the uplink with this index."""
    return TABLE_BASE + index


def is_uplinks(table: int) -> bool:
    """Whether a table may be one of an uplink."""
    return TABLE_BASE < table < TABLE_END


def host_prefix(address: str) -> str:
    """The address alone as a CIDR: /32 or /128."""
    return f"{address}/{32 if ipaddress.ip_address(address).version == 4 else 128}"


def plan(way: Way, uplink: int, pod: int, on_link: Iterable[str] = ()) -> Plan:
    """What makes the address of a pod leave by its uplink, and found from there.

    `uplink` and `pod` are indices of links: the uplink's and the host's end of the pod's pair. `on_link`: the networks
    (CIDR) that are on the uplink; neighbours there ask for an address of such a network, so that the node answers.
    """
    family, table = way.family, table_of(uplink)
    metric = _METRIC[family]
    routes = [HostRoute(_ANYWHERE[family], table, kind=UNREACHABLE, metric=LAST_RESORT)]
    if way.gateway and not (family == 6 and ipaddress.ip_address(way.gateway).is_link_local):
        routes.append(HostRoute(host_prefix(way.gateway), table, uplink, metric=metric))
    routes.append(HostRoute(_ANYWHERE[family], table, uplink, way.gateway, metric=metric))
    address = ipaddress.ip_address(way.address)
    asked = any(address in ipaddress.ip_network(network, strict=False) for network in on_link)
    return Plan(
        to_pod=HostRoute(host_prefix(way.address), MAIN, pod, metric=metric),
        uplink=tuple(routes),
        rules=(HostRule(TO_POD, way.address, MAIN), HostRule(FROM_POD, way.address, table)),
        proxies=(Proxy(way.address, uplink),) if asked else (),
    )


def is_ours(rule: HostRule) -> bool:
    """Whether a rule for one address is one of those that `plan` gives, of whichever uplink."""
    return rule.priority == TO_POD if rule.table == MAIN else rule.priority == FROM_POD and is_uplinks(rule.table)


@dataclass
class Seen:
    """What a node has of that: host routes of the main table, routes of uplinks' tables, rules with how often each is
    there, and proxy entries.
    """

    routes: set[HostRoute] = field(default_factory=set)
    rules: Counter[HostRule] = field(default_factory=Counter)
    proxies: set[Proxy] = field(default_factory=set)

    @cached_property
    def rules_about(self) -> Counter[str]:
        """How many rules there are about each address. For one that is not changed any more."""
        found: Counter[str] = Counter()
        for rule, count in self.rules.items():
            found[rule.address] += count
        return found

    def has(self, wanted: Plan) -> bool:
        """Whether all that a plan wants is there, and its address has no other rules: a quick look, for many."""
        return (
            all(item in self.routes for item in wanted.routes)
            and all(self.rules[rule] == 1 for rule in wanted.rules)
            and self.rules_about[wanted.rules[0].address] == len(wanted.rules)
            and all(item in self.proxies for item in wanted.proxies)
        )

    def led_to(self, link: int) -> set[str]:
        """The addresses that the main table leads to a link, by its index."""
        there = (item for item in self.routes if item.table == MAIN and item.device == link)
        return {item.destination.partition("/")[0] for item in there}

    def about(self, addresses: Iterable[str]) -> list[HostRule | Proxy]:
        """Rules, each as often as it is there, and proxy entries of these addresses."""
        wanted = set(addresses)
        return [
            *(rule for rule in self.rules.elements() if rule.address in wanted),
            *(proxy for proxy in self.proxies if proxy.address in wanted),
        ]

    def left_behind(self) -> set[tuple[int, int]]:
        """Tables of uplinks (family and number) that no rule names any more, though they still end in `unreachable`."""
        ends = (item for item in self.routes if item.kind == UNREACHABLE and is_uplinks(item.table))
        return {(item.family, item.table) for item in ends} - {(rule.family, rule.table) for rule in self.rules}

    def unused(self, tables: Iterable[tuple[int, int]]) -> list[HostRoute]:
        """The routes in those of these tables (family and number) that no rule names."""
        free = set(tables) - {(rule.family, rule.table) for rule in self.rules}
        return [item for item in self.routes if is_uplinks(item.table) and (item.family, item.table) in free]


@dataclass(frozen=True)
class Change:
    """From what is there to what should be: `first` goes, then `new` comes, then `last` goes.

    Rules to another table go after the new one is there: in between, the older one counts, and not the main table.
    """

    first: tuple[HostRoute, ...] = ()
    new: tuple[HostRoute | HostRule | Proxy, ...] = ()
    last: tuple[HostRoute | HostRule | Proxy, ...] = ()


def change(wanted: Plan, seen: Seen, is_pods: Callable[[int], bool]) -> Change:
    """What is to be done for an address. `is_pods`: whether a link, by its index, is the host's end of a pod's pair.

    Raises ConfigError if other addresses leave by the same uplink and another gateway.
    """
    to_pod, rules = wanted.to_pod, wanted.rules
    address, table, family = rules[0].address, rules[1].table, to_pod.family
    former = tuple(
        item for item in seen.routes
        if item.table == MAIN and item.destination == to_pod.destination and item != to_pod and is_pods(item.device)
    )  # fmt: skip
    there = [item for item in seen.routes if item.table == table and item.family == family]
    others = any(rule.table == table and rule.family == family and rule.address != address for rule in seen.rules)
    stale = [item for item in there if item not in wanted.uplink]
    if others:
        _refuse_two_gateways(wanted, stale)
        stale = []
    new: list[HostRoute | HostRule | Proxy] = [item for item in (*wanted.uplink, to_pod) if item not in seen.routes]
    new += [item for item in rules if item not in seen.rules]
    new += [item for item in wanted.proxies if item not in seen.proxies]
    spare = Counter({rule: count for rule, count in seen.rules.items() if rule.address == address}) - Counter(rules)
    proxies = [item for item in seen.proxies if item.address == address and item not in wanted.proxies]
    return Change(former, tuple(new), (*spare.elements(), *proxies, *stale))


def _refuse_two_gateways(wanted: Plan, stale: Iterable[HostRoute]) -> None:
    mine = wanted.uplink[-1]
    for item in stale:
        if item.destination == mine.destination and item.kind == UNICAST:
            raise ConfigError(
                "ipam", f"the gateway {mine.gateway or 'none'} is given, but other pods leave by the same uplink and "
                f"{item.gateway or 'no gateway'}", "one gateway for an uplink and family",
            )  # fmt: skip


def words(thing: HostRoute | HostRule | Proxy) -> str:
    """It, for a person."""
    if isinstance(thing, Proxy):
        return f"the proxy entry of {thing.address}"
    if isinstance(thing, HostRule):
        way = "to" if thing.table == MAIN else "from"
        return f"the rule {way} {thing.address}, priority {thing.priority}, table {thing.table}"
    kind = "" if thing.kind == UNICAST else thing.kind + " "
    by = f" via {thing.gateway}" if thing.gateway else ""
    return f"the route {kind}{thing.destination}{by}, table {thing.table}"
