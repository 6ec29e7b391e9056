# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-meta`: several networks for one pod, and one result.

Order, failure and teardown are those of the NPWG multi-network specification 1.3, sections 6 to 8: the primary network
first, then the others as they are listed; the first that fails fails the pod, and all are taken away again.
"""

from __future__ import annotations

import ipaddress
import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..cni.config import decode, valid_attachments
from ..cni.merge import Part, lost, merge
from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION, Request
from ..cni.result import Result, parse_result, render
from ..errors import TRY_AGAIN, UNAVAILABLE, ConfigError, DecodeError, PodnetError
from . import chain, meta_state
from .call import Call, Means
from .common import attempt, earlier, netns_of, open_space, taken
from .default_route import choose
from .meta_wish import MERGED, TYPE, VENDOR, Member, Plan, parse_plan
from .plugin import Plugin
from .promise import differs
from .turns import try_turn
from .undo import undoing

SECONDS: Mapping[str, float] = {ADD: 45.0, DEL: 60.0, CHECK: 45.0, GC: 60.0, STATUS: 30.0, VERSION: 5.0}
UNDO_SECONDS = 20.0
"""With ADD's own time less than a client waits."""
STATE_SECONDS = 10.0
VENDOR_KEY = "podnet.ovs/merged"
"""Where a runtime that wants the whole picture finds it, beside the result that Kubernetes expects."""
SCOPE = "meta-"


def add(call: Call) -> dict[str, Any]:
    """ADD of all networks; gives the result that the configuration asks for, in its version. Raises PodnetError."""
    plan = parse_plan(call.conf, call.request)
    _refuse_unready(plan, TRY_AGAIN)
    for member in plan.members:
        chain.refuse_missing(call, member)
    _refuse_taken(call, plan)
    request = call.request
    attachment = meta_state.Attachment(
        call.conf.name, request.container_id, request.ifname, plan.members, request.netns,
        os.fstat(netns_of(call)).st_ino,
    )  # fmt: skip
    call.steps.done("configuration")
    documents: list[dict[str, Any]] = []
    with undoing() as undo:
        writing = meta_state.Writing(attachment)
        begun: list[chain.Progress] = []
        undo.add(lambda: _take_back(call, begun, documents, writing))
        for member in plan.members:
            begun.append(chain.Progress(member))
            documents.append(chain.add(call, begun[-1]))
            call.steps.done(member.place)
        choose(call, plan.members, documents)
        parts = [_part(call, member, document) for member, document in zip(plan.members, documents)]
        writing.wait(call.seconds(STATE_SECONDS))
        meta_state.keep_results(request.container_id, request.ifname, documents)
        call.steps.done("state")
        result = _result(call, plan, parts)
        _refuse_too_much(call, result)
        return result


def delete(call: Call) -> None:
    """DEL of all networks in reverse order, each whether or not another one failed. Raises PodnetError after all.

    What is known of the attachment counts more than the configuration. It is forgotten when all of it is gone.
    """
    request = call.request
    known = meta_state.read(request.container_id, request.ifname)
    members = known.members if known else parse_plan(call.conf, request, strict=False).members
    given = meta_state.results(request.container_id, request.ifname, len(members))
    failed = _delete(call, members, given or [], known is not None)
    if failed:
        raise _joined(failed)
    meta_state.forget(request.container_id, request.ifname)


def check(call: Call) -> None:
    """CHECK of all networks. Raises the first PodnetError."""
    request = call.request
    if call.conf.prev_result is None:
        raise ConfigError("prevResult", "CHECK needs the result of ADD")
    known = meta_state.read(request.container_id, request.ifname)
    members = known.members if known else parse_plan(call.conf, request).members
    given = meta_state.results(request.container_id, request.ifname, len(members))
    with open_space(call) as space:
        for member in members:
            if space.index(member.ifname) is None:
                raise differs(f"{member.words}: the interface is gone")
    if given is None:
        call.notes.append("what each network gave is not known any more: only their interfaces were looked for")
        return
    for member, result in zip(members, given):
        chain.check(call, member, result)


def status(call: Call) -> None:
    """STATUS of all networks. Raises the first PodnetError."""
    try:
        plan = parse_plan(call.conf, replace(call.request, ifname="eth0"))
    except ConfigError as error:
        raise PodnetError(error.message, error.hint, UNAVAILABLE) from error
    _refuse_unready(plan, UNAVAILABLE)
    for member in plan.members:
        chain.status(call, member)


def collect(call: Call) -> None:
    """GC: attachments that the runtime does not list are taken away, then each network hears which ones to keep.

    By the names that they have there. If it is not known of each listed attachment what it is made of, networks hear
    nothing: what they would free may be in use. Raises the first PodnetError after all was tried.
    """
    keep = valid_attachments(call.conf.raw)
    if keep is None:
        return
    failed: list[PodnetError] = []
    known: dict[tuple[str, str], meta_state.Attachment] = {}
    for item in list(meta_state.of_network(call.conf.name)):
        key = (item.container_id, item.ifname)
        if key in keep:
            known[key] = item
        else:
            failed += _collect_one(call, item)
    unsure = sorted(keep - set(known))
    if unsure:
        container, ifname = unsure[0]
        call.notes.append(
            f"of {len(unsure)} attachments ({ifname} of {container[:13]}) it is not known which networks they have: "
            "the networks were not asked to free anything"
        )
    else:
        failed += _collect_networks(call, known)
    if failed:
        raise _joined(failed)


def _let_go(request: Request, _means: Means) -> bool:
    """Without a configuration what is known of the attachment is not touched: the runtime has to come again."""
    return meta_state.read(request.container_id, request.ifname) is not None


def _refuse_taken(call: Call, plan: Plan) -> None:
    """Raises PodnetError if this attachment is there already: neither it nor what is known of it must be lost.

    A plugin of our own says so itself, and takes nothing away that it has not made. Others are asked for DEL when they
    fail, and then take away what has their interface's name, whoever made it.
    """
    request = call.request
    known = meta_state.read(request.container_id, request.ifname)
    names = [member.ifname for member in plan.members if not chain.is_own(member.network.plugins[0])]
    if known is not None:
        names = [request.ifname, *(member.ifname for member in known.members), *names]
    if not names:
        return
    with open_space(call) as space:
        for name in names:
            if space.index(name) is not None:
                raise taken(name, call.waited or call.means.doubled)


def _part(call: Call, member: Member, document: Mapping[str, Any]) -> Part:
    """A network's result. Raises ConfigError if what was asked of it is not in it (NPWG specification 1.3, 4.1.2.1)."""
    result = parse_result(document, f"{member.words}: the result")
    got = {ipaddress.ip_interface(item.address).ip for item in result.addresses}
    for address in member.runtime.get("ips") or ():
        if ipaddress.ip_interface(address).ip not in got:
            came = ", ".join(sorted(map(str, got))) or "none"
            raise ConfigError(f"{member.place}.ips", f"{address} was asked for, but {came} came")
    mac = str(member.runtime.get("mac") or "").lower()
    there = [item.mac.lower() for item in result.interfaces if item.name == member.ifname and item.sandbox]
    if mac and there and mac.replace("-", ":") not in there:
        raise ConfigError(f"{member.place}.mac", f"{mac} was asked for, but {', '.join(there)} came")
    return Part(result, member.ifname, call.request.netns, bool(member.default_route))


def _result(call: Call, plan: Plan, parts: Sequence[Part]) -> dict[str, Any]:
    version = call.conf.version
    before = earlier(call)
    if before != Result():
        parts = [Part(before, call.request.ifname, call.request.netns), *parts]
    own = merge(parts[0], parts[1:2] if before != Result() else [])
    whole = merge(parts[0], parts[1:])
    chosen = whole if plan.mode == MERGED else own
    call.notes.extend(f"cniVersion {version} cannot carry {what}" for what in lost(chosen, version))
    document = render(chosen, version)
    if plan.mode == VENDOR:
        document[VENDOR_KEY] = {key: value for key, value in render(whole, "1.1.0").items() if key != "cniVersion"}
    return document


def _refuse_too_much(call: Call, result: Mapping[str, Any]) -> None:
    """Raises PodnetError for a result with which DEL, that gets it as `prevResult`, would be refused ever after."""
    try:
        decode(json.dumps({**call.conf.raw, "prevResult": result}).encode())
    except DecodeError as error:
        hint = "less networks, or those that say less"
        raise DecodeError(f"with the result of all networks {error.message} ({error.hint})", hint) from error


def _refuse_unready(plan: Plan, code: int) -> None:
    if plan.ready_file and not os.path.exists(plan.ready_file):
        raise PodnetError(f"readinessindicatorfile: {plan.ready_file} is not there yet", "try again", code)


def _delete(
    call: Call, members: Sequence[Member], given: Sequence[Mapping[str, Any]], was_there: bool
) -> list[PodnetError]:  # fmt: skip
    """Each has its share of the time that is left, so that one that hangs keeps none from being asked."""
    failed: list[PodnetError] = []
    for index in reversed(range(len(members))):
        now = time.monotonic()
        mine = replace(call, deadline=now + (call.deadline - now) / (index + 1))
        failed += chain.delete(mine, members[index], given[index] if index < len(given) else None, was_there)
        call.steps.done(members[index].place)
    return failed


def _take_back(
    call: Call, begun: Sequence[chain.Progress], documents: Sequence[Mapping[str, Any]], writing: meta_state.Writing
) -> None:  # fmt: skip
    """After an ADD that failed. What stays is still known, for the runtime's DEL. Raises PodnetError."""
    later = replace(call, deadline=time.monotonic() + UNDO_SECONDS)
    failed = _delete(later, [progress.made for progress in begun], documents, was_there=True)
    attempt([], lambda: writing.wait(STATE_SECONDS))
    if failed:
        raise _joined(failed)
    # What was given is another attachment's that this one only found.
    meta_state.forget(call.request.container_id, call.request.ifname, with_results=any(item.begun for item in begun))


def _collect_one(call: Call, item: meta_state.Attachment) -> list[PodnetError]:
    """Takes an attachment away, unless a call is at work on it."""
    lost_one = call.of(item.container_id, item.ifname, item.live_netns)
    with try_turn(item.container_id, item.ifname, SCOPE) as ours:
        if not ours:
            return []
        given = meta_state.results(item.container_id, item.ifname, len(item.members))
        failed = _delete(lost_one, item.members, given or [], was_there=True)
        if not failed:
            attempt(failed, lambda: meta_state.forget(item.container_id, item.ifname))
        return failed


def _collect_networks(
    call: Call, known: Mapping[tuple[str, str], meta_state.Attachment]
) -> list[PodnetError]:  # fmt: skip
    """The networks of the configuration, and those of listed attachments that are not in it any more."""
    plan = parse_plan(call.conf, replace(call.request, ifname="eth0"), strict=False)
    networks = {member.network.name: member for member in plan.members}
    names: dict[str, set[tuple[str, str]]] = {name: set() for name in networks}
    for item in known.values():
        for member in item.members:
            networks.setdefault(member.network.name, member)
            names.setdefault(member.network.name, set()).add((item.container_id, member.ifname))
    failed: list[PodnetError] = []
    for name, member in networks.items():
        failed += chain.collect(call, member, names[name])
    return failed


def _joined(failed: Sequence[PodnetError]) -> PodnetError:
    """One error for several: the first one's code, and the words of all."""
    if len(failed) == 1:
        return failed[0]
    hints = "; ".join(dict.fromkeys(error.hint for error in failed if error.hint))
    return PodnetError("; ".join(error.message for error in failed), hints, failed[0].code)


PLUGIN = Plugin(TYPE, add, delete, check, status, collect, _let_go, SECONDS, SCOPE)
