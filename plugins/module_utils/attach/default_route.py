# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""By which of its networks a pod leaves: the key `default-route` (NPWG specification 1.3, section 4.1.2.1.9)."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ..cni.result import Result, parse_result
from ..errors import ConfigError
from ..kernel.defaults import remove_defaults
from ..kernel.fastpath import PodSpace
from ..kernel.pod import PodRoute
from .call import Call
from .common import open_space
from .meta_wish import Member

_ANYWHERE = {4: "0.0.0.0/0", 6: "::/0"}
_BOTH = frozenset(_ANYWHERE)


def choose(call: Call, members: Sequence[Member], documents: Sequence[dict[str, Any]]) -> None:
    """Gives the pod the default routes that one network asks for, and takes those away that others have of that family.

    A network with an empty list gets none; the others keep theirs. The networks' results are changed alike, so that
    CHECK looks for what is. Raises KernelError, NetnsError.
    """
    if all(member.default_route is None for member in members):
        return
    with open_space(call) as space:
        _choose(space, members, documents)


def _choose(space: PodSpace, members: Sequence[Member], documents: Sequence[dict[str, Any]]) -> None:
    chosen = next((member for member in members if member.default_route), None)
    if chosen is not None:
        _refuse_far(chosen, documents[list(members).index(chosen)])
    gateways = {ipaddress.ip_address(text).version: text for text in (chosen.default_route or ())} if chosen else {}
    for member, document in zip(members, documents):
        families = _BOTH if member.default_route == () else frozenset(gateways)
        if families:
            remove_defaults(space, member.ifname, families)
            document["routes"] = [item for item in document.get("routes") or () if not _is_default(item, families)]
    if chosen is None:
        return
    space.configure(chosen.ifname, (), [PodRoute(_ANYWHERE[family], text) for family, text in gateways.items()])
    own = documents[list(members).index(chosen)]
    own["routes"] += [{"dst": _ANYWHERE[family], "gw": text} for family, text in gateways.items()]


def _refuse_far(member: Member, document: Mapping[str, Any]) -> None:
    """Raises ConfigError for a gateway that the network cannot have: the pod would be cut off."""
    result = parse_result(document, member.words)
    networks = [ipaddress.ip_interface(item.address).network for item in result.addresses]
    known = {ipaddress.ip_address(text) for text in _gateways(result)}
    for text in member.default_route or ():
        gateway = ipaddress.ip_address(text)
        if gateway in known or (gateway.version == 6 and gateway.is_link_local):
            continue
        if not any(gateway in network for network in networks):
            there = ", ".join(map(str, networks)) or "no network"
            raise ConfigError(
                f"{member.place}.default-route", f"{text} is no neighbour of {member.ifname}", f"it is in {there}"
            )


def _gateways(result: Result) -> Iterator[str]:
    yield from (item.gateway for item in result.addresses if item.gateway)
    yield from (item.gateway for item in result.routes if item.gateway)


def _is_default(route: Any, families: Collection[int]) -> bool:
    try:
        network = ipaddress.ip_network(route["dst"], strict=False)
    except (ValueError, KeyError, TypeError):
        return False
    return network.prefixlen == 0 and network.version in families
