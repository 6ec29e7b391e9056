# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dev/lab: labs by hand."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

from .full import Full, enter_words as enter_full, leader_of
from .lab import Lab, all_labs, clear, is_held
from .lan import Nic
from .light import enter_words as enter_light
from .machine import enter_words as enter_machine
from .managers import MANAGERS
from .proc import LABS, PLAIN, LabError


def up(words: argparse.Namespace) -> None:
    """Makes a lab that stands on: a LAN with a gateway for eth0, a switch for eth1 if wanted, and nodes n1, n2 …"""
    with Lab(words.lab, keep=True) as lab:
        lan = lab.lan("lan", ipv4=words.ipv4, ipv6=words.ipv6, dhcp=True, mirror=words.kind != "light")
        trunk = lab.lan("trunk")
        booting: list[Full] = []
        for number in range(1, words.nodes + 1):
            second = [Nic("eth1", trunk)] if words.nics == 2 else []
            nics = [Nic("eth0", lan, words.eth0), *second]
            if words.kind == "light":
                lab.light(f"n{number}", nics=[Nic("eth0", lan, "static"), *second], datapath=words.datapath)
                continue
            suite = words.suite[(number - 1) % len(words.suite)]
            given: dict[str, Any] = {"suite": suite, "nics": nics, "manager": words.manager, "wait": False}
            if words.kind == "full":
                booting.append(lab.full(f"n{number}", datapath=words.datapath, **given))
            else:
                booting.append(lab.machine(f"n{number}", **given))
        for node in booting:
            node.wait()
        lab.inventory()
    show(words)


def down(words: argparse.Namespace) -> None:
    """Ends labs."""
    names = all_labs() if words.all else words.labs
    if not names and not words.all:
        raise LabError("which lab? a name, or --all")
    failed = []
    for name in names:
        try:
            clear(name)
            print(f"{name}: gone")
        except LabError as error:
            failed.append(str(error))
    if failed:
        raise LabError("\n".join(failed))


def nodes_of(lab: str) -> dict[str, dict[str, Any]]:
    """The nodes that a lab has written down."""
    try:
        found: dict[str, dict[str, Any]] = json.loads((LABS / lab / "lab.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return found


def show(_words: argparse.Namespace) -> None:
    """Prints the labs that stand, and how to reach their nodes."""
    for lab in all_labs():
        print(f"{lab}{' (in use by a program)' if is_held(lab) else ''}: inventory {LABS / lab / 'inventory.yml'}")
        for name, node in nodes_of(lab).items():
            print(f"  {name:12} {node['kind']:7} {node['address'] or '-':16} dev/lab shell {lab} {name}")


def enter(words: argparse.Namespace) -> None:
    """Becomes a command in a node, or a shell."""
    node = nodes_of(words.lab).get(words.node)
    if node is None:
        raise LabError(f"lab {words.lab} has no node {words.node}; dev/lab list shows what there is")
    if node["kind"] == "light":
        inside = enter_light(node["holder"])
    elif node["kind"] == "machine":
        inside = enter_machine(LABS / words.lab / words.node)
        if not hasattr(words, "command"):  # a shell needs a terminal
            inside = ["ssh", "-t", "-F", str(LABS / words.lab / "ssh_config"), words.node]
    else:
        leader = leader_of(words.lab, words.node)
        if not leader:
            raise LabError(f"{words.node} is not up; its console is {LABS / words.lab / words.node / 'console'}")
        inside = enter_full(leader)
    argv = [*inside, *(getattr(words, "command", None) or ["bash", "-l"])]
    os.execvpe(argv[0], argv, {**PLAIN, "TERM": os.environ.get("TERM", "dumb")})


def inventory(words: argparse.Namespace) -> None:
    """Prints the path of a lab's Ansible inventory."""
    path = LABS / words.lab / "inventory.yml"
    if not path.exists():
        raise LabError(f"lab {words.lab} has no inventory")
    print(path)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(prog="dev/lab", description="Nodes to try things on, as many labs as you like.")
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    make = commands.add_parser("up", help="make a lab that stands until dev/lab down")
    make.add_argument("lab", nargs="?", default="lab")
    make.add_argument("--nodes", type=int, default=2)
    make.add_argument("--kind", choices=("full", "light", "machine"), default="full")
    make.add_argument("--suite", action="append", choices=("bookworm", "trixie"), help="once, or in turn for the nodes")
    make.add_argument("--eth0", choices=("static", "dhcp"), default="static")
    make.add_argument("--nics", type=int, choices=(1, 2), default=2)
    make.add_argument("--manager", choices=tuple(MANAGERS), default="networkd", help="of the full nodes' eth0")
    make.add_argument("--datapath", choices=("netdev", "system"), default="netdev")
    make.add_argument("--ipv4", default="10.99.0.0/24")
    make.add_argument("--ipv6", default="fd00:99::/64")
    make.set_defaults(do=up)
    end = commands.add_parser("down", help="end labs; what a killed program left, too")
    end.add_argument("labs", nargs="*", metavar="lab")
    end.add_argument("--all", action="store_true")
    end.set_defaults(do=down)
    commands.add_parser("list", help="the labs and their nodes").set_defaults(do=show)
    for name, text in (
        ("shell", "a shell in a node, without its network (a machine's: by ssh)"),
        ("run", "a command in a node"),
    ):
        inside = commands.add_parser(name, help=text)
        inside.add_argument("lab")
        inside.add_argument("node")
        if name == "run":
            inside.add_argument("command", nargs=argparse.REMAINDER)
        inside.set_defaults(do=enter)
    where = commands.add_parser("inventory", help="the path of a lab's Ansible inventory")
    where.add_argument("lab", nargs="?", default="lab")
    where.set_defaults(do=inventory)
    return top


def main() -> None:
    """Runs dev/lab; what it cannot do ends it with a line that says why."""
    words = parser().parse_args()
    if "suite" in words:
        words.suite = words.suite or ["bookworm"]
    try:
        words.do(words)
    except LabError as error:
        sys.exit(f"dev/lab: {error}")


if __name__ == "__main__":
    main()
