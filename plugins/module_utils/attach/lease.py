# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Addresses from a delegated IPAM plugin: ADD, DEL, CHECK, GC, STATUS."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Mapping
from dataclasses import replace

from ..cni.config import NetConf
from ..cni.reply import DelegateError
from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION, Request
from ..cni.result import Result, parse_result
from ..cni.versions import NEWEST
from ..errors import INCOMPATIBLE_VERSION, ConfigError
from .delegate import Delegate, find_plugin, missing, run

OLDER = "1.0.0"
"""What a plugin of before 1.1.0 is spoken to in: all that a result of 1.1.0 adds is optional."""


class Lease:
    """The plugin's ADD, begun when this is made. Without `ipam` in the configuration it is empty."""

    def __init__(self, request: Request, conf: NetConf, env: Mapping[str, str]) -> None:
        self._request, self._conf, self._env = request, conf, env
        self._running = self._start(conf.stdin) if conf.ipam else None

    def result(self, deadline: float) -> Result:
        """The addresses. Raises DelegateError, DeadlineExceeded, ConfigError if requested ones are not among them."""
        if self._running is None:
            return Result()
        running, self._running = self._running, None
        try:
            document = running.result(deadline)
        except DelegateError as error:
            if error.code != INCOMPATIBLE_VERSION or self._conf.version == OLDER:
                raise
            document = self._start(_spoken_in(OLDER, self._conf)).result(deadline)
        result = parse_result(document or {}, f"the result of {self._conf.ipam_type}")
        _check_requested(self._conf, result)
        return replace(result, interfaces=())

    def release(self, deadline: float) -> None:
        """Gives the addresses back, as after an ADD that failed later."""
        if self._running is not None:
            running, self._running = self._running, None
            with contextlib.suppress(DelegateError):
                running.result(deadline)
        release(self._request, self._conf, self._env, deadline)

    def _start(self, stdin: bytes) -> Delegate:
        executable = find_plugin(self._conf.ipam_type, self._request.path)
        if executable is None:
            raise missing(self._conf.ipam_type, self._request.path)
        return Delegate(executable, ADD, self._env, stdin)


def release(request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    """The plugin's DEL. A plugin that is not there has leased nothing. Raises DelegateError, DeadlineExceeded."""
    if conf.ipam and find_plugin(conf.ipam_type, request.path) is not None:
        _call(DEL, request, conf, env, deadline)


def check(request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    """The plugin's CHECK. Raises DelegateError, DeadlineExceeded."""
    if conf.ipam:
        _call(CHECK, request, conf, env, deadline)


def collect(request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    """The plugin's GC, if it is new enough to know it. Raises DelegateError, DeadlineExceeded."""
    _call_newer(GC, request, conf, env, deadline)


def status(request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    """The plugin's STATUS, if it is new enough; without one at all, the error of that. Raises DelegateError."""
    _call_newer(STATUS, request, conf, env, deadline)


def _call(verb: str, request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    try:
        run(conf.ipam_type, verb, request.path, env, conf.stdin, deadline)
    except DelegateError as error:
        if error.code != INCOMPATIBLE_VERSION or conf.version == OLDER:
            raise
        run(conf.ipam_type, verb, request.path, env, _spoken_in(OLDER, conf), deadline)


def _call_newer(verb: str, request: Request, conf: NetConf, env: Mapping[str, str], deadline: float) -> None:
    if not conf.ipam:
        return
    known = run(conf.ipam_type, VERSION, request.path, env, b'{"cniVersion":"1.1.0"}', deadline) or {}
    if NEWEST in known.get("supportedVersions", ()):
        run(conf.ipam_type, verb, request.path, env, conf.stdin, deadline)


def _spoken_in(version: str, conf: NetConf) -> bytes:
    return json.dumps({**conf.raw, "cniVersion": version}).encode()


def _check_requested(conf: NetConf, result: Result) -> None:
    """Addresses that the runtime asked for must be in the result (NPWG specification 1.3, section "ips")."""
    wanted = conf.runtime.get("ips") or ()
    got = {item.address.partition("/")[0] for item in result.addresses}
    for address in wanted if isinstance(wanted, list) else ():
        if str(address).partition("/")[0] not in got:
            raise ConfigError(
                "runtimeConfig.ips", f"{address} was asked for, but {conf.ipam_type} gave {', '.join(sorted(got))}",
                "take an IPAM plugin that declares the capability ips, such as static",
            )  # fmt: skip


def now() -> float:
    """The clock of all deadlines."""
    return time.monotonic()
