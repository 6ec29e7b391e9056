# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The data path on a stock kernel, in a virtual machine: Open vSwitch's kernel datapath, and no ear of the node's
own kernel on pods' frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Vm

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def vm(lab: Lab) -> Vm:
    """A machine with a stock kernel."""
    return lab.vm()


@pytest.mark.holds("on a stock kernel: pod to pod, host VLAN interface, bond uplink, isolation")
def test_the_data_path_on_a_stock_kernel(vm: Vm) -> None:
    done = vm.pytest("-q", "--durations=5", "tests/integration/test_datapath.py", timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
