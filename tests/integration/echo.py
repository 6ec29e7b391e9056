# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Echo requests at a steady rate from a LAN's gateway, and what came back, by the kernel's clock at the gateway."""

from __future__ import annotations

import ipaddress
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from ansible_collections.podnet.ovs.tests.lab import Lan

RATE = 200
"""Requests of each family in a second."""
_PINGS = 2
"""ping leaves at least 10 ms between two requests, so several take turns."""
_ARP, _IPV4, _IPV6 = b"\x08\x06", b"\x08\x00", b"\x86\xdd"
_REQUESTS, _REPLIES, _ADVERTISEMENT = (8, 128), (0, 129), 136


@dataclass
class Flow:
    """Answers of one address, and milliseconds: `gap` between two of them at most, `outage` the same less what the
    sender itself paused beyond its rate. `again`: answers that came twice.
    """

    sent: int
    lost: int
    again: int
    gap: float
    outage: float
    lost_at: list[float]
    """Seconds of the epoch"""


@dataclass
class Seen:
    """What the gateway saw; filled when the context ends. `claims`: address and MAC of who said to have it."""

    flows: dict[str, Flow] = field(default_factory=dict)
    claims: set[tuple[str, str]] = field(default_factory=set)


@contextmanager
def echo(lan: Lan, *addresses: str) -> Iterator[Seen]:
    """Asks these addresses from the gateway while the context is open."""
    seen = Seen()
    with lan.capture("arp or icmp or icmp6") as capture:
        with ExitStack() as ends:
            for address in addresses * _PINGS:
                words = [*lan.enter(), "ping", "-n", "-q", f"-i{_PINGS / RATE}", address]
                ping = subprocess.Popen(words, stdout=subprocess.DEVNULL)
                ends.callback(ping.wait)
                ends.callback(ping.send_signal, signal.SIGINT)
            yield seen
        time.sleep(1)
    frames = capture.frames()
    seen.claims = {claim for _time, frame in frames for claim in claims_of(frame)}
    for address in addresses:
        seen.flows[address] = flow_of(frames, address)


def claims_of(frame: bytes) -> Iterator[tuple[str, str]]:
    """The address and the MAC that the sender of ARP or of a neighbour advertisement says to have."""
    if frame[12:14] == _ARP and frame[28:32] != bytes(4):
        yield str(ipaddress.ip_address(frame[28:32])), frame[22:28].hex(":")
    elif frame[12:14] == _IPV6 and frame[20] == 58 and frame[54] == _ADVERTISEMENT and frame[78:80] == b"\x02\x01":
        yield str(ipaddress.ip_address(frame[62:78])), frame[80:86].hex(":")


def flow_of(frames: list[tuple[float, bytes]], address: str) -> Flow:
    """What became of the requests to an address."""
    host = ipaddress.ip_address(address).packed
    four = len(host) == 4
    kind, source, target, start = (_IPV4, 26, 30, 34) if four else (_IPV6, 22, 38, 54)
    sent: dict[bytes, float] = {}
    back: dict[bytes, float] = {}
    again = 0
    for when, frame in frames:
        if frame[12:14] != kind or frame[23 if four else 20] != (1 if four else 58):
            continue
        name = frame[start + 4 : start + 8]  # identifier and sequence number
        if frame[start] in _REQUESTS and frame[target : target + len(host)] == host:
            sent[name] = when
        elif frame[start] in _REPLIES and frame[source : source + len(host)] == host:
            again += name in back
            back.setdefault(name, when)
    answered = sorted((back[name], sent[name]) for name in sent if name in back)
    pairs = list(zip(answered, answered[1:]))
    return Flow(
        sent=len(sent),
        lost=len(sent.keys() - back.keys()),
        lost_at=[when for name, when in sent.items() if name not in back],
        again=again,
        gap=1000 * max(after[0] - before[0] for before, after in pairs),
        outage=1000 * max(after[0] - before[0] - max(0.0, after[1] - before[1] - 1 / RATE) for before, after in pairs),
    )
