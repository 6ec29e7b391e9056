# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who gives orders to the Open vSwitch database. Reads only."""

from __future__ import annotations

import os
import shutil
import subprocess

SECONDS = 2
_LOCAL = ("ptcp:6640:127.0.0.1", "punix:", "unix:")


def managers(endpoint: str) -> tuple[str, ...]:
    """The remote managers of the database, as `ovs-vsctl get-manager` names them; none if it does not say."""
    path = shutil.which("ovs-vsctl", path=f"{os.environ.get('PATH', '')}:/usr/bin:/usr/local/bin")
    if path is None:
        return ()
    words = [path, f"--timeout={SECONDS}", f"--db={endpoint}", "--no-wait", "get-manager"]
    try:
        done = subprocess.run(words, capture_output=True, timeout=SECONDS + 1, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ()
    found = done.stdout.decode("utf-8", "replace").split() if done.returncode == 0 else []
    return tuple(target for target in found if not target.startswith(_LOCAL))
