# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packets between pods, and what of them is seen where."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ansible_collections.podnet.ovs.tests.lab import Pod

SNIFF = """
import socket, sys
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.bind((sys.argv[1], 0))
print("ready", flush=True)
while True:
    data, address = raw.recvfrom(65535)
    if address[2] != socket.PACKET_OUTGOING:
        print(data.hex(), flush=True)
"""


@contextmanager
def capture(pod: Pod, ifname: str = "eth0") -> Iterator[list[bytes]]:
    """The frames that arrive on a pod's interface while the context is open; the list is filled when it closes."""
    frames: list[bytes] = []
    process = pod.popen("/usr/bin/python3", "-IS", "-c", SNIFF, ifname)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"ready\n"
        yield frames
        time.sleep(0.2)
    finally:
        process.kill()
        output, _none = process.communicate()
        frames += [bytes.fromhex(line.decode()) for line in output.splitlines()]


def mac_bytes(mac: str) -> bytes:
    """A MAC address as it is on the wire."""
    return bytes.fromhex(mac.replace(":", ""))


def pings(pod: Pod, address: str, *words: str, count: int = 1, wait: int = 2) -> bool:
    """Whether a pod has exactly one answer to each of `count` echo requests, within so many seconds."""
    done = pod.run("ping", "-n", "-q", f"-c{count}", f"-W{wait}", *words, address, check=False)
    return done.returncode == 0 and f" {count} received" in done.stdout and "duplicates" not in done.stdout


@dataclass
class Stream:
    """Echo requests of one pod to an address; the numbers are known when the stream has ended."""

    sent: int = 0
    lost: int = 0


@contextmanager
def stream(pod: Pod, address: str, every: float = 0.01) -> Iterator[Stream]:
    """Sends an echo request each `every` seconds while the context is open."""
    seen = Stream()
    process = pod.popen("ping", "-n", f"-i{every}", "-W1", address)
    time.sleep(0.3)
    try:
        yield seen
        time.sleep(0.3)
    finally:
        process.send_signal(signal.SIGINT)
        output, _none = process.communicate(timeout=30)
    text = output.decode()
    seen.sent = int(re.findall(r"(\d+) packets transmitted", text)[0])
    answered = {int(number) for number in re.findall(r"icmp_seq=(\d+) ttl", text)}
    # the last one may have been on its way when the stream was ended
    seen.lost = len(set(range(1, seen.sent)) - answered)
