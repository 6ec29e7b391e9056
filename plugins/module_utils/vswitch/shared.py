# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One connection to the Open vSwitch database for all calls of a process that stays."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator

from ..errors import OvsdbUnavailable
from .fastpath import Switch
from .jsonrpc import START, Connection
from .replica import Replica


class SharedSwitch:
    """A connection for all calls of a process that stays. It is made anew when the server has ended it."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._open: tuple[Connection, Replica] | None = None

    @contextlib.contextmanager
    def open(self, endpoint: str, seconds: float, _port: str = "") -> Iterator[Switch]:
        """As `open_switch`."""
        connection, replica = self._connected(endpoint, seconds)
        switch = Switch(connection, replica, seconds)
        try:
            yield switch
        finally:
            switch.close()

    def close(self) -> None:
        """Ends the connection; the next call makes another one."""
        with self._turn:
            held, self._open = self._open, None
        if held:
            held[0].close()

    def _connected(self, endpoint: str, seconds: float) -> tuple[Connection, Replica]:
        deadline = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise OvsdbUnavailable(f"ovsdb-server at {endpoint} does not answer", START)
        try:
            if self._open:
                connection, replica = self._open
                if connection.endpoint == endpoint and connection.lasts():
                    return connection, replica
                connection.close()
                self._open = None
            replica = Replica()
            connection = Connection(endpoint, max(deadline - time.monotonic(), 0.01), replica.update)
            try:
                connection.monitor(replica.tables(), deadline)
            except BaseException:
                connection.close()
                raise
            self._open = connection, replica
            return connection, replica
        finally:
            self._turn.release()
