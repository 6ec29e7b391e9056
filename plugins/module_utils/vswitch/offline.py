# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Open vSwitch database as a file, for when no server has it open: at boot, before Open vSwitch starts, and after.

`ovsdb-tool` does the reading and the writing. It refuses a file whose end was lost in a power cut, which ovsdb-server
reads up to there; so such a file is cut to its whole records first, as the server would with its next write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..errors import DeadlineExceeded, OvsdbError, OvsdbUnavailable
from ..model.paths import CONF_DBS, OVSDB, RUN
from .dbfile import sync_database, whole_length
from .lookup import many

_SCHEMA = "Open_vSwitch"
_SECONDS = 10.0


def database() -> str:
    """The file of this node's database: the first there is of the places where distributions keep it."""
    return next((path for path in CONF_DBS if os.path.exists(path)), CONF_DBS[0])


def served(endpoint: str = OVSDB) -> bool:
    """Whether a server listens there, at work or not. Then its file is its own."""
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)) as pipe:
        pipe.settimeout(1.0)
        try:
            pipe.connect(endpoint[len("unix:") :])
        except socket.timeout:
            return True
        except OSError:
            return False
        return True


def bridges(db: str) -> Mapping[str, tuple[str, ...]]:
    """For each bridge the names of its interfaces; nothing for a file that is not there, or is empty.

    Raises OvsdbError for one that is no database, OvsdbUnavailable without ovsdb-tool.
    """
    return {str(row["name"]): tuple(sorted(nics)) for row, nics in _bridges(db)} if _length(db) else {}


def marked(db: str, key: str) -> tuple[tuple[str, str, str], ...]:
    """The ports whose external_ids hold this key: bridge, interface and the key's value. Raises OvsdbError."""
    if not _length(db):
        return ()
    rows, ports, links = _query(
        db,
        [
            _select("Bridge", [], ["name", "ports"]),
            _select("Port", [], ["_uuid", "interfaces", "external_ids"]),
            _select("Interface", [], ["_uuid", "name"]),
        ],
    )
    names = {link["_uuid"][1]: str(link["name"]) for link in links}
    homes = {port[1]: str(row["name"]) for row in rows for port in many(row["ports"])}
    values = [(port, dict(port["external_ids"][1]).get(key)) for port in ports]
    return tuple(
        (homes[port["_uuid"][1]], names[link[1]], str(value))
        for port, value in values
        if value is not None
        for link in many(port["interfaces"])
    )


def remove_port(db: str, bridge: str, nic: str) -> bool:
    """Takes a NIC out of a bridge; gives whether it was in. A file that is not there, or is empty, has none.

    Of a bond the NIC alone goes. When this returns, it is on the disk. Raises OvsdbError, OvsdbUnavailable;
    DeadlineExceeded if ovsdb-tool hangs. The file is then as it was.
    """
    if not _length(db):
        return False
    changes = []
    for port, uuid in _ports(db, bridge):
        nics = [link for link in many(port["interfaces"]) if link[1] in _uuids(db, nic)]
        if nics and len(nics) < len(many(port["interfaces"])):
            changes.append(_mutate("Port", port["_uuid"], "interfaces", nics))
        elif nics or port["name"] == nic:
            changes.append(_mutate("Bridge", uuid, "ports", [port["_uuid"]]))
    return _change(db, changes)


def remove_bridge(db: str, name: str) -> bool:
    """Removes a bridge with all its ports; gives whether it was there. Otherwise as `remove_port`."""
    if not _length(db):
        return False
    (root,) = _query(db, [_select(_SCHEMA, [], ["_uuid"])])
    rows = [row for row, _nics in _bridges(db) if row["name"] == name]
    return _change(db, [_mutate(_SCHEMA, item["_uuid"], "bridges", [row["_uuid"]]) for item in root for row in rows])


def _bridges(db: str) -> Iterator[tuple[Mapping[str, Any], list[str]]]:
    """Each bridge's row, with the names of its interfaces."""
    rows, ports, links = _query(
        db,
        [
            _select("Bridge", [], ["_uuid", "name", "ports"]),
            _select("Port", [], ["_uuid", "interfaces"]),
            _select("Interface", [], ["_uuid", "name"]),
        ],
    )
    names = {link["_uuid"][1]: link["name"] for link in links}
    members = {port["_uuid"][1]: [names[link[1]] for link in many(port["interfaces"])] for port in ports}
    for row in rows:
        yield row, [nic for port in many(row["ports"]) for nic in members[port[1]]]


def _ports(db: str, bridge: str) -> Iterator[tuple[Mapping[str, Any], Any]]:
    """Each port of a bridge, with the bridge's own uuid."""
    rows, ports = _query(
        db,
        [
            _select("Bridge", [["name", "==", bridge]], ["_uuid", "ports"]),
            _select("Port", [], ["_uuid", "name", "interfaces"]),
        ],
    )
    for row in rows:
        mine = {port[1] for port in many(row["ports"])}
        yield from ((port, row["_uuid"]) for port in ports if port["_uuid"][1] in mine)


def _uuids(db: str, interface: str) -> set[str]:
    (rows,) = _query(db, [_select("Interface", [["name", "==", interface]], ["_uuid"])])
    return {row["_uuid"][1] for row in rows}


def _query(db: str, operations: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """The rows that each `select` finds."""
    if whole_length(db) == _length(db):
        results = _tool("query", db, operations)
    else:
        with _Copy(db) as copy:
            results = _tool("query", copy, operations)
    return [result["rows"] for result in results]


def _change(db: str, operations: Sequence[Mapping[str, Any]]) -> bool:
    """Changes a copy and puts it in the place of the file in one step, or, on a full disk, over its bytes."""
    if not operations:
        return False
    db = os.path.realpath(db)
    with _Copy(db) as copy:
        _tool("transact", copy, operations)
        try:
            if os.path.dirname(copy) == os.path.dirname(db):
                _replace(copy, db)
            else:
                _overwrite(copy, db)
        except OSError as error:
            raise OvsdbError(f"cannot replace {db}: {error.strerror}") from error
    sync_database(db)
    return True


def _replace(copy: str, db: str) -> None:
    found = os.stat(db)
    os.chmod(copy, found.st_mode & 0o7777)
    os.chown(copy, found.st_uid, found.st_gid)
    sync_database(copy)
    os.replace(copy, db)


def _overwrite(copy: str, db: str) -> None:
    """Needs no room: without its history a database is shorter. A power cut meanwhile costs the database."""
    _run("compact", copy)
    with open(copy, "rb") as file:
        data = file.read()
    if len(data) > os.stat(db).st_size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with open(db, "r+b") as file:
        file.write(data)
        file.truncate()
        file.flush()
        os.fsync(file.fileno())


class _Copy:
    """A copy of the whole records of a file, beside it or, on a full disk, in memory; gone at the end."""

    def __init__(self, db: str) -> None:
        self._db = db
        name = f".{os.path.basename(db)}.podnet"
        self._places = [f"{os.path.dirname(db) or '.'}/{name}", f"{RUN}/{name}"]

    def __enter__(self) -> str:
        length = whole_length(self._db)
        if not length:
            raise OvsdbError(
                f"{self._db} is no Open vSwitch database any more", "Open vSwitch makes a new one at start"
            )
        reason = ""
        for path in self._places:
            try:
                os.makedirs(os.path.dirname(path), exist_ok=True)
                shutil.copyfile(self._db, path)
                os.truncate(path, length)
            except OSError as error:
                reason = reason or str(error.strerror)
                self._clear()
            else:
                return path
        raise OvsdbError(f"cannot copy {self._db}: {reason}", "make room on that disk")

    def __exit__(self, *_error: object) -> None:
        self._clear()

    def _clear(self) -> None:
        for place in self._places:
            folder, name = os.path.split(place)
            for path in (place, f"{folder}/.{name}.~lock~"):
                with contextlib.suppress(OSError):
                    os.unlink(path)


def _tool(verb: str, db: str, operations: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The result of each operation, after all have succeeded."""
    results = json.loads(_run(verb, db, json.dumps([_SCHEMA, *operations])))
    for result in results:
        if result is None or "error" in result:
            what = (result or {}).get("details") or (result or {}).get("error") or "it was not tried"
            raise OvsdbError(f"ovsdb-tool {verb} of {db} was refused: {what}")
    return list(results)


def _run(verb: str, *words: str) -> str:
    try:
        command = ["ovsdb-tool", verb, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except FileNotFoundError as error:
        raise OvsdbUnavailable("ovsdb-tool is not there", "install openvswitch-switch") from error
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(f"ovsdb-tool {verb} took more than {_SECONDS:.0f} seconds") from error
    if done.returncode != 0:
        raise OvsdbError(f"ovsdb-tool {verb} of {words[0]} failed: {done.stderr.strip()}")
    return done.stdout


def _select(table: str, where: list[Any], columns: list[str]) -> dict[str, Any]:
    return {"op": "select", "table": table, "where": where, "columns": columns}


def _mutate(table: str, uuid: Any, column: str, members: list[Any]) -> dict[str, Any]:
    """Takes members out of a set; the database drops rows that nothing holds any more (RFC 7047, 3.2 "isRoot")."""
    return {
        "op": "mutate",
        "table": table,
        "where": [["_uuid", "==", uuid]],
        "mutations": [[column, "delete", ["set", members]]],
    }


def _length(db: str) -> int:
    """The size of the file, 0 if there is none."""
    try:
        return os.stat(db).st_size
    except OSError:
        return 0
