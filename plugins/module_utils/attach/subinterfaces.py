# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`subinterfaces` of `podnet-ovs`: VLAN interfaces in the pod, all on the one interface that is its trunk."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from ..cni.config import expanded
from ..cni.result import Interface, Result
from ..errors import ConfigError, PodnetError
from ..kernel import vlanlinks
from ..kernel.fastpath import PodSpace
from ..kernel.rtnetlink import LinkExists
from ..model.vlan import VlanSet
from . import lease as ipam
from .call import Call
from .common import taken
from .leases import release_all
from .promise import differs, look, own_index
from .subinterface_wish import Subinterface, name_of, parse_subinterfaces


def refuse_taken(space: PodSpace, wanted: Collection[Subinterface], just_now: bool) -> None:
    """Raises PodnetError if the pod has an interface of one of the names."""
    there = {link.name for link in vlanlinks.links_of(space)} if wanted else set()
    for item in wanted:
        if item.name in there:
            raise taken(item.name, just_now)


def make(space: PodSpace, ifname: str, wanted: Sequence[Subinterface], mtu: int) -> None:
    """Makes them on the interface, which is up; they go with it. Raises PodnetError; none of them is left then."""
    if not wanted:
        return
    trunk = space.index(ifname) or 0
    try:
        vlanlinks.make(space, [
            vlanlinks.NewVlan(item.name, trunk, item.vlan, item.protocol, "", item.mtu or mtu) for item in wanted
        ])  # fmt: skip
    except LinkExists as error:  # made since it was looked for
        raise PodnetError(error.message, "DEL that attachment first", ConfigError.code) from error


def lease_calls(call: Call, wanted: Iterable[Subinterface]) -> list[Call]:
    """The call as the IPAM plugin of each gets it."""
    return [ipam.of_interface(call, item.name, item.ipam) for item in wanted]


def extend(
    result: Result, wanted: Sequence[Subinterface], given: Sequence[Result], sandbox: str, mac: str, mtu: int
) -> Result:  # fmt: skip
    """The result with each behind, its addresses and routes."""
    for item, lease in zip(wanted, given):
        mine = Interface(item.name, mac, sandbox, item.mtu or mtu)
        result = result.extended([mine], lease.addresses, lease.routes, lease.dns)
    return result


def of_call(call: Call) -> tuple[Subinterface, ...]:
    """Those of a configuration, none if it is one that no ADD can have used."""
    try:
        return parse_subinterfaces(call.conf.raw, call.request.ifname, strict=False) if call.conf.name else ()
    except ConfigError:
        return ()


def release(call: Call, host: str, trace: bool, recorded: VlanSet) -> list[PodnetError]:
    """DEL of each lease, also of those that the port has recorded and the configuration has not any more.

    Gives what went wrong, after all were tried; see `release_all`.
    """
    calls = lost_leases(call, recorded)
    notes = [f"{host}.{each.request.ifname}" for each in calls]
    return release_all(calls, notes, lambda _place: trace)


def check(call: Call, space: PodSpace, previous: Result) -> None:
    """CHECK of each: link, VLAN, trunk, and what prevResult promises. Raises PodnetError that names the difference."""
    wanted = parse_subinterfaces(call.conf.raw, call.request.ifname, strict=False)
    if not wanted:
        return
    links = {link.name: link for link in vlanlinks.links_of(space)}
    trunk = links[call.request.ifname].index
    for item in wanted:
        link = links.get(item.name)
        if link is None:
            raise differs(f"the container's interface {item.name} is gone")
        if (link.kind, link.parent, link.vlan, link.protocol) != ("vlan", trunk, item.vlan, item.protocol):
            raise differs(f"{item.name} is not of VLAN {item.vlan} on {call.request.ifname}")
        if item.mtu is not None and link.mtu != item.mtu:
            raise differs(f"{item.name} has the MTU {link.mtu}, not {item.mtu}")
        look(space, previous, own_index(previous, item.name, call.request.netns))


def check_leases(call: Call) -> None:
    """The IPAM plugins' CHECK of each."""
    for lease_call in lease_calls(call, parse_subinterfaces(call.conf.raw, call.request.ifname, strict=False)):
        ipam.check(lease_call)


def by_ipam(call: Call) -> list[Call]:
    """A call for each IPAM configuration, for the verbs that are about no single attachment."""
    different = {json.dumps(item.ipam, sort_keys=True): item.ipam for item in of_call(call) if item.ipam}
    return [ipam.of_interface(call, call.request.ifname, given) for given in different.values()]


def expanded_call(call: Call, recorded: Mapping[tuple[str, str], VlanSet]) -> Call:
    """The call of a GC with every name that IPAM plugins know the valid attachments by: from the configuration, and by
    attachment (container id, interface) those VLANs that its port recorded.
    """

    def names(container_id: str, ifname: str) -> list[str]:
        vlans = VlanSet.of(item.vlan for item in of_call(call.of(container_id, ifname)))
        return [name_of(ifname, vlan) for vlan in vlans | recorded.get((container_id, ifname), VlanSet())]

    raw = expanded(call.conf.raw, names)
    return replace(call, conf=replace(call.conf, raw=raw, stdin=json.dumps(raw).encode()))


def lost_leases(call: Call, recorded: VlanSet) -> list[Call]:
    """Calls for the leases of an attachment that is lost: those of the configuration, and of the VLANs that its port
    recorded. One that the configuration has not any more may be of any of its IPAM plugins.
    """
    known = {item.vlan: item for item in of_call(call)}
    found = lease_calls(call, [item for item in known.values() if item.ipam])
    for vlan in recorded:
        if vlan not in known:
            found += [
                ipam.of_interface(each, name_of(call.request.ifname, vlan), each.conf.ipam) for each in by_ipam(call)
            ]
    return found
