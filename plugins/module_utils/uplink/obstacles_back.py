# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of a bridge stands in the way of taking the node's NIC out of it again. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ..model.move import Request
from ..model.obstacle import BLOCKING, INFO, WARNING, Obstacle
from ..model.ownership import OWNER_NODE, Mark
from ..model.state import INTERNAL, BridgeRow, Link, PortRow, State

PATCH = "patch"


def of_bridge_left(request: Request, state: State) -> Iterator[Obstacle]:
    """What loses its way out when the NIC leaves."""
    name, nic = request.bridge.name, request.nic
    row = state.bridges.get(name)
    owner = state.port_of(nic)
    if row is None:
        yield Obstacle(INFO, f"bridge {name} is not there: {nic} only gets its addresses back")
        return
    if owner is not None and owner[0].name != name:
        yield Obstacle(BLOCKING, f"{nic} is a port of bridge {owner[0].name}, not of {name}", "name that bridge")
    if any(_has_uplink(row, port, nic) for port in row.ports.values()):
        yield Obstacle(INFO, f"bridge {name} has another uplink, which stays")
        return
    pods = []
    for port in row.ports.values():
        if port.name == name or any(item.name == nic for item in port.interfaces):
            continue
        mark = Mark.parse(port.external_ids)
        if mark is not None and mark.owner != OWNER_NODE:
            pods.append("/".join(part for part in (mark.pod_namespace, mark.pod_name) if part) or port.name)
        else:
            yield from _of_port(request, state, port, mark)
    if pods:
        shown = ", ".join(sorted(set(pods))[:5])
        more = f" and {len(set(pods)) - 5} more" if len(set(pods)) > 5 else ""
        yield Obstacle(
            WARNING, f"pods on bridge {name} lose their way out: {shown}{more}", "podnet attachments lists them"
        )


def _of_port(request: Request, state: State, port: PortRow, mark: Mark | None) -> Iterator[Obstacle]:
    name = request.bridge.name
    if any(row.type == PATCH for row in port.interfaces):
        text = f"patch port {port.name} leads from {name} to another bridge, which loses this way out"
        yield Obstacle(WARNING, text, "see that nothing there needs it")
        return
    link = state.links.get(port.name, Link(port.name))
    held = ", ".join(sorted({*link.addresses, *link.dynamic}))
    vlan = f" on VLAN {port.tag}" if port.tag else ""
    if not held:
        yield Obstacle(WARNING, f"port {port.name} of bridge {name} loses its way out")
    elif _carries(state, link):
        text = f"{port.name}{vlan} carries the node ({held}) and loses its way out with {request.nic}"
        yield Obstacle(
            BLOCKING, text, f"move its addresses and routes to another interface, then take {request.nic} out"
        )
    elif mark is None:
        text = f"{port.name}{vlan} on bridge {name} is of others, has {held} and loses its way out"
        yield Obstacle(BLOCKING, text, f"ovs-vsctl del-port {name} {port.name}, if nobody needs it")
    else:
        text = f"{port.name}{vlan} has {held}, and what is reached by it is out of reach while {name} has no uplink"
        yield Obstacle(WARNING, text, "remove the interface as well, or give the bridge another uplink")


def _carries(state: State, link: Link) -> bool:
    """Whether the node is reached by it now, or reaches others by it."""
    visit = state.visit
    here = visit.address.split("%")[0] if visit else ""
    return any(item.split("/")[0] == here for item in (*link.addresses, *link.dynamic)) or any(
        " via " in route for route in link.routes
    )


def _has_uplink(row: BridgeRow, port: PortRow, nic: str) -> bool:
    """Whether the port is another NIC that leads out: not of a pod, not the node's own, not to another bridge."""
    mark = Mark.parse(port.external_ids)
    names = [item.name for item in port.interfaces]
    kinds = {item.type for item in port.interfaces}
    return (
        port.name != row.name
        and nic not in names
        and not kinds & {INTERNAL, PATCH}
        and bool(mark is not None and mark.owner == OWNER_NODE)
    )
