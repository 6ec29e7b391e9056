# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files of network managers, as text: what a bridge takes over of a NIC's configuration, and what the NIC keeps."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.errors import RefusedError
from ansible_collections.podnet.ovs.plugins.module_utils.uplink.persist import (
    dhclient,
    interfaces,
    networkd_files as texts,
    networkd_state,
    sections,
)

DHCP = """# the site's
[Match]
MACAddress=52:54:00:00:00:01

[Link]
MTUBytes=9000
MACAddress=52:54:00:00:00:02
RequiredForOnline=routable

[Network]
DHCP=yes
VLAN=eth0.10
LLDP=yes
DNS=10.0.0.53
Domains=lab \\
  example

[DHCPv4]
RouteMetric=50
UseDNS=no

[Route]
Destination=10.9.0.0/16
Gateway=10.0.0.9

[RoutingPolicyRule]
From=10.0.0.5
Table=100

[CAKE]
Bandwidth=1G
"""
CLIENT = "ffea59375500020000ab114280ce03b44ec6df"


def managed(text: str = DHCP, file: str = "10-eth0.network", **more: Any) -> dict[str, Any]:
    """What networkd's manager finds out about a NIC of such a file."""
    return {
        "device": "eth0",
        "file": f"/etc/systemd/network/{file}",
        "sorted": file,
        "text": text,
        "wild": False,
        "identity": texts.identity(CLIENT, "00020000ab114280ce03b44ec6df", "0xea593755"),
        "tokens": ["::5054:ff:fe00:1"],
        **texts.method(text),
        **more,
    }


def settings(text: str, section: str, key: str) -> tuple[str, ...]:
    """All values of a setting of a file."""
    return sections.values(sections.parse(text), section, key)


def test_the_bridge_takes_over_all_but_the_link() -> None:
    text = texts.bridge_text(managed(), "br-x")
    assert text.startswith("# Written by podnet.ovs: ")
    assert settings(text, "Match", "Name") == ("br-x",)
    assert not settings(text, "Match", "MACAddress")
    assert settings(text, "Link", "MTUBytes") == ("9000",)
    assert not settings(text, "Link", "MACAddress")
    assert settings(text, "Link", "RequiredForOnline") == ("routable",)
    assert settings(text, "Network", "DNS") == ("10.0.0.53",)
    assert settings(text, "Network", "Domains")[0].split() == ["lab", "example"]
    assert not settings(text, "Network", "VLAN")
    assert settings(text, "Route", "Gateway") == ("10.0.0.9",)
    assert settings(text, "RoutingPolicyRule", "Table") == ("100",)
    assert "[CAKE]" not in text
    for key in ("KeepConfiguration", "ConfigureWithoutCarrier", "IgnoreCarrierLoss"):
        assert settings(text, "Network", key)[-1] == "yes"


def test_the_identity_in_use_is_pinned() -> None:
    text = texts.bridge_text(managed(), "br-x")
    assert settings(text, "DHCPv4", "ClientIdentifier") == ("duid",)
    assert settings(text, "DHCPv4", "IAID") == (str(0xEA593755),)
    assert settings(text, "DHCPv4", "DUIDType") == ("vendor",)
    assert settings(text, "DHCPv4", "DUIDRawData") == ("00:00:ab:11:42:80:ce:03:b4:4e:c6:df",)
    assert settings(text, "DHCPv4", "SendRelease") == ("no",)
    assert settings(text, "DHCPv4", "RouteMetric") == ("50",)
    assert settings(text, "DHCPv6", "IAID") == (str(0xEA593755),)
    assert settings(text, "IPv6AcceptRA", "Token") == ("static:::5054:ff:fe00:1",)


def test_an_identity_by_mac_stays_one() -> None:
    found = managed(identity=texts.identity("01525400000001", "", ""))
    assert settings(texts.bridge_text(found, "br-x"), "DHCPv4", "ClientIdentifier") == ("mac",)


def test_an_identity_that_cannot_be_pinned_is_refused() -> None:
    with pytest.raises(RefusedError, match="cannot be pinned"):
        texts.identity("00616263", "", "")


def test_the_nic_keeps_what_is_the_links() -> None:
    text = texts.nic_text(managed(), "br-x")
    assert settings(text, "Match", "Name") == ("eth0",)
    assert settings(text, "Link", "MACAddress") == ("52:54:00:00:00:02",)
    assert settings(text, "Link", "RequiredForOnline") == ("no",)
    assert settings(text, "Network", "VLAN") == ("eth0.10",)
    assert settings(text, "Network", "DHCP") == ("no",)
    assert settings(text, "Network", "LinkLocalAddressing") == ("no",)
    assert settings(text, "Network", "IPv6AcceptRA") == ("no",)
    assert settings(text, "CAKE", "Bandwidth") == ("1G",)
    assert "[Route]" not in text


@pytest.mark.parametrize("file", ["10-eth0.network", "00-eth0.network", "50-cloud-init.network", "eth0.network"])
def test_files_of_the_move_sort_before_the_sites(file: str) -> None:
    found = managed(file=file)
    run = texts.volatile_path("br-x").rpartition("/")[2]
    stay = texts.persistent_path(found, "br-x").rpartition("/")[2]
    hold = texts.HOLD.rpartition("/")[2]
    assert hold < run < stay < file


def test_what_open_vswitch_makes_is_left_alone_where_the_site_names_no_nic() -> None:
    changes = texts.persistent(managed(wild=True), "eth0", "br-x")
    assert any("ovs-system ovs-netdev" in (change.text or "") for change in changes)
    assert texts.devices_of(change.path.rpartition("/")[2] for change in changes) == {"eth0", "br-x"}


def test_volatile_files_lie_in_run_and_name_both_devices() -> None:
    for source, target in (("eth0", "br-x"), ("br-x", "eth0")):
        changes = {change.path: change.text or "" for change in texts.volatile(managed(), source, target)}
        assert all(path.startswith("/run/") for path in changes)
        assert settings(changes[texts.volatile_path(source)], "Link", "Unmanaged") == ("yes",)
        assert settings(changes[texts.volatile_path(target)], "Network", "DHCP") == ("yes",)
        assert settings(changes[texts.volatile_path(target)], "Network", "KeepConfiguration")[-1] == "yes"


def test_a_nic_that_is_part_of_something_else_is_refused() -> None:
    with pytest.raises(RefusedError, match="Bond=bond0"):
        texts.check_text("[Network]\nBond=bond0\n", "eth0")


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("Name=eth0", True),
        ("Name=e*", True),
        ("Name=!eth* lo", False),
        ("Name=ens3 eth0", True),
        ("Name=ens3", False),
        ("MACAddress=52:54:00:00:00:01", True),
        ("MACAddress=52:54:00:00:00:09", False),
        ("Type=ether", True),
        ("Type=wlan", False),
        ("", False),
    ],
)
def test_which_file_networkd_would_use(match: str, fits: bool) -> None:
    found = networkd_state.matches(sections.parse(f"[Match]\n{match}\n"), "eth0", "52:54:00:00:00:01")
    assert found == fits


def test_a_continued_line_stays_as_it_was() -> None:
    text = "[Network]\nDomains=a \\\n# why\n  b\n"
    assert "".join(section.render() for section in sections.parse(text)) == text


INTERFACES = """source /etc/network/interfaces.d/*
auto lo eth0
iface lo inet loopback

iface eth0 inet static
    address 10.0.0.5/24
    gateway 10.0.0.1
    hwaddress 52:54:00:00:00:02
    up ip route add 10.9.0.0/16 via 10.0.0.9 dev eth0
    up ethtool -K eth0 lro off
    up ip rule add iif $IFACE table 5
iface eth0 inet6 auto

auto eth0.10
iface eth0.10 inet manual
    vlan-raw-device eth0
"""


def test_stanzas_become_the_bridges() -> None:
    text = interfaces.moved(INTERFACES, "eth0", "br-x")
    assert interfaces.methods(text, "br-x") == [("inet", "static"), ("inet6", "auto")]
    assert interfaces.methods(text, "eth0") == []
    assert interfaces.brought_up(text, "br-x") and interfaces.brought_up(text, "lo")
    assert not interfaces.brought_up(text, "eth0")
    assert "via 10.0.0.9 dev br-x" in text
    assert "ethtool -K eth0 lro off" in text
    assert "hwaddress" not in text
    assert "vlan-raw-device eth0" in text
    assert interfaces.sources(text) == [("source", "/etc/network/interfaces.d/*")]


def test_a_command_that_is_not_understood_is_refused() -> None:
    text = "iface eth0 inet dhcp\n up iptables -A INPUT -i eth0 -j DROP\n"
    with pytest.raises(RefusedError, match="names eth0"):
        interfaces.moved(text, "eth0", "br-x")


def test_a_nic_that_comes_by_hotplug_makes_a_bridge_that_is_brought_up() -> None:
    text = interfaces.moved("allow-hotplug eth0\niface eth0 inet dhcp\n", "eth0", "br-x")
    assert "auto br-x" in text and "allow-hotplug" not in text


WORDS = ["dhclient", "-4", "-i", "-pf", "/run/dhclient.eth0.pid", "-lf", "/var/lib/dhcp/dhclient.eth0.leases", "eth0"]
LEASES = """default-duid "\\000\\001";
lease {
  interface "eth0";
  fixed-address 10.0.0.5;
  option dhcp-lease-time 30;
  expire 0 2026/11/29 18:00:00;
}
lease {
  interface "eth0";
  fixed-address 10.0.0.6;
  option dhcp-lease-time 60;
}
"""


def test_a_dhcp_client_goes_to_another_device() -> None:
    moved = dhclient.moved_words(WORDS, "eth0", "br-x")
    assert moved[-1] == "br-x" and dhclient.lease_path(moved) == "/var/lib/dhcp/dhclient.br-x.leases"
    assert dhclient.lease_path(dhclient.volatile_words(moved)) == "/run/podnet/dhcp/dhclient.br-x.leases"
    assert dhclient.moved_lease(LEASES, "br-x").count('interface "br-x";') == 2
    assert 'default-duid "' in dhclient.moved_lease(LEASES, "br-x")
    assert len(dhclient.leases(LEASES)) == 2
    assert dhclient.leases(dhclient.with_newest(LEASES)) == [dhclient.newest(LEASES)]
    assert dhclient.with_newest(LEASES).startswith("default-duid")
    lease = dhclient.newest(LEASES)
    assert (dhclient.address_of(lease), dhclient.lifetime(lease)) == ("10.0.0.6", 60)
    assert (dhclient.newest(""), dhclient.address_of(""), dhclient.lifetime("")) == ("", "", None)
