# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the ports of pods are shown: modes and VLANs in words, and columns that nobody needs left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.attachments_cli import GONE, HEAD, row_of, to_dict, vlans_of
from ansible_collections.podnet.ovs.plugins.module_utils.model.ownership import OWNER_OVS, Mark
from ansible_collections.podnet.ovs.plugins.module_utils.terminal import table
from ansible_collections.podnet.ovs.plugins.module_utils.vswitch.attachments import Attachment

MARK = Mark(OWNER_OVS, "c" * 64, "net1", "green", "shop", "web-0", "u1", ("10.10.0.5/24",), 1500)
PLAIN = Attachment("lo", "br-pod", MARK, 100, "access", 7)
"""On the loopback, which is always there."""


@pytest.mark.parametrize(
    ("tag", "mode", "trunks", "cvlans", "shown"),
    [
        (100, "access", (), (), "access 100"),
        (100, "", (), (), "access 100"),
        (0, "access", (), (), "access untagged"),
        (None, "trunk", (10, 20, 21, 22), (), "trunk 10,20-22"),
        (None, "trunk", (), (), "trunk all"),
        (None, "", (), (), "trunk all"),
        (5, "native-tagged", (5, 10), (), "native-tagged 5 + 5,10"),
        (5, "native-untagged", (), (), "native-untagged 5 + all"),
        (100, "dot1q-tunnel", (), (), "tunnel 100"),
        (100, "dot1q-tunnel", (), (1, 2, 3, 9), "tunnel 100 of 1-3,9"),
    ],
)
def test_mode_and_vlans(
    tag: int | None, mode: str, trunks: tuple[int, ...], cvlans: tuple[int, ...], shown: str
) -> None:  # fmt: skip
    assert vlans_of(replace(PLAIN, tag=tag, vlan_mode=mode, trunks=trunks, cvlans=cvlans)) == shown


@pytest.mark.parametrize(
    ("inward", "outward", "shown"),
    [
        (0, 0, ""),
        (10_000_000, 0, "in 10Mbit"),
        (1_500_000, 2_000_000_000, "in 1500kbit, out 2Gbit"),
        (0, 1_234, "out 1234bit"),
    ],
)
def test_limits(inward: int, outward: int, shown: str) -> None:
    row = dict(zip(HEAD, row_of(replace(PLAIN, ingress_rate=inward, egress_rate=outward))))
    assert row["LIMITS"] == shown


@pytest.mark.parametrize(
    ("spoof", "protected", "shown"),
    [
        (False, False, ""),
        (True, False, "spoof-check"),
        (False, True, "isolated"),
        (True, True, "spoof-check, isolated"),
    ],
)
def test_guards(spoof: bool, protected: bool, shown: str) -> None:
    row = dict(zip(HEAD, row_of(replace(PLAIN, mark=replace(PLAIN.mark, spoof_check=spoof), protected=protected))))
    assert row["GUARDS"] == shown


def test_state() -> None:
    assert row_of(PLAIN)[-1] == "ok" and to_dict(PLAIN)["error"] == ""
    assert row_of(replace(PLAIN, port="pn0123456789ab"))[-1] == GONE
    assert row_of(replace(PLAIN, error="could not open"))[-1] == "could not open"


def test_columns_that_are_empty_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    table(HEAD, [row_of(PLAIN)])
    plain = capsys.readouterr().out
    assert plain.splitlines()[0].split() == [word for word in HEAD if word not in ("LIMITS", "GUARDS")]
    assert plain.splitlines()[1].split() == [
        "lo", "br-pod", "access", "100", "green", "shop/web-0", "net1", "10.10.0.5/24", "ok",
    ]  # fmt: skip
    bare = replace(PLAIN, mark=replace(MARK, addresses=()))
    table(HEAD, [row_of(replace(PLAIN, protected=True)), row_of(bare)])
    head, first, second = capsys.readouterr().out.splitlines()
    assert "GUARDS" in head and "LIMITS" not in head
    column = head.index("GUARDS")
    assert first[column:].split() == ["isolated", "ok"] and second[column:].split() == ["-", "ok"]
    assert second[head.index("ADDRESSES") :].split()[0] == "-"
    table(HEAD, [])
    assert capsys.readouterr().out.split() == list(HEAD)


def test_a_program_is_told_everything() -> None:
    told = to_dict(replace(PLAIN, vlan_mode="trunk", tag=None, trunks=(10, 20), cvlans=(3,), egress_rate=5, uuid="x"))
    assert told == {
        "port": "lo", "bridge": "br-pod", "mode": "trunk", "vlan": None, "trunks": [10, 20], "cvlans": [3],
        "network": "green", "pod": "shop/web-0", "namespace": "shop", "pod_uid": "u1", "container": "c" * 64,
        "interface": "net1", "addresses": ["10.10.0.5/24"], "mtu": 1500, "ofport": 7, "ingress_rate": 0,
        "egress_rate": 5, "spoof_check": False, "isolated": False, "error": "",
    }  # fmt: skip
