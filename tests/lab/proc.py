# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What every part of the lab uses: its folders, commands with a time limit, and waiting."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar, Union

STATE = Path(os.environ.get("PODNET_DEV") or "/var/tmp/podnet-dev")
"""The state folder of the developer's tools."""
LABS = STATE / "lab"
ROOTS = STATE / "roots"
MIRROR = STATE / "mirror"
KERNEL = STATE / "kernel"
TREE = STATE / "tree"
COLLECTION = TREE / "ansible_collections" / "podnet" / "ovs"

PLAIN = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "LANG": "C.UTF-8",
}
"""The environment that a command in a node gets: nothing of the developer's shell."""

PATIENCE = float(os.environ.get("PODNET_PATIENCE") or 1)
"""How many times longer a command may take than on a machine that is not emulated. What is promised stays the same."""

Data = Union[str, bytes, None]
Result = subprocess.CompletedProcess[str]
T = TypeVar("T")


class LabError(RuntimeError):
    """Something that the lab could not do."""


class CommandFailed(LabError):
    """A command ended with another status than 0; `result` has the status and all that it printed."""

    def __init__(self, result: Result) -> None:
        self.result = result
        words = " ".join(result.args)
        super().__init__(f"{words}\n  ended with {result.returncode}\n{result.stdout}{result.stderr}".rstrip())


def to_bytes(data: Data) -> bytes:
    """Text as UTF-8; nothing as no bytes."""
    return data.encode("utf-8", "surrogateescape") if isinstance(data, str) else data or b""


def run(
    argv: Sequence[str | Path],
    *,
    input: Data = b"",
    check: bool = True,
    timeout: float = 60,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> Result:
    """Runs a command to its end.

    Output is text with its line ends; bytes that are not UTF-8 come back with `.encode("utf-8", "surrogateescape")`.
    Raises CommandFailed on a status other than 0 (unless `check` is false) and subprocess.TimeoutExpired after
    `timeout` seconds, in an emulated machine after PATIENCE times as many.
    """
    words = [str(word) for word in argv]
    data = to_bytes(input)
    limit = timeout * PATIENCE
    done = subprocess.run(words, input=data, capture_output=True, timeout=limit, env=env, cwd=cwd, check=False)
    out, err = (output.decode("utf-8", "surrogateescape") for output in (done.stdout, done.stderr))
    result = subprocess.CompletedProcess(words, done.returncode, out, err)
    if check and result.returncode:
        raise CommandFailed(result)
    return result


def until(probe: Callable[[], T], timeout: float = 10, what: str = "", every: float = 0.05) -> T:
    """Calls `probe` until it gives something true, and gives that.

    Raises LabError after `timeout` seconds, naming `what`.
    """
    end = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() >= end:
            raise LabError(f"not within {timeout:g} s: {what or getattr(probe, '__name__', 'the condition')}")
        time.sleep(every)
