# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Asks the running agent."""

from __future__ import annotations

from ..client import SOCKET, NoAgent, ask
from ..errors import UNAVAILABLE, PodnetError

STATUS, METRICS = "@status", "@metrics"


def ask_agent(word: str, path: str = SOCKET) -> bytes:
    """The answer to `status` (JSON) or `metrics` (text). Raises PodnetError within 3 s if the agent does not answer."""
    try:
        status, answer, error = ask(f"@{word}", {}, b"", path)
    except (NoAgent, OSError) as problem:
        reason = f": {problem}" if str(problem) else ""
        hint = "systemctl status podnet-agent.socket podnet-agent"
        raise PodnetError(f"the agent does not answer at {path}{reason}", hint, UNAVAILABLE) from problem
    if status:
        raise PodnetError(f"the agent refused: {error.decode(errors='replace').strip()}")
    return answer
