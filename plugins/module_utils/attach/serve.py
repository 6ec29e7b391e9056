# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves one call of a CNI plugin: the same function in the agent and in the plugin's own process."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from ..cni.config import NetConf, decode, parse_netconf
from ..cni.reply import Reply, failure, success
from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION, Request, parse_request
from ..cni.versions import NEWEST, SUPPORTED
from ..errors import DecodeError, InvalidEnvironment, PodnetError
from . import ovs
from .call import Announcer, Call
from .turns import turn

SECONDS = {ADD: 30.0, DEL: 20.0, CHECK: 20.0, GC: 60.0, STATUS: 10.0, VERSION: 5.0}
"""How long a call may take: well below the four minutes that a kubelet waits."""

TURN_SECONDS = 15.0
"""How long a call waits for another one of the same attachment."""


def _add(call: Call) -> Reply:
    return success(ovs.add(call))


def _silent(verb: Callable[[Call], None]) -> Callable[[Call], Reply]:
    """A verb whose success says nothing."""

    def run(call: Call) -> Reply:
        verb(call)
        return success()

    return run


_VERBS = {
    ADD: _add,
    DEL: _silent(ovs.delete),
    CHECK: _silent(ovs.check),
    STATUS: _silent(ovs.status),
    GC: _silent(ovs.collect),
}


def serve(
    plugin: str,
    env: Mapping[str, str],
    stdin: bytes,
    netns_fd: int | None,
    announcer: Announcer,
) -> Reply:
    """Answers one call of the plugin `plugin`; never raises. `netns_fd` stays the caller's to close."""
    began = time.monotonic()
    version: object = NEWEST
    conf: NetConf | None = None
    try:
        request = parse_request(env)
        if plugin != ovs.TYPE:
            raise InvalidEnvironment(f"unknown plugin {plugin!r}", f"known here: {ovs.TYPE}")
        if request.verb == VERSION:
            reply = success({"cniVersion": NEWEST, "supportedVersions": list(SUPPORTED)})
        else:
            raw = _decode(request, stdin)
            version = raw.get("cniVersion", NEWEST)
            conf = parse_netconf(raw, stdin, forgiving=request.verb == DEL)
            call = Call(request, conf, env, netns_fd, began + SECONDS[request.verb], announcer)
            with _turn(call) as fd:
                reply = _VERBS[request.verb](replace(call, turn_fd=fd))
    except PodnetError as error:
        reply = failure(error, version)
    except Exception as error:  # whatever it is, the runtime gets the specification's JSON
        reply = failure(PodnetError(f"internal error: {error!r}", "report it, with the agent's log"), version)
        sys.excepthook(type(error), error, error.__traceback__)
    line = _log_line(env, conf, reply, time.monotonic() - began)
    return Reply(reply.code, reply.stdout, line + reply.stderr)


def _decode(request: Request, stdin: bytes) -> dict[str, Any]:
    """The configuration. For DEL an unreadable one is as good as none, where there is nothing that it could free."""
    try:
        return decode(stdin)
    except DecodeError:
        if request.verb != DEL or any(ovs.let_go(request)):
            raise
        return {}


def _turn(call: Call) -> AbstractContextManager[int]:
    """ADD, DEL and CHECK of one attachment take turns; other verbs are of none."""
    request = call.request
    if request.verb not in (ADD, DEL, CHECK):
        return nullcontext(-1)
    return turn(request.container_id, request.ifname, call.seconds(TURN_SECONDS))


def _log_line(env: Mapping[str, str], conf: NetConf | None, reply: Reply, seconds: float) -> bytes:
    parts = [
        env.get("CNI_COMMAND", "-"), env.get("CNI_CONTAINERID", "-")[:13], env.get("CNI_IFNAME", "-"),
        conf.name if conf else "-", f"code={reply.code}", f"{seconds * 1000:.1f}ms",
    ]  # fmt: skip
    return " ".join(repr(part)[1:-1] if part else "-" for part in parts).encode(errors="replace") + b"\n"
