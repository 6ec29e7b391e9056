# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses from a delegated IPAM plugin: ADD, DEL, CHECK, GC, STATUS."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..cni.config import NetConf, expanded
from ..cni.reply import DelegateError, Reported
from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION
from ..cni.result import Result, parse_result
from ..cni.versions import knows_newest
from ..errors import INCOMPATIBLE_VERSION, ConfigError
from .call import Call
from .delegate import Delegate, find_plugin, missing
from .leased import all_leased
from .uplinks import refuse_lost_indices

_IPS_HINT = "take an IPAM plugin that declares the capability ips, such as static"
OLDER = "1.0.0"
"""What a plugin of before 1.1.0 is spoken to in: all that a result of 1.1.0 adds is optional."""


def of_interface(call: Call, ifname: str, ipam: Mapping[str, Any]) -> Call:
    """The call as an IPAM plugin gets it for another interface of the same attachment: a key of its own for a lease of
    its own. `ipam` is that of this interface.
    """
    raw = {**call.conf.raw, "ipam": ipam}
    conf = replace(call.conf, raw=raw, ipam=ipam, stdin=json.dumps(raw).encode())
    request = replace(call.request, ifname=ifname)
    return replace(call, conf=conf, request=request, env={**call.env, "CNI_IFNAME": ifname})


class Lease:
    """The plugin's ADD: its process starts when this is made, but hears nothing before `begin`.

    Without `ipam` in the configuration it is empty.
    """

    def __init__(self, call: Call) -> None:
        if call.conf.runtime.get("ips") and not call.conf.ipam:
            raise ConfigError("runtimeConfig.ips", "addresses are asked for, but the network has no ipam", _IPS_HINT)
        self._call = call
        self._running = self._start(call.conf.stdin) if call.conf.ipam else None
        self._may_hold = self._running is not None

    def begin(self) -> None:
        """The plugin gets its configuration."""
        if self._running is not None:
            self._running.begin()

    def drop(self) -> None:
        """Ends a plugin that has heard nothing yet."""
        running, self._running = self._running, None
        if running is not None:
            running.end()

    def result(self, with_interfaces: bool = False) -> Result:
        """The addresses; what interfaces a plugin names beside them, as the specification does not let it, if asked.

        Raises DelegateError, DeadlineExceeded, ConfigError if requested ones are not among them."""
        if self._running is None:
            return Result()
        conf = self._call.conf
        document = self._document(self._call.deadline) or {}
        result = parse_result(document, f"the result of {conf.ipam_type}")
        if with_interfaces:
            refuse_lost_indices(document, conf.ipam_type)
        _check_requested(conf, result)
        return result if with_interfaces else replace(result, interfaces=())

    def release(self, deadline: float) -> None:
        """Gives the addresses back, as after an ADD that failed later.

        A plugin that has reported an error holds nothing; a DEL could free what an earlier ADD of this attachment got.
        """
        if self._running is not None:
            with contextlib.suppress(DelegateError):
                self._document(deadline)
        if self._may_hold:
            release(self._call, deadline)

    def _document(self, deadline: float) -> dict[str, Any] | None:
        running, self._running = self._running, None
        if running is None:
            return None
        try:
            try:
                return running.result(deadline)
            except Reported as error:
                if error.code != INCOMPATIBLE_VERSION or self._call.conf.version == OLDER:
                    raise
                return self._start(_spoken_in(OLDER, self._call.conf)).result(deadline)
        except Reported:
            self._may_hold = False
            raise

    def _start(self, stdin: bytes) -> Delegate:
        path, plugin = self._call.request.path, self._call.conf.ipam_type
        executable = find_plugin(plugin, path)
        if executable is None:
            raise missing(plugin, path)
        return Delegate(executable, ADD, self._call.env, stdin, self._call.turn_fd)


def release(call: Call, deadline: float) -> None:
    """The plugin's DEL. A plugin that is not there has leased nothing. Raises DelegateError, DeadlineExceeded."""
    Release(call).run(deadline)


class Release:
    """The plugin's DEL: its process starts when this is made, but hears nothing before `begin` or `run`."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._running: Delegate | None = None
        executable = find_plugin(call.conf.ipam_type, call.request.path) if call.conf.ipam else None
        if executable is not None:
            self._running = Delegate(executable, DEL, call.env, call.conf.stdin, call.turn_fd)

    def begin(self) -> None:
        """The plugin gets its configuration."""
        if self._running is not None:
            self._running.begin()

    def run(self, deadline: float) -> None:
        """A plugin that is not there has leased nothing. Raises DelegateError, DeadlineExceeded."""
        if self._running is None:
            return
        try:
            self._running.result(deadline)
        except DelegateError as error:
            if error.code != INCOMPATIBLE_VERSION or self._call.conf.version == OLDER:
                raise
            _run(DEL, self._call, _spoken_in(OLDER, self._call.conf), deadline)


def check(call: Call) -> None:
    """The plugin's CHECK. Raises DelegateError, DeadlineExceeded."""
    if call.conf.ipam:
        _speak(CHECK, call, call.deadline)


def collect(call: Call) -> None:
    """The plugin's GC, if it is new enough to know it. It hears every name that valid attachments have with IPAM
    plugins, whichever plugin leased by it. Raises DelegateError, DeadlineExceeded.
    """
    names: dict[tuple[str, str], list[str]] = {}
    for item in all_leased():
        names.setdefault((item.container_id, item.ifname), []).extend(item.names)
    raw = expanded(call.conf.raw, lambda *attachment: names.get(attachment, ()))
    _speak_newer(GC, replace(call, conf=replace(call.conf, raw=raw, stdin=json.dumps(raw).encode())))


def status(call: Call) -> None:
    """The plugin's STATUS, if it is new enough; without one at all, the error of that. Raises DelegateError."""
    _speak_newer(STATUS, call)


def _speak(verb: str, call: Call, deadline: float) -> None:
    try:
        _run(verb, call, call.conf.stdin, deadline)
    except DelegateError as error:
        if error.code != INCOMPATIBLE_VERSION or call.conf.version == OLDER:
            raise
        _run(verb, call, _spoken_in(OLDER, call.conf), deadline)


def _speak_newer(verb: str, call: Call) -> None:
    if not call.conf.ipam:
        return
    if knows_newest(_run(VERSION, call, b'{"cniVersion":"1.1.0"}', call.deadline)):
        _run(verb, call, call.conf.stdin, call.deadline)


def _run(verb: str, call: Call, stdin: bytes, deadline: float) -> Any:
    path, plugin = call.request.path, call.conf.ipam_type
    executable = find_plugin(plugin, path)
    if executable is None:
        raise missing(plugin, path)
    return Delegate(executable, verb, call.env, stdin, call.turn_fd).result(deadline)


def _spoken_in(version: str, conf: NetConf) -> bytes:
    """The configuration with what it says of an earlier result, which older plugins refuse in another version."""
    raw = {**conf.raw, "cniVersion": version}
    if conf.prev_result is not None:
        raw["prevResult"] = {**conf.prev_result, "cniVersion": version}
    return json.dumps(raw).encode()


def _check_requested(conf: NetConf, result: Result) -> None:
    """Addresses that the runtime asked for must be in the result (NPWG specification 1.3, section "ips")."""
    wanted = conf.runtime.get("ips") or ()
    got = {item.address.partition("/")[0] for item in result.addresses}
    for address in wanted if isinstance(wanted, list) else ():
        if str(address).partition("/")[0] not in got:
            raise ConfigError(
                "runtimeConfig.ips", f"{address} was asked for, but {conf.ipam_type} gave {', '.join(sorted(got))}",
                _IPS_HINT,
            )  # fmt: skip
