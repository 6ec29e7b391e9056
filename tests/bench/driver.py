# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs inside a node, as a container runtime would: starts plugins and times each, with the least of its own.

Reads one request a line: `lanes`, a list of lists of calls (`argv`, `env`, `stdin`). Lanes go side by side, the calls
of a lane one after the other. Writes one answer a line: `seconds` from the first start to the last end, `cpu` seconds
of this process, and `calls`, the lanes' answers. A call's `ms` are from before the spawn to the exit of the plugin,
`cpu` its processor seconds and those of processes that it waited for, `rss` the most KiB that it held, but never less
than this process holds itself.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

PATIENCE = 60
"""Seconds without any call ending, after which those that run are ended."""
_CHUNK = 1 << 16


@dataclass
class Running:
    """A call that has been started."""

    lane: int
    began: float
    out: int
    err: int


def start(call: Mapping[str, Any], lane: int) -> tuple[int, Running]:
    """Starts a plugin; its input, which a pipe holds as a whole, is there before it."""
    child_in, feed = os.pipe()
    os.write(feed, call["stdin"].encode())
    os.close(feed)
    (out, child_out), (err, child_err) = os.pipe(), os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((child_in, child_out, child_err))]
    began = time.perf_counter()
    pid = os.posix_spawn(call["argv"][0], call["argv"], call["env"], file_actions=actions)
    for fd in (child_in, child_out, child_err):
        os.close(fd)
    return pid, Running(lane, began, out, err)


def take(fd: int) -> str:
    """What an ended plugin has left in a pipe. A process of its own that outlives it may hold the other end."""
    os.set_blocking(fd, False)
    data = b""
    try:
        while more := os.read(fd, _CHUNK):
            data += more
    except BlockingIOError:
        pass
    os.close(fd)
    return data.decode(errors="replace")


def serve(lanes: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """One request: all calls of all lanes."""
    running: dict[int, Running] = {}
    answers: list[list[dict[str, Any]]] = [[] for _lane in lanes]
    waiting = deque(range(len(lanes)))

    def give_up(_number: int, _frame: object) -> None:
        for pid in running:
            os.kill(pid, signal.SIGKILL)

    signal.signal(signal.SIGALRM, give_up)
    began = end = time.perf_counter()
    cpu = time.process_time()
    while waiting or running:
        if waiting:
            lane = waiting.popleft()
            pid, begun = start(lanes[lane][len(answers[lane])], lane)
            running[pid] = begun
        signal.alarm(PATIENCE)
        # While there is more to start, it only takes what has ended meanwhile.
        pid, status, usage = os.wait4(-1, os.WNOHANG if waiting else 0)
        end = time.perf_counter()
        if not pid:
            continue
        call = running.pop(pid)
        answers[call.lane].append(
            {
                "ms": (end - call.began) * 1000,
                "code": os.waitstatus_to_exitcode(status),
                "cpu": usage.ru_utime + usage.ru_stime,
                "rss": usage.ru_maxrss,
                "out": take(call.out),
                "err": take(call.err),
            }
        )
        if len(answers[call.lane]) < len(lanes[call.lane]):
            waiting.append(call.lane)
    signal.alarm(0)
    return {"seconds": end - began, "cpu": time.process_time() - cpu, "calls": answers}


def main() -> None:
    """Answers requests until standard input ends."""
    gc.disable()
    for line in sys.stdin:
        print(json.dumps(serve(json.loads(line)["lanes"])), flush=True)
        gc.collect()


if __name__ == "__main__":
    main()
