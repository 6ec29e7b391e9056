# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way to the Open vSwitch database for calls of pods: JSON-RPC (RFC 7047) on a plain socket.

`session.py` copies the database into memory first, which takes longer than an ADD may. Here the server does the
looking up (`select`) and the waiting (`wait`), so a call needs no copy, no thread and no state that could outlive it;
a database that restarts is simply there for the next call. tests/integration/test_fastpath.py shows that what it
writes is what the library writes.
"""

from __future__ import annotations

import codecs
import contextlib
import errno
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError, DeadlineExceeded, OvsdbError, OvsdbUnavailable
from ..model.ownership import KEY_CONTAINER_ID, KEY_IFNAME, KEY_OWNER, OWNER_OVS, Mark
from .attachments import ACCESS, Attachment

_SCHEMA = "Open_vSwitch"
_EMPTY: list[Any] = ["set", []]
_CHUNK = 1 << 18
_STALL_SECONDS = 1.2
"""How long an ovs-vswitchd may not get anywhere at all before it counts as frozen."""
_SETTLE_SECONDS = 1.0
"""How long ovs-vswitchd may take to see a link that is there when it has just said that it is not."""
_START = "is it running? systemctl status ovsdb-server"
_SWITCH = "is it running? systemctl status ovs-vswitchd"


@contextlib.contextmanager
def open_switch(endpoint: str, seconds: float) -> Iterator[Switch]:
    """A connection for one call. Raises OvsdbUnavailable if the server is not there within `seconds`."""
    if not endpoint.startswith("unix:/"):
        raise ConfigError("ovsdb", f"{endpoint!r} is not a local database", "a unix socket")
    pipe = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        pipe.settimeout(seconds)
        try:
            pipe.connect(endpoint[len("unix:") :])
        except OSError as error:
            reason = error.strerror or "it does not answer"
            raise OvsdbUnavailable(f"cannot open the Open vSwitch database at {endpoint}: {reason}", _START) from error
        yield Switch(pipe, endpoint, seconds)
    finally:
        pipe.close()


@dataclass(frozen=True)
class View:
    """Names of all bridges; the ports of one attachment (none, one, or more if something went wrong); and the ports of
    ours, whosever, that ovs-vswitchd cannot use.
    """

    bridges: tuple[str, ...]
    mine: list[Attachment]
    broken: list[Attachment]


class Switch:
    """The ports of pods on a node's bridges. For one thread. All waits end: `seconds` is how long each may take."""

    def __init__(self, pipe: socket.socket, endpoint: str, seconds: float) -> None:
        self._pipe = pipe
        self._endpoint = endpoint
        self._seconds = seconds
        self._number = 0
        self._unread = ""
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode

    def bridges(self) -> list[str]:
        """The names of all bridges."""
        (rows,) = self._transact([_select("Bridge", [], ["name"])], self._seconds)
        return sorted(row["name"] for row in rows["rows"])

    def attachments(self) -> list[Attachment]:
        """All ports of pods, whichever bridge they are on."""
        return _found(*self._transact(_questions({KEY_OWNER: OWNER_OVS}), self._seconds))

    def look(self, container_id: str, ifname: str) -> View:
        """What an ADD or DEL of this attachment has to know."""
        key = {KEY_OWNER: OWNER_OVS, KEY_CONTAINER_ID: container_id, KEY_IFNAME: ifname}
        broken = _select("Interface", [_carries({KEY_OWNER: OWNER_OVS}), ["error", "!=", _EMPTY]], ["name"])
        *mine, errors = self._transact([*_questions(key), broken], self._seconds)
        bad = {row["name"] for row in errors["rows"]}
        found = [item for item in self.attachments() if item.port in bad] if bad else []
        return View(tuple(sorted(row["name"] for row in mine[2]["rows"])), _found(*mine), found)

    def attach(self, bridge: str, port: str, vlan: int | None, mark: Mark, stale: Iterable[Attachment] = ()) -> None:
        """One transaction: an access port (`vlan` None: for untagged frames) with its mark, without the `stale` ones.

        Returns when the database has it; ovs-vswitchd then goes to work: `settle`. Raises OvsdbError.
        """
        marks = _marks(mark)
        here: list[Any] = [["name", "==", bridge]]
        # Tag 0 is an access port for untagged frames; a port without a tag would be a trunk of everything.
        access = {"tag": vlan or 0, "vlan_mode": ACCESS}
        operations = [
            {"op": "wait", "table": "Bridge", "where": here, "columns": ["name"], "until": "==",
             "rows": [{"name": bridge}], "timeout": 0},
            *_removals(stale),
            {"op": "insert", "table": "Interface", "uuid-name": "link", "row": {"name": port, "external_ids": marks}},
            {"op": "insert", "table": "Port", "uuid-name": "port",
             "row": {"name": port, "interfaces": ["named-uuid", "link"], "external_ids": marks, **access}},
            {"op": "mutate", "table": "Bridge", "where": here,
             "mutations": [["ports", "insert", ["named-uuid", "port"]]]},
            _WAKE,
        ]  # fmt: skip
        self._transact(operations, self._seconds)

    def detach(self, found: Iterable[Attachment]) -> None:
        """One transaction that removes the ports; those that are gone meanwhile are done. Raises OvsdbError."""
        removals = _removals(found)
        if removals:
            self._transact([*removals, _WAKE], self._seconds)

    def release(self, nic: str) -> str:
        """Takes a NIC out of the bridge that it is in and gives that one's name, "" for none; waits for no switch.

        For a node's rescue, which has no time for the library. Raises OvsdbError.
        """
        (links,) = self._transact([_select("Interface", [["name", "==", nic]], ["_uuid"])], self._seconds)
        for link in links["rows"]:
            where = ["interfaces", "includes", link["_uuid"]]
            (ports,) = self._transact([_select("Port", [where], ["_uuid", "interfaces"])], self._seconds)
            for port in ports["rows"]:
                where = ["ports", "includes", port["_uuid"]]
                (bridges,) = self._transact([_select("Bridge", [where], ["_uuid", "name"])], self._seconds)
                for bridge in bridges["rows"]:
                    alone = len(_many(port["interfaces"])) == 1
                    table, row, column, gone = (
                        ("Bridge", bridge, "ports", port) if alone else ("Port", port, "interfaces", link)
                    )
                    change = {"op": "mutate", "table": table, "where": [["_uuid", "==", row["_uuid"]]],
                              "mutations": [[column, "delete", gone["_uuid"]]]}  # fmt: skip
                    self._transact([change, _WAKE], self._seconds)
                    return str(bridge["name"])
        return ""

    def settle(self, port: str, mark: Mark, seconds: float) -> None:
        """Waits until ovs-vswitchd forwards for the port, whose link must be there, and completes its mark.

        Raises OvsdbError if it cannot, DeadlineExceeded after `seconds`, or sooner if it does nothing at all.
        """
        deadline = time.monotonic() + seconds
        row = self._wait_for_ofport(port, mark, _EMPTY, deadline)
        if row["ofport"] == -1:
            with contextlib.suppress(DeadlineExceeded):
                row = self._wait_for_ofport(port, mark, -1, min(deadline, time.monotonic() + _SETTLE_SECONDS))
        if row["ofport"] == -1 or row["error"] != _EMPTY:
            raise OvsdbError(f"ovs-vswitchd cannot use {port}: {_one(row['error']) or 'it gives no reason'}")

    def wait_for_switch(self, seconds: float) -> None:
        """Until ovs-vswitchd has taken a change that is none. Raises DeadlineExceeded if it is not at work."""
        deadline = time.monotonic() + seconds
        now = _select(_SCHEMA, [], ["next_cfg", "cur_cfg"])
        _woken, state = self._transact([_WAKE, now], self._seconds)
        wanted, seen = state["rows"][0]["next_cfg"], state["rows"][0]["cur_cfg"]
        while seen < wanted:
            change = {"table": _SCHEMA, "where": [], "columns": ["cur_cfg"], "rows": [{"cur_cfg": seen}]}
            state = self._wait(change, [now], "ovs-vswitchd to take a change", deadline)
            seen = state["rows"][0]["cur_cfg"]

    def _wait_for_ofport(self, port: str, mark: Mark, seen: Any, deadline: float) -> Mapping[str, Any]:
        where = [["name", "==", port]]
        change = {"table": "Interface", "where": where, "columns": ["ofport"], "rows": [{"ofport": seen}]}
        marked = {"external_ids": _marks(mark)}
        then = [{"op": "update", "table": table, "where": where, "row": marked} for table in ("Port", "Interface")]
        then.append(_select("Interface", where, ["ofport", "error"]))
        done = self._configuration()
        while True:
            try:
                stop = min(deadline, time.monotonic() + _STALL_SECONDS)
                state = self._wait(change, then, f"ovs-vswitchd to open {port}", stop)
                break
            except DeadlineExceeded:
                before, done = done, self._configuration()
                if done == before or time.monotonic() >= deadline:
                    raise
        if not state["rows"]:
            raise OvsdbError(f"interface {port} is not in the Open vSwitch database any more")
        row: Mapping[str, Any] = state["rows"][0]
        return row

    def _configuration(self) -> int:
        """How far ovs-vswitchd has come."""
        (state,) = self._transact([_select(_SCHEMA, [], ["cur_cfg"])], self._seconds)
        return int(state["rows"][0]["cur_cfg"])

    def _wait(self, change: Mapping[str, Any], then: list[Any], what: str, deadline: float) -> Any:
        """Until the rows are others than given, and then at once what is to be done; gives the last one's result.

        The server waits (RFC 7047, 5.2.6). A frozen server is given up.
        """
        left = max(deadline - time.monotonic(), 0.001)
        wait = {"op": "wait", "until": "!=", "timeout": int(left * 1000), **change}
        try:
            return self._transact([wait, *then], left + self._seconds)[-1]
        except _TimedOut as error:
            raise DeadlineExceeded(f"waited in vain for {what}", _SWITCH) from error

    def _transact(self, operations: list[Any], seconds: float) -> list[Any]:
        """The result of each operation, after all have succeeded. Raises OvsdbError, OvsdbUnavailable."""
        self._number += 1
        deadline = time.monotonic() + seconds
        try:
            self._send({"method": "transact", "params": [_SCHEMA, *operations], "id": self._number}, deadline)
            reply = self._receive(deadline)
        except (TimeoutError, socket.timeout) as error:
            raise OvsdbUnavailable(f"ovsdb-server at {self._endpoint} does not answer", _START) from error
        except OSError as error:
            raise OvsdbUnavailable(f"ovsdb-server at {self._endpoint} broke off: {error.strerror}", _START) from error
        if reply.get("error") is not None:
            raise OvsdbError(f"the Open vSwitch database refused the change: {reply['error']}")
        results: list[Any] = reply["result"]
        for result in results:
            if result and "error" in result:
                raise _refusal(result)
        return results

    def _send(self, message: Mapping[str, Any], deadline: float) -> None:
        self._pipe.settimeout(max(deadline - time.monotonic(), 0.001))
        self._pipe.sendall(json.dumps(message, separators=(",", ":")).encode())

    def _receive(self, deadline: float) -> Mapping[str, Any]:
        while True:
            message = self._next_message(deadline)
            if message.get("method") == "echo":
                self._send({"id": message["id"], "result": message["params"], "error": None}, deadline)
            elif message.get("id") == self._number:
                return message

    def _next_message(self, deadline: float) -> Mapping[str, Any]:
        decoder = json.JSONDecoder()
        while True:
            try:
                message, end = decoder.raw_decode(self._unread)
            except ValueError:
                self._pipe.settimeout(max(deadline - time.monotonic(), 0.001))
                data = self._pipe.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from None
                self._unread += self._decode(data)
                continue
            self._unread = self._unread[end:].lstrip()
            return message


class _TimedOut(OvsdbError):
    """A `wait` whose condition did not come true."""


_WAKE: Mapping[str, Any] = {"op": "mutate", "table": _SCHEMA, "where": [], "mutations": [["next_cfg", "+=", 1]]}
"""Some columns do not wake ovs-vswitchd by themselves."""


def _select(table: str, where: list[Any], columns: list[str]) -> dict[str, Any]:
    return {"op": "select", "table": table, "where": where, "columns": columns}


def _marks(mark: Mark) -> list[Any]:
    return ["map", sorted(mark.to_external_ids().items())]


def _carries(keys: Mapping[str, str]) -> list[Any]:
    return ["external_ids", "includes", ["map", sorted(keys.items())]]


def _questions(keys: Mapping[str, str]) -> list[Mapping[str, Any]]:
    """The ports that carry these keys, their interfaces, and all bridges: what `_found` puts together."""
    return [
        _select("Port", [_carries(keys)], ["_uuid", "name", "tag", "vlan_mode", "external_ids"]),
        _select("Interface", [_carries(keys)], ["name", "ofport", "error"]),
        _select("Bridge", [], ["name", "ports"]),
    ]


def _found(ports: Mapping[str, Any], interfaces: Mapping[str, Any], bridges: Mapping[str, Any]) -> list[Attachment]:
    links = {row["name"]: row for row in interfaces["rows"]}
    homes = {uuid: row["name"] for row in bridges["rows"] for _kind, uuid in _many(row["ports"])}
    found = []
    for row in ports["rows"]:
        mark = Mark.parse(dict(row["external_ids"][1]))
        if mark is not None:
            uuid = row["_uuid"][1]
            found.append(_attachment(row, uuid, links.get(row["name"], {}), homes.get(uuid, ""), mark))
    return found


def _removals(found: Iterable[Attachment]) -> list[Mapping[str, Any]]:
    """Without its bridge's reference the server drops a port and its interface by itself (RFC 7047, 3.2 "isRoot")."""
    return [
        {"op": "mutate", "table": "Bridge", "where": [["name", "==", item.bridge]],
         "mutations": [["ports", "delete", ["uuid", item.uuid]]]}
        for item in found
    ]  # fmt: skip


def _attachment(row: Mapping[str, Any], uuid: str, link: Mapping[str, Any], bridge: str, mark: Mark) -> Attachment:
    return Attachment(
        port=row["name"],
        bridge=bridge,
        mark=mark,
        tag=_one(row["tag"]),
        vlan_mode=_one(row["vlan_mode"]) or "",
        ofport=_one(link.get("ofport", _EMPTY)),
        error=_one(link.get("error", _EMPTY)) or "",
        uuid=uuid,
    )


def _many(value: Any) -> list[Any]:
    """A set's members: a set of one is written as that one (RFC 7047, 5.1 "set")."""
    return list(value[1]) if value[0] == "set" else [value]


def _one(value: Any) -> Any:
    """The member of a set of at most one, None without."""
    return None if value == _EMPTY else value


def _refusal(result: Mapping[str, Any]) -> OvsdbError:
    if result["error"] == "timed out":
        return _TimedOut("what the change needs is not there any more: was the bridge removed?")
    details = result.get("details") or result["error"]
    return OvsdbError(f"the Open vSwitch database refused the change: {details}")
