# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The short way to the Open vSwitch database for calls of pods.

`session.py` copies the database into memory first, which takes longer than an ADD may. Here a connection follows the
ports of pods alone: that of one attachment for a call in a process of its own, those of all for the agent, which keeps
it. tests/integration/test_fastpath.py shows that what this writes is what the library writes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import Any

from ..errors import DeadlineExceeded, OvsdbError
from ..model.ownership import KEY_OWNER, OWNER_OVS, Mark
from .attachments import Attachment
from .daemon import is_at_work, is_there, pulse
from .jsonrpc import Connection, Duplicate, TimedOut
from .lookup import answer, many, questions, select
from .podport import EMPTY, SCHEMA, WAKE, PodPort, carries, removal
from .replica import Link, Port, Replica

_SETTLE_SECONDS = 1.0
"""How long an ovs-vswitchd may get nowhere at all before it counts as frozen, and how long a link may be there before
its word counts that it is not.
"""
_MOST_WAITS = 3
"""How many times as long a busy one may take."""
_SILENT_SECONDS = 0.3
"""How long a database may take to answer that has just kept somebody waiting in vain."""
_SWITCH = "is it running? systemctl status ovs-vswitchd"


@contextlib.contextmanager
def open_switch(
    endpoint: str, seconds: float, port: str = "", unanswered: list[Connection] | None = None
) -> Iterator[Switch]:  # fmt: skip
    """A connection for one call, which follows the port of that name if one is given.

    If the server still owes an answer at the end, the connection is added to `unanswered` and stays open: see `drain`.
    Raises OvsdbUnavailable if the server is not there within `seconds`.
    """
    replica = Replica(port)
    connection = Connection(endpoint, seconds, replica.update)
    try:
        if port:
            connection.monitor(replica.tables(), time.monotonic() + seconds)
        yield Switch(connection, replica, seconds)
    finally:
        if unanswered is not None and connection.owed:
            unanswered.append(connection)
        else:
            connection.close()


class Switch:
    """The ports of pods on a node's bridges. `seconds` is how long the server may take to answer."""

    def __init__(self, connection: Connection, replica: Replica, seconds: float) -> None:
        self._connection = connection
        self._replica = replica
        self._seconds = seconds
        self._inserted = self._marked = self._done = -1
        self._unasked: set[int] = set()
        """What was sent and whose result nobody has asked for yet."""

    def close(self) -> None:
        """The call is over: what was sent for it is not waited for any more."""
        for number in self._unasked:
            self._connection.forget(number)

    @property
    def usable(self) -> bool:
        """Whether the connection still lasts."""
        return self._connection.lasts()

    def bridges(self) -> list[str]:
        """The names of all bridges."""
        (rows,) = self._transact([select("Bridge", [], ["name"])])
        return sorted(row["name"] for row in rows["rows"])

    def attachments(self) -> list[Attachment]:
        """All ports of pods, whichever bridge they are on."""
        return answer(*self._transact(questions([carries({KEY_OWNER: OWNER_OVS})])))

    def attachment(self, name: str) -> Attachment | None:
        """The pod's port of that name."""
        found = answer(*self._transact(questions([["name", "==", name]])))
        return found[0] if found else None

    def begin(self, port: PodPort) -> None:
        """Sends the port to the server, without one of the same name that a dead call has left: `settle` comes later.

        Its link may be made afterwards.
        """
        stale = self._replica.ports.get(port.name)
        before = removal([stale.uuid], [(stale.container_id, stale.ifname)] if stale.limited else []) if stale else []
        operations = [*before, *port.insert(), WAKE, select(SCHEMA, [], ["cur_cfg"])]
        self._inserted = self._send(operations)

    def inserted(self, port: PodPort) -> None:
        """Waits until the server has taken what `begin` sent.

        Raises TimedOut if there is no such bridge, OvsdbError.
        """
        try:
            results = self._result(self._inserted)
        except Duplicate:
            if port.name not in self._replica.ports:
                raise
            self.begin(port)  # a dead call's port came to the server after we had looked
            results = self._result(self._inserted)
        self._done = int(results[-1]["rows"][0]["cur_cfg"])

    def mark(self, port: PodPort, mark: Mark) -> None:
        """Sends the port's final mark to the server: `settle` comes later."""
        self._marked = self._send(port.write_mark(mark)) if mark != port.mark else -1

    def settle(self, port: PodPort, seconds: float) -> int:
        """Waits until ovs-vswitchd forwards for the port, whose link must be there, and the server has its mark.

        Gives its OpenFlow number. Raises OvsdbError if it cannot be used, DeadlineExceeded after `seconds`, or sooner
        if ovs-vswitchd does nothing at all.
        """
        link = self._opened(port.name, time.monotonic() + seconds)
        if link.ofport is None or link.ofport < 0:
            raise OvsdbError(f"ovs-vswitchd cannot use {port.name}: {link.error or 'it gives no reason'}")
        if self._marked >= 0:
            self._result(self._marked)
        if link.error:
            # What it could not open and then could, one right after the other, keeps the error of the first time.
            self._transact(port.forget_error())
        return link.ofport

    def abandon(self, port: PodPort) -> None:
        """Takes away what `begin` sent, even if that has not come to the server yet. Raises OvsdbError."""
        self._transact([*port.remove(), WAKE])

    def detach(self, name: str) -> bool:
        """Takes the followed port of that name away; False if it was not there. Raises OvsdbError."""
        known = self._replica.ports.get(name)
        self._remove([known] if known else [])
        late = self._replica.ports.get(name)
        if late is not None:  # it came to the server after we had looked, or is another one than we knew
            self._remove([late])
        return known is not None or late is not None

    def followed(self, name: str) -> Port | None:
        """The port of that name, as far as it is followed. Asks nobody."""
        return self._replica.ports.get(name)

    def vlan_limit(self) -> int:
        """How many VLAN headers the switch looks at, 0 for all (ovs-vswitchd.conf.db(5), `vlan-limit`; 1 if unset)."""
        other_config = dict(self.column(SCHEMA, [], "other_config")[1])
        return int(other_config.get("vlan-limit", "1"))

    def rule_of(self, bridge: str) -> str:
        """What decides with flows of its own what the bridge forwards, in words; empty if it is a plain switch."""
        where = [["name", "==", bridge]]
        if self.column("Bridge", where, "controller") not in (None, EMPTY):
            return "has an OpenFlow controller"
        return "has the fail mode secure" if self.column("Bridge", where, "fail_mode") == "secure" else ""

    def holder_of(self, bridge: str, ofport: int) -> str:
        """The interface that has this OpenFlow number on a bridge, empty if it is free."""
        (links,) = self._transact([select("Interface", [["ofport", "==", ofport]], ["_uuid", "name"])])
        for link in links["rows"]:
            (ports,) = self._transact([select("Port", [["interfaces", "includes", link["_uuid"]]], ["_uuid"])])
            for port in ports["rows"]:
                where = [["name", "==", bridge], ["ports", "includes", port["_uuid"]]]
                if self.column("Bridge", where, "name") is not None:
                    return str(link["name"])
        return ""

    def detach_all(self, found: Iterable[Attachment]) -> None:
        """Takes these ports away; those that are gone meanwhile are done. Raises OvsdbError."""
        ports = [Port(item.uuid, item.mark.container_id, item.mark.ifname, item.ingress_rate > 0) for item in found]
        if ports:
            self._remove(ports)

    def drop_stray_limits(self) -> None:
        """Removes pods' shapers that no port has any more, as after `ovs-vsctl del-port`. Raises OvsdbError."""
        ours = [carries({KEY_OWNER: OWNER_OVS})]
        shapers, ports = self._transact([
            select("QoS", ours, ["_uuid", "queues"]), select("Port", [["qos", "!=", EMPTY]], ["qos"]),
        ])  # fmt: skip
        used = [row["qos"] for row in ports["rows"]]
        stray = [row for row in shapers["rows"] if row["_uuid"] not in used]
        gone = [("QoS", row["_uuid"]) for row in stray]
        gone += [("Queue", queue) for row in stray for _number, queue in row["queues"][1]]
        if gone:
            self._transact([
                {"op": "delete", "table": table, "where": [["_uuid", "==", uuid]]} for table, uuid in gone
            ])  # fmt: skip

    def broken(self) -> list[Attachment]:
        """The ports of pods that ovs-vswitchd cannot use."""
        where = [carries({KEY_OWNER: OWNER_OVS}), ["error", "!=", EMPTY]]
        (rows,) = self._transact([select("Interface", where, ["name"])])
        return [item for item in self.attachments() if item.error] if rows["rows"] else []

    def suspects(self) -> bool:
        """Whether `broken` may find something, as far as ports are followed. Asks nobody."""
        return self._connection.lasts() and any(link.unusable for link in list(self._replica.links.values()))

    def _remove(self, ports: Iterable[Port]) -> None:
        """With nothing to remove the answer still says that all that the server knows is known here."""
        gone = list(ports)
        limited = [(port.container_id, port.ifname) for port in gone if port.limited]
        self._transact([*removal([port.uuid for port in gone], limited), WAKE] if gone else [])

    def release(self, nic: str) -> str:
        """Takes a NIC out of the bridge that it is in and gives that one's name, "" for none; waits for no switch.

        For a node's rescue, which has no time for the library. Raises OvsdbError.
        """
        (links,) = self._transact([select("Interface", [["name", "==", nic]], ["_uuid"])])
        for link in links["rows"]:
            where = ["interfaces", "includes", link["_uuid"]]
            (ports,) = self._transact([select("Port", [where], ["_uuid", "interfaces"])])
            for port in ports["rows"]:
                where = ["ports", "includes", port["_uuid"]]
                (bridges,) = self._transact([select("Bridge", [where], ["_uuid", "name"])])
                for bridge in bridges["rows"]:
                    alone = len(many(port["interfaces"])) == 1
                    table, row, column, gone = (
                        ("Bridge", bridge, "ports", port) if alone else ("Port", port, "interfaces", link)
                    )
                    change = {"op": "mutate", "table": table, "where": [["_uuid", "==", row["_uuid"]]],
                              "mutations": [[column, "delete", gone["_uuid"]]]}  # fmt: skip
                    self._transact([change, WAKE])
                    return str(bridge["name"])
        return ""

    def wait_for_switch(self, seconds: float) -> None:
        """Until ovs-vswitchd has taken a change that is none. Raises DeadlineExceeded if it is not at work."""
        deadline = time.monotonic() + seconds
        now = select(SCHEMA, [], ["next_cfg", "cur_cfg"])
        _woken, state = self._transact([WAKE, now])
        wanted, seen = state["rows"][0]["next_cfg"], state["rows"][0]["cur_cfg"]
        while seen < wanted:
            left = max(deadline - time.monotonic(), 0.001)
            wait = {"op": "wait", "table": SCHEMA, "where": [], "columns": ["cur_cfg"], "until": "!=",
                    "rows": [{"cur_cfg": seen}], "timeout": int(left * 1000)}  # fmt: skip
            try:
                state = self._transact([wait, now], left)[-1]
            except TimedOut as error:
                raise DeadlineExceeded("waited in vain for ovs-vswitchd to take a change", _SWITCH) from error
            seen = state["rows"][0]["cur_cfg"]

    def column(self, table: str, where: list[Any], column: str) -> Any:
        """The value of a column of the first row, as JSON; None without a row."""
        (found,) = self._transact([select(table, where, [column])])
        return found["rows"][0][column] if found["rows"] else None

    def _opened(self, name: str, deadline: float) -> Link:
        """What ovs-vswitchd says of the interface. That it cannot open a link counts when the link has been there for
        a while: it looks again when it hears of it. And not if it has ended since, or stands still.
        """
        links = self._replica.links

        def forwards() -> bool:
            link = links.get(name)
            return link is not None and link.ofport is not None and link.ofport > 0

        def said() -> bool:
            link = links.get(name)
            return link is None or link.ofport is not None

        before, waits = pulse(), 0
        while not self._connection.until(forwards, min(deadline, time.monotonic() + _SETTLE_SECONDS)):
            if name not in links:
                raise OvsdbError(f"interface {name} is not in the Open vSwitch database any more")
            waits += 1
            last, before = before, pulse()
            if said() and is_there(before) and (waits == _MOST_WAITS or not is_at_work(last, before)):
                break
            if time.monotonic() >= deadline or not (is_at_work(last, before) or self._has_moved()):
                raise DeadlineExceeded(f"waited in vain for ovs-vswitchd to open {name}", _SWITCH)
        return links[name]

    def _has_moved(self) -> bool:
        """Whether ovs-vswitchd has come any further since the last look."""
        before, self._done = self._done, int(self.column(SCHEMA, [], "cur_cfg"))
        return self._done != before

    def _deadline(self) -> float:
        """A server that has just kept somebody waiting in vain is not waited for as long again."""
        seconds = min(self._seconds, _SILENT_SECONDS) if self._connection.silent else self._seconds
        return time.monotonic() + seconds

    def _send(self, operations: list[Any]) -> int:
        number = self._connection.send(operations, self._deadline())
        self._unasked.add(number)
        return number

    def _result(self, number: int) -> list[Any]:
        self._unasked.discard(number)
        return self._connection.result(number, self._deadline())

    def _transact(self, operations: list[Any], longer: float = 0.0) -> list[Any]:
        return self._connection.transact(operations, self._deadline() + longer)
