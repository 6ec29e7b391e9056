# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The `podnet` command, for a person on the node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from .attach.wish import load_node
from .errors import PodnetError
from .model.node import Node
from .model.paths import NODE_JSON, OVSDB
from .terminal import FAILED, OK, complain, print_json, say
from .version import running_version

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
        complain(f"podnet: {error}")
        return FAILED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="podnet", description="Secondary pod networks of this node.")
    parser.add_argument("--version", action="version", version=f"%(prog)s {running_version()}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    state = commands.add_parser("status", help="whether this node can attach pods, and what stands in the way")
    state.add_argument("--json", action="store_true", help="for a program")
    state.set_defaults(command=_status)
    ports = commands.add_parser("attachments", help="the pods' ports on this node")
    ports.add_argument("--json", action="store_true", help="for a program, with all that is known")
    ports.add_argument("--namespace", metavar="NAME", help="only those of pods in this namespace")
    ports.add_argument("--network", metavar="NAME", help="only those on this network")
    ports.set_defaults(command=_attachments)
    commands.add_parser("metrics", help="the agent's metrics, as Prometheus reads them").set_defaults(command=_metrics)
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
    from .status_cli import status

    return status(options, SECONDS)


def _metrics(options: argparse.Namespace) -> int:
    from .status_cli import metrics

    return metrics(options)


def _attachments(options: argparse.Namespace) -> int:
    from .attachments_cli import attachments

    return attachments(options, SECONDS)


def _restore(_options: argparse.Namespace) -> int:
    from .attach import spoof
    from .uplink.restore import restore  # the libraries are loaded for commands that need them
    from .vswitch.fastpath import open_switch

    try:
        endpoint = load_node().ovsdb
    except PodnetError:
        endpoint = OVSDB
    report = restore(endpoint)
    for step in report.operations:
        say(f"{step.kind} {step.name}: {step.action} {step.detail.get('address', '')}".rstrip())
    for name in report.missing:
        complain(f"podnet: link {name} is not there")
    with open_switch(endpoint, SECONDS) as switch:
        put = 0
        try:
            put = spoof.restore(switch)
        except PodnetError:
            if any(item.spoof_check for item in switch.attachments()):
                raise
    if put:
        say(f"spoof checks: {put} flows put right")
    return FAILED if report.missing or spoof.waiting.is_set() else OK


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
        print_json([step.to_dict() for step in plan.operations])
    else:
        for step in plan.operations:
            say(f"{step.kind} {step.name}: {step.action}")
        if options.check and not plan.operations:
            say("the node is as it should be")
    for warning in plan.warnings:
        complain(f"podnet: {warning}")
    return FAILED if options.strict and plan.operations else OK
