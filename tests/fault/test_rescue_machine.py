# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Rescues on a stock kernel, whose datapath holds on to the NIC when ovs-vswitchd is dead: in the virtual machine."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab

pytestmark = pytest.mark.vm


@pytest.mark.holds("vswitchd in a crash loop: the old address answers")
@pytest.mark.full
def test_rescues_on_a_stock_kernel(lab: Lab) -> None:
    words = ["tests/fault/test_rescue.py", "--full", "-k", "whatever_is_dead or hangs or is_lost"]
    done = lab.vm().pytest("-q", "--durations=5", *words, timeout=1500)
    assert done.returncode == 0, done.stdout + done.stderr
