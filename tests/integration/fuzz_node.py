# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node as the process of a plugin sees it: makes a call, judges the answer, and looks at what is left."""

from __future__ import annotations

import importlib
import io
import ipaddress
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from functools import partial
from typing import Any

from ansible_collections.podnet.ovs.tests.integration.fuzz_cases import Answer, Case
from ansible_collections.podnet.ovs.tests.integration.fuzz_words import (
    ELSEWHERE,
    FLOOD,
    FOLDER,
    HANG,
    IPAM,
    KILL,
    NEEDS_VLANS,
    NETNS,
)

HOME = os.path.dirname(FOLDER)
STATE = ("/run/podnet", "/var/lib/podnet")
TURNS = "/run/podnet/turns"
CODES = {1, 2, 3, 4, 5, 6, 7, 8, 11, 50, 51}
MOST_BYTES = 10_000
LATE_SECONDS = 1.0
HANG_SECONDS = 1.0
"""What a call gets whose IPAM plugin hangs."""
SLACK_SECONDS = 6.0
"""For the way back of a call whose time is up."""
SCRIPT = f"""#!/bin/sh
d={HOME}/ipam lease={HOME}/leases/$CNI_CONTAINERID,$CNI_IFNAME
read -r conf || [ "$conf" ] || exit 0  # it was started, and then not needed
read -r end < $d/$CNI_COMMAND.end
case $CNI_COMMAND in
    ADD) [ ! -e $d/holds ] || : > "$lease" ;;
    DEL) [ "$end" != 0 ] || [ ! -e "$lease" ] || /bin/rm "$lease" ;;
esac
case $end in
    {KILL}) kill -9 $$ ;;
    {HANG}) exec /bin/sleep 60 ;;
    {FLOOD}) exec /bin/cat /dev/zero ;;
    0) [ ! -s $d/$CNI_COMMAND ] || exec /bin/cat $d/$CNI_COMMAND; exit 0 ;;
esac
/bin/cat $d/$CNI_COMMAND
exit $end
"""


class Wrong(Exception):
    """What a call should not have done."""


class Rig:
    """The node as a plugin's process sees it."""

    def __init__(self) -> None:
        self.serving = importlib.import_module("podnet.attach.serve")
        self.call = importlib.import_module("podnet.attach.call")
        self.plugins: list[str] = sorted(self.serving.KNOWN)
        self._inprocess = importlib.import_module("podnet.attach.inprocess")
        self._own = importlib.import_module("podnet.vswitch.fastpath").open_switch
        self._shared = importlib.import_module("podnet.vswitch.shared").SharedSwitch().open
        self._visit = importlib.import_module("podnet.kernel.netns").visit
        for folder in ("ipam", "leases", "bin"):
            os.makedirs(f"{HOME}/{folder}", exist_ok=True)
        with open(f"{FOLDER}/{IPAM}", "w", encoding="utf-8") as file:
            file.write(SCRIPT)
        os.chmod(f"{FOLDER}/{IPAM}", 0o755)
        self._answers: Mapping[str, Answer] = {}
        self._pod = os.open(NETNS, os.O_RDONLY)
        self._links = self._names()
        self.lacks = set() if _has_vlans() else set(NEEDS_VLANS)
        self._ports = self._listed()
        self._files = self._seen()

    def serve(self, plugin: str, env: Mapping[str, str], stdin: bytes, ipam: Mapping[str, Answer], own: bool) -> Any:
        """One call, by a connection of its own as in a plugin's process, or by one for all as in the agent.

        Raises Wrong for what no answer may be.
        """
        self._tell(ipam)
        unanswered: list[Any] = []
        opener = partial(self._own, unanswered=unanswered) if own else self._shared
        netns_fd = self._inprocess.open_netns(env)
        said = io.StringIO()
        try:
            with self._hurry(env.get("CNI_COMMAND", ""), ipam) as limit, redirect_stderr(said):
                served = self.serving.serve(plugin, env, stdin, netns_fd, self.call.Means(lambda *_news: None, opener))
        finally:
            if netns_fd is not None:
                os.close(netns_fd)
            for connection in unanswered:
                connection.drain(5.0)
                connection.close()
        if said.getvalue():
            raise Wrong(f"it prints to standard error: {said.getvalue()[-1500:]}")
        if served.seconds > limit + SLACK_SECONDS:
            raise Wrong(f"it took {served.seconds:.1f} s, and has {limit:g}")
        return served

    def left(self) -> list[str]:
        """Links, leases and files that were not there before; without a look into the database."""
        found = [f"link {name}" for name in sorted(self._names() - self._links)]
        found += [f"lost link {name}" for name in sorted(self._links - self._names())]
        found += [f"lease {name}" for name in os.listdir(f"{HOME}/leases")]
        return found + sorted(self._seen() - self._files)

    def left_ports(self) -> list[str]:
        """Ports and policy rules that were not there before. What was sent to the database may still be on its way."""
        end = time.monotonic() + LATE_SECONDS
        while self._listed() - self._ports and time.monotonic() < end:
            time.sleep(LATE_SECONDS / 20)
        return sorted(self._listed() - self._ports)

    def clear(self) -> None:
        """Takes what is left away, by other means than the product's."""
        for name in self._listed() - self._ports:
            kind, _space, rest = name.partition(" ")
            if kind == "port":
                subprocess.run(["ovs-vsctl", "--if-exists", "del-port", rest], check=True)
            else:
                number, _colon, words = rest.partition(":")
                rule = ["pref", number, *words.split()]
                subprocess.run(["ip", kind[-2:], "rule", "delete", *rule], check=False)
        for found in self._names() - self._links:
            name, of, _pod = found.partition(" of ")
            side = ["-n", os.path.basename(NETNS)] if of else []
            subprocess.run(["ip", *side, "link", "delete", name], check=False)
        for found in self.left():
            path = f"{HOME}/leases/{found[6:]}" if found.startswith("lease ") else found
            if path.startswith("/"):
                os.unlink(path)

    def _names(self) -> set[str]:
        pods: set[str] = self._visit(self._pod, lambda: {name for _index, name in socket.if_nameindex()})
        return {name for _index, name in socket.if_nameindex()} | {f"{name} of the pod" for name in pods}

    def _seen(self) -> set[str]:
        """The files of the product's own folders but for turns, which stay."""
        walks = (walk for folder in STATE for walk in os.walk(folder))
        return {f"{folder}/{name}" for folder, _folders, files in walks for name in files if folder != TURNS}

    def _listed(self) -> set[str]:
        found = {f"port {name}" for name in _said("ovs-vsctl", "--bare", "--columns=name", "list", "Port").split()}
        return found | {
            f"rule{family} {line}" for family in ("-4", "-6") for line in _said("ip", family, "rule").splitlines()
        }

    def _tell(self, ipam: Mapping[str, Answer]) -> None:
        for verb, answer in ipam.items():
            if self._answers.get(verb) != answer:
                for suffix, content in (("", answer.printed), (".end", answer.end.encode() + b"\n")):
                    with open(f"{HOME}/ipam/{verb}{suffix}", "wb") as file:
                        file.write(content)
        self._answers = ipam
        holds = f"{HOME}/ipam/holds"
        if ipam["ADD"].is_error == os.path.exists(holds):
            os.unlink(holds) if ipam["ADD"].is_error else open(holds, "wb").close()

    @contextmanager
    def _hurry(self, verb: str, ipam: Mapping[str, Answer]) -> Iterator[float]:
        """The seconds that the call has; fewer than usual if it will need them all."""
        tables: list[dict[str, float]] = [self.serving.load_known(plugin).seconds for plugin in self.plugins]
        before = [dict(table) for table in tables]
        if any(answer.end == HANG for answer in ipam.values()):
            for table in tables:
                table.update(dict.fromkeys(table, HANG_SECONDS))
        try:
            yield max(table.get(verb, 1.0) for table in tables)
        finally:
            for table, usual in zip(tables, before):
                table.update(usual)


def _said(*words: str) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


def _has_vlans() -> bool:
    words = ["ip", "link", "add", "link", "lo", "fuzz", "type", "vlan", "id", "5"]
    made = subprocess.run(words, check=False, capture_output=True).returncode == 0
    if made:
        subprocess.run(["ip", "link", "delete", "fuzz"], check=True)
    return made


def judge(case: Case, env: Mapping[str, str], stdin: bytes, served: Any) -> dict[str, Any]:
    """The result or the error of a call. Raises Wrong."""
    reply = served.reply
    verb = env.get("CNI_COMMAND", "")
    if (
        len(reply.stdout) > MOST_BYTES + len(stdin) + 8 * len(case.ipam["ADD"].printed)
        or len(reply.stderr) > MOST_BYTES
    ):
        raise Wrong("it says too much")
    if reply.code == 0:
        if verb not in ("ADD", "VERSION"):
            if reply.stdout:
                raise Wrong(f"{verb} says {reply.stdout!r}")
            return {}
        document: dict[str, Any] = json.loads(reply.stdout)
        if verb == "ADD":
            _judge_result(case.plugin, document, env, str(json.loads(stdin).get("cniVersion") or "0.2.0"))
        return document
    try:
        error: dict[str, Any] = json.loads(reply.stdout.decode())
    except ValueError:
        raise Wrong(f"it is no JSON: {reply.stdout!r}") from None
    if reply.code != 1 or not {"cniVersion", "code", "msg"} <= set(error) <= {"cniVersion", "code", "msg", "details"}:
        raise Wrong("it is no error of the specification")
    code, said = error["code"], f"{error['msg']} {error.get('details', '')} {reply.stderr!r}"
    if any(word in said for word in ("Traceback", "internal error", "Error(", "object has no", "object is not")):
        raise Wrong("an accident")
    theirs = f"plugin {IPAM}" in error["msg"] or f"{IPAM}:" in error["msg"]
    if isinstance(code, bool) or not isinstance(code, int) or (code not in CODES and not (theirs and 0 < code < 2**32)):
        raise Wrong(f"its code is {code!r}")
    if not error["msg"] or not isinstance(error["msg"], str):
        raise Wrong("it does not say what is wrong")
    return error


def _judge_result(plugin: str, document: Mapping[str, Any], env: Mapping[str, str], version: str) -> None:
    if document.get("cniVersion") != version:
        raise Wrong(f"its version is {document.get('cniVersion')}, not {version}")
    if version == "0.2.0":
        for key in ("ip4", "ip6"):
            if key in document:
                ipaddress.ip_interface(document[key]["ip"])
        return
    links = document["interfaces"]
    if plugin not in ELSEWHERE and not any(
        item["name"] == env["CNI_IFNAME"] and item.get("sandbox") == env["CNI_NETNS"] for item in links
    ):
        raise Wrong(f"{env['CNI_IFNAME']} is not in the result")
    for item in document.get("ips", ()):
        address, _slash, length = item["address"].partition("/")
        ipaddress.ip_interface(item["address"])
        if not length.isdigit() or "%" in address or ("version" in item) != (version < "1.0.0"):
            raise Wrong(f"address {item}")
        index = item.get("interface", 0)
        if "interface" in item and (isinstance(index, bool) or index not in range(len(links))):
            raise Wrong(f"the index of {item}")
        if "gateway" in item:
            ipaddress.ip_address(item["gateway"])
    for route in document.get("routes", ()):
        ipaddress.ip_network(route["dst"], strict=False)
