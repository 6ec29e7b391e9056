# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CHECK of `podnet-ovs`: whether an attachment still is what ADD promised."""

from __future__ import annotations

from ..errors import OvsdbError
from ..kernel import pod, qdisc
from ..model.port import ETHERTYPES, TUNNEL, Bandwidth
from ..vswitch.attachments import Attachment
from . import lease as ipam, spoof, subinterfaces
from .call import Call
from .common import open_space
from .promise import differs, look, own_index, promised
from .wish import Wish, host_name, load_node, parse_wish, refuse_closed


def check(call: Call) -> None:
    """CHECK: what prevResult promises of this interface is so. Raises PodnetError that names the difference."""
    request, conf = call.request, call.conf
    previous = promised(call)
    host = host_name(request.container_id, request.ifname)
    with open_space(call) as space:
        look(space, previous, own_index(previous, request.ifname, request.netns))
        subinterfaces.check(call, space, previous)
    if not pod.exists(host):
        raise differs(f"the host's end {host} is gone")
    node = load_node()
    wish = parse_wish(conf, request, node, strict=False)
    with call.switch(node.ovsdb, host) as switch:
        port = switch.attachment(host)
    if wish.from_ipam and port is not None and port.bridge and not conf.raw.get("bridge"):
        # Whose uplink it was is in no result: that bridge is fine which is still open to the pod.
        wish = parse_wish(conf, request, node, strict=False, bridge=port.bridge)
        refuse_closed(wish, request, node)
    _check_port(wish, host, port)
    ipam.check(call)
    subinterfaces.check_leases(call)


def _check_port(wish: Wish, host: str, port: Attachment | None) -> None:
    if port is None:
        raise differs(f"port {host} is not in the Open vSwitch database")
    if port.bridge != wish.bridge:
        raise differs(f"port {host} is on bridge {port.bridge or 'none'}, not {wish.bridge}")
    wanted = wish.vlans.columns()
    for column, seen in (("vlan_mode", port.vlan_mode), ("tag", port.tag), ("trunks", list(port.trunks)),
                         ("cvlans", list(port.cvlans))):  # fmt: skip
        if seen != wanted[column]:
            raise differs(f"port {host} has {column} {seen or 'none'}: it should be {wish.vlans.words()}")
    if wish.vlans.mode == TUNNEL and (port.ethertype or ETHERTYPES[0]) != (wish.vlans.ethertype or ETHERTYPES[0]):
        wanted_type = wish.vlans.ethertype or ETHERTYPES[0]
        raise differs(f"port {host} has qinq_ethertype {port.ethertype or ETHERTYPES[0]}: it should be {wanted_type}")
    if port.protected != wish.isolated:
        raise differs(f"port {host} is {'' if port.protected else 'not '}isolated from other isolated ones")
    if port.error:
        raise OvsdbError(f"ovs-vswitchd cannot use {host}: {port.error}")
    _check_limits(wish.bandwidth or Bandwidth(), host, port)
    if wish.spoof_check and not port.spoof_check:
        raise differs(f"port {host} is under no spoof check")
    if port.spoof_check and not spoof.is_guarded(port):
        raise differs(
            f"flows of the spoof check of {host} are missing: the agent and podnet node restore put them back"
        )


def _check_limits(wanted: Bandwidth, host: str, port: Attachment) -> None:
    """The rates in the database, and that the kernel has them in force. It polices whole kilobits."""
    for way, seen, rate in (
        ("ingressRate", port.ingress_rate, wanted.ingress_rate),
        ("egressRate", port.egress_rate, wanted.egress_rate and max(wanted.egress_rate // 1000, 1) * 1000),
    ):
        if seen != rate:
            raise differs(f"port {host} has bandwidth.{way} {seen or 'none'}: it should be {rate or 'none'}")
    if wanted.ingress_rate and not qdisc.is_shaped(host):
        raise differs(
            f"what goes towards the pod is not limited any more: {host} has no shaper (bandwidth.ingressRate)"
        )
    if wanted.egress_rate and not qdisc.is_policed(host):
        raise differs(f"what goes from the pod is not limited any more: {host} has no policer (bandwidth.egressRate)")
