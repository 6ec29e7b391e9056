# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which version of the runtime this process runs from."""

from __future__ import annotations

import os

from .model.paths import OPT

CHECKOUT = "from a checkout"


def running_version() -> str:
    """The name of the version folder, CHECKOUT outside of one."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    return os.path.basename(folder) if os.path.dirname(folder) == OPT else CHECKOUT
