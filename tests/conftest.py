# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Options and the lab, for all tests. See tests/lab."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Pair


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options of this project's tests."""
    group = parser.getgroup("podnet.ovs")
    group.addoption("--full", action="store_true", help="run every row, not a sample")
    group.addoption(
        "--datapath", choices=("netdev", "system"), default="netdev", help="Open vSwitch datapath of light nodes"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what only the full tier shows."""
    if not config.getoption("--full"):
        for item in items:
            if item.get_closest_marker("full"):
                item.add_marker(pytest.mark.skip(reason="only with --full"))


@pytest.fixture(scope="session")
def datapath(request: pytest.FixtureRequest) -> str:
    """The Open vSwitch datapath that light nodes use: "netdev", or "system" on a stock kernel."""
    return str(request.config.getoption("--datapath"))


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab for the tests of one file: they make LANs and nodes in it, and all ends with the file."""
    from ansible_collections.podnet.ovs.tests.lab import Lab

    stem = re.sub(r"[^a-z0-9]+", "-", request.path.stem.lower()).strip("-")
    with Lab(f"{stem[:28]}-{os.getpid()}") as made:
        yield made


@pytest.fixture(scope="module")
def light_pair(lab: Lab, datapath: str) -> Pair:
    """Two light nodes without bridges, shared by the tests of one file."""
    from ansible_collections.podnet.ovs.tests.lab import Nic, Pair

    trunk = lab.lan("trunk")
    n1, n2 = (lab.light(name, nics=[Nic("eth1", trunk)], datapath=datapath) for name in ("n1", "n2"))
    return Pair(trunk, n1, n2)
