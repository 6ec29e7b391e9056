# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a LAN's switch and gateway do to frames when they are told to fail."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Sequence


def both_ways(table: str, device: str, rules: Sequence[str]) -> str:
    """Shell that has nftables do this with all frames that come from a port or go to it, whatever it did before."""
    text = "; ".join(rules)
    chains = [
        f'chain {name} {{ type filter hook {hook} device "{device}" priority -1; {text}; }}'
        for name, hook in (("in", "ingress"), ("out", "egress"))
    ]
    whole = f"netdev {table}_{device}"
    lines = [f"table {whole}", f"delete table {whole}", f"table {whole} {{", *chains, "}"]
    return "\n".join(["nft -f - <<'.'", *lines, "."])


def vlan_rules(untagged: bool, tagged: Iterable[int]) -> list[str]:
    """Rules that pass only frames of these VLANs, and untagged ones if so said."""
    rules = ["ether type != vlan accept"] if untagged else []
    numbers = ", ".join(str(number) for number in sorted(set(tagged)))
    return [*rules, *([f"vlan id {{ {numbers} }} accept"] if numbers else []), "drop"]


def gateway_rules(gateways: Sequence[str], controllers: Sequence[str]) -> str:
    """nftables rules by which the gateway neither hears nor says anything, but for the controller's traffic and DHCP.

    The two are one machine with an address each. The controller still asks for nodes' MAC addresses and is asked for
    its own.
    """
    rules = ["udp dport { 67, 547 } accept", "icmpv6 type nd-neighbor-advert accept"]
    silent = []
    for text in controllers:
        address = ipaddress.ip_address(text)
        if address.version == 4:
            rules += [f"arp daddr ip {address} accept", f"ip daddr {address} accept"]
        else:
            group = ipaddress.IPv6Address(int(ipaddress.IPv6Address("ff02::1:ff00:0")) | int(address) & 0xFFFFFF)
            rules += [f"ip6 daddr {{ {address}, {group} }} accept"]
    for text in gateways:
        address = ipaddress.ip_address(text)
        silent.append(f"arp saddr ip {address} drop" if address.version == 4 else "icmpv6 type nd-router-advert drop")
    rules_text, silent_text = "; ".join(rules), "; ".join(silent)
    return f"""table netdev podnet_gateway {{
    chain hear {{ type filter hook ingress device "br0" priority 0; policy drop; {rules_text}; }}
    chain say {{ type filter hook egress device "br0" priority 0; policy accept; {silent_text}; }}
}}
"""
