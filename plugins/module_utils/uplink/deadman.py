# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What undoes a move when nobody is left to: a timer of systemd's, and processes that systemd starts again.

Without systemd one process of its own session watches the others. It outlives who began the move, but not a reboot,
after which the guard does the same; nor the end of that session where logind ends all of its processes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress

from ..errors import PodnetError
from ..kernel.files import make_folder
from ..model.move import APPLIED, UNCONFIRMED
from ..model.paths import OPT, UPLINK
from .journal import Journal, UnknownMove
from .units import have_systemd

WORK, FINISH, RECOVER, KEEP = "work", "finish", "recover", "keep"
"""What `podnet uplink` is called with, and the id of the move after it."""
_SECONDS = 15.0
_AGAIN = 0.2
_GRACE = 10.0
"""How long a process may take to start before it counts as dead."""
_PROPERTIES = (
    "--property=Restart=on-failure",
    # an end that systemd calls clean is none here: these processes say themselves when they are done
    "--property=RestartForceExitStatus=SIGTERM SIGINT SIGHUP SIGPIPE SIGALRM",
    "--property=RestartSec=200ms",
    "--property=StartLimitIntervalSec=0",
    "--property=OOMScoreAdjust=-900",
    "--property=KillMode=process",  # a DHCP client that it started stays
)


def arm(journal: Journal) -> None:
    """From now on the move is undone at its deadline, whatever becomes of this process. Raises PodnetError.

    The journal need not be on the disk yet: without one at that time there is nothing to undo.
    """
    if not have_systemd():
        _detached(journal, KEEP)
        return
    timer = ["--timer-property=AccuracySec=100ms", f"--on-active={max(journal.left, 0.1):.3f}s"]
    _systemd_run(journal, RECOVER, timer)


def start(journal: Journal, verb: str) -> None:
    """Starts `podnet uplink VERB ID` as a process of its own, and does not wait for it. Raises PodnetError."""
    if not have_systemd():
        _detached(journal, verb)
    elif verb != RECOVER or not _systemctl("start", "--no-block", f"{unit(journal, RECOVER)}.service"):
        _systemd_run(journal, verb, ["--no-block"])


def disarm(journal: Journal) -> None:
    """The timer goes. One that is gone is fine, and so is a service that has begun: it sees that nothing is to do."""
    if have_systemd():
        _systemctl("stop", f"{unit(journal, RECOVER)}.timer")


def keep(move: str) -> None:
    """Without systemd: looks after a move until it is over, and starts what brings it there."""
    since: float | None = None
    until = time.monotonic() + _GRACE
    while True:
        try:
            journal = Journal.load(move)
        except UnknownMove:
            if time.monotonic() >= until:
                return
            time.sleep(_AGAIN)
            continue
        if not journal.open:
            return
        if not _is_due(journal):
            since = None
        elif journal.state in UNCONFIRMED or (since is not None and time.monotonic() - since > 1.0):
            # in a session of its own: what ends that one leaves this process, which starts it again
            words = [journal.program, "uplink", RECOVER, move]
            subprocess.run(words, stdin=subprocess.DEVNULL, check=False, start_new_session=True)
            since = None
            time.sleep(_AGAIN)
        else:
            since = since or time.monotonic()
        time.sleep(_AGAIN)


def program() -> str:
    """The command of the version that runs: a later one must not change what an open move is done with."""
    root = os.path.realpath(__file__).split("/lib/podnet/", 1)[0]
    mine = f"{root}/bin/podnet"
    return mine if os.path.dirname(root) == OPT and os.path.exists(mine) else f"{OPT}/current/bin/podnet"


def unit(journal: Journal, verb: str) -> str:
    """The name of the unit that runs a verb."""
    return f"podnet-uplink-{verb}-{journal.id}"


def me() -> dict[str, int]:
    """This process, told from a later one of the same number."""
    return {"pid": os.getpid(), "started": _started(os.getpid()) or 0}


def alive(worker: object) -> bool:
    """Whether the process that a journal names runs."""
    if not isinstance(worker, dict) or "pid" not in worker:
        return False
    return _started(int(worker["pid"])) == worker.get("started")


def end(worker: object) -> None:
    """Ends a process that a journal names, at once: whatever it was at can be done again."""
    if isinstance(worker, dict) and alive(worker) and worker["pid"] != os.getpid():
        with suppress(ProcessLookupError):
            os.kill(int(worker["pid"]), signal.SIGKILL)


def _is_due(journal: Journal) -> bool:
    """Whether nobody does what is to be done."""
    if journal.state not in UNCONFIRMED:
        return not alive(journal.worker)
    if journal.left <= 0:
        return True
    if journal.state == APPLIED:
        return False
    late = time.time() - float(journal.log[0]["t"]) > _GRACE
    return not alive(journal.worker) if journal.worker else late


def _started(pid: int) -> int | None:
    """When a process was started, in ticks since boot (proc(5), stat, field 22); None if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in ("Z", "X") else int(fields[19])


def _systemctl(*words: str) -> bool:
    """Whether systemctl did it."""
    try:
        command = ["systemctl", "--no-ask-password", *words]
        return subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _systemd_run(journal: Journal, verb: str, options: Sequence[str]) -> None:
    words = ["systemd-run", "--quiet", "--collect", f"--unit={unit(journal, verb)}", *_PROPERTIES, *options]
    words += [journal.program, "uplink", verb, journal.id]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PodnetError(f"systemd-run did not end well: {error}") from error
    if done.returncode != 0:
        raise PodnetError(f"systemd-run failed: {done.stderr.strip()}")


def _detached(journal: Journal, verb: str) -> None:
    words = [journal.program, "uplink", verb, journal.id]
    make_folder(f"{UPLINK}/{journal.id}")
    try:
        with open(f"{UPLINK}/{journal.id}/log", "ab") as log:
            subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/", close_fds=True
            )
    except OSError as error:
        raise PodnetError(f"cannot start {' '.join(words)}: {error}") from error
