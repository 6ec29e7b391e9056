# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The one place that opens the Open vSwitch database.

Nothing here waits without an end, whatever ovsdb-server or ovs-vswitchd does. All times are seconds.
"""

from __future__ import annotations

import errno
import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, TypeVar

from ..errors import ConfigError, DeadlineExceeded, OvsdbError, OvsdbUnavailable
from ..model.paths import OVSDB

try:
    from ovs import jsonrpc, poller, stream
    from ovs.db import idl as ovs_idl
    from ovsdbapp import exceptions
    from ovsdbapp.backend.ovs_idl import connection, idlutils, transaction
    from ovsdbapp.schema.open_vswitch import impl_idl
except ImportError as _error:
    MISSING: str | None = str(_error)
    _IdlBase: Any = object
    _ApiBase: Any = object
    _TransactionBase: Any = object
else:
    MISSING = None
    _IdlBase = connection.OvsdbIdl
    _ApiBase = impl_idl.OvsdbIdl
    _TransactionBase = transaction.Transaction

T = TypeVar("T")

SCHEMA = "Open_vSwitch"
_AGAIN = 0.2
COLUMNS = {
    "Open_vSwitch": ["bridges", "next_cfg", "cur_cfg", "ovs_version", "datapath_types", "external_ids", "other_config"],
    "Bridge": [
        "name", "ports", "datapath_id", "datapath_type", "fail_mode", "stp_enable", "rstp_enable", "mirrors",
        "other_config", "external_ids",
    ],
    "Port": [
        "name", "interfaces", "tag", "trunks", "vlan_mode", "bond_mode", "lacp", "qos", "other_config", "external_ids",
    ],
    "Interface": [
        "name", "type", "ofport", "error", "mac", "mac_in_use", "mtu", "mtu_request", "options",
        "ingress_policing_rate", "ingress_policing_burst", "other_config", "external_ids",
    ],
    "QoS": ["type", "queues", "other_config", "external_ids"],
    "Queue": ["other_config", "external_ids"],
    "Mirror": [
        "name", "select_all", "select_src_port", "select_dst_port", "output_port", "output_vlan", "external_ids",
    ],
}  # fmt: skip
"""What is copied into memory. Statistics are left out on purpose: they change every few seconds, on each port."""

logging.getLogger("ovsdbapp").addHandler(logging.NullHandler())


class _Changes:
    """A counter that threads can wait on: one step for each row that the server reports."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.count = 0

    def step(self) -> None:
        with self._condition:
            self.count += 1
            self._condition.notify_all()

    def wait_past(self, seen: int, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self.count != seen, seconds)


class _Idl(_IdlBase):
    """The database's copy in memory, which tells `changes` about each row."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.changes = _Changes()
        super().__init__(*args, **kwargs)

    def notify(self, event: Any, row: Any, updates: Any = None) -> None:
        self.changes.step()


class _Api(_ApiBase):
    """ovsdbapp's commands, with a connection of their own.

    ovsdbapp keeps the connection in a class attribute: a second endpoint in one process would silently get the first.
    """

    _own: Any = None

    @property
    def ovsdb_connection(self) -> Any:
        return self._own

    @ovsdb_connection.setter
    def ovsdb_connection(self, value: Any) -> None:
        self._own = value


class _Transaction(_TransactionBase):
    """One transaction with an end in time, whose failures are raised.

    ovsdbapp's own waits for the reply without an end, and only logs what ovs-vswitchd could not do.
    """

    def __init__(self, api: Any, commands: Iterable[Any], deadline: float) -> None:
        super().__init__(api, api.ovsdb_connection, _left(deadline), check_error=True, log_errors=False)
        self.deadline = deadline
        self.next_cfg: int | None = None
        for command in commands:
            self.add(command)

    def do_commit(self) -> list[Any]:
        """Runs in the connection's thread, under its lock."""
        while True:
            seqno = self.api.idl.change_seqno
            txn = ovs_idl.Transaction(self.api.idl)
            try:
                status = self._attempt(txn)
            finally:
                txn.abort()
            if status == txn.SUCCESS:
                self.next_cfg = txn.get_increment_new_value()
                self.post_commit(txn)
            elif status == txn.TRY_AGAIN:
                idlutils.wait_for_change(self.api.idl, _left(self.deadline), seqno)
                continue
            elif status != txn.UNCHANGED:
                raise OvsdbError(f"the Open vSwitch database refused the change: {txn.get_error()}")
            return [command.result for command in self.commands]

    def _attempt(self, txn: Any) -> Any:
        # Some columns (Port.trunks, Port.vlan_mode) do not wake ovs-vswitchd by themselves; next_cfg does.
        self.api._ovs.increment("next_cfg")
        txn.expected_ifaces = set()
        for command in self.commands:
            command.run_idl(txn)
        status = txn.commit()
        while status == txn.INCOMPLETE:
            wake = poller.Poller()
            self.api.idl.wait(wake)
            txn.wait(wake)
            wake.timer_wait(int(_left(self.deadline) * 1000) + 1)
            wake.block()
            self.api.idl.run()
            status = txn.commit()
        return status


class Session:
    """A connection to one database, with a copy of the rows that matter.

    May be shared by threads: transactions queue up and go one at a time, waiting for ovs-vswitchd is done side by side.
    Close it in the end, or use it as a context manager. After ovsdb-server has been away it reconnects by itself.
    """

    def __init__(self, api: Any, endpoint: str, timeout: float) -> None:
        self.api = api
        self.endpoint = endpoint
        self.timeout = timeout

    @classmethod
    def open(cls, endpoint: str = OVSDB, timeout: float = 5.0) -> Session:
        """Connects and copies the database. `timeout` is for that, and the default of all other waits.

        Raises OvsdbUnavailable within `timeout` if the server is absent, frozen or closed to this user.
        """
        if MISSING is not None:
            hint = "run the role podnet.ovs.runtime"
            raise OvsdbUnavailable(f"the Python package ovsdbapp is not there: {MISSING}", hint)
        if not endpoint.startswith("unix:/"):
            raise ConfigError("ovsdb", f"{endpoint!r} is not a local database", f"a unix socket, like {OVSDB}")
        deadline = time.monotonic() + timeout
        schema = _fetch_schema(endpoint, deadline)
        helper = ovs_idl.SchemaHelper(None, schema)
        for table, columns in COLUMNS.items():
            there = schema["tables"].get(table, {}).get("columns", {})
            helper.register_columns(table, [column for column in columns if column in there])
        idl = _Idl(endpoint, helper)
        try:
            session = cls(_Api(connection.Connection(idl, max(_left(deadline), 0.1))), endpoint, timeout)
        except (exceptions.OvsdbAppException, DeadlineExceeded) as error:
            idl.close()
            raise _unreachable(endpoint, errno.ETIMEDOUT) from error
        if not session.read(lambda tables: len(tables[SCHEMA].rows)):  # its scripts have not come that far yet
            session.close()
            raise OvsdbUnavailable(
                f"the Open vSwitch database at {endpoint} is empty", "systemctl restart openvswitch-switch"
            )
        return session

    @classmethod
    def await_server(cls, endpoint: str, timeout: float) -> Session:
        """The same, asking again until the server is there. Raises OvsdbUnavailable after `timeout`."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return cls.open(endpoint)
            except OvsdbUnavailable:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(_AGAIN)

    def close(self) -> None:
        """Ends the connection. A server that is frozen is not waited for."""
        self.api.ovsdb_connection.stop(1.0)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def transact(self, commands: Sequence[Any], timeout: float | None = None, wait: bool = True) -> None:
        """Runs the commands of `api` in one transaction: all of them, or none.

        With `wait`, returns when ovs-vswitchd has done its part. The library drops, without an error, a value that
        does not fit its column: check values before, and read back after.

        Raises OvsdbError if the database refuses, DeadlineExceeded if database or ovs-vswitchd do not get to it in
        `timeout`; a change that was sent by then may still land.
        """
        deadline = self._deadline(timeout)
        change = _Transaction(self.api, commands, deadline)
        try:
            change.commit()
        except exceptions.TimeoutException as error:
            raise DeadlineExceeded(
                f"ovsdb-server at {self.endpoint} did not answer in time", "systemctl status ovsdb-server"
            ) from error
        except (exceptions.OvsdbAppException, RuntimeError) as error:
            raise OvsdbError(f"the Open vSwitch database refused the change: {error}") from error
        if wait and change.next_cfg is not None:
            wanted = change.next_cfg
            self.wait_until(lambda tables: _root(tables).cur_cfg >= wanted, "ovs-vswitchd to take the change", deadline)

    def read(self, question: Callable[[Mapping[str, Any]], T], timeout: float | None = None) -> T:
        """What `question` answers about the tables (name to table; `table.rows.values()` are the rows) at one moment.

        Answer with plain values: a row changes, or goes, as soon as the moment is over.
        """
        with self._held(self._deadline(timeout)):
            return question(self.api.tables)

    def wait_until(self, question: Callable[[Mapping[str, Any]], T], what: str, deadline: float) -> T:
        """Asks again after each change until the answer is true, and gives it. `deadline` is of time.monotonic().

        Raises DeadlineExceeded, worded with `what`.
        """
        changes = self.api.idl.changes
        while True:
            seen = changes.count
            with self._held(deadline):
                answer = question(self.api.tables)
            if answer:
                return answer
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlineExceeded(f"waited in vain for {what}", "is it running? systemctl status ovs-vswitchd")
            changes.wait_past(seen, left)

    def ports_ready(self, names: Iterable[str], timeout: float | None = None) -> dict[str, int]:
        """Waits until ovs-vswitchd has given each interface its OpenFlow port, and returns those.

        Raises OvsdbError with ovs-vswitchd's own words for one that it could not open, DeadlineExceeded.
        """
        deadline = self._deadline(timeout)
        return {name: self._port_ready(name, deadline) for name in names}

    def _port_ready(self, name: str, deadline: float) -> int:
        def state(tables: Mapping[str, Any]) -> int:
            row = self.api.lookup("Interface", name, None)
            if row is None:
                raise OvsdbError(f"interface {name} is not in the Open vSwitch database")
            ofport = row.ofport[0] if row.ofport else 0
            if row.error or ofport < 0:
                raise OvsdbError(f"ovs-vswitchd cannot use {name}: {row.error[0] if row.error else 'no reason given'}")
            return int(ofport)

        return self.wait_until(state, f"ovs-vswitchd to open {name}", deadline)

    def _deadline(self, timeout: float | None) -> float:
        return time.monotonic() + (self.timeout if timeout is None else timeout)

    @contextmanager
    def _held(self, deadline: float) -> Iterator[None]:
        lock = self.api.ovsdb_connection.lock
        if not lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise DeadlineExceeded(f"ovsdb-server at {self.endpoint} keeps another change waiting")
        try:
            yield
        finally:
            lock.release()


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("the Open vSwitch database did not answer in time", "systemctl status ovsdb-server")
    return left


def _root(tables: Mapping[str, Any]) -> Any:
    return next(iter(tables[SCHEMA].rows.values()))


def _fetch_schema(endpoint: str, deadline: float) -> dict[str, Any]:
    """The schema as the server has it. The library's own look-up would wait without an end."""
    milliseconds = int(_left(deadline) * 1000)
    code, pipe = stream.Stream.open_block(stream.Stream.open(endpoint), milliseconds)
    if code:
        raise _unreachable(endpoint, code)
    rpc = jsonrpc.Connection(pipe)
    try:
        request = jsonrpc.Message.create_request("get_schema", [SCHEMA])
        code = rpc.send(request)
        while not code:
            code, reply = rpc.recv()
            if reply is not None and reply.id == request.id:
                return _result(reply)
            if code == errno.EAGAIN:
                code = _wait_for_more(rpc, deadline)
    finally:
        rpc.close()
    raise _unreachable(endpoint, code)


def _wait_for_more(rpc: Any, deadline: float) -> int:
    """Zero when there may be something to receive, ETIMEDOUT at the deadline."""
    left = deadline - time.monotonic()
    if left <= 0:
        return errno.ETIMEDOUT
    rpc.run()
    wake = poller.Poller()
    rpc.wait(wake)
    rpc.recv_wait(wake)
    wake.timer_wait(int(left * 1000) + 1)
    wake.block()
    return 0


def _result(reply: Any) -> dict[str, Any]:
    if not isinstance(reply.result, dict):
        raise OvsdbUnavailable(f"the server has no database {SCHEMA}: {reply.error}", "is it ovs-vswitchd's own?")
    return reply.result


def _unreachable(endpoint: str, code: int) -> OvsdbUnavailable:
    start = "systemctl start openvswitch-switch"
    hints = {
        errno.ENOENT: f"install Open vSwitch (role podnet.ovs.openvswitch) or start it: {start}",
        errno.ECONNREFUSED: f"start Open vSwitch: {start}",
        errno.EACCES: "run as root (become: true)",
        errno.EPERM: "run as root (become: true)",
        errno.ETIMEDOUT: "ovsdb-server does not answer: systemctl status ovsdb-server",
    }
    reason = os.strerror(code) if code > 0 else "the server closed the connection"
    return OvsdbUnavailable(f"cannot open the Open vSwitch database at {endpoint}: {reason}", hints.get(code, ""))
