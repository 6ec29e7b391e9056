# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What Ansible sends to a node for a module: no more than the module is about."""

from __future__ import annotations

import pytest

from ansible_collections.podnet.ovs.tests.integration.ansiballz import parts

UTILS = "ansible_collections/podnet/ovs/plugins/module_utils/"
NOT_FOR_MODULES = ("agent", "attach", "ipam", "cni", "client.py", "cli.py")


@pytest.mark.parametrize("module", ["bridge", "uplink", "interface", "node", "node_info"])
def test_a_module_travels_light(module: str) -> None:
    sent = [name[len(UTILS) :] for name in parts(module) if name.startswith(UTILS)]
    for needed in ("errors.py", "ansible_glue.py", "model/target.py", "vswitch/session.py", "kernel/links.py"):
        assert needed in sent, "Ansible's search for imports does not find what the module needs"
    assert not [name for name in sent if name.split("/")[0] in NOT_FOR_MODULES]
    assert "uplink/restore.py" not in sent and "vswitch/attachments.py" not in sent
