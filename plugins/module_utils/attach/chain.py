# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs the plugins of one network, as a runtime runs a list (specification 1.1.0, section 3).

Plugins of our own run in this process, others in processes of theirs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ..cni.config import VALID_ATTACHMENTS, parse_netconf
from ..cni.reply import Reported
from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION
from ..cni.result import parse_result
from ..cni.versions import NEWEST, at_least, knows_newest
from ..errors import INCOMPATIBLE_VERSION, UNAVAILABLE, DecodeError, PodnetError
from .call import Call
from .common import attempt
from .delegate import Delegate, find_plugin, missing
from .lease import OLDER
from .meta_wish import Member, args_of
from .plugin import SECONDS
from .plugins import PLUGINS, load

Json = Mapping[str, Any]


def refuse_missing(call: Call, member: Member) -> None:
    """Raises DelegateError for a plugin of the network that no folder has: before anything is done."""
    for plugin in member.network.plugins:
        _find(call, member, plugin)


class Progress:
    """How far an ADD has come, for the way back."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.begun = 0

    @property
    def made(self) -> Member:
        """The network with those plugins that may have made something. One of our own that has failed has not."""
        return replace(
            self.member, network=replace(self.member.network, plugins=self.member.network.plugins[: self.begun])
        )


def is_own(plugin: Json) -> bool:
    """Whether it runs in this process."""
    return plugin["type"] in PLUGINS


def add(call: Call, progress: Progress) -> dict[str, Any]:
    """ADD of each plugin in order; gives what the last one says. Raises PodnetError that names the network."""
    member = progress.member
    previous: dict[str, Any] | None = None
    for number, plugin in enumerate(member.network.plugins, 1):
        progress.begun = number - 1 if is_own(plugin) else number
        given = _one(call, member, plugin, ADD, previous)
        if given is None:
            raise DecodeError(f"{member.words}: {plugin['type']} gave no result")
        if not is_own(plugin):
            parse_result(given, f"{member.words}: the result")
        previous, progress.begun = given, number
    return previous or {}


def delete(call: Call, member: Member, result: Json | None, was_there: bool) -> list[PodnetError]:
    """DEL of each plugin, in reverse, each whether or not the one before failed; gives what went wrong.

    `result` is that of ADD, None if it is not known. A plugin that is not there is no error for a network of which
    nothing is known (`was_there`): an ADD would have refused it.
    """
    failed: list[PodnetError] = []
    for plugin in reversed(member.network.plugins):
        if not was_there and not _is_there(call, plugin):
            continue
        attempt(failed, partial(_one, call, member, plugin, DEL, result))
    return failed


def check(call: Call, member: Member, result: Json | None) -> None:
    """CHECK of each plugin. Raises the first PodnetError."""
    if member.network.disable_check or not at_least(member.network.version, "0.4.0"):
        return
    for plugin in member.network.plugins:
        _one(call, member, plugin, CHECK, result)


def status(call: Call, member: Member) -> None:
    """STATUS of each plugin that knows it. Raises PodnetError; a plugin that is not there has code 50."""
    for plugin in member.network.plugins:
        try:
            _find(call, member, plugin)
        except PodnetError as error:
            raise PodnetError(error.message, error.hint, UNAVAILABLE) from error
        if _knows_newest(call, member, plugin):
            _one(call, member, plugin, STATUS, None, cniVersion=NEWEST)


def collect(call: Call, member: Member, keep: set[tuple[str, str]]) -> list[PodnetError]:
    """GC of each plugin that knows it, with the attachments to keep; gives what went wrong."""
    failed: list[PodnetError] = []
    listed = [{"containerID": container, "ifname": ifname} for container, ifname in sorted(keep)]
    for plugin in member.network.plugins if not member.network.disable_gc else ():
        if _is_there(call, plugin) and _knows_newest(call, member, plugin):
            more = {"cniVersion": NEWEST, VALID_ATTACHMENTS[0]: listed}
            attempt(failed, partial(_one, call, member, plugin, GC, None, **more))
    return failed


def _one(
    call: Call, member: Member, plugin: Json, verb: str, previous: Json | None, **more: Any
) -> dict[str, Any] | None:  # fmt: skip
    """One verb of one plugin. Raises PodnetError that names the network."""
    if previous is not None and at_least(member.network.version, "0.4.0" if verb != ADD else "0.2.0"):
        more["prevResult"] = previous
    raw = {**member.network.conf(plugin, member.runtime), **more}
    args = args_of(member, call.request.args)
    env = {
        **call.env, "CNI_COMMAND": verb, "CNI_IFNAME": member.ifname,
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in args.items()),
    }  # fmt: skip
    mine = replace(
        call, request=replace(call.request, verb=verb, ifname=member.ifname, args=args), env=env,
        deadline=min(call.deadline, time.monotonic() + SECONDS[verb]),
    )  # fmt: skip
    try:
        if not is_own(plugin):
            return _foreign(mine, _find(call, member, plugin), raw)
        conf = parse_netconf(raw, json.dumps(raw).encode(), forgiving=verb == DEL)
        return load(plugin["type"]).serve(replace(mine, conf=conf, turn_fd=-1, waited=False))
    except PodnetError as error:
        if not error.message.startswith(member.place):
            error.message = f"{member.words}: {error.message}"
        raise


def _foreign(call: Call, executable: str, raw: Json) -> dict[str, Any] | None:
    """A plugin of before 1.1.0 that refuses that version is spoken to in the one before it, which it may know."""
    try:
        return _run(call, executable, raw, raw["cniVersion"])
    except Reported as error:
        if error.code != INCOMPATIBLE_VERSION or raw["cniVersion"] != NEWEST:
            raise
        return _run(call, executable, raw, OLDER)


def _run(call: Call, executable: str, raw: Json, version: str) -> dict[str, Any] | None:
    spoken = {**raw, "cniVersion": version}
    if "prevResult" in raw:
        spoken["prevResult"] = {**raw["prevResult"], "cniVersion": version}
    stdin = json.dumps(spoken).encode()
    return Delegate(executable, call.request.verb, call.env, stdin, call.turn_fd).result(call.deadline)


def _find(call: Call, member: Member, plugin: Json) -> str:
    """The executable; of our own plugins none is needed. Raises DelegateError."""
    kind = plugin["type"]
    if is_own(plugin):
        return ""
    found = find_plugin(kind, call.request.path)
    if found is None:
        raise missing(kind, call.request.path, f"{member.words}: type")
    return found


def _is_there(call: Call, plugin: Json) -> bool:
    return is_own(plugin) or find_plugin(plugin["type"], call.request.path) is not None


def _knows_newest(call: Call, member: Member, plugin: Json) -> bool:
    if is_own(plugin):
        return True
    known = Delegate(_find(call, member, plugin), VERSION, call.env, b'{"cniVersion":"1.1.0"}', call.turn_fd).result(
        min(call.deadline, time.monotonic() + SECONDS[VERSION])
    )
    return knows_newest(known)
