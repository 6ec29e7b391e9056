# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-vlan`: VLAN interfaces in a pod, on an interface that is there or on one of the node."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ..cni.config import expanded, valid_attachments
from ..cni.request import Request
from ..cni.result import Interface, Result, render
from ..errors import UNAVAILABLE, ConfigError, NetnsError, PodnetError, RefusedError
from ..kernel import vlanlinks
from ..kernel.rtnetlink import LinkExists
from ..kernel.vlanlinks import Link
from . import lease as ipam, leased
from .call import Call, Means
from .common import attempt, earlier, open_space, pod_routes
from .leases import Leases, release_all
from .plugin import Plugin
from .promise import differs, look, own_index, promised
from .undo import undoing
from .vlan_parent import parent_of, planned
from .vlan_wish import VlanWish, mark_of, names_of, parse_vlan_wish, refuse_closed_master
from .wish import load_node

TYPE = "podnet-vlan"


def add(call: Call) -> dict[str, Any]:
    """ADD: the links, their addresses; gives prevResult whole with them behind, in the configuration's version.

    What fails takes back exactly what it made. Raises PodnetError.
    """
    request = call.request
    wish = parse_vlan_wish(call.conf, request)
    if wish.on_host:
        refuse_closed_master(wish, request, load_node())
    previous = earlier(call)
    with open_space(call) as space, undoing() as undo:
        links = vlanlinks.links_of(space)
        parent = _parent(wish, request, previous, links)
        just_now = call.waited or call.means.doubled
        wanted = planned(wish, request, call.conf.name, previous, links, parent, just_now)
        if not parent.up:
            raise RefusedError(f"master: {parent.name} is down", "who made it has to bring it up")
        call.steps.done("configuration")
        mine = _leased(call, wish)
        leased.remember(mine)
        undo.add(lambda: leased.forget(mine))
        leases = Leases(_lease_calls(call, wish), undo)
        call.steps.done("ipam starts")
        try:
            vlanlinks.make(space, wanted)
        except LinkExists as error:
            raise _exists(error, wish, parent) from error
        undo.add(lambda: vlanlinks.remove_named(space, [item.name for item in wanted]))
        there = {link.name: link for link in vlanlinks.links_of(space)}
        made = [there[item.name] for item in wanted]
        call.steps.done("links")
        given = leases.results()
        call.steps.done("ipam")
        result = _result(call, previous, made, given)
        document = render(result, call.conf.version)
        for link, lease in zip(made, given):
            space.configure(link.name, [item.address for item in lease.addresses], pod_routes(lease))
        call.steps.done("addresses")
        call.means.announce(
            space.netns_fd,
            [(link.name, link.mac, [item.address for item in lease.addresses]) for link, lease in zip(made, given)],
        )
        return document


def delete(call: Call) -> None:
    """DEL: the links that carry our mark, then each lease; what is missing is done, whatever the rest does.

    Needs neither parent nor namespace nor prevResult. Raises the first PodnetError of what could not go.
    """
    try:
        wish = parse_vlan_wish(call.conf, call.request, strict=False)
    except PodnetError:
        return  # no ADD can have used it
    failed: list[PodnetError] = []
    marks = [mark_of(call.conf.name, call.request.ifname, item.key) for item in wish.vlans]
    traces: set[str] = set()
    errors: list[PodnetError] = []
    attempt(errors, lambda: _remove_marked(call, marks, traces))
    if errors:
        traces.update(marks)  # nobody can say that there was nothing
        failed += [error for error in errors if not isinstance(error, NetnsError)]  # gone, with all that was in it
    call.steps.done("links")
    notes = [_note(call.request.container_id, mark) for mark in marks]
    failed += release_all(_lease_calls(call, wish), notes, lambda place: marks[place] in traces)
    call.steps.done("ipam")
    if failed:
        raise failed[0]
    leased.forget(_leased(call, wish))


def check(call: Call) -> None:
    """CHECK: each VLAN is what prevResult promises. Raises PodnetError that names the difference."""
    request = call.request
    wish = parse_vlan_wish(call.conf, request, strict=False)
    previous = promised(call)
    with open_space(call) as space:
        links = vlanlinks.links_of(space)
        marked = {link.alias: link for link in links}
        mine: list[Link] = []
        for item in wish.vlans:
            link = marked.get(mark_of(call.conf.name, request.ifname, item.key))
            if link is None:
                raise differs(f"the container's interface for VLAN {item.vlan} is gone ({item.path})")
            mine.append(link)
        indices = [own_index(previous, link.name, request.netns) for link in mine]
        # What was there in ADD: a list's later plugins add theirs behind.
        before = replace(previous, interfaces=previous.interfaces[: indices[0]])
        wish = replace(wish, on_host=not (wish.in_container or indices[0]) and mine[0].elsewhere)
        parent = _parent(wish, request, before, links)
        for number, (item, link, index) in enumerate(zip(wish.vlans, mine, indices)):
            below = mine[number - 1] if number and wish.nested else parent
            if (link.kind, link.vlan, link.protocol) != ("vlan", item.vlan, item.protocol):
                raise differs(f"{link.name} is not of VLAN {item.vlan} ({item.protocol:#06x})")
            if link.parent != below.index or link.elsewhere != (wish.on_host and below is parent):
                raise differs(f"{link.name} does not stand on {below.name}")
            if item.mtu is not None and link.mtu != item.mtu:
                raise differs(f"{link.name} has the MTU {link.mtu}, not {item.mtu}")
            look(space, previous, index)
    for lease_call in _lease_calls(call, wish):
        ipam.check(lease_call)


def status(call: Call) -> None:
    """STATUS: an ADD could be served. Raises PodnetError with code 50."""
    if vlanlinks.is_lacking():
        raise PodnetError("this kernel has no 802.1Q VLANs", vlanlinks.NEEDED, UNAVAILABLE)
    for lease_call in _by_ipam(call):
        ipam.status(lease_call)


def collect(call: Call) -> None:
    """GC: what attachments that are not listed have leased goes, and the IPAM plugins hear which names the valid ones
    have with them. The links went with their namespaces.

    A runtime that gives no list changes nothing. Raises the first PodnetError after all was tried.
    """
    keep = valid_attachments(call.conf.raw)
    if keep is None:
        return
    raw = expanded(call.conf.raw, lambda _container, ifname: names_of(call.conf, call.request, ifname))
    full = replace(call, conf=replace(call.conf, raw=raw, stdin=json.dumps(raw).encode()))
    failed: list[PodnetError] = []
    for item in list(leased.all_leased()):
        if item.network == call.conf.name and (item.container_id, item.ifname) not in keep:
            attempt(failed, partial(_release_lost, call.of(item.container_id, item.ifname), item))
    for lease_call in _by_ipam(full):
        attempt(failed, partial(ipam.collect, lease_call))
    if failed:
        raise failed[0]


def let_go(request: Request, means: Means) -> bool:
    """A DEL without a readable configuration: no ADD can have used it."""
    return False


def _parent(wish: VlanWish, request: Request, previous: Result, links: Sequence[Link]) -> Link:
    if not wish.on_host:
        return parent_of(wish, request, previous, links)
    found = vlanlinks.host_link(wish.master)
    if found is None:
        raise ConfigError("master", f"this node has no interface {wish.master}", "for one of the pod: linkInContainer")
    return found


def _exists(error: LinkExists, wish: VlanWish, parent: Link) -> PodnetError:
    """In the pod it was looked for before, so it is of this moment; who has a VLAN of the node's is not seen there."""
    if not wish.on_host:
        return RefusedError(error.message, "another call has just made it: DEL the attachment, and try again")
    return RefusedError(
        f"{error.message}: {parent.name} has that VLAN already",
        "the node itself or another pod has it: take another id, or a network of podnet-ovs, which many pods share",
    )


def _lease_calls(call: Call, wish: VlanWish) -> list[Call]:
    return [ipam.of_interface(call, item.key, item.ipam) for item in wish.vlans]


def _by_ipam(call: Call) -> list[Call]:
    """A call for each different IPAM configuration: for the verbs that are about no single attachment."""
    wish = parse_vlan_wish(call.conf, call.request, strict=False)
    different = {json.dumps(item.ipam, sort_keys=True): item.ipam for item in wish.vlans}
    return [ipam.of_interface(call, call.request.ifname, given) for given in different.values()]


def _remove_marked(call: Call, marks: Sequence[str], traces: set[str]) -> None:
    with open_space(call) as space:
        links = {link.index: link for link in vlanlinks.links_of(space)}
        mine = [link for link in links.values() if link.alias in marks]
        traces.update(link.alias for link in mine)
        innermost_first = sorted(mine, key=lambda link: vlanlinks.depth(link, links), reverse=True)
        vlanlinks.remove(space, [link.index for link in innermost_first])


def _leased(call: Call, wish: VlanWish) -> leased.Leased:
    names = tuple(item.key for item in wish.vlans if item.ipam)
    return leased.Leased(call.request.container_id, call.request.ifname, call.conf.name, names)


def _release_lost(call: Call, item: leased.Leased) -> None:
    """Plugins of before 1.1.0 know no GC: what is lost is released by its name. Another plugin's of the list stays."""
    wish = parse_vlan_wish(call.conf, call.request, strict=False)
    if item != _leased(call, wish):
        return
    for lease_call in _lease_calls(call, wish):
        ipam.release(lease_call, call.deadline)
    leased.forget(item)


def _note(container_id: str, mark: str) -> str:
    return "vlan" + hashlib.sha256(f"{container_id}/{mark}".encode()).hexdigest()[:24]


def _result(call: Call, previous: Result, made: Sequence[Link], given: Sequence[Result]) -> Result:
    result = previous
    for link, lease in zip(made, given):
        mine = Interface(link.name, link.mac, call.request.netns, link.mtu)
        result = result.extended([mine], lease.addresses, lease.routes, lease.dns or call.conf.dns)
    return result


PLUGIN = Plugin(TYPE, add, delete, check, status, collect, let_go)
