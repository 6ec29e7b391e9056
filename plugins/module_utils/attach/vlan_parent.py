# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which links a pod's VLANs stand on, and what they are called: pure, from what is there."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..cni.request import Request
from ..cni.result import Result
from ..errors import ConfigError, PodnetError, RefusedError
from ..kernel.vlanlinks import Link, NewVlan
from .common import taken
from .vlan_wish import Vlan, VlanWish, link_name, mark_of


def in_sandbox(previous: Result, netns: str) -> list[str]:
    """The names of the interfaces that a result has in the pod, in order."""
    inside = [item for item in previous.interfaces if item.sandbox]
    return [item.name for item in inside if item.sandbox == netns] or [item.name for item in inside]


def parent_of(wish: VlanWish, request: Request, previous: Result, links: Sequence[Link]) -> Link:
    """The link in the pod that the first VLAN stands on. Raises ConfigError that names the key and what is there."""
    if wish.master:
        return _there(wish.master, links, "the container has no interface of this name")
    names = in_sandbox(previous, request.netns)
    if not names:
        raise ConfigError(
            "master", f"it is not given, and prevResult names no interface in the container, which has {_words(links)}",
            "name the parent",
        )  # fmt: skip
    if wish.nested:
        return _there(names[-1], links, "prevResult names it, but the container has no such interface")
    if request.ifname not in names and len(names) > 1:
        raise ConfigError(
            "master", f"it is not given, and prevResult names {', '.join(names)}, but not {request.ifname}",
            "name the one that is the parent",
        )  # fmt: skip
    name = request.ifname if request.ifname in names else names[0]
    parent = _there(name, links, "prevResult names it, but the container has no such interface")
    by_index = {link.index: link for link in links}
    while parent.kind == "vlan" and not parent.elsewhere and parent.parent in by_index:
        below = by_index[parent.parent]
        if below.name not in names:
            break
        parent = below
    return parent


def planned(
    wish: VlanWish, request: Request, network: str, previous: Result, links: Sequence[Link], parent: Link,
    just_now: bool,
) -> list[NewVlan]:  # fmt: skip
    """The links to make on that parent, in order. Raises ConfigError for a name or an MTU that cannot be, RefusedError
    for what is there already; `just_now`: another call may have made it a moment ago.
    """
    names = {link.name for link in links}
    known = {*names, *(item.name for item in previous.interfaces if item.sandbox)}
    is_main = len(wish.vlans) == 1 and request.ifname not in known
    made: list[NewVlan] = []
    for item in wish.vlans:
        mark = mark_of(network, request.ifname, item.key)
        for link in links:
            if link.alias == mark:
                raise _made_already(link, item, just_now)
        below = made[-1] if made and wish.nested else None
        name = link_name(item, below.name if below else parent.name, request.ifname, is_main)
        if name in names:
            raise taken(name, just_now)
        names.add(name)
        if below is None:
            _refuse_twice(item, parent, links, wish.on_host)
        highest = below.mtu if below else parent.mtu
        mtu = highest if item.mtu is None else item.mtu
        if highest is not None and mtu is not None and mtu > highest:
            raise ConfigError(
                item.path.replace("vlanId", "mtu").replace(".id", ".mtu"),
                f"{mtu} bytes are more than the {highest} of the parent {below.name if below else parent.name}",
                "leave the key away for the parent's own, or give that one more",
            )
        made.append(NewVlan(
            name=name,
            parent=below.name if below else parent.index,
            vlan=item.vlan,
            protocol=item.protocol,
            alias=mark,
            mtu=mtu,
            mac=wish.mac or "",
            on_host=wish.on_host and below is None,
        ))  # fmt: skip
    return made


def _there(name: str, links: Sequence[Link], without: str) -> Link:
    for link in links:
        if link.name == name:
            return link
    raise ConfigError("master", f"{name}: {without}", f"it has {_words(links)}")


def _words(links: Iterable[Link]) -> str:
    return ", ".join(link.name for link in links) or "none"


def _made_already(link: Link, item: Vlan, just_now: bool) -> PodnetError:
    error = taken(link.name, just_now)
    if not just_now:
        error.hint = (
            f"DEL the attachment first; or, if another plugin of this list made it, give VLAN {item.vlan} a name"
        )
    return error


def _refuse_twice(item: Vlan, parent: Link, links: Iterable[Link], on_host: bool) -> None:
    for link in links:
        if (link.elsewhere, link.parent, link.vlan, link.protocol) == (
            on_host, parent.index, item.vlan, item.protocol
        ) and link.kind == "vlan":  # fmt: skip
            raise RefusedError(
                f"{item.path}: {parent.name} has VLAN {item.vlan} already, as {link.name}",
                "a parent has a VLAN once: take another id, or put the VLAN on another parent",
            )
