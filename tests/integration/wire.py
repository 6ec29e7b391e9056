# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Frames put on an interface byte by byte, and those that arrive there, with all their VLAN tags.

A frame's tags are written in a word: "" is untagged, "100" is tagged with 802.1Q, "s100" with 802.1ad, "100+5" has 100
outside and 5 inside. The kernel takes the outer tag out of what a packet socket reads and tells of it beside
(packet(7), PACKET_AUXDATA); here it is put back.
"""

from __future__ import annotations

import re
import struct
import subprocess
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from types import TracebackType

from ansible_collections.podnet.ovs.tests.lab.proc import PATIENCE, PLAIN

TAP = r"""
import socket, struct, sys, threading
AUXDATA, TAG_VALID, TPID_VALID = 8, 0x10, 0x40
raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
raw.setsockopt(263, AUXDATA, 1)
raw.bind((sys.argv[1], 0))
def send():
    for line in sys.stdin:
        raw.send(bytes.fromhex(line))
threading.Thread(target=send, daemon=True).start()
print("ready", flush=True)
while True:
    data, more, flags, address = raw.recvmsg(65535, 256)
    if address[2] == socket.PACKET_OUTGOING or b"podnet-wire" not in data:
        continue
    for level, kind, body in more:
        if (level, kind) == (263, AUXDATA):
            status, _size, _taken, _mac, _net, tci, tpid = struct.unpack("=IIIHHHH", body[:20])
            if status & TAG_VALID:
                tpid = tpid if status & TPID_VALID else 0x8100
                data = data[:12] + struct.pack("!HH", tpid, tci) + data[12:]
    print(data.hex(), flush=True)
"""
MARKER = b"podnet-wire"
TPIDS = {0x8100: "", 0x88A8: "s"}
EVERYBODY = "ff:ff:ff:ff:ff:ff"
EXPERIMENT = 0x88B5
"""IEEE's EtherType for experiments: no kernel answers it."""
EXTRA_SECONDS = 0.25
"""How long what must not come is waited for, after all that must has come."""


def mac_bytes(mac: str) -> bytes:
    """A MAC address as it is on the wire."""
    return bytes.fromhex(mac.replace(":", ""))


def tag_bytes(tags: str) -> bytes:
    """VLAN tags as they stand behind the addresses of a frame."""
    found = b""
    for word in tags.split("+") if tags else ():
        tpid = 0x88A8 if word.startswith("s") else 0x8100
        found += struct.pack("!HH", tpid, int(word.lstrip("s")))
    return found


def frame(
    number: int, source: str, tags: str = "", kind: int = EXPERIMENT, body: bytes = b"", to: str = EVERYBODY
) -> bytes:
    """A frame that `Tap` knows again by its number, which stands behind the packet."""
    start = mac_bytes(to) + mac_bytes(source) + tag_bytes(tags) + struct.pack("!H", kind)
    return start + body.ljust(46, b"\0") + MARKER + struct.pack("!I", number)


def number_of(data: bytes) -> int:
    """The number that `frame` gave it."""
    place = data.index(MARKER) + len(MARKER)
    return int.from_bytes(data[place : place + 4], "big")


def tags_of(data: bytes) -> str:
    """The VLAN tags that a frame has."""
    words = []
    place = 12
    while (tpid := int.from_bytes(data[place : place + 2], "big")) in TPIDS:
        tci = int.from_bytes(data[place + 2 : place + 4], "big")
        words.append(f"{TPIDS[tpid]}{tci & 0xFFF}")
        place += 4
    return "+".join(words)


class Tap:
    """An interface to send frames on and to hear them on, while the context stands.

    `enter`: the words before a command that make it run in the interface's namespace.
    """

    def __init__(self, enter: Sequence[str], ifname: str) -> None:
        self._lines: list[str] = []
        words = [*enter, "/usr/bin/python3", "-IS", "-c", TAP, ifname]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=PLAIN, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Tap:
        assert self._process.stdout is not None
        first = self._process.stdout.readline()
        assert first == "ready\n", first + self._process.stdout.read()
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.wait(timeout=10)
        self._reader.join(timeout=10)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def send(self, frames: Iterable[bytes]) -> None:
        """Puts frames on the wire, in order."""
        assert self._process.stdin is not None
        for data in frames:
            self._process.stdin.write(data.hex() + "\n")
        self._process.stdin.flush()

    def heard(self) -> dict[int, list[bytes]]:
        """The frames that have arrived, by their numbers."""
        found: dict[int, list[bytes]] = {}
        for line in list(self._lines):
            data = bytes.fromhex(line)
            found.setdefault(number_of(data), []).append(data)
        return found

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if re.fullmatch(r"[0-9a-f]+\n", line):
                self._lines.append(line.strip())


def await_all(wanted: Sequence[tuple[Tap, Collection[int]]], seconds: float = 5.0) -> None:
    """Waits until each of these has heard its numbers, or the time is over; and then for what must not come."""
    end = time.monotonic() + seconds * PATIENCE
    while time.monotonic() < end and not all(set(numbers) <= set(tap.heard()) for tap, numbers in wanted):
        time.sleep(0.02)
    time.sleep(EXTRA_SECONDS * PATIENCE)
