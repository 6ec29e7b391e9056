# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Serves one call of a CNI plugin: the same function in the agent and in the plugin's own process."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..cni.config import NetConf, decode, parse_netconf
from ..cni.reply import Reply, failure, success
from ..cni.request import DEL, VERSION, Impossible, Request, parse_request
from ..cni.versions import NEWEST, SUPPORTED
from ..errors import INTERNAL, DecodeError, InvalidEnvironment, PodnetError
from .call import Call, Means, Steps
from .plugin import Plugin
from .plugins import PLUGINS, load

META = "podnet-meta"
KNOWN = (*PLUGINS, META)
"""What is served: the plugins that others may be made of, and the one that is."""

SLOW_SECONDS = 0.5
"""From then on a call's line in the log says where its time went."""

LOG_CHARS = 64
"""Of a word in the log, whatever a caller says."""


@dataclass(frozen=True)
class Served:
    """A call that is over: what its client gets, its line for the log, and what a statistic counts.

    `code` is 0 or the error's CNI code, `seconds` the whole time, `steps` where it went.
    """

    reply: Reply
    line: str
    verb: str
    code: int
    seconds: float
    steps: Mapping[str, float]


def load_known(plugin: str) -> Plugin:
    """One of KNOWN."""
    if plugin == META:
        from . import meta  # as plugins are loaded: when it is asked for

        return meta.PLUGIN
    return load(plugin)


def load_all() -> None:
    """Loads every plugin, for a process that stays."""
    for plugin in KNOWN:
        load_known(plugin)


def serve(plugin: str, env: Mapping[str, str], stdin: bytes, netns_fd: int | None, means: Means) -> Served:
    """Answers one call of the plugin `plugin`; never raises. `netns_fd` stays the caller's to close."""
    began = time.monotonic()
    steps = Steps()
    version: object = NEWEST
    conf: NetConf | None = None
    code = 0
    try:
        request = parse_request(env)
        if plugin not in KNOWN:
            raise InvalidEnvironment(f"unknown plugin {plugin!r}", f"known here: {', '.join(KNOWN)}")
        known = load_known(plugin)
        if request.verb == VERSION:
            reply = success({"cniVersion": NEWEST, "supportedVersions": list(SUPPORTED)})
        else:
            raw = _decode(known, request, stdin, means)
            version = raw.get("cniVersion", NEWEST)
            conf = parse_netconf(raw, stdin, forgiving=request.verb == DEL)
            call = Call(request, conf, env, netns_fd, began + known.seconds[request.verb], means, steps)
            reply = success(known.serve(call), call.notes)
    except Impossible as error:
        done = env.get("CNI_COMMAND") == DEL
        code = 0 if done else error.code
        reply = success() if done else failure(error, version)
    except PodnetError as error:
        code = error.code
        reply = failure(error, version)
    except Exception as error:  # whatever it is, the runtime gets the specification's JSON
        code = INTERNAL
        reply = failure(PodnetError(f"internal error: {error!r}", "report it, with the agent's log"), version)
        sys.excepthook(type(error), error, error.__traceback__)
    steps.done("end")
    seconds = time.monotonic() - began
    line = _log_line(env, conf, reply, seconds, steps.seconds)
    return Served(reply, line, env.get("CNI_COMMAND", ""), code, seconds, steps.seconds)


def _decode(plugin: Plugin, request: Request, stdin: bytes, means: Means) -> dict[str, Any]:
    """The configuration. For DEL an unreadable one is as good as none, where there is nothing that it could free."""
    try:
        return decode(stdin)
    except DecodeError:
        if request.verb != DEL or plugin.let_go(request, means):
            raise
        return {}


def _log_line(
    env: Mapping[str, str], conf: NetConf | None, reply: Reply, seconds: float, steps: Mapping[str, float]
) -> str:  # fmt: skip
    """One line, without what a caller may have put in to make it two. A slow call's says which steps took the time."""
    parts = [
        env.get("CNI_COMMAND", "-"), env.get("CNI_CONTAINERID", "-")[:13], env.get("CNI_IFNAME", "-"),
        conf.name if conf else "-", f"code={reply.code}", _ms(seconds),
    ]  # fmt: skip
    line = " ".join(repr(part[:LOG_CHARS])[1:-1] if part else "-" for part in parts)
    if seconds < SLOW_SECONDS:
        return line
    slowest = sorted(steps.items(), key=lambda item: -item[1])
    return f"{line} SLOW: " + ", ".join(f"{step} {_ms(took)}" for step, took in slowest if took >= 0.001)


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f}ms"
