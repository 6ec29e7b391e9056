# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a move is refused for, on a light node that is really so; each refusal has a way out, and nothing is written."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ansible_collections.podnet.ovs.tests.integration.ansiballz import run_module
from ansible_collections.podnet.ovs.tests.integration.obstacles import Answer, ask, request
from ansible_collections.podnet.ovs.tests.lab.proc import CommandFailed, Result, run, until

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Light

TABLE = "nft add table inet t; nft add chain inet t c '{ type filter hook input priority 0; }'; "
NO_TABLE = "nft delete table inet t"
SSH = "10.97.0.1 50000 {} 22"


@pytest.fixture(scope="module")
def node(lab: Lab, datapath: str) -> Light:
    """A node with one NIC that carries it, and a second one without addresses."""
    from ansible_collections.podnet.ovs.tests.lab import Nic

    home = lab.lan("home", ipv4="10.97.0.0/24", ipv6="fd00:97::/64")
    nics = [Nic("eth0", home, "static"), Nic("eth1", home)]
    made = lab.light("n1", nics=nics, datapath=datapath)
    made.install_runtime()
    return made


@contextmanager
def made(node: Light, make: str, undo: str) -> Iterator[None]:
    """The node with something on it; skips the test where the kernel has no such thing."""
    try:
        node.sh(make)
    except CommandFailed as error:
        node.sh(undo, check=False)
        said = error.result.stderr
        if any(words in said for words in ("Unknown device type", "not supported", "Cannot find device")):
            pytest.skip(f"this kernel: {said.strip()}")
        raise
    try:
        yield
    finally:
        node.sh(undo, check=False)


def answer(node: Light, datapath: str, **bridge: Any) -> Answer:
    """What is in the way of moving eth0 to br-x."""
    return ask(node, request(datapath=datapath, **bridge))


def refused(found: Answer, words: str, way: str = "") -> str:
    """The only refusal, which holds these words, and whose way out holds `way`; gives it."""
    assert len(found.blocking) == 1 and words in found.blocking[0], found.rows
    hint = found.row(found.blocking[0])[2]
    assert way in hint, hint
    return found.blocking[0]


def test_an_ordinary_node_has_none_and_is_looked_at_in_less_than_a_second(node: Light, datapath: str) -> None:
    found = answer(node, datapath)
    assert not found.blocking, found.rows
    limit = 1.0 if datapath == "netdev" else 10.0  # under emulation all takes ten times as long
    assert found.seconds < limit


def test_preflight_says_what_moves_or_lists_what_is_in_the_way(node: Light, datapath: str) -> None:
    def rows(**uplink: object) -> list[tuple[str, str, str]]:
        bridges = [{"name": "br-x", "datapath_type": datapath, "uplinks": [{"name": "eth0", **uplink}]}]
        result = run_module(node, "preflight", bridges=bridges)
        assert not result.get("failed"), result
        return [(row["check"], row["level"], row["detail"]) for row in result["findings"]]

    without = [row for row in rows() if row[:2] == ("uplink eth0", "blocking")]
    assert len(without) == 1 and "10.97.0.11/24" in without[0][2] and "move: true" in without[0][2]
    consent = rows(move=True)
    assert ("move eth0", "ok", "moves to br-x with its addresses 10.97.0.11/24, fd00:97::b/64") in consent
    assert not [row for row in consent if row[0] in ("uplink eth0", "move eth0", "plan") and row[1] == "blocking"]
    with made(
        node, f"{TABLE} nft add rule inet t c iifname eth0 accept; nft add rule inet t c oif eth0 drop", NO_TABLE
    ):
        listed = [row for row in rows(move=True) if row[0] == "move eth0"]
    assert [row[1] for row in listed].count("blocking") == 2 and not any(row[1] == "ok" for row in listed)


@pytest.mark.holds("refused: NIC not there")
def test_a_nic_that_is_not_there(node: Light, datapath: str) -> None:
    found = ask(node, request("eth9", datapath))
    assert refused(found, "there is no NIC eth9").startswith("there is no NIC")


@pytest.mark.holds("refused: already enslaved")
def test_a_nic_that_belongs_to_a_linux_bridge(node: Light, datapath: str) -> None:
    with made(node, "ip link add lbr type bridge; ip link set eth0 master lbr", "ip link delete lbr"):
        assert "a bridge" in refused(answer(node, datapath), "eth0 belongs to lbr", "nomaster")


@pytest.mark.holds("refused: already enslaved")
def test_a_nic_that_is_a_port_of_another_open_vswitch_bridge(node: Light, datapath: str) -> None:
    make = f"ovs-vsctl add-br theirs -- set Bridge theirs datapath_type={datapath} -- add-port theirs eth0"
    with made(node, make, "ovs-vsctl del-br theirs"):
        refused(answer(node, datapath), "eth0 is a port of the Open vSwitch bridge theirs", "del-port theirs eth0")


@pytest.mark.holds("refused: VLAN child as the only path")
def test_a_vlan_interface_that_is_the_only_path(node: Light, datapath: str) -> None:
    make = "ip link add link eth0 name eth0.10 type vlan id 10; ip link set eth0.10 up; ip addr flush dev eth0"
    undo = (
        "ip link delete eth0.10; ip addr add 10.97.0.11/24 dev eth0; ip addr add fd00:97::b/64 dev eth0 nodad;"
        "ip route replace default via 10.97.0.1; ip -6 route replace default via fd00:97::1"
    )
    with made(node, f"{make}; ip addr add 10.10.0.5/24 dev eth0.10", undo):
        refused(answer(node, datapath), "eth0.10 carries the node", "interface with that VLAN")
        rows = run_module(node, "preflight", bridges=[request(datapath=datapath)["bridge"]])["findings"]
        assert [row for row in rows if row["check"] == "move eth0" and "eth0.10 carries" in row["detail"]]
        refused(ask(node, request("eth0.10", datapath)), "eth0.10 is a VLAN interface", "interface with that VLAN")


def test_a_vlan_interface_beside_the_addresses_is_only_told(node: Light, datapath: str) -> None:
    with made(node, "ip link add link eth0 name eth0.10 type vlan id 10", "ip link delete eth0.10"):
        found = answer(node, datapath)
        assert not found.blocking and found.row("eth0.10 stands on eth0")[0] == "warning"


@pytest.mark.holds("refused: macvlan on it")
@pytest.mark.parametrize("kind", ["macvlan", "ipvlan", "macvtap", "macsec"])
def test_a_link_that_takes_the_frames_itself(node: Light, datapath: str, kind: str) -> None:
    with made(node, f"ip link add link eth0 name over0 type {kind}", "ip link delete over0"):
        assert kind in refused(answer(node, datapath), "over0 stands on eth0", "give it another NIC")


@pytest.mark.holds("refused: macvlan on it")
def test_a_macvlan_that_was_moved_into_a_pod(node: Light, datapath: str) -> None:
    pod = node.netns("pod")
    try:
        make = "ip link add link eth0 name mv0 type macvlan; ip link set mv0 netns pod"
        with made(node, make, "ip link delete mv0 2> /dev/null || ip -n pod link delete mv0"):
            assert "mv0 in pod" in refused(answer(node, datapath), "macvlan")
    finally:
        pod.delete()


BOND = "ip link set eth1 down; ip link add bond0 type bond {}; ip link set eth1 master bond0; ip link set bond0 up"
UNBOND = "ip link delete bond0; ip link set eth1 down"


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        ("mode balance-alb miimon 100", "rewrites the MAC addresses"),
        ("mode active-backup miimon 100 fail_over_mac active", "fail_over_mac active"),
        ("mode active-backup arp_interval 100 arp_ip_target 10.97.0.1", "by ARP"),
        ("mode 802.3ad miimon 100", "no partner takes its frames"),
        ("mode active-backup miimon 100", ""),
        ("mode balance-xor miimon 100", ""),
    ],
)
def test_a_bond_by_what_it_does(node: Light, datapath: str, mode: str, words: str) -> None:
    with made(node, f"{BOND.format(mode)}; ip addr add 10.96.0.5/24 dev bond0", UNBOND):
        if "arp_interval" not in mode:  # which waits for an answer that nobody gives here
            until(lambda: "LOWER_UP" in node.run("ip", "link", "show", "bond0").stdout, 20, "bond0 up")
        found = ask(node, request("bond0", datapath))
        if words:
            assert any(words in text for text in found.blocking), found.rows
        else:
            assert not found.blocking, found.rows


@pytest.mark.holds("refused: already enslaved")
def test_a_nic_of_a_bond(node: Light, datapath: str) -> None:
    with made(node, BOND.format("mode active-backup miimon 100"), UNBOND):
        found = ask(node, request("eth1", datapath))
        assert found.row("eth1 belongs to bond0")[2] == "name bond0 as the uplink"


@pytest.mark.holds("a flannel-like VXLAN whose parent is the NIC is listed by preflight")
def test_a_vxlan_whose_parent_is_the_nic_is_listed(node: Light, datapath: str) -> None:
    make = "ip link add flannel.1 type vxlan id 1 dev eth0 local 10.97.0.11 dstport 8472 nolearning"
    with made(node, make, "ip link delete flannel.1"):
        found = answer(node, datapath)
        assert not found.blocking
        assert "br-x" in found.row("VXLAN flannel.1 sends by eth0")[1]


@pytest.mark.holds("refused: Wi-Fi (mac80211_hwsim in the vm)")
def test_wi_fi(node: Light, datapath: str) -> None:
    loaded = run(["modprobe", "mac80211_hwsim", "radios=1"], check=False)
    if loaded.returncode:
        pytest.skip("this kernel has no mac80211_hwsim")
    # a radio stays in the machine's own namespace unless iw moves it, and so this test asks there
    from ansible_collections.podnet.ovs.plugins.module_utils.model.move import Request
    from ansible_collections.podnet.ovs.plugins.module_utils.uplink.observe import observe
    from ansible_collections.podnet.ovs.plugins.module_utils.uplink.obstacles import obstacles

    try:
        until(lambda: Path("/sys/class/net/wlan0").exists(), 20, "wlan0")
        run(["ip", "addr", "add", "10.93.0.5/24", "dev", "wlan0"])
        found = obstacles(Request.parse(request("wlan0", datapath)), observe(None), None)
        assert [item for item in found if item.level == "blocking" and "wlan0 is Wi-Fi" in item.text and item.hint]
    finally:
        run(["modprobe", "-r", "mac80211_hwsim"], check=False)


def test_a_tunnel_that_is_bound_to_the_nic(node: Light, datapath: str) -> None:
    make = "ip link add tun1 type ipip local 10.97.0.11 remote 10.97.0.1 dev eth0"
    with made(node, make, "ip link delete tun1"):
        refused(answer(node, datapath), "tun1 is bound to eth0", "ip link delete tun1")


@pytest.mark.holds("firewall rules that name the NIC are refused with the rule to add")
@pytest.mark.parametrize(
    ("rule", "fits"),
    [
        ('iifname "eth0" tcp dport 22 accept', False),
        ('iifname "eth*" accept', False),
        ('iifname { "lo", "eth0" } accept', False),
        ('iifname vmap { "eth0" : accept, "lo" : drop }', False),
        ('iifname . tcp dport { "eth0" . 22 } accept', False),
        ('iifname != "eth0" counter drop', False),
        ('iif "eth0" accept comment "for eth0"', False),
        ('iifname { "eth0", "br-x" } accept', True),
        ('iifname != { "eth0", "br-x" } drop', True),
        ('iifname "eth1" accept comment "not eth0"', True),
        ('iifname "eth1" log prefix "eth0" accept', True),
    ],
)
def test_a_rule_of_nftables_and_its_way_out(node: Light, datapath: str, rule: str, fits: bool) -> None:
    with made(node, f"{TABLE} nft 'add rule inet t c {rule}'", NO_TABLE):
        found = answer(node, datapath)
        if fits:
            assert not found.blocking, found.rows
            return
        hint = found.row(refused(found, "inet t c"))[2]
        node.sh("ip link add br-x type dummy || ip link add br-x type bridge") if rule.startswith("iif ") else None
        node.sh(hint)  # the way out, as it is written
        node.sh("ip link delete br-x", check=False)
        assert not answer(node, datapath).blocking, node.sh("nft list ruleset").stdout


def test_a_rule_whose_twin_is_there_or_covered_by_a_wildcard(node: Light, datapath: str) -> None:
    pair = (
        "nft add rule inet t c iifname eth0 udp dport 53 counter accept; nft add rule inet t c iifname {} udp dport 53 "
    )
    for twin in ("br-x", "'\"br-*\"'"):
        with made(node, f"{TABLE} {pair.format(twin)} counter accept", NO_TABLE):
            assert not answer(node, datapath).blocking, twin


def test_a_set_of_interfaces(node: Light, datapath: str) -> None:
    make = (
        "nft 'add set inet t lan { type ifname; elements = { eth0, lo }; }'; nft add rule inet t c iifname @lan accept"
    )
    with made(node, f"{TABLE} {make}", NO_TABLE):
        found = answer(node, datapath)
        node.sh(found.row(refused(found, "set `inet t lan` holds eth0"))[2])
        assert not answer(node, datapath).blocking


@pytest.mark.parametrize("tool", ["iptables", "ip6tables", "iptables-legacy"])
def test_a_rule_of_iptables_and_its_way_out(node: Light, datapath: str, tool: str) -> None:
    if node.run("sh", "-c", f"command -v {tool}", check=False).returncode:
        pytest.skip(f"no {tool} here")
    rule = "-p tcp -m tcp --dport 22 -m comment --comment 'from -i eth0' -j ACCEPT"
    undo = f"{tool} -F; {tool} -t nat -F"
    with made(node, f"{tool} -A INPUT -i eth0 {rule}; {tool} -A INPUT -j DROP -p sctp", undo):
        found = answer(node, datapath)
        node.sh(found.row(refused(found, f"{tool} -t filter -A INPUT"))[2])
        assert not answer(node, datapath).blocking
        shown = node.run(tool, "-S", "INPUT").stdout.splitlines()
        assert "-i br-x" in shown[2] and "sctp" in shown[3], "the new rule must come before what follows the old one"
    with made(node, f"{tool} -t nat -A POSTROUTING -o eth0 -j MASQUERADE", undo):
        refused(answer(node, datapath), "MASQUERADE", f"{tool} -t nat -I POSTROUTING 2 -o br-x -j MASQUERADE")


def test_a_zone_of_firewalld(node: Light, datapath: str) -> None:
    names = ("filter_INPUT_ZONES", "filter_IN_public", "filter_IN_trusted")
    chains = "nft add table inet firewalld; " + " ".join(f"nft add chain inet firewalld {name};" for name in names)
    make = f"{chains} nft add rule inet firewalld filter_INPUT_ZONES iifname eth0 goto filter_IN_trusted;"
    default = "nft add rule inet firewalld filter_INPUT_ZONES goto filter_IN_{}"
    with made(node, f"{make} {default.format('public')}", "nft delete table inet firewalld"):
        refused(answer(node, datapath), "zone trusted", "firewall-cmd --permanent --zone=trusted --add-interface=br-x")
    with made(node, f"{make} {default.format('trusted')}", "nft delete table inet firewalld"):
        assert not answer(node, datapath).blocking, "the default zone holds every other interface"


HOLDER = """
import socket, sys, time
kind, protocol = (socket.AF_PACKET, 0x888E) if sys.argv[1] == "eapol" else (socket.AF_INET, 0)
sock = socket.socket(kind, socket.SOCK_RAW if protocol else socket.SOCK_DGRAM, socket.htons(protocol))
if protocol:
    sock.bind(("eth0", protocol))
else:
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"eth0")
    sock.bind(("", 1123))
print("ready", flush=True)
time.sleep(60)
"""


@contextmanager
def holding(node: Light, what: str) -> Iterator[None]:
    """A program with a socket on eth0."""
    process = node.popen("/usr/bin/python3", "-I", "-c", HOLDER, what, stderr=subprocess.DEVNULL)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    try:
        yield
    finally:
        process.kill()
        process.wait()


def test_a_socket_that_is_bound_to_the_nic_is_told(node: Light, datapath: str) -> None:
    with holding(node, "udp"):
        found = answer(node, datapath)
    assert not found.blocking
    assert found.row("bound to eth0")[0] == "warning" and "python3" in found.row("bound to eth0")[1]


def test_802_1x_on_the_nic(node: Light, datapath: str) -> None:
    with holding(node, "eapol"):
        refused(answer(node, datapath), "802.1X", "without 802.1X")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/cni/net.d/10-lan.conflist", '{"type": "macvlan", "master": "eth0"}'),
        ("/etc/systemd/system/k3s.service", "ExecStart=/usr/bin/k3s server --flannel-iface eth0"),
        ("/etc/rancher/k3s/config.yaml", "flannel-iface: eth0"),
        ("/etc/kubernetes/manifests/kube-vip.yaml", "      value: eth0"),
        ("/etc/keepalived/keepalived.conf", "    interface eth0"),
        ("/etc/default/flanneld", 'FLANNELD_IFACE="eth0"'),
        ("/etc/nftables.conf", 'iifname "eth0" accept'),
    ],
)
def test_a_file_that_names_the_nic_is_told(node: Light, datapath: str, path: str, text: str) -> None:
    node.write(path, f"# eth0 is named here\n{text}\n" if path[-1] != "t" else f"{text}\n")
    try:
        found = answer(node, datapath)
        assert not found.blocking and found.row(f"{path}:")[0] == "warning" and "br-x" in found.row(path)[2]
        node.write(path, f"{text.replace('eth0', 'eth0.5')}\n{text.replace('eth0', 'veth0')}\n")
        assert not [row for row in answer(node, datapath).rows if path in row[1]], "another interface's name"
    finally:
        node.run("rm", path)


def initialised(node: Light) -> Result:
    """Gives the other database its first row, once it answers."""
    return node.ovs.vsctl("--db=unix:/run/other/db.sock", "--no-wait", "init", check=False)


@pytest.mark.holds("with a remote or containerised OVSDB the move is refused")
def test_a_database_in_a_container(node: Light, datapath: str) -> None:
    start = (
        "mkdir -p /run/other; ovsdb-tool create /run/other/conf.db /usr/share/openvswitch/vswitch.ovsschema;"
        "exec unshare -m ovsdb-server /run/other/conf.db --remote=punix:/run/other/db.sock --no-chdir"
        " --unixctl=/run/other/ctl -vconsole:off"
    )
    process = node.popen("sh", "-ec", start, stderr=subprocess.DEVNULL)
    try:
        until(lambda: not initialised(node).returncode, 10, "the other database")
        wanted = {**request(datapath=datapath), "ovsdb": "unix:/run/other/db.sock"}
        refused(ask(node, wanted), "runs in a container", "as a package of the node")
    finally:
        process.terminate()
        process.wait()
        node.run("rm", "-r", "/run/other")


def test_a_database_of_a_cluster_and_one_in_memory(node: Light, datapath: str) -> None:
    make = (
        "mkdir -p /run/other /etc/other; cd /etc/other; ovsdb-tool create-cluster conf.db"
        " /usr/share/openvswitch/vswitch.ovsschema unix:/run/other/raft"
    )
    serve = (
        "exec ovsdb-server {}/conf.db --remote=punix:/run/other/db.sock --no-chdir --unixctl=/run/other/ctl"
        " -vconsole:off"
    )
    plain = "ovsdb-tool create /run/other/conf.db /usr/share/openvswitch/vswitch.ovsschema"
    wanted = {**request(datapath=datapath), "ovsdb": "unix:/run/other/db.sock"}
    for script, words in (
        (f"{make}; {serve.format('/etc/other')}", "one of a cluster"),
        (f"mkdir -p /run/other; {plain}; {serve.format('/run/other')}", "on no disk"),
    ):
        process = node.popen("sh", "-ec", script, stderr=subprocess.DEVNULL)
        try:
            until(lambda: not initialised(node).returncode, 10, "the other database")
            refused(ask(node, wanted), words)
        finally:
            process.terminate()
            process.wait()
            node.run("rm", "-rf", "/run/other", "/etc/other")


def test_a_manager_of_the_database_is_told(node: Light, datapath: str) -> None:
    with made(node, "ovs-vsctl set-manager tcp:192.0.2.1:6640", "ovs-vsctl del-manager"):
        found = answer(node, datapath)
        assert not found.blocking and found.row("takes orders from tcp:192.0.2.1:6640")[0] == "warning"


@pytest.mark.holds("refused: no kernel module and no consent to the userspace datapath")
def test_a_kernel_without_the_module(node: Light, datapath: str) -> None:
    if datapath == "system":
        pytest.skip("this kernel has the module")
    refused(answer(node, "system"), "no module openvswitch", "datapath_type: netdev")
    assert answer(node, "netdev").row("datapath of ovs-vswitchd")[0] == "warning"


def test_a_bridge_that_cannot_carry_the_node(node: Light, datapath: str) -> None:
    refused(answer(node, datapath, stp=True), "spanning tree", "stp: false")
    refused(answer(node, datapath, fail_mode="secure"), "secure", "standalone")
    refused(answer(node, datapath, mac="02:00:00:00:00:77"), "MAC address", "leave mac away")
    with made(node, "ip link add br-x type bridge", "ip link delete br-x"):
        refused(answer(node, datapath), "there is a bridge br-x of others", "another name")
    make = f"ovs-vsctl add-br br-x -- set Bridge br-x datapath_type={datapath}"
    with made(node, make, "ovs-vsctl del-br br-x"):
        refused(answer(node, datapath), "br-x was made by others", "podnet.ovs.bridge")
        assert run_module(node, "bridge", name="br-x", datapath_type=datapath)["changed"]  # the way out
        assert not answer(node, datapath).blocking


@pytest.mark.holds("refused: mixed managers")
def test_a_manager_that_cannot_be_told_and_two_at_once(node: Light, datapath: str) -> None:
    index = node.run("cat", "/sys/class/net/eth0/ifindex").stdout.strip()
    paths = (f"/run/NetworkManager/devices/{index}", f"/run/systemd/netif/links/{index}")
    try:
        node.write(paths[0], "[device]\nmanaged=true\n")
        refused(answer(node, datapath), "networkmanager configures eth0", "systemd-networkd")
        node.write(paths[1], "ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/10-eth0.network\n")
        refused(answer(node, datapath), "networkd and networkmanager configure eth0", "one of them")
    finally:
        node.run("rm", "-f", *paths)


@pytest.mark.holds("refused: SSH by link-local")
def test_who_reaches_the_node_by_link_local(node: Light, datapath: str) -> None:
    visit = "fe80::1%eth0 50000 fe80::2%eth0 22"
    refused(ask(node, request(datapath=datapath), visit), "fe80::2%eth0", "10.97.0.11")
    other = ask(node, request(datapath=datapath), "fe80::1%eth1 50000 fe80::2%eth1 22")
    assert not other.blocking, other.rows


def test_who_reaches_the_node_by_a_temporary_address(node: Light, datapath: str) -> None:
    script = "cd /proc/sys/net/ipv6/conf/eth0; echo 2 > use_tempaddr; echo 1 > accept_ra"
    router = "fd00:97:1::"
    with made(node, script, "echo 0 > /proc/sys/net/ipv6/conf/eth0/use_tempaddr; ip -6 addr flush dev eth0 dynamic"):
        # mngtmpaddr: the kernel makes temporary addresses of this one, as of one from a router
        node.sh(f"ip addr add {router}5/64 dev eth0 mngtmpaddr nodad valid_lft 3000 preferred_lft 2000")

        def temporary() -> str:
            return node.run("sh", "-c", "ip -6 -o addr show dev eth0 temporary | tr -s ' ' | cut -d' ' -f4").stdout

        address = until(temporary, 5, "a temporary address").split("/")[0]
        visit = SSH.format(address).replace("10.97.0.1", f"{router}1")
        refused(ask(node, request(datapath=datapath), visit), address, "10.97.0.11")
    node.sh(f"ip addr delete {router}5/64 dev eth0", check=False)


def test_who_reaches_the_node_by_the_nic_or_by_another_one(node: Light, datapath: str) -> None:
    assert not ask(node, request(datapath=datapath), SSH.format("10.97.0.11")).blocking
    with made(node, "ip addr add 10.95.0.5/24 dev eth1; ip link set eth1 up", "ip addr flush dev eth1"):
        found = ask(node, request(datapath=datapath), "10.95.0.1 50000 10.95.0.5 22")
        assert not found.blocking and found.row("by eth1, not by eth0")[0] == "info"


def test_a_node_as_in_a_cloud_and_one_without_a_default_route(node: Light, datapath: str) -> None:
    cloud = (
        "ip addr flush dev eth0; ip addr add 10.97.0.11/32 dev eth0; ip route add 10.97.0.1 dev eth0 scope link;"
        "ip route add default via 10.97.0.1 dev eth0 onlink"
    )
    undo = (
        "ip addr flush dev eth0; ip addr add 10.97.0.11/24 dev eth0; ip addr add fd00:97::b/64 dev eth0 nodad;"
        "ip route replace default via 10.97.0.1; ip -6 route replace default via fd00:97::1"
    )
    with made(node, cloud, undo):
        assert not answer(node, datapath).blocking
    with made(node, "ip route delete default; ip -6 route delete default", undo):
        found = answer(node, datapath)
        assert not found.blocking and found.row("no default route goes by eth0")[0] == "info"


def test_a_disk_that_is_full_volatile_or_read_only(node: Light, datapath: str) -> None:
    node.sh("mkdir -p /var/lib/podnet")
    with made(node, "mount -t tmpfs -o size=10m small /var/lib/podnet", "umount /var/lib/podnet"):
        found = answer(node, datapath)
        assert found.row("MiB free")[0] == "blocking" and found.row("is in memory (tmpfs)")[0] == "blocking"
    for path in ("/etc", "/var/lib/podnet"):
        make = f"mount --bind {path} {path}; mount -o remount,bind,ro {path}"
        with made(node, make, f"umount {path}"):
            refused(answer(node, datapath), f"{path} is mounted read-only")


@pytest.mark.holds("the loser's message names the holder")
def test_another_move_that_is_under_way_names_its_holder(node: Light, datapath: str) -> None:
    script = r"""
import json, sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.model.move import Request
from podnet.uplink.journal import Journal, boot_id, boottime, turn
request = Request.parse(json.load(sys.stdin))
with turn():
    Journal.create(Journal(id="abc123", state="planned", nonce_hash="0" * 64, request=request,
        deadline=boottime() + 60, boot_id=boot_id(), holder={"user": "alice", "host": "control1"}))
"""
    node.run("/usr/bin/python3", "-IS", "-c", script, input=json.dumps(request(datapath=datapath)))
    try:
        found = answer(node, datapath)
        assert "alice@control1" in refused(found, "abc123", "podnet uplink status")
    finally:
        node.run("rm", "-r", "/var/lib/podnet/uplink")


def test_the_way_back_tells_what_loses_its_way_out(node: Light, datapath: str) -> None:
    bridge = {"name": "br-x", "datapath_type": datapath, "uplinks": [{"name": "eth1"}]}
    interfaces = [{"name": "v30", "vlan": 30, "addresses": ["10.30.0.5/24"]}]
    assert run_module(node, "node", bridges=[{**bridge, "interfaces": interfaces}])["changed"]
    back = request("eth1", datapath, "unbridge")
    try:
        node.sh("ip link set br-x up; ip addr add 10.94.0.5/24 dev br-x")
        found = ask(node, back)
        assert not found.blocking and found.row("v30 on VLAN 30 has 10.30.0.5/24")[0] == "warning"
        refused(ask(node, back, "10.30.0.1 50000 10.30.0.5 22"), "v30 on VLAN 30 carries the node")
        node.sh("ovs-vsctl add-port br-x t5 tag=5 -- set Interface t5 type=internal; ip addr add 10.5.0.1/24 dev t5")
        refused(ask(node, back), "t5 on VLAN 5 on bridge br-x is of others", "del-port br-x t5")
        node.sh("ovs-vsctl del-port br-x t5; ovs-vsctl add-port br-x pa -- set Interface pa type=patch options:peer=pb")
        assert ask(node, back).row("patch port pa")[0] == "warning"
        node.sh("ovs-vsctl del-port br-x pa")
        node.sh(f"{TABLE} nft add rule inet t c iifname br-x accept")
        refused(ask(node, back), "iifname", "eth1")
        node.sh(NO_TABLE)
        with made(node, "ip link add link br-x name br-x.7 type vlan id 7", "ip link delete br-x.7"):
            refused(ask(node, back), "br-x.7 stands on br-x", "put it on eth1")
    finally:
        node.sh(f"{NO_TABLE}; ovs-vsctl del-br br-x; rm -f /etc/podnet/node.json", check=False)
        node.sh("ip link set eth1 down")
