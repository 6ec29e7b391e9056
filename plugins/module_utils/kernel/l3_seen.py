# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a snapshot a device does not carry, in words."""

from __future__ import annotations

from collections.abc import Iterator

from . import l3_item as item, l3_route as route
from .l3_plan import Work, present
from .l3_read import router_routes


def lacking(work: Work) -> list[str]:
    """Everything that has not expired and is not on the target."""
    return [*_link(work), *_addresses(work), *_routes(work), *_rules(work), *_neighbours(work), *_children(work)]


def _link(work: Work) -> Iterator[str]:
    if work.target not in work.seen.links:
        yield f"the device {work.target}"
    elif not work.seen.links[work.target].up:
        yield f"{work.target} is down"


def _addresses(work: Work) -> Iterator[str]:
    for address in work.addresses():
        there = present(work, address)
        if there is None:
            yield f"address {address.cidr}"
        elif item.address_flags(there) & item.DADFAILED:
            yield f"address {address.cidr}, which another host has"


def _routes(work: Work) -> Iterator[str]:
    there = {end for body in work.seen.routes for end in route.ends(body)}
    learnt = router_routes(work.target)
    connected = {route.connected_network(body) for body in work.seen.routes} - {None}
    for entry, body in work.routes():
        carried = route.router_row(body) in learnt if entry.router else route.ends(body) <= there
        carried = carried or route.connected_network(body) in connected
        if not carried:
            yield f"route {entry.text}"


def _rules(work: Work) -> Iterator[str]:
    there = {item.rule_identity(body) for body in work.seen.rules}
    for rule in work.l3.rules:
        body = item.rule_message(bytes.fromhex(rule.message), work.l3.device, work.target)
        if item.rule_identity(body) not in there:
            yield f"rule {item.rule_text(body)}"


def _neighbours(work: Work) -> Iterator[str]:
    there = {item.neighbour_key(body) for body in work.seen.neighbours}
    for entry in work.l3.neighbours:
        body = item.neighbour_message(bytes.fromhex(entry.message), work.target_index)
        if (entry.permanent or entry.proxy) and item.neighbour_key(body) not in there:
            yield f"{'proxy' if entry.proxy else 'permanent'} neighbour {entry.address}"


def _children(work: Work) -> Iterator[str]:
    for child in work.l3.vxlan:
        link = work.seen.links.get(child.name)
        if link is not None and link.vni == child.vni and link.lower != work.target_index:
            yield f"VXLAN link {child.name}"
    for nexthop in work.l3.nexthops:
        body = route.nexthop_with_devices(bytes.fromhex(nexthop.message), work.move)
        if not any(route.nexthop_with_devices(other, route.same) == body for other in work.seen.nexthops):
            yield nexthop.text
