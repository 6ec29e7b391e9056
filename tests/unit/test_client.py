# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each attachment pays for: the client's imports, in a process as the runtime starts it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UTILS = Path(__file__).resolve().parents[2] / "plugins" / "module_utils"
ALLOWED = {"client", "_socket"}
"""Beyond what an interpreter has anyway; `_socket` is built in, or one file."""

LIST = """
import sys
sys.path.insert(0, {folder!r})
before = set(sys.modules)
import client
print(*sorted(set(sys.modules) - before))
"""


def test_the_client_imports_next_to_nothing() -> None:
    code = LIST.format(folder=str(UTILS))
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert set(done.stdout.split()) <= ALLOWED
