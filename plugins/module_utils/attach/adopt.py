# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet-adopt`: an interface that a pod has already becomes that of a list, so that other plugins can follow."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..cni.request import Request
from ..cni.result import Address, Interface, Result, render
from ..errors import ConfigError
from ..kernel import vlanlinks
from ..kernel.fastpath import PodSpace
from ..kernel.vlanlinks import Link
from ..model.names import parse_ifname
from .call import Call, Means
from .common import earlier, known_endpoint, open_space
from .keys import refuse_requests, refuse_unknown
from .plugin import Plugin
from .promise import differs, own_index, promised

TYPE = "podnet-adopt"
KEYS = ("interface", "network")


def add(call: Call) -> dict[str, Any]:
    """ADD: changes nothing; gives prevResult whole, with the interface and the addresses that it carries.

    Raises ConfigError if it is not clear which one is meant, or it is not there.
    """
    refuse_unknown(call.conf.raw, KEYS)
    refuse_requests(call.conf, ())
    if call.conf.ipam:
        raise ConfigError("ipam", "an adopted interface keeps its addresses", "leave the key away")
    previous = earlier(call)
    with open_space(call) as space:
        link = _chosen(call, previous, vlanlinks.links_of(space))
        return render(_result(previous, link, _addresses(space, link.name), call), call.conf.version)


def delete(call: Call) -> None:
    """DEL: nothing was made."""


def check(call: Call) -> None:
    """CHECK: the interface is there as prevResult has it. Raises PodnetError that names the difference."""
    previous = promised(call)
    with open_space(call) as space:
        links = vlanlinks.links_of(space)
        name = _named(call) or _first(previous, call.request)
        wanted = previous.interfaces[own_index(previous, name, call.request.netns)]
        found = next((link for link in links if link.name == name), None)
        if found is None:
            raise differs(f"the container's interface {name} is gone")
        if wanted.mac and found.mac.lower() != wanted.mac.lower():
            raise differs(f"{name} has the MAC {found.mac}, not {wanted.mac}")
        if wanted.mtu and found.mtu != wanted.mtu:
            raise differs(f"{name} has the MTU {found.mtu}, not {wanted.mtu}")
        there = _addresses(space, name)
        for item in previous.addresses:
            own = item.interface is not None and previous.interfaces[item.interface] == wanted
            if own and str(ipaddress.ip_interface(item.address)) not in there:
                raise differs(f"{name} has not the address {item.address}")


def status(call: Call) -> None:
    """STATUS: an ADD needs nothing."""


def collect(call: Call) -> None:
    """GC: nothing was made."""


def let_go(request: Request, means: Means) -> bool:
    """A DEL without a readable configuration: nothing was made."""
    return False


def _chosen(call: Call, previous: Result, links: Sequence[Link]) -> Link:
    """The link that is meant. Raises ConfigError that names the key and what is there."""
    there = {link.name: link for link in links}
    words = f"the container has {', '.join(there) or 'none'}"
    name, key = _named(call), "network" if call.conf.raw.get("network") else "interface"
    if not name:
        names = [item.name for item in previous.interfaces if item.sandbox]
        if call.request.ifname in names or not names:
            name = call.request.ifname
        elif len(names) == 1:
            name = names[0]
        else:
            raise ConfigError(key, f"it is not given, and prevResult names {', '.join(names)}", "name one of them")
        if name not in there and not names:
            raise ConfigError(key, f"it is not given, and there is no {name}: {words}", "name one of them")
    if name not in there:
        raise ConfigError(key, f"{name} is not there: {words}", "name one of them")
    return there[name]


def _named(call: Call) -> str:
    """The interface that the configuration names, itself or by its network; empty if it names none."""
    raw = call.conf.raw
    interface, network = raw.get("interface"), raw.get("network")
    if interface is not None and network is not None:
        raise ConfigError("interface", "both interface and network are given", "one of them says which it is")
    if interface is not None:
        return parse_ifname(interface, "interface")
    return "" if network is None else _of_network(call, network)


def _of_network(call: Call, network: object) -> str:
    with call.switch(known_endpoint()) as switch:
        mine = [item.mark for item in switch.attachments() if item.mark.container_id == call.request.container_id]
    names = sorted(mark.ifname for mark in mine if mark.network == network)
    if len(names) == 1:
        return names[0]
    there = ", ".join(sorted(f"{mark.ifname} on {mark.network}" for mark in mine)) or "none"
    what = f"the pod has {', '.join(names)} on {network}" if names else f"the pod has no interface on {network!r}"
    raise ConfigError("network", f"{what}"[:200], f"attachments of podnet-ovs in it: {there}; or name the interface")


def _first(previous: Result, request: Request) -> str:
    """The interface of the pod in a result that was adopted without a name: others come behind."""
    names = [item.name for item in previous.interfaces if item.sandbox]
    return request.ifname if request.ifname in names or not names else names[0]


def _addresses(space: PodSpace, name: str) -> list[str]:
    """The addresses of an interface that others reach, IPv4 first."""
    seen = space.observe(name)
    found = [ipaddress.ip_interface(text) for text in (seen.addresses if seen else ())]
    known = [item for item in found if not item.is_link_local]
    return [str(item) for item in sorted(known, key=lambda item: (item.version, int(item.ip)))]


def _result(previous: Result, link: Link, addresses: Sequence[str], call: Call) -> Result:
    """A result that has the interface already gets what it lacks of it, in its place."""
    there = [n for n, item in enumerate(previous.interfaces) if item.sandbox and item.name == link.name]
    if not there:
        mine = Interface(link.name, link.mac, call.request.netns, link.mtu)
        return previous.extended([mine], [Address(text) for text in addresses], (), call.conf.dns)
    index = there[0]
    listed = {str(ipaddress.ip_interface(item.address)) for item in previous.addresses if item.interface == index}
    more = [Address(text, "", index) for text in addresses if text not in listed]
    return replace(previous, addresses=(*previous.addresses, *more), dns={**previous.dns, **call.conf.dns})


PLUGIN = Plugin(TYPE, add, delete, check, status, collect, let_go)
