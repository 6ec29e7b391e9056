# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet attachments`: the ports of pods on this node."""

from __future__ import annotations

import argparse
from typing import Any

from .attach.wish import load_node
from .kernel import pod
from .model.vlan import collapse
from .terminal import OK, print_json, table
from .vswitch.attachments import ACCESS, TRUNK, TUNNEL, Attachment
from .vswitch.fastpath import open_switch

GONE = "its link is gone"
HEAD = ("PORT", "BRIDGE", "VLANS", "NETWORK", "POD", "INTERFACE", "ADDRESSES", "LIMITS", "GUARDS", "STATE")
_UNITS = ((10**9, "G"), (10**6, "M"), (10**3, "k"))


def attachments(options: argparse.Namespace, seconds: float) -> int:
    """Prints them; database and switch may take so many seconds each. Raises PodnetError."""
    with open_switch(load_node().ovsdb, seconds) as switch:
        found = sorted(switch.attachments(), key=lambda item: (item.bridge, item.port))
    shown = [
        item
        for item in found
        if options.namespace in (None, item.mark.pod_namespace) and options.network in (None, item.mark.network)
    ]
    if options.json:
        print_json([to_dict(item) for item in shown])
    else:
        table(HEAD, [row_of(item) for item in shown])
    return OK


def state_of(item: Attachment) -> str:
    """What is wrong with a port, empty if nothing is."""
    return item.error or ("" if pod.exists(item.port) else GONE)


def to_dict(item: Attachment) -> dict[str, Any]:
    """All that is known of it, for a program."""
    mark = item.mark
    return {
        "port": item.port,
        "bridge": item.bridge,
        "mode": item.mode,
        "vlan": item.tag or None,
        "trunks": list(item.trunks),
        "cvlans": list(item.cvlans),
        "network": mark.network,
        "pod": _pod(item),
        "namespace": mark.pod_namespace,
        "pod_uid": mark.pod_uid,
        "container": mark.container_id,
        "interface": mark.ifname,
        "addresses": list(mark.addresses),
        "mtu": mark.mtu,
        "ofport": item.ofport,
        "ingress_rate": item.ingress_rate,
        "egress_rate": item.egress_rate,
        "spoof_check": item.spoof_check,
        "isolated": item.protected,
        "error": state_of(item),
    }


def vlans_of(item: Attachment) -> str:
    """Mode and VLANs in a few words, such as `access 100`, `trunk 10,20-30`, `native-tagged 5 + 10,20`."""
    if item.mode == ACCESS:
        return f"{ACCESS} {item.tag or 'untagged'}"
    if item.mode == TUNNEL:
        return f"tunnel {item.tag or 'untagged'}" + (f" of {collapse(item.cvlans)}" if item.cvlans else "")
    trunks = collapse(item.trunks) or "all"
    return f"{TRUNK} {trunks}" if item.mode == TRUNK else f"{item.mode} {item.tag or 0} + {trunks}"


def row_of(item: Attachment) -> tuple[str, ...]:
    """The cells under HEAD."""
    mark = item.mark
    guards = [word for word, is_set in (("spoof-check", item.spoof_check), ("isolated", item.protected)) if is_set]
    limits = [f"{way} {_rate(bits)}" for way, bits in (("in", item.ingress_rate), ("out", item.egress_rate)) if bits]
    return (
        item.port, item.bridge, vlans_of(item), mark.network, _pod(item) or mark.container_id[:12], mark.ifname,
        " ".join(mark.addresses), ", ".join(limits), ", ".join(guards), state_of(item) or "ok",
    )  # fmt: skip


def _pod(item: Attachment) -> str:
    return "/".join(part for part in (item.mark.pod_namespace, item.mark.pod_name) if part)


def _rate(bits: int) -> str:
    """Bits per second, with the largest unit that leaves a whole number."""
    for factor, unit in _UNITS:
        if bits % factor == 0:
            return f"{bits // factor}{unit}bit"
    return f"{bits}bit"
