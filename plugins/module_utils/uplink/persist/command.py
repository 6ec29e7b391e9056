# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Commands of the system, each with a time limit, never through a shell."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence

from ...errors import DeadlineExceeded, PodnetError

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def find(name: str) -> str | None:
    """Where a command is, or None."""
    return shutil.which(name, path=_PATH)


def run(argv: Sequence[str], timeout: float = 10.0) -> str:
    """Runs a command to its end and gives what it printed. Raises PodnetError if it fails or does not end in time."""
    try:
        done = subprocess.run(
            list(argv),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            check=False,
            env={"PATH": _PATH, "LC_ALL": "C.UTF-8"},
        )
    except subprocess.TimeoutExpired as error:
        raise DeadlineExceeded(f"{' '.join(argv)} did not end within {timeout:.0f} seconds") from error
    except OSError as error:
        raise PodnetError(f"cannot run {argv[0]}: {error}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise PodnetError(f"{' '.join(argv)} failed with status {done.returncode}: {said}")
    return done.stdout


def tried(argv: Sequence[str], timeout: float = 10.0) -> str:
    """The same for a command whose failure says something, too: then the reason, else ""."""
    try:
        run(argv, timeout)
    except PodnetError as error:
        return error.message
    return ""
