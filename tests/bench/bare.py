# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ovs-vswitchd's own share of an ADD: how long it takes to open a port whose link is up and known to it already."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from typing import Any

from .place import DATABASE, SWITCH, VLAN, Place

PORT = "bare"
_SECONDS = 30.0
_WAKE = {"op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]]}
_HERE = [["name", "==", SWITCH]]


class Bare:
    """Puts one link into the bridge and takes it out again, by nothing but JSON on a unix socket (RFC 7047)."""

    def __init__(self, place: Place) -> None:
        place.ours.sh(f"ip link add {PORT} up type veth peer name {PORT}-other; ip link set {PORT}-other up")
        self._path = str(place.ours.host_path(DATABASE))

    def insert(self, rest: Callable[[], None]) -> float:
        """Milliseconds from the transaction to the port's `ofport`; the port goes again. Rests before both."""
        with socket.socket(socket.AF_UNIX) as pipe:
            pipe.settimeout(_SECONDS)
            pipe.connect(self._path)
            session = _Session(pipe)
            # Told of changes of this interface only, as `monitor_cond` of ovsdb-server(7) has it.
            wanted = {"Interface": [{"columns": ["ofport", "error"], "where": [["name", "==", PORT]]}]}
            session.ask("monitor_cond", ["Open_vSwitch", None, wanted])
            rest()
            began = time.perf_counter()
            session.send("transact", insertion())
            ofport = session.ofport()
            took = (time.perf_counter() - began) * 1000
            if ofport < 0:
                raise RuntimeError(f"ovs-vswitchd cannot open {PORT}")
            rest()
            (found, _gone) = session.ask("transact", ["Open_vSwitch", _select(), _WAKE])
            port = found["rows"][0]["_uuid"]
            gone = {"op": "mutate", "table": "Bridge", "where": _HERE, "mutations": [["ports", "delete", port]]}
            session.ask("transact", ["Open_vSwitch", gone, _WAKE])
        return took


def insertion() -> list[Any]:
    """The transaction: an access port, its interface, and the bridge's reference."""
    return [
        "Open_vSwitch",
        {"op": "insert", "table": "Interface", "uuid-name": "link", "row": {"name": PORT}},
        {
            "op": "insert",
            "table": "Port",
            "uuid-name": "port",
            "row": {"name": PORT, "interfaces": ["named-uuid", "link"], "tag": VLAN, "vlan_mode": "access"},
        },
        {
            "op": "mutate",
            "table": "Bridge",
            "where": _HERE,
            "mutations": [["ports", "insert", ["named-uuid", "port"]]],
        },
        _WAKE,
    ]


def _select() -> dict[str, Any]:
    return {"op": "select", "table": "Port", "where": [["name", "==", PORT]], "columns": ["_uuid"]}


class _Session:
    """One connection to ovsdb-server."""

    def __init__(self, pipe: socket.socket) -> None:
        self._pipe = pipe
        self._number = 0
        self._unread = ""
        self._decoder = json.JSONDecoder()

    def send(self, method: str, params: list[Any]) -> None:
        """Sends a request and does not wait for its reply."""
        self._number += 1
        message = {"method": method, "params": params, "id": self._number}
        self._pipe.sendall(json.dumps(message, separators=(",", ":")).encode())

    def ask(self, method: str, params: list[Any]) -> Any:
        """The result of a request. Raises RuntimeError for an error."""
        self.send(method, params)
        while True:
            message = self._next()
            if message.get("id") == self._number:
                refuse_errors(message)
                return message["result"]

    def ofport(self) -> int:
        """The interface's port number when it is set; -1 if the switch cannot open it."""
        while True:
            message = self._next()
            if message.get("id") == self._number:
                refuse_errors(message)
            if message.get("method") != "update2":
                continue
            for change in message["params"][1].get("Interface", {}).values():
                row = change.get("modify") or change.get("insert") or {}
                if isinstance(row.get("ofport"), int):
                    return int(row["ofport"])

    def _next(self) -> dict[str, Any]:
        while True:
            try:
                message, end = self._decoder.raw_decode(self._unread)
            except ValueError:
                data = self._pipe.recv(1 << 16)
                if not data:
                    raise RuntimeError("ovsdb-server broke off") from None
                self._unread += data.decode()
                continue
            self._unread = self._unread[end:].lstrip()
            found: dict[str, Any] = message
            return found


def refuse_errors(reply: dict[str, Any]) -> None:
    """Raises RuntimeError for a reply with an error, of the request or of one of its operations."""
    results = reply.get("result")
    bad = [item for item in results if item and "error" in item] if isinstance(results, list) else []
    if reply.get("error") or bad:
        raise RuntimeError(f"the Open vSwitch database refused it: {reply.get('error') or bad}")
