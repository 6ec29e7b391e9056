# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kills on a stock kernel, on whose datapath the NIC is really enslaved: in the virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab

pytestmark = pytest.mark.vm


@pytest.mark.full
@pytest.mark.holds("five of the kills on the kernel datapath")
def test_kills_on_a_stock_kernel(lab: Lab) -> None:
    done = lab.vm().pytest("-q", "-s", "--durations=5", "tests/fault/test_kill.py", "-k", "five", timeout=2700)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
