# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""cloud-init writes a network configuration at each boot of a new instance: it is told to leave that alone."""

from __future__ import annotations

import os

from ...model.move import FileChange
from .base import SIGN

_INSTALLED = "/etc/cloud/cloud.cfg"
_PATH = "/etc/cloud/cloud.cfg.d/99-podnet-network.cfg"


def cloud_init_files() -> tuple[FileChange, ...]:
    """Its file, where cloud-init is installed."""
    if not os.path.exists(_INSTALLED):
        return ()
    text = f"{SIGN}the network of this node is no longer cloud-init's.\nnetwork: {{config: disabled}}\n"
    return (FileChange(_PATH, text),)
