# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What went over a LAN or one of its ports: a capture, and the DHCP messages in it."""

from __future__ import annotations

import ipaddress
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from .proc import PLAIN, LabError, until

DHCP = "udp port 67 or udp port 68 or (vlan and (udp port 67 or udp port 68))"
"""A filter for DHCP of IPv4, tagged or not."""
TYPES = ("", "DISCOVER", "OFFER", "REQUEST", "DECLINE", "ACK", "NAK", "RELEASE", "INFORM")
COOKIE = b"\x63\x82\x53\x63"


@dataclass(frozen=True)
class Message:
    """A DHCP message (RFC 2131). `client` is the client identifier in hex, "" without one; so are other options."""

    time: float
    type: str
    mac: str
    client: str
    source: str
    ciaddr: str
    yiaddr: str
    requested: str
    server: str
    vlans: tuple[int, ...]


class Capture:
    """tcpdump at work while the context stands; what it saw is read during it or afterwards.

    Made by `Lan.capture`. `path` is the capture file.
    """

    def __init__(self, enter: list[str], device: str, words: str, path: Path) -> None:
        self._argv = [*enter, "tcpdump", "-Z", "root", "-i", device, "-n", "-U", "--immediate-mode", "-s", "0"]
        self._argv += ["-w", str(path), words]
        self.path = path
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Capture:
        log = self.path.with_suffix(".log")
        with open(log, "wb") as stream:
            self._process = subprocess.Popen(
                self._argv, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, env=PLAIN, start_new_session=True
            )
        process = self._process

        def listening() -> bool:
            text = log.read_text(encoding="utf-8", errors="replace")
            if process.poll() is not None:
                raise LabError(f"tcpdump ended: {text}")
            return "listening on" in text

        until(listening, 30, "tcpdump listens", 0.01)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """Ends the capture; what was seen until now is in the file."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(timeout=5)
            self._process = None

    def frames(self) -> list[tuple[float, bytes]]:
        """The frames so far, each with its time in seconds since the epoch."""
        return list(_frames(self.path.read_bytes()))

    def dhcp(self) -> list[Message]:
        """The DHCP messages of IPv4 so far, in order."""
        read = (_message(time, frame) for time, frame in self.frames())
        return [message for message in read if message is not None]


def _frames(data: bytes) -> Iterator[tuple[float, bytes]]:
    """The frames of a file as tcpdump writes it on this machine; a last one that is not whole yet is left out."""
    place = 24
    while place + 16 <= len(data):
        seconds, micros, size, _whole = struct.unpack_from("=IIII", data, place)
        if place + 16 + size > len(data):
            return
        yield seconds + micros / 1e6, data[place + 16 : place + 16 + size]
        place += 16 + size


def _message(time: float, frame: bytes) -> Message | None:
    kind, place, vlans = frame[12:14], 14, []
    while kind in (b"\x81\x00", b"\x88\xa8"):
        vlans.append(int.from_bytes(frame[place : place + 2], "big") & 0xFFF)
        kind, place = frame[place + 2 : place + 4], place + 4
    packet = frame[place:]
    if kind != b"\x08\x00" or len(packet) < 28 or packet[9] != 17:
        return None
    start = (packet[0] & 0xF) * 4 + 8
    body = packet[start:]
    if len(body) < 240 or body[236:240] != COOKIE:
        return None
    options = _options(body[240:])
    return Message(
        time=time,
        type=TYPES[options.get(53, b"\0")[0]],
        mac=body[28:34].hex(":"),
        client=options.get(61, b"").hex(),
        source=_address(packet[12:16]),
        ciaddr=_address(body[12:16]),
        yiaddr=_address(body[16:20]),
        requested=_address(options.get(50, b"")),
        server=_address(options.get(54, b"")),
        vlans=tuple(vlans),
    )


def _address(data: bytes) -> str:
    return "" if len(data) != 4 or data == bytes(4) else str(ipaddress.IPv4Address(data))


def _options(data: bytes) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    place = 0
    while place < len(data) and data[place] != 255:
        if data[place] == 0:
            place += 1
            continue
        size = data[place + 1] if place + 1 < len(data) else 0
        found[data[place]] = data[place + 2 : place + 2 + size]
        place += 2 + size
    return found
