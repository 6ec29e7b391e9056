# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Echo requests at a steady rate from a LAN's gateway, and what its kernel saw of the answers, of ARP and of ND."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from ansible_collections.podnet.ovs.tests.lab import Lan

RATE = 200
"""Requests of each family in a second."""

CLIENT = r"""
import json, os, select, signal, socket, struct, sys, time
rate, addresses = int(sys.argv[1]), sys.argv[2:]
SO_TIMESTAMPNS, ETH_ARP = 35, 0x0806
ident = os.getpid() & 0xFFFF
os.nice(-10)  # a pause of the sender is none of the network
ended = []
signal.signal(signal.SIGTERM, lambda *_args: ended.append(1))

def checksum(data):
    total = sum(struct.unpack("!%dH" % (len(data) // 2), data))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF

flows = {}
for address in addresses:
    six = ":" in address
    family, protocol = (socket.AF_INET6, socket.IPPROTO_ICMPV6) if six else (socket.AF_INET, socket.IPPROTO_ICMP)
    sock = socket.socket(family, socket.SOCK_RAW, protocol)
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    sock.setblocking(False)
    flows[sock] = {"address": address, "six": six, "sent": [], "seen": {}, "again": 0}
arp = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_ARP))
arp.setblocking(False)
claims = set()  # who says that it has which address

def send(flow, sock):
    number = len(flow["sent"])
    body = struct.pack("!HH", ident, number & 0xFFFF) + b"podnet-echo!"
    kind = 128 if flow["six"] else 8
    total = 0 if flow["six"] else checksum(struct.pack("!BBH", kind, 0, 0) + body)
    flow["sent"].append(time.time())
    try:
        sock.sendto(struct.pack("!BBH", kind, 0, total) + body, (flow["address"], 0))
    except OSError:
        pass  # lost

def receive(flow, sock):
    while True:
        try:
            data, control, _flags, source = sock.recvmsg(2048, 128)
        except BlockingIOError:
            return
        seconds, nanoseconds = struct.unpack("=qq", control[0][2][:16])
        if not flow["six"]:
            data = data[(data[0] & 15) * 4:]
        if flow["six"] and data[0] == 136 and len(data) >= 32 and data[24] == 2:
            claims.add((socket.inet_ntop(socket.AF_INET6, data[8:24]), data[26:32].hex(":")))
        if data[0] != (129 if flow["six"] else 0) or struct.unpack_from("!H", data, 4)[0] != ident:
            continue
        low = struct.unpack_from("!H", data, 6)[0]
        number = len(flow["sent"]) - 1 - ((len(flow["sent"]) - 1 - low) & 0xFFFF)
        if number in flow["seen"]:
            flow["again"] += 1
        else:
            flow["seen"][number] = seconds + nanoseconds / 1e9

def hear():
    while True:
        try:
            frame = arp.recv(128)
        except BlockingIOError:
            return
        if frame[28:32] != bytes(4):
            claims.add((socket.inet_ntoa(frame[28:32]), frame[22:28].hex(":")))

print("ready", flush=True)
due = time.monotonic()
while not ended:
    left = due - time.monotonic()
    if left <= 0:
        for sock, flow in flows.items():
            send(flow, sock)
        due = max(due + 1 / rate, time.monotonic() - 5 / rate)
        continue
    for sock in select.select([*flows, arp], [], [], left)[0]:
        hear() if sock is arp else receive(flows[sock], sock)
stop = time.monotonic() + 1
while time.monotonic() < stop:
    for sock in select.select([*flows, arp], [], [], 0.1)[0]:
        hear() if sock is arp else receive(flows[sock], sock)
found = {}
for flow in flows.values():
    seen = flow["seen"]
    lost = [number for number in range(len(flow["sent"])) if number not in seen]
    order = sorted(seen)
    # what is between two answers, less what was between their requests beyond the rate
    gaps = [(seen[b] - seen[a], flow["sent"][b] - flow["sent"][a]) for a, b in zip(order, order[1:])]
    found[flow["address"]] = {
        "sent": len(flow["sent"]), "lost": len(lost), "again": flow["again"],
        "gap": 1000 * max(gap for gap, _sent in gaps),
        "outage": 1000 * max(gap - max(0, sent - 1 / rate) for gap, sent in gaps),
    }
print(json.dumps({"flows": found, "claims": sorted(claims)}))
"""


@dataclass
class Flow:
    """Answers of one address. `gap`: milliseconds between two of them at most; `outage`: the same, less what the sender
    itself paused; `again`: answers that came twice.
    """

    sent: int
    lost: int
    again: int
    gap: float
    outage: float


@dataclass
class Seen:
    """What the gateway saw; filled when the context ends. `claims`: address and MAC of who said to have it."""

    flows: dict[str, Flow] = field(default_factory=dict)
    claims: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def echo(lan: Lan, *addresses: str) -> Iterator[Seen]:
    """Asks these addresses from the gateway while the context is open."""
    words = ["nsenter", f"--net=/run/netns/{lan.netns}", "/usr/bin/python3", "-IS", "-c", CLIENT, str(RATE), *addresses]
    seen = Seen()
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield seen
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
        found = json.loads(output)
        seen.flows = {address: Flow(**flow) for address, flow in found["flows"].items()}
        seen.claims = [(address, mac) for address, mac in found["claims"]]
    finally:
        process.kill()
        process.wait()
