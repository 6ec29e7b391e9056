# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What of the obstacles of a move is pure: what tools print, twins of firewall rules, bridges and ports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import RefusedError
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.addresses import parse_if_inet6
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.bound import Bound, parse_ss
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.firewall import (
    Firewall,
    Group,
    parse_iptables,
    parse_nft,
)
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.nic import Bond, Nic, lacp_settled
from ansible_collections.podnet.ovs.plugins.module_utils.kernel.stacked import Stacked
from ansible_collections.podnet.ovs.plugins.module_utils.model.move import MOVE, UNBRIDGE, Request
from ansible_collections.podnet.ovs.plugins.module_utils.model.node import Bridge, Uplink
from ansible_collections.podnet.ovs.plugins.module_utils.model.obstacle import BLOCKING, INFO, WARNING, Obstacle, refuse
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_NODE, OWNER_OVS, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.model.state import (
    INTERNAL,
    BridgeRow,
    InterfaceRow,
    Link,
    PortRow,
    State,
    Visit,
)
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.obstacles_back import of_bridge_left
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.obstacles_nic import of_nic, of_stacked
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.obstacles_way import of_route, of_visit
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.twins import rules_waiting, twins_missing

ETH0 = Link(
    "eth0", up=True, addresses=frozenset({"192.0.2.11/24"}), mac="02:00:00:00:00:01", routes=("default via 192.0.2.1",)
)
HERE = State(links={"eth0": ETH0})
NODE = Mark(OWNER_NODE).to_external_ids()


def request(direction: str = MOVE) -> Request:
    """eth0 and br-x."""
    declared = Bridge("br-x", uplinks=(Uplink("eth0", ("eth0",), move=True),))
    return Request(direction, "eth0", declared)


def of(found: object, level: str = BLOCKING) -> list[str]:
    """Texts of a level."""
    assert isinstance(found, list) and all(isinstance(item, Obstacle) for item in found)
    return [item.text for item in found if item.level == level]


NFT = """table inet filter {{ # handle 5
\tset lan {{ # handle 2
\t\ttype ifname
\t\telements = {{ "lo",
\t\t\t"eth0" }}
\t}}

\tchain input {{ # handle 1
\t\ttype filter hook input priority filter; policy drop;
\t\t{rules}
\t}}
}}
"""


def nft(*rules: str, lan: bool = False) -> Firewall:
    """A firewall of nftables with these rules."""
    text = NFT.format(rules="\n\t\t".join(f"{rule} # handle {i}" for i, rule in enumerate(rules, 7)))
    found, groups = parse_nft(text)
    return Firewall(found, groups if lan else ())


def ways(firewall: Firewall, nic: str = "eth0", bridge: str = "br-x") -> list[str]:
    """The ways out."""
    return [item.hint for item in twins_missing(firewall, nic, bridge) if item.level == BLOCKING]


def test_nft_is_read() -> None:
    rules, groups = parse_nft(NFT.format(rules='iifname "eth0" counter packets 5 bytes 300 accept # handle 9'))
    assert [(rule.place, rule.text, rule.position) for rule in rules] == [
        ("inet filter input", 'iifname "eth0" counter accept', 9)
    ]
    assert [group.place for group in groups] == ["inet filter lan"]
    assert ways(Firewall((), groups)) == ["nft 'add element inet filter lan { \"br-x\" }'"]


@pytest.mark.parametrize(
    ("rule", "way"),
    [
        ('iifname "eth0" accept', "nft 'add rule inet filter input handle 7 iifname \"br-x\" accept'"),
        ('iifname "eth*" accept', "nft 'add rule inet filter input handle 7 iifname \"br-x\" accept'"),
        (
            'iifname "eth0" accept comment "eth0 in"',
            'nft \'add rule inet filter input handle 7 iifname "br-x" accept comment "eth0 in"\'',
        ),
        (
            'iifname != "eth0" drop',
            'nft \'replace rule inet filter input handle 7 iifname != { "eth0", "br-x" } drop\'',
        ),
        (
            'oif != { "lo", "eth0" } drop',
            'nft \'replace rule inet filter input handle 7 oifname != { "lo", "eth0", "br-x" } drop\'',
        ),
        (
            'iif "eth0" oifname "eth0" accept',
            'nft \'add rule inet filter input handle 7 iifname "br-x" oifname "br-x" accept\'',
        ),
        ('iifname "eth0.10" accept', None),
        ('iifname "*" accept', None),
        ('ct state established accept comment "eth0"', None),
        ('iifname { "eth0", "br-x" } accept', None),
        ('iifname { "eth0", "br*" } accept', None),
    ],
)
def test_the_rule_to_add_in_nftables(rule: str, way: str | None) -> None:
    assert ways(nft(rule)) == ([way] if way else [])


def test_a_twin_is_the_same_rule_for_the_bridge_in_the_same_chain() -> None:
    rule = 'iifname "eth0" tcp dport 22 accept'
    assert ways(nft(rule, 'iifname "br-x" tcp dport 22 accept')) == []
    assert ways(nft(rule, 'iifname "br-*" tcp dport 22 accept comment "x"')) == []
    assert len(ways(nft(rule, 'iifname "br-x" tcp dport 23 accept'))) == 1
    assert len(ways(nft(rule, 'iifname "br-y" tcp dport 22 accept'))) == 1


def iptables(*lines: str, tool: str = "iptables", table: str = "filter") -> Firewall:
    """A firewall of iptables with these rules."""
    text = "\n".join([f"*{table}", ":INPUT ACCEPT [0:0]", *lines, "COMMIT"])
    return Firewall(tuple(parse_iptables(tool, text)))


@pytest.mark.parametrize(
    ("lines", "way"),
    [
        (["-A INPUT -i eth0 -j ACCEPT"], "iptables -t filter -I INPUT 2 -i br-x -j ACCEPT"),
        (["-A INPUT -j LOG", "-A INPUT -i eth+ -j ACCEPT"], "iptables -t filter -I INPUT 3 -i br-x -j ACCEPT"),
        (["-A INPUT -i eth0 -j ACCEPT", "-A INPUT -i br-x -j ACCEPT"], None),
        (["-A INPUT -i eth0 -j ACCEPT", "-A INPUT -i br+ -j ACCEPT"], None),
        (["-A INPUT -i br-x -j RETURN", "-A INPUT ! -i eth0 -j DROP"], None),
        (["-A INPUT -i eth1 -m comment --comment eth0 -j DROP"], None),
        (["-A INPUT -i + -j DROP"], None),
        (
            ["-A ufw-user-input -i eth0 -p tcp -m tcp --dport 22 -s 10.0.0.0/8 -j ACCEPT"],
            "ufw allow in on br-x from 10.0.0.0/8 to any port 22 proto tcp",
        ),
    ],
)
def test_the_rule_to_add_in_iptables(lines: list[str], way: str | None) -> None:
    assert ways(iptables(*lines)) == ([way] if way else [])


def test_a_negated_rule_of_iptables_must_leave_out_the_bridge() -> None:
    (way,) = ways(iptables("-A INPUT ! -i eth0 -j DROP"))
    assert "iptables -t filter -I INPUT 1 -i br-x -j RETURN" in way


def test_the_way_back_wants_twins_of_the_bridges_rules() -> None:
    assert ways(nft('iifname "br-x" accept'), "br-x", "eth0") == [
        "nft 'add rule inet filter input handle 7 iifname \"eth0\" accept'"
    ]


def test_a_rule_that_waits_for_the_bridge_is_told() -> None:
    drop = nft('iifname "br-x" tcp dport 22 drop')
    assert not ways(drop)
    (found,) = rules_waiting(drop, "eth0", "br-x")
    assert found.level == WARNING and "after the move" in found.text
    assert not list(rules_waiting(nft('iifname "br-x" accept', 'iifname "eth0" accept'), "eth0", "br-x"))


def test_a_map_and_a_tool_that_does_not_answer() -> None:
    group = Group("inet filter zones", '"eth0" : jump wan, "lo" : accept')
    assert ways(Firewall((), (group,))) == ["nft 'add element inet filter zones { \"br-x\" : jump wan }'"]
    found = list(twins_missing(Firewall(unread={"nft": "too slow"}), "eth0", "br-x"))
    assert [item.level for item in found] == [WARNING] and "too slow" in found[0].text


SS = """udp UNCONN 0 0 0.0.0.0%eth0:123 0.0.0.0:* users:(("chronyd",pid=7,fd=3))
udp UNCONN 0 0 192.0.2.11%eth0:68 0.0.0.0:*
tcp LISTEN 0 128 0.0.0.0:22 0.0.0.0:* users:(("sshd",pid=8,fd=3))
tcp ESTAB 0 0 [fe80::1]%eth0:22 [fe80::2]:50000 users:(("sshd",pid=9,fd=3))
udp UNCONN 0 0 [::]%eth01:546 [::]:*
"""


def test_ss_is_read() -> None:
    assert list(parse_ss(SS, "eth0")) == [
        Bound("chronyd", "udp 0.0.0.0%eth0:123"),
        Bound("", "udp 192.0.2.11%eth0:68"),
    ]


def test_temporary_addresses_are_read() -> None:
    rows = [
        "fd000097000000000000000000000005 02 40 00 80     eth0",
        "fd00009700000000a1b2c3d4e5f60718 02 40 00 01     eth0",
        "fd00009800000000a1b2c3d4e5f60718 03 40 00 01     eth1",
    ]
    assert parse_if_inet6("\n".join(rows), "eth0") == {"fd00:97::a1b2:c3d4:e5f6:718"}


def bonding(*states: int) -> str:
    """/proc/net/bonding with slaves whose partners are in these states."""
    text = "Bonding Mode: IEEE 802.3ad Dynamic link aggregation\n\n802.3ad info\nActive Aggregator Info:\n"
    for i, state in enumerate(states):
        text += f"\nSlave Interface: eth{i}\ndetails actor lacp pdu:\n    port state: 77\n"
        text += f"details partner lacp pdu:\n    system mac address: 00:00:00:00:00:00\n    port state: {state}\n"
    return text


@pytest.mark.parametrize(
    ("states", "settled"), [((), False), ((1,), False), ((61,), True), ((1, 63), True), ((13, 15), False)]
)
def test_lacp_is_settled_when_a_partner_collects_and_distributes(states: tuple[int, ...], settled: bool) -> None:
    assert lacp_settled(bonding(*states)) is settled


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        (Nic("eth0", 2, wireless=True), "Wi-Fi"),
        (Nic("eth0", 2, devtype="wlan"), "Wi-Fi"),
        (Nic("eth0", 2, devtype="wwan"), "mobile modem"),
        (Nic("eth0", 2, type=512), "PPP"),
        (Nic("eth0", 2, type=32), "InfiniBand"),
        (Nic("eth0", 2, type=519), "WWAN"),
        (Nic("eth0", 2, carrier=False), "no carrier"),
        (Nic("eth0", 2, bond=Bond("balance-alb")), "balance-alb"),
        (Nic("eth0", 2, bond=Bond("active-backup", "follow")), "fail_over_mac follow"),
        (Nic("eth0", 2, bond=Bond("active-backup", arp=True)), "by ARP"),
        (Nic("eth0", 2, bond=Bond("802.3ad", settled=False)), "LACP"),
        (Nic("eth0", 2, bond=Bond("802.3ad")), ""),
        (Nic("eth0", 2), ""),
    ],
)
def test_a_nic_by_what_it_is(nic: Nic, words: str) -> None:
    found = of(list(of_nic(request(), HERE, nic)))
    assert (len(found) == 1 and words in found[0]) if words else not found


def test_what_stands_on_the_bridge_blocks_the_way_back() -> None:
    source = Nic(
        "br-x", 5, stacked=(Stacked("br-x.7", "vlan"), Stacked("flannel.1", "vxlan"), Stacked("mv", "macvlan", "pod"))
    )
    found = list(of_stacked(request(UNBRIDGE), HERE, source))
    assert len(of(found)) == 2 and "br-x.7" in of(found)[0] and "mv in pod" in of(found)[1]
    assert "send by eth0" in of(found, INFO)[0]


def test_a_vxlan_in_another_namespace_cannot_be_taken_along() -> None:
    found = list(of_stacked(request(), HERE, Nic("eth0", 2, stacked=(Stacked("vx", "vxlan", "pod"),))))
    assert "another network namespace" in of(found)[0]


def test_nothing_to_move_and_no_way_out() -> None:
    bare = State(links={"eth0": Link("eth0", up=True)})
    assert "nothing to move" in of(list(of_route(request(), bare, None)))[0]
    inner = State(links={"eth0": replace(ETH0, routes=())})
    (found,) = of_route(request(), inner, None)
    assert found.level == INFO and "no default route" in found.text


def test_who_reaches_the_node_how() -> None:
    for visit, level in (
        (Visit("192.0.2.1", "192.0.2.11"), ""),
        (Visit("fe80::1%eth0", "fe80::2%eth0"), BLOCKING),
        (Visit("fe80::1%eth1", "fe80::2%eth1"), ""),
        (Visit("198.51.100.1", "198.51.100.2"), INFO),
    ):
        assert [item.level for item in of_visit(request(), replace(HERE, visit=visit))] == ([level] if level else [])


def internal(name: str, tag: int | None = None, mark: Mark | None = None) -> PortRow:
    """A port of the node or of a pod."""
    return PortRow(name, (InterfaceRow(name, INTERNAL),), tag=tag, external_ids=mark.to_external_ids() if mark else {})


def test_what_loses_its_way_out_when_the_nic_leaves() -> None:
    pod = Mark(OWNER_OVS, container_id="c", ifname="net1", pod_namespace="default", pod_name="web-0")
    nic = PortRow("eth0", (InterfaceRow("eth0"),), external_ids=NODE)
    ports = [
        internal("br-x"),
        nic,
        internal("v30", 30, Mark(OWNER_NODE)),
        internal("theirs", 5),
        internal("p1", 7, pod),
    ]
    bridge = BridgeRow("br-x", external_ids=NODE, ports={port.name: port for port in ports})
    links = {
        "v30": Link("v30", addresses=frozenset({"10.30.0.5/24"})),
        "theirs": Link("theirs", addresses=frozenset({"10.5.0.1/24"})),
    }
    state = State(bridges={"br-x": bridge}, links=links)
    found = list(of_bridge_left(request(UNBRIDGE), state))
    assert len(of(found)) == 1 and "theirs on VLAN 5" in of(found)[0]
    assert [text for text in of(found, WARNING) if "v30" in text] and [
        text for text in of(found, WARNING) if "web-0" in text
    ]
    reached = replace(state, visit=Visit("10.30.0.1", "10.30.0.5"))
    assert any(
        "v30 on VLAN 30 carries the node" in text for text in of(list(of_bridge_left(request(UNBRIDGE), reached)))
    )
    second = replace(
        bridge, ports={**bridge.ports, "eth1": PortRow("eth1", (InterfaceRow("eth1"),), external_ids=NODE)}
    )
    assert not of(list(of_bridge_left(request(UNBRIDGE), replace(state, bridges={"br-x": second}))))


def test_a_refusal_says_all() -> None:
    one, two = Obstacle(BLOCKING, "a is there", "remove a"), Obstacle(BLOCKING, "b is there", "remove b")
    refuse([Obstacle(WARNING, "c")], "eth0 does not move")
    with pytest.raises(RefusedError) as error:
        refuse([one, Obstacle(INFO, "c")], "eth0 does not move")
    assert (error.value.message, error.value.hint) == ("eth0 does not move: a is there", "remove a")
    with pytest.raises(RefusedError, match=r"a is there \(remove a\); b is there \(remove b\)"):
        refuse([one, two], "eth0 does not move")
