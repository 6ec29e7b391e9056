# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the node is reached after a move as it was before: what it can find out by itself. Times are seconds."""

from __future__ import annotations

import ipaddress
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ..errors import PodnetError
from ..kernel.links import observe_links
from ..kernel.reach import echo
from ..kernel.ways import device_to, silent
from ..model.l3 import L3
from ..model.move import MOVE, Probe, Request, parse_probes
from ..vswitch.session import Session
from .carried import lacking

_LOOK_SECONDS = 1.5
_TRY_SECONDS = 2.0
_AGAIN = 0.3


@dataclass(frozen=True)
class Way:
    """How the node is reached before a move: the gateways that answer, and whether its caller comes by the NIC."""

    gateways: tuple[str, ...] = ()
    peer: str = ""
    address: str = ""


def look(l3: L3, device: str, connection: tuple[str, ...]) -> Way:
    """What holds now, so that nothing is asked for afterwards that was not there before."""
    known = sorted({route.gateway for route in l3.routes if route.gateway})
    mute = set(silent(device, known, _LOOK_SECONDS))
    gateways = tuple(gateway for gateway in known if gateway not in mute)
    peer, address = (connection[0], connection[2]) if connection else ("", "")
    if peer and device_to(peer, address) != device:
        peer = address = ""
    return Way(gateways, peer, address)


def failures(request: Request, l3: L3, way: Way, timeout: float) -> list[str]:
    """All that does not work on the target, in words; each is tried until it works or time is over."""
    deadline = time.monotonic() + timeout
    checks: list[Callable[[], str]] = [
        lambda: _port(request),
        lambda: _addresses(request, l3),
        lambda: _gateways(request, way),
        lambda: _caller(request, way),
        *(lambda probe=probe: _probe(probe) for probe in parse_probes(request.probes)),
    ]
    return [reason for check in checks for reason in _until_well(check, deadline)]


def _until_well(check: Callable[[], str], deadline: float) -> Iterator[str]:
    while True:
        reason = check()
        if not reason:
            return
        if time.monotonic() >= deadline:
            yield reason
            return
        time.sleep(_AGAIN)


def _port(request: Request) -> str:
    if request.direction != MOVE:
        return ""
    try:
        with Session.open(request.ovsdb, _TRY_SECONDS) as session:
            session.ports_ready([request.nic, request.bridge.name], _TRY_SECONDS)
    except PodnetError as error:
        return error.message
    return ""


def _addresses(request: Request, l3: L3) -> str:
    lost = lacking(l3, request.target)
    link = observe_links().get(request.target)
    if link is not None and link.duplicate:
        return f"another host on the link has {', '.join(link.duplicate)}"
    return f"{request.target} lacks {', '.join(lost)}" if lost else ""


def _gateways(request: Request, way: Way) -> str:
    mute = silent(request.target, way.gateways, _TRY_SECONDS)
    return f"the gateway {', '.join(mute)} answered before and no longer does" if mute else ""


def _caller(request: Request, way: Way) -> str:
    if not way.peer:
        return ""
    device = device_to(way.peer, way.address)
    return "" if device == request.target else f"packets to {way.peer} leave by {device}, not by {request.target}"


def _probe(probe: Probe) -> str:
    if probe.port is None:
        return "" if echo(probe.host, _TRY_SECONDS) is not None else f"the probe {probe.host} gives no echo"
    try:
        with socket.create_connection((probe.host, probe.port), _TRY_SECONDS):
            return ""
    except OSError as error:
        host = f"[{probe.host}]" if _is_ipv6(probe.host) else probe.host
        return f"the probe tcp://{host}:{probe.port} is not taken: {error}"


def _is_ipv6(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).version == 6
    except ValueError:
        return False
