# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A connection to the Open vSwitch database that many threads share: JSON-RPC (RFC 7047) with `monitor_cond`.

Any number of transactions are in flight. There is no thread that reads: whoever waits reads for all, and hands that on
to another one who still waits. So a lone call, and a plugin in its own process, pay for no other thread.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import select
import socket
import threading
import time
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from ..errors import ConfigError, OvsdbError, OvsdbUnavailable

SCHEMA = "Open_vSwitch"
START = "is it running? systemctl status ovsdb-server"
_CHUNK = 1 << 18
_FULL_SECONDS = 0.005

Updates = Mapping[str, Mapping[str, Mapping[str, Any]]]
"""By table and row: what `monitor_cond` replies, and `update2` says later (ovsdb-server(7), 4.1.12 and 4.1.14)."""


class TimedOut(OvsdbError):
    """A `wait` whose condition did not come true."""


class Duplicate(OvsdbError):
    """A row of that name is there already."""


class Connection:
    """Raises OvsdbUnavailable if the server is not there within `seconds`. `updated` gets what monitors say."""

    def __init__(self, endpoint: str, seconds: float, updated: Callable[[Updates], None]) -> None:
        if not endpoint.startswith("unix:/"):
            raise ConfigError("ovsdb", f"{endpoint!r} is not a local database", "a unix socket")
        self.endpoint = endpoint
        self.silent = False
        """Whether the server has kept somebody waiting in vain since it last said something."""
        self._updated = updated
        self._state = threading.Lock()
        self._sending = threading.Lock()
        self._number = 0
        self._replies: dict[int, Mapping[str, Any]] = {}
        self._forgotten: set[int] = set()
        self._monitor = -1
        self._waiters: dict[SimpleQueue[None], Callable[[], bool]] = {}
        self._led = False
        self._broken = ""
        self._unread = ""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._pipe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        self._pipe.setblocking(False)
        try:
            self._connect(endpoint[len("unix:") :], time.monotonic() + seconds)
        except OSError as error:
            self._pipe.close()
            reason = error.strerror or "it does not answer"
            raise OvsdbUnavailable(f"cannot open the Open vSwitch database at {endpoint}: {reason}", START) from error

    def _connect(self, path: str, deadline: float) -> None:
        while True:
            try:
                self._pipe.connect(path)
                return
            except BlockingIOError:  # many come at once: a full queue is not waited for (connect(2), EAGAIN)
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_FULL_SECONDS)

    def close(self) -> None:
        """Ends it. Who still waits gets OvsdbUnavailable."""
        with self._state:
            self._fail("was closed")
        with contextlib.suppress(OSError):
            self._pipe.shutdown(socket.SHUT_RDWR)  # wakes the one that reads
        self._pipe.close()

    def send(self, operations: list[Any], deadline: float) -> int:
        """Sends a transaction; gives its number, for `result`. `deadline` is of time.monotonic()."""
        return self._request("transact", [SCHEMA, *operations], deadline)

    def result(self, number: int, deadline: float) -> list[Any]:
        """The result of each operation of a transaction, after all have succeeded.

        Raises OvsdbError with the server's words; OvsdbUnavailable if it does not answer by the deadline.
        """
        reply = self._reply(number, deadline)
        if reply.get("error") is not None:
            raise OvsdbError(f"the Open vSwitch database refused the change: {reply['error']}")
        results: list[Any] = reply["result"]
        for result in results:
            if result and "error" in result:
                raise _refusal(result)
        return results

    def forget(self, number: int) -> None:
        """Nobody asks for the `result` of this transaction any more: it is not kept."""
        with self._state:
            if self._replies.pop(number, None) is None:
                self._forgotten.add(number)

    @property
    def owed(self) -> bool:
        """Whether the server has not answered yet what somebody has waited for in vain."""
        return bool(self._forgotten)

    def drain(self, seconds: float) -> None:
        """Waits until the server has answered that. One that cannot answer the first of two changes never reads the
        second. Raises OvsdbUnavailable if the connection ends.
        """
        self.until(lambda: not self._forgotten, time.monotonic() + seconds)

    def transact(self, operations: list[Any], deadline: float) -> list[Any]:
        """`send` and `result`."""
        return self.result(self.send(operations, deadline), deadline)

    def monitor(self, tables: Mapping[str, Any], deadline: float) -> None:
        """Begins to follow rows. What is there is handed to `updated` before this returns."""
        reply = self._reply(self._request("monitor_cond", [SCHEMA, "podnet", tables], deadline), deadline)
        if reply.get("error") is not None:
            raise OvsdbError(f"the Open vSwitch database cannot be followed: {reply['error']}")

    def lasts(self) -> bool:
        """Takes in what has come meanwhile, without waiting; False if the connection has ended."""
        with contextlib.suppress(OvsdbUnavailable):
            self.until(lambda: False, time.monotonic())
        return not self._broken

    def until(self, ready: Callable[[], bool], deadline: float) -> bool:
        """Waits until `ready` is true; False at the deadline. `ready` looks at what replies and updates changed.

        Raises OvsdbUnavailable if the connection ends.
        """
        woken: SimpleQueue[None] = SimpleQueue()
        with self._state:
            if ready():
                return True
            if self._broken:
                raise self._lost()
            self._waiters[woken] = ready
            leads = self._lead()
        try:
            while True:
                left = deadline - time.monotonic()
                if leads:
                    self._take_in(max(left, 0.0))
                elif left > 0:
                    with contextlib.suppress(Empty):
                        woken.get(timeout=left)
                with self._state:
                    if ready():
                        return True
                    if self._broken:
                        raise self._lost()
                    leads = leads or self._lead()
                if left <= 0:
                    return False
        finally:
            with self._state:
                del self._waiters[woken]
                if leads:
                    self._led = False
                if not self._led:
                    for other in self._waiters:
                        other.put(None)
                        break

    def _lost(self) -> OvsdbUnavailable:
        return OvsdbUnavailable(f"ovsdb-server at {self.endpoint} {self._broken}", START)

    def _lead(self) -> bool:
        """Whether the caller reads for all from now on."""
        if self._led:
            return False
        self._led = True
        return True

    def _request(self, method: str, params: list[Any], deadline: float) -> int:
        with self._state:
            self._number += 1
            number = self._number
            if method == "monitor_cond":
                self._monitor = number
        self._send({"method": method, "params": params, "id": number}, deadline)
        return number

    def _reply(self, number: int, deadline: float) -> Mapping[str, Any]:
        there = self.until(lambda: number in self._replies, deadline)
        with self._state:
            if not there and number not in self._replies:
                self._forgotten.add(number)
                self.silent = True
                raise OvsdbUnavailable(f"ovsdb-server at {self.endpoint} does not answer", START)
            return self._replies.pop(number)

    def _send(self, message: Mapping[str, Any], deadline: float) -> None:
        data = memoryview(json.dumps(message, separators=(",", ":")).encode())
        if not self._sending.acquire(timeout=max(deadline - time.monotonic(), 0.001)):
            raise OvsdbUnavailable(f"ovsdb-server at {self.endpoint} does not answer", START)
        try:
            sent = 0
            while sent < len(data):
                try:
                    sent += self._pipe.send(data[sent:])
                except BlockingIOError:
                    if not _wait_for(self._pipe, select.POLLOUT, max(deadline - time.monotonic(), 0.0)):
                        if sent:  # half a message: nobody can speak after it
                            self._fail_aloud("does not take what it is told")
                        raise OvsdbUnavailable(f"ovsdb-server at {self.endpoint} does not answer", START) from None
        except OSError as error:
            reason = f"broke off: {error.strerror}"
            self._fail_aloud(reason)
            raise OvsdbUnavailable(f"ovsdb-server at {self.endpoint} {reason}", START) from error
        finally:
            self._sending.release()

    def _take_in(self, seconds: float) -> None:
        """Reads what there is, or comes within `seconds`, and wakes those for whom it was."""
        try:
            if not _wait_for(self._pipe, select.POLLIN, seconds):
                return
            data = self._pipe.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail_aloud(f"broke off: {error.strerror}")
            return
        if not data:
            self._fail_aloud("has ended the connection")
            return
        self.silent = False
        self._unread += self._decode(data)
        for message in self._messages():
            self._handle(message)

    def _messages(self) -> list[Mapping[str, Any]]:
        found = []
        decoder = json.JSONDecoder()
        text = self._unread
        start = 0
        while start < len(text):
            try:
                message, start = decoder.raw_decode(text, start)
            except ValueError:
                break
            found.append(message)
            while start < len(text) and text[start].isspace():
                start += 1
        self._unread = text[start:]
        return found

    def _handle(self, message: Mapping[str, Any]) -> None:
        method = message.get("method")
        if method == "echo":
            try:
                self._send({"id": message["id"], "result": message["params"], "error": None}, time.monotonic() + 1.0)
            except OvsdbUnavailable:  # not the caller's trouble, who only reads for all
                self._fail_aloud("does not take what it is told")
            return
        with self._state:
            if method == "update2":
                self._updated(message["params"][1])
            elif method is None:
                self._keep(message)
            for woken, ready in self._waiters.items():
                if ready():
                    woken.put(None)

    def _keep(self, message: Mapping[str, Any]) -> None:
        number = message.get("id")
        if number == self._monitor and message.get("error") is None:
            self._updated(message["result"])  # before what comes behind it
        if number in self._forgotten:
            self._forgotten.discard(number)
        elif isinstance(number, int):
            self._replies[number] = message

    def _fail_aloud(self, reason: str) -> None:
        with self._state:
            self._fail(reason)

    def _fail(self, reason: str) -> None:
        self._broken = self._broken or reason
        for woken in self._waiters:
            woken.put(None)


def _wait_for(pipe: socket.socket, event: int, seconds: float) -> bool:
    poll = select.poll()
    poll.register(pipe, event)
    return bool(poll.poll(seconds * 1000))


def _refusal(result: Mapping[str, Any]) -> OvsdbError:
    if result["error"] == "timed out":
        return TimedOut("what the change needs is not there any more: was the bridge removed?")
    details = result.get("details") or result["error"]
    twice = result["error"] == "constraint violation" and "identical" in str(details)
    return (Duplicate if twice else OvsdbError)(f"the Open vSwitch database refused the change: {details}")
