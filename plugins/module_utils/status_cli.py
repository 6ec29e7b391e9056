# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""`podnet status` and `podnet metrics`: whether this node can attach pods, and how its agent fares."""

from __future__ import annotations

import argparse
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

from .attach.wish import load_node
from .errors import UNAVAILABLE, DeadlineExceeded, PodnetError
from .kernel import pod
from .model.paths import AGENT_SOCKET, CNI_BIN, OPT, OVSDB, PLUGINS
from .terminal import FAILED, OK, print_json, say
from .version import CHECKOUT, running_version
from .vswitch.fastpath import open_switch

AGENT_SECONDS = 3.0
"""How long the agent may take to answer, with all that its protocol lets a call wait for: it hangs, or nearly so."""
_SLOW = "until then each plugin does its work in a process of its own, which is slow"
_RESTART = f"systemctl restart podnet-agent; {_SLOW}"


@dataclass
class Report:
    """What `podnet status` says. `node`: whether node.json, with the policy, is there and readable. `stale` ports are
    those whose link is gone, `broken` ones those that ovs-vswitchd cannot use. `agent` is what it says of itself.
    """

    version: str
    node: bool = False
    bridges: list[str] = field(default_factory=list)
    attachments: int = 0
    attachments_by_bridge: dict[str, int] = field(default_factory=dict)
    broken: int = 0
    stale: int = 0
    agent: dict[str, Any] | None = None
    findings: list[str] = field(default_factory=list)


def status(options: argparse.Namespace, seconds: float) -> int:
    """Prints the report; FAILED if something was found. Database and switch may take so many seconds each."""
    report = _report(seconds)
    if options.json:
        print_json(asdict(report))
    else:
        _print(report)
    return FAILED if report.findings else OK


def metrics(_options: argparse.Namespace) -> int:
    """Prints the agent's metrics in the text format of Prometheus. Raises PodnetError if it does not answer."""
    say(_ask("metrics").decode().rstrip("\n"))
    return OK


def _report(seconds: float) -> Report:
    report = Report(running_version())
    node = _try(report.findings, load_node)
    report.node = node is not None
    _try(report.findings, lambda: _look(report, node.ovsdb if node else OVSDB, seconds))
    for bridge in node.bridges if node else ():
        if bridge.name not in report.bridges:
            report.findings.append(f"bridge {bridge.name} is not there: run the role podnet.ovs.node")
    for count, what in (
        (report.broken, "are broken: podnet attachments says why"),
        (report.stale, "are left over, for their pods are gone: podnet attachments lists them; the agent removes them"),
    ):
        if count:
            report.findings.append(f"{count} of {report.attachments} ports {what}")
    _try(report.findings, lambda: _ask_after_agent(report))
    folder = _plugins()
    if not os.path.exists(f"{folder}/podnet-ovs"):
        report.findings.append(f"no podnet-ovs in {folder}: run the role podnet.ovs.runtime")
    return report


def _look(report: Report, endpoint: str, seconds: float) -> None:
    with open_switch(endpoint, seconds) as switch:
        report.bridges = switch.bridges()
        mine = switch.attachments()
        report.attachments = len(mine)
        counts = Counter(item.bridge for item in mine)
        report.attachments_by_bridge = {name: counts[name] for name in sorted({*report.bridges, *counts})}
        for item in mine:
            if not pod.exists(item.port):
                report.stale += 1
            elif item.error:
                report.broken += 1
        switch.wait_for_switch(seconds)


def _plugins() -> str:
    """Where the container runtime of this node looks for plugins, as the role was told."""
    try:
        return os.readlink(f"{OPT}/{PLUGINS}")
    except OSError:
        return CNI_BIN


def _ask_after_agent(report: Report) -> None:
    answer = _ask("status")
    try:
        said = json.loads(answer)
        version = str(said["version"])
    except (ValueError, KeyError, TypeError) as error:
        raise PodnetError("the agent's answer is none", _RESTART) from error
    report.agent = said
    if CHECKOUT not in (version, report.version) and version != report.version:
        report.findings.append(f"the agent runs from {version} still: systemctl restart podnet-agent")


def _ask(word: str) -> bytes:
    """The agent's answer. Raises PodnetError if there is none in time."""
    from .agent.ask import ask_agent  # the socket is only asked by commands that need it

    if not os.path.exists(AGENT_SOCKET):
        raise PodnetError(
            "the agent's socket is not there", f"systemctl start podnet-agent.socket; {_SLOW}", UNAVAILABLE
        )
    answers: list[bytes | PodnetError] = []

    def ask() -> None:
        try:
            answers.append(ask_agent(word))
        except PodnetError as error:
            answers.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(AGENT_SECONDS)
    if not answers:
        raise DeadlineExceeded(f"the agent has not answered in {AGENT_SECONDS:g} s", _RESTART)
    if isinstance(answers[0], PodnetError):
        raise PodnetError(answers[0].message, _RESTART, UNAVAILABLE) from answers[0]
    return answers[0]


def _print(report: Report) -> None:
    say(f"podnet {report.version}: {len(report.bridges)} bridges, {report.attachments} attachments")
    for bridge, count in report.attachments_by_bridge.items():
        say(f"  {bridge}: {count} attachments")
    agent = report.agent
    if agent is not None:
        say(
            f"  agent {agent['version']}, process {agent.get('pid', '?')}, up {_age(agent.get('uptime_seconds'))}: "
            f"{agent.get('calls_running', '?')} calls at work, {agent.get('calls_total', '?')} served, "
            f"{agent.get('slow_calls', '?')} of them slow"
        )
    for finding in report.findings:
        say(f"  ! {finding}")
    if not report.findings:
        say("  ready to attach pods")


def _age(seconds: Any) -> str:
    """Seconds, in the largest unit that leaves more than one."""
    if not isinstance(seconds, (int, float)):
        return "?"
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def _try(findings: list[str], step: Callable[[], Any]) -> Any:
    try:
        return step()
    except PodnetError as error:
        findings.append(str(error))
        return None
