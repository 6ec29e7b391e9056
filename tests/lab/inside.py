# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs a command in a machine without its network: a job in the folder that both share, told of on a serial port.

    inside.py JOBS COMMAND…

Standard input is read to its end first, output comes as it is written, and the status is the command's. It is 255,
with a word on standard error, if the machine is off or restarts meanwhile. A signal that ends this ends the command.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import stat
import sys
import time
from pathlib import Path
from types import FrameType
from typing import BinaryIO

EVERY = 0.01


class Ended(Exception):
    """The machine, or the wish for the command."""


def tell(jobs: Path, line: str) -> None:
    """Says a line to the machine. Raises Ended if it is off."""
    try:
        port = os.open(jobs.parent / "trigger.in", os.O_WRONLY | os.O_NONBLOCK)
        try:
            os.write(port, line.encode() + b"\n")
        finally:
            os.close(port)
    except OSError as error:
        raise Ended(f"the machine is off, or does not listen: {error}") from error


def check(jobs: Path, boot: str) -> None:
    """Raises Ended if the machine is off or in another boot."""
    if boot_of(jobs) != boot:
        raise Ended("the machine has restarted")
    try:
        os.close(os.open(jobs.parent / "trigger.in", os.O_WRONLY | os.O_NONBLOCK))
    except OSError as error:
        raise Ended(f"the machine is off: {error}") from error


def boot_of(jobs: Path) -> str:
    """The boot that the machine is in."""
    try:
        return (jobs / "boot").read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""


def write_job(job: Path, command: list[str]) -> None:
    """Writes down what is to be done."""
    job.mkdir()
    (job / "run").write_text("exec " + shlex.join(command) + "\n", encoding="utf-8")
    data = b""
    if stat.S_ISFIFO(os.fstat(0).st_mode) or stat.S_ISREG(os.fstat(0).st_mode) or stat.S_ISSOCK(os.fstat(0).st_mode):
        data = sys.stdin.buffer.read()
    (job / "in").write_bytes(data)
    for name in ("out", "err"):
        (job / name).touch()


def relay(streams: list[tuple[BinaryIO, BinaryIO]]) -> bool:
    """Passes on what was written since; whether there was something."""
    some = False
    for source, target in streams:
        data = source.read()
        if data:
            target.write(data)
            target.flush()
            some = True
    return some


def follow(jobs: Path, job: Path, boot: str) -> int:
    """Passes on a job's output until it ends, and gives its status."""
    with open(job / "out", "rb") as out, open(job / "err", "rb") as err:
        streams: list[tuple[BinaryIO, BinaryIO]] = [(out, sys.stdout.buffer), (err, sys.stderr.buffer)]
        looked = time.monotonic()
        while not (job / "status").exists():
            relay(streams)
            if time.monotonic() - looked > 0.5:
                looked = time.monotonic()
                check(jobs, boot)
            time.sleep(EVERY)
        relay(streams)
    return int((job / "status").read_text(encoding="utf-8"))


def main(jobs: Path, command: list[str]) -> int:
    """Runs a command, and gives its status."""
    job = jobs / f"{time.time_ns()}-{os.getpid()}"

    def stop(_number: int, _frame: FrameType | None) -> None:
        raise Ended("ended by a signal")

    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    boot = boot_of(jobs)
    write_job(job, command)
    try:
        tell(jobs, f"run {job.name}")
        return follow(jobs, job, boot)
    except Ended as error:
        with contextlib.suppress(Ended):
            tell(jobs, f"kill {job.name}")
        print(f"{' '.join(command)}: {error}", file=sys.stderr)
        return 255
    finally:
        if (job / "status").exists():
            shutil.rmtree(job, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
