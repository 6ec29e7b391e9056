# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the client adds to the start of its interpreter: beside an empty script, and one that does nothing but end its
process as the client does, without tidying up; a VERSION, and a call that a server answers at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

from .measure import turns
from .place import OURS, Json, Place
from .report import AGENT, CLIENT_BARE, CLIENT_CALL, CLIENT_ENDING, CLIENT_VERSION, Row, spread

ECHO, EMPTY, ENDING = "/run/bench-echo.py", "/run/bench-empty", "/run/bench-ending"
_SCRIPTS = f"""
head -n 1 {OURS} | tee {EMPTY} > {ENDING}
echo 'import posix; posix._exit(0)' >> {ENDING}
chmod 755 {EMPTY} {ENDING}
"""


def measure(place: Place, rounds: int, rest: Callable[[], None]) -> tuple[list[Row], float]:
    """Rows of the four, in turn; and the most MiB that a client holds."""
    place.ours.write(ECHO, Path(__file__).with_name("echo.py").read_bytes())
    place.ours.sh(_SCRIPTS)
    driver = place.hidden(f"/usr/bin/python3 -IS {ECHO} < /dev/null > /dev/null")
    kind = next(kind for kind in place.kinds if kind.name == AGENT)
    call = kind.call("ADD", "startup", "p0")
    version: Json = {**call, "env": {**call["env"], "CNI_COMMAND": "VERSION"}}
    scripts = {name: {**call, "argv": [path]} for name, path in ((CLIENT_BARE, EMPTY), (CLIENT_ENDING, ENDING))}
    calls: dict[str, Json] = {**scripts, CLIENT_VERSION: version, CLIENT_CALL: call}
    times: dict[str, list[float]] = defaultdict(list)
    for number, name in turns(list(calls), rounds):
        rest()
        (done,) = driver.must([[calls[name]]]).calls
        if (name == CLIENT_CALL) != (done.out == "{}"):
            raise RuntimeError(f"{name}: {done.out!r} {done.err!r}")
        if number:
            times[name].append(done.ms)
    (done,) = driver.must([[{**call, "stdin": '{"name": "bench.memory"}'}]]).calls
    return [{"start": name, **spread(times[name])} for name in calls], int(done.out) / 1024
