# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The operator's variables: known to the look at their spelling, and in the reference."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from ansible_collections.podnet.ovs.plugins.filter.misspelt import misspelt

ROOT = Path(__file__).resolve().parents[2]
MADE_BY_RUNS = {
    "podnet_demo_began", "podnet_demo_prepared", "podnet_demo_state", "podnet_found", "podnet_preflight",
    "podnet_state",
}  # fmt: skip
"""Facts and results, which nobody sets."""


def known() -> set[str]:
    """The list that the role node checks against."""
    variables = yaml.safe_load((ROOT / "roles/node/vars/main.yml").read_text(encoding="utf-8"))
    return set(variables["__podnet_variables"])


def specified() -> set[str]:
    """The options of all roles."""
    found: set[str] = set()
    for path in ROOT.glob("roles/*/meta/argument_specs.yml"):
        for entry in yaml.safe_load(path.read_text(encoding="utf-8"))["argument_specs"].values():
            found |= set(entry.get("options", {}))
    return {name for name in found if name.startswith("podnet_")}


def in_playbooks() -> set[str]:
    """What playbooks take beyond that."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "playbooks").glob("*.yml"))
    return set(re.findall(r"\bpodnet_[a-z_]+", text)) - MADE_BY_RUNS


def test_the_look_at_the_spelling_knows_every_variable() -> None:
    assert known() == specified() | in_playbooks()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("podnet_bridge", "podnet_bridges"),
        ("podnet_network", "podnet_networks"),
        ("podnet_brigdes", "podnet_bridges"),
        ("podnet_hosts_bridges", "podnet_host_bridges"),
        ("podnet_sites_networks", "podnet_site_networks"),
    ],
)
def test_a_misspelt_name_is_found(name: str, meant: str) -> None:
    assert misspelt([name, *known()], known()) == [f"{name} ({meant}?)"]


def test_names_of_ones_own_are_left_alone() -> None:
    own = ["podnet_vlan_of_shop", "podnet_rack", "ansible_host", *MADE_BY_RUNS, "podnet_declared_networks"]
    assert misspelt(own, known()) == []
