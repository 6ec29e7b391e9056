# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Each network manager hands a NIC to a bridge and takes it back, with leases of 30 seconds, on nodes with systemd.

The move as a whole is tested elsewhere: here a script takes its steps, without journal or confirmation. The tests of a
node follow one another.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from ansible_collections.podnet.ovs.tests.lab import CommandFailed, Full, Lab, Lan, Nic, until
from ansible_collections.podnet.ovs.tests.lab.capture import Capture

NIC, BRIDGE = "eth0", "br-x"
LEASE = 30
SCRIPT = "/root/steps.py"
PYTHON = ("/usr/bin/python3", "-I", SCRIPT)

STEPS = r"""
import json, subprocess, sys, time
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.errors import PodnetError
from podnet.kernel import l3
from podnet.kernel.files import remove, write_text
from podnet.model.l3 import L3, Moment
from podnet.model.move import FileChange
from podnet.uplink.journal import boot_id, boottime
from podnet.uplink.persist.manager import detect, named

NIC, BR, SAVED = "eth0", "br-x", "/root/saved.json"


def vsctl(*words):
    subprocess.run(["ovs-vsctl", "--timeout=20", *words], check=True)


def saved():
    table = json.load(open(SAVED))
    snapshot = L3.from_dict(table["l3"]).lasting(60, Moment(boot_id(), boottime(), time.time()))
    return named(table["managed"]["manager"]), table["managed"], snapshot, table["originals"]


def put(changes):
    for change in changes:
        remove(change.path) if change.text is None else write_text(change.path, change.text, change.mode)


def gone(changes):
    put(FileChange(change.path, None) for change in changes)


def carries(snapshot, device):
    lost = l3.missing(snapshot, device)
    if lost:
        raise PodnetError(f"{device} lacks {lost}")


def forward(timeout="20"):
    manager = detect(NIC)
    managed, snapshot = manager.describe(NIC), l3.snapshot(NIC)
    files = manager.files(managed, snapshot, NIC, BR)
    originals = {}
    for change in files:
        try:
            originals[change.path] = open(change.path).read()
        except FileNotFoundError:
            originals[change.path] = None
    json.dump({"managed": managed, "l3": snapshot.to_dict(), "originals": originals}, open(SAVED, "w"))
    put(manager.volatile(managed, snapshot, NIC, BR))
    mac = open(f"/sys/class/net/{NIC}/address").read().strip()
    vsctl("add-br", BR, "--", "set", "bridge", BR, "datapath_type=netdev", f"other_config:hwaddr={mac}")
    l3.stage(snapshot, BR)
    manager.release(managed, NIC)
    carries(snapshot, NIC)
    vsctl("add-port", BR, NIC)
    l3.swap(snapshot, NIC, BR)
    l3.quiet(NIC)
    l3.announce_device(BR, snapshot)
    manager.take(managed, snapshot, BR, float(timeout))
    carries(snapshot, BR)


def commit():
    manager, managed, snapshot, originals = saved()
    put(manager.files(managed, snapshot, NIC, BR))
    gone(manager.volatile(managed, snapshot, NIC, BR))
    manager.settle(managed, NIC, BR)
    carries(snapshot, BR)


def to_nic(snapshot):
    l3.swap(snapshot, BR, NIC, keep=True)
    vsctl("del-port", BR, NIC)
    l3.swap(snapshot, BR, NIC)
    l3.announce_device(NIC, snapshot)


def back():
    manager, managed, snapshot, originals = saved()
    gone(manager.volatile(managed, snapshot, NIC, BR))
    manager.release(managed, BR)
    l3.loud(NIC, snapshot)
    l3.stage(snapshot, NIC)
    to_nic(snapshot)
    manager.take(managed, snapshot, NIC, 10, wait=False)
    vsctl("del-br", BR)
    carries(snapshot, NIC)
    if detect(NIC, manager.name).describe(NIC)["files"] != managed["files"]:
        raise PodnetError("another configuration is found than before")


def unbridge():
    manager, managed, before, originals = saved()
    snapshot = l3.snapshot(BR).configured_as(before)
    put(manager.volatile(managed, snapshot, BR, NIC))
    l3.loud(NIC, before)
    l3.stage(snapshot, NIC)
    manager.release(managed, BR)
    carries(snapshot, BR)
    to_nic(snapshot)
    manager.take(managed, snapshot, NIC, 20)
    put(FileChange(path, text) for path, text in originals.items())
    gone(manager.volatile(managed, snapshot, BR, NIC))
    manager.settle(managed, BR, NIC)
    vsctl("del-br", BR)
    carries(snapshot, NIC)


def rescue():
    manager, managed, snapshot, originals = saved()
    l3.loud(NIC, snapshot)
    l3.stage(snapshot, NIC)
    l3.swap(snapshot, BR, NIC)
    put(manager.rescue_files(managed, snapshot, NIC, BR))
    manager.release(managed, BR)
    manager.take(managed, snapshot, NIC, 10, wait=False)
    vsctl("del-port", BR, NIC)
    carries(snapshot, NIC)


try:
    globals()[sys.argv[1]](*sys.argv[2:])
except PodnetError as error:
    sys.exit(f"{type(error).__name__}: {error}")
"""

UP = """[Unit]
DefaultDependencies=no
After=ovs-vswitchd.service
Before=systemd-networkd.service networking.service
[Service]
Type=oneshot
ExecStart=/bin/ip link set eth0 up
ExecStart=/bin/sh -c 'echo 1 > /proc/sys/net/ipv4/conf/eth0/arp_ignore'
ExecStart=/bin/sh -c 'echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6'
[Install]
WantedBy=multi-user.target
"""
"""What the product's own unit does for the NIC at boot."""

SAMPLE = [("networkd", "bookworm", "dhcp")]
ROWS = [
    (manager, suite, mode)
    for manager in ("networkd", "netplan", "ifupdown", "none")
    for suite in ("bookworm", "trixie")
    for mode in ("static", "dhcp")
    if (manager, mode) != ("none", "dhcp")
]


@dataclass(frozen=True)
class Site:
    """A node of a manager and its LAN."""

    lab: Lab
    lan: Lan
    node: Full
    manager: str
    dhcp: bool

    def step(self, *words: str, timeout: float = 90) -> None:
        """Takes a step of a move; CommandFailed with the product's own message if it fails."""
        self.node.run(*PYTHON, *words, timeout=timeout)

    def addresses(self, device: str) -> set[str]:
        """Global addresses of a device."""
        text = self.node.run("ip", "-o", "address", "show", "dev", device, "scope", "global").stdout
        return set(re.findall(r"inet6? (\S+)", text))

    def files(self) -> dict[str, str]:
        """What the site and the product have written of the network."""
        folders = "/etc/systemd /etc/network /etc/netplan /etc/dhcp /run/systemd/network /run/systemd/networkd.conf.d"
        script = f"find {folders} -type f -exec sha256sum {{}} + 2> /dev/null || true"
        rows = (line.split() for line in self.node.sh(script).stdout.splitlines())
        return {path: digest for digest, path in rows}

    def answers(self, address: str) -> bool:
        """Whether an address answers the gateway."""
        return self.lan.run("ping", "-c1", "-W1", address, check=False).returncode == 0

    def reachable(self) -> None:
        """The node answers the gateway."""
        for port in self.node.ports.values():
            addresses = [str(address.ip) for address in port.addresses if address.version == 4]
            for address in addresses:
                until(partial(self.answers, address), 15, f"an answer of {address}")


@pytest.fixture(
    scope="module",
    params=[pytest.param(row, id="-".join(row), marks=() if row in SAMPLE else pytest.mark.full) for row in ROWS],
)
def site(request: pytest.FixtureRequest, lab: Lab) -> Iterator[Site]:
    """A node whose manager gave it its addresses, with a LAN of its own."""
    manager, suite, mode = request.param
    number = ROWS.index(request.param)
    lan = lab.lan(
        f"l{number}", ipv4=f"10.{60 + number}.0.0/24", ipv6=f"fd00:{60 + number}::/64", dhcp=True, lease=LEASE
    )
    node = lab.full(
        f"n{number}",
        suite=suite,
        nics=[Nic(NIC, lan, mode)],
        manager=manager,
        packages=("openvswitch-switch",),
        runtime=True,
    )
    node.write(SCRIPT, STEPS)
    made = Site(lab, lan, node, manager, mode == "dhcp")
    expected = 3 if manager == "none" else 2  # the kernel itself listens to the router where nobody says otherwise
    until(lambda: len(made.addresses(NIC)) == expected, 30, "addresses of each version")
    made.reachable()
    yield made
    node.down()


def test_a_move_and_its_rollback(site: Site) -> None:
    before, files = site.addresses(NIC), site.files()
    with site.lan.capture() as capture:
        site.step("forward")
        assert site.addresses(BRIDGE) == before and not site.addresses(NIC)
        site.reachable()
        site.step("back")
    assert site.addresses(NIC) == before
    assert site.files() == files
    site.reachable()
    check_wire(site, [message.type for message in capture.dhcp()], {m.client for m in capture.dhcp() if m.client})


def check_wire(site: Site, types: list[str], clients: set[str]) -> None:
    """A lease is asked for again, never given back, always by the same client."""
    assert "RELEASE" not in types and "DECLINE" not in types
    assert ("ACK" in types) == site.dhcp
    assert len(clients) == (1 if site.dhcp else 0)


def only_where_it_asks(site: Site, request: pytest.FixtureRequest) -> None:
    """Skips where nobody asks a server, and where it takes long."""
    if not site.dhcp:
        pytest.skip("a static address asks nobody")
    if site.manager == "ifupdown" and not request.config.getoption("--full"):
        pytest.skip("only with --full: dhclient takes its time")


@pytest.mark.holds("DHCP: same lease after the move")
def test_another_dhcp_server_is_noticed(site: Site, request: pytest.FixtureRequest) -> None:
    only_where_it_asks(site, request)
    before = site.addresses(NIC)
    site.lan.dhcp_other()
    try:
        with pytest.raises(CommandFailed) as caught:
            site.step("forward", "25")
        (mine,) = (address.split("/")[0] for address in before if "." in address)
        assert mine in str(caught.value)
        assert {a for a in site.addresses(BRIDGE) if "." in a} <= before
    finally:
        site.lan.dhcp_on()
    site.step("back")
    assert site.addresses(NIC) == before
    site.reachable()


def test_no_dhcp_server_is_noticed(site: Site, request: pytest.FixtureRequest) -> None:
    only_where_it_asks(site, request)
    before = site.addresses(NIC)
    site.lan.dhcp_off()
    try:
        with pytest.raises(CommandFailed, match="no DHCP server answered on br-x within 4 seconds"):
            site.step("forward", "4")
    finally:
        site.lan.dhcp_on()
    site.step("back")
    assert site.addresses(NIC) == before
    site.reachable()


@pytest.mark.holds("DHCP: same lease after the move")
def test_a_confirmed_move_a_restart_and_the_way_back(site: Site, request: pytest.FixtureRequest) -> None:
    full = bool(request.config.getoption("--full"))
    before, files = site.addresses(NIC), site.files()
    with site.lan.capture() as capture:
        site.step("forward")
        site.step("commit")
        assert site.addresses(BRIDGE) == before
        if site.dhcp:
            renewals(site, capture, before, 5 if full else 1)
            if full:
                expiry(site, before)
        if site.manager != "none":  # else only the record of the move knows the addresses
            restart(site, before)
        site.step("unbridge")
        messages = capture.dhcp()
    assert site.addresses(NIC) == before
    assert site.files() == files
    site.reachable()
    check_wire(site, [message.type for message in messages], {m.client for m in messages if m.client})


def restart(site: Site, before: set[str]) -> None:
    """The node restarts, and has its addresses on the bridge only."""
    site.node.write("/etc/systemd/system/nic-up.service", UP)
    site.node.run("systemctl", "-q", "enable", "nic-up.service")
    site.node.reboot()
    until(lambda: site.addresses(BRIDGE) >= {a for a in before if "." in a}, 30, "the addresses of before")
    site.reachable()
    until(lambda: site.addresses(BRIDGE) == before, 30, "all addresses of before")
    assert not site.addresses(NIC)
    site.node.sh("rm /etc/systemd/system/nic-up.service /etc/systemd/system/*.wants/nic-up.service")


def renewals(site: Site, seen: Capture, before: set[str], count: int) -> None:
    """The client renews its lease, and the addresses stay; dhclient does so by itself, half-way through the lease."""
    for _number in range(count):
        more = partial(has_more, seen, acks(seen))
        if site.manager != "ifupdown":
            site.node.run("networkctl", "renew", BRIDGE)
        until(more, LEASE, "a renewal", 0.5)
        assert site.addresses(BRIDGE) == before


def has_more(seen: Capture, than: int) -> bool:
    """Whether the server has given or renewed more leases than so many."""
    return acks(seen) > than


def acks(seen: Capture) -> int:
    """How often the server has given or renewed a lease."""
    return sum(message.type == "ACK" for message in seen.dhcp())


def expiry(site: Site, before: set[str]) -> None:
    """The server is away for longer than a lease lasts, and the client then gets the same address."""
    site.lan.dhcp_off()
    time.sleep(LEASE + 5)
    site.lan.dhcp_on()
    until(lambda: site.addresses(BRIDGE) == before, 90, "the same addresses after the lease had run out", 0.5)


def test_the_nic_has_its_addresses_back_though_the_files_say_bridge(site: Site) -> None:
    before = site.addresses(NIC)
    site.step("forward")
    site.step("commit")
    site.step("rescue")
    until(lambda: site.addresses(NIC) == before, 10, "the addresses on the NIC")
    assert not {address for address in site.addresses(BRIDGE) if "." in address}
    site.reachable()
