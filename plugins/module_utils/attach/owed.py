# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Leases that could not be given back, while link and port of their attachment are gone already.

The DEL that failed is repeated by the runtime. It finds no trace of the attachment any more, and must not take that for
one that never was. An empty file is kept for each; a reboot ends them, as it ends all that runs.
"""

from __future__ import annotations

import contextlib
import os

from ..model.paths import RUN

FOLDER = RUN + "/owed"


def remember(host: str) -> None:
    """The attachment with this host's end still has a lease."""
    os.makedirs(FOLDER, mode=0o700, exist_ok=True)
    os.close(os.open(f"{FOLDER}/{host}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def is_owed(host: str) -> bool:
    """Whether it has one."""
    return os.path.exists(f"{FOLDER}/{host}")


def forget(host: str) -> None:
    """It has none any more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(f"{FOLDER}/{host}")
