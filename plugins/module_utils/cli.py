# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `podnet` command, for a person on the node."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any

from .attach.wish import load_node
from .client import SOCKET
from .errors import PodnetError
from .kernel import pod
from .model.node import Node
from .model.paths import CNI_BIN, NODE_JSON, OPT, OVSDB
from .vswitch.attachments import Attachment
from .vswitch.fastpath import open_switch

OK, FAILED, USAGE = 0, 1, 2
UPLINK = "uplink"
SECONDS = 3.0
"""How long database and switch may take to answer."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status: 0, 1 for an error or a finding, 2 for a wrong command line."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == [UPLINK]:
        from .uplink_cli import main as uplink  # the libraries are loaded for commands that need them

        return uplink(words[1:])
    options = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except PodnetError as error:
        _complain(f"podnet: {error}")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="podnet", description="Secondary pod networks of this node.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, text, command in (
        ("status", "whether this node can attach pods, and what stands in the way", _status),
        ("attachments", "the pods' ports on this node", _attachments),
    ):
        sub = commands.add_parser(name, help=text)
        sub.add_argument("--json", action="store_true", help="for a program")
        sub.set_defaults(command=command)
    commands.add_parser(UPLINK, help="the NICs that carry this node, and their moves", add_help=False)
    node = commands.add_parser("node", help="the node's own bridges, uplinks and interfaces").add_subparsers(
        required=True, metavar="COMMAND"
    )
    state = node.add_parser(
        "status", help=f"whether the node is what {NODE_JSON} says; if not, what applying it changes"
    )
    state.add_argument("--json", action="store_true", help="for a program")
    state.set_defaults(command=_apply, file=NODE_JSON, check=True, strict=True)
    again = node.add_parser("restore", help="give links back what a boot forgot (podnet-node.service)")
    again.set_defaults(command=_restore)
    for name, text, check in (
        ("apply", "make the node what a file says", False),
        ("plan", "say what that would change", True),
    ):
        sub = node.add_parser(name, help=text)
        sub.add_argument("file", nargs="?", default=NODE_JSON, help=f"as {NODE_JSON}, which is taken without one")
        sub.add_argument("--json", action="store_true", help="for a program")
        sub.set_defaults(command=_apply, check=check, strict=False)
    return parser


def _status(options: argparse.Namespace) -> int:
    report = _report()
    findings = report["findings"]
    if options.json:
        _print_json(report)
    else:
        _say(f"podnet {report['version']}: {len(report['bridges'])} bridges, {report['attachments']} attachments")
        for finding in findings:
            _say(f"  ! {finding}")
        if not findings:
            _say("  ready to attach pods")
    return FAILED if findings else OK


def _report() -> dict[str, Any]:
    findings: list[str] = []
    node = _try(findings, load_node)
    endpoint = node.ovsdb if node else OVSDB
    there: list[str] = []
    count = broken = 0

    def look() -> None:
        nonlocal there, count, broken
        with open_switch(endpoint, SECONDS) as switch:
            there = switch.bridges()
            mine = switch.attachments()
            count, broken = len(mine), sum(bool(item.error) for item in mine)
            switch.wait_for_switch(SECONDS)

    _try(findings, look)
    for bridge in node.bridges if node else ():
        if bridge.name not in there:
            findings.append(f"bridge {bridge.name} is not there: run the role podnet.ovs.node")
    if broken:
        findings.append(f"{broken} of {count} ports are broken: podnet attachments")
    agent = os.path.exists(SOCKET)
    if not agent:
        findings.append("the agent's socket is not there, so attaching is slow: systemctl status podnet-agent.socket")
    if not os.path.exists(f"{CNI_BIN}/podnet-ovs"):
        findings.append(f"no podnet-ovs in {CNI_BIN}: run the role podnet.ovs.runtime")
    return {"version": _version(), "bridges": there, "attachments": count, "agent": agent, "findings": findings}


def _attachments(options: argparse.Namespace) -> int:
    with open_switch(load_node().ovsdb, SECONDS) as switch:
        found = sorted(switch.attachments(), key=lambda item: (item.bridge, item.port))
    rows = [_attachment(item) for item in found]
    if options.json:
        _print_json(rows)
        return OK
    table = [("PORT", "BRIDGE", "VLAN", "NETWORK", "POD", "INTERFACE", "ADDRESSES", "STATE")]
    table += [
        (
            row["port"], row["bridge"], str(row["vlan"] or "-"), row["network"],
            row["pod"] or row["container"][:12], row["interface"], " ".join(row["addresses"]) or "-",
            row["error"] or "ok",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(line[i]) for line in table) for i in range(len(table[0]))]
    for line in table:
        _say("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip())
    return OK


def _attachment(item: Attachment) -> dict[str, Any]:
    mark = item.mark
    return {
        "port": item.port,
        "bridge": item.bridge,
        "vlan": item.tag or None,
        "network": mark.network,
        "pod": "/".join(part for part in (mark.pod_namespace, mark.pod_name) if part),
        "container": mark.container_id,
        "interface": mark.ifname,
        "addresses": list(mark.addresses),
        "error": item.error or ("" if pod.exists(item.port) else "its link is gone"),
    }


def _restore(_options: argparse.Namespace) -> int:
    from .uplink.restore import restore  # the libraries are loaded for commands that need them

    node = _try([], load_node)
    report = restore(node.ovsdb if node else OVSDB)
    for step in report.operations:
        _say(f"{step.kind} {step.name}: {step.action} {step.detail.get('address', '')}".rstrip())
    for name in report.missing:
        _complain(f"podnet: link {name} is not there")
    return FAILED if report.missing else OK


def _apply(options: argparse.Namespace) -> int:
    from .model.target import declared, node_state
    from .uplink.converge import converge

    try:
        with open(options.file, encoding="utf-8") as file:
            node = Node.from_json(file.read())
    except (OSError, UnicodeDecodeError) as error:
        raise PodnetError(f"cannot read {options.file}: {error}") from error
    plan = converge(lambda state: node_state(state, node, declared(state)), node.ovsdb, check=options.check)
    if options.json:
        _print_json([step.to_dict() for step in plan.operations])
    else:
        for step in plan.operations:
            _say(f"{step.kind} {step.name}: {step.action}")
        if options.check and not plan.operations:
            _say("the node is as it should be")
    for warning in plan.warnings:
        _complain(f"podnet: {warning}")
    return FAILED if options.strict and plan.operations else OK


def _try(findings: list[str], step: Callable[[], Any]) -> Any:
    try:
        return step()
    except PodnetError as error:
        findings.append(str(error))
        return None


def _version() -> str:
    """The name of the version folder that this runs from."""
    folder = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
    return os.path.basename(folder) if os.path.dirname(folder) == OPT else "from a checkout"


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")


def _complain(line: str) -> None:
    sys.stderr.write(line + "\n")


def _print_json(document: Any) -> None:
    _say(json.dumps(document, indent=2))
