# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A controller that has the installed collection only, and what its playbooks did."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

COLLECTION = Path(__file__).absolute().parents[2]
BIN = Path(sys.executable).parent
PLAYBOOK_SECONDS = 240.0


@dataclass(frozen=True)
class Run:
    """What a playbook did: its exit status, its text, and the results of the tasks that changed or failed, by host."""

    code: int
    text: str
    rows: tuple[Mapping[str, Any], ...] = ()

    @property
    def objects(self) -> frozenset[tuple[str, str]]:
        """What was changed or would be, by host."""
        return frozenset((row["host"], thing) for row in self.rows for thing in objects_of(row["result"]))

    def recap(self) -> dict[str, dict[str, int]]:
        """The numbers of each host."""
        lines = re.findall(r"^(\S+)\s+: (ok=.*)$", self.text, re.M)
        return {host: {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", numbers)} for host, numbers in lines}

    def changed(self) -> int:
        """How many tasks changed something, on all hosts."""
        return sum(numbers["changed"] for numbers in self.recap().values())


@dataclass(frozen=True)
class Controller:
    """A folder with the collection, an inventory, and what playbooks leave."""

    folder: Path
    extra: list[str] = field(default_factory=list)
    """Words after the name of every playbook."""

    @classmethod
    def make(cls, folder: Path, hosts: Path, variables: Mapping[str, Any], of_hosts: Mapping[str, Any]) -> Controller:
        """Installs the built collection; `hosts` is the lab's inventory, the rest is added to its group `nodes`."""
        install(folder)
        (folder / "callbacks").mkdir()
        source = COLLECTION / "tests" / "integration" / "callbacks" / "collect.py"
        (folder / "callbacks" / "collect.py").write_bytes(source.read_bytes())
        (folder / "inventory").mkdir()
        (folder / "inventory" / "lab.yml").symlink_to(hosts)
        mine = {"nodes": {"vars": dict(variables), "hosts": dict(of_hosts)}}
        (folder / "inventory" / "site.yml").write_text(yaml.safe_dump(mine), encoding="utf-8")
        return cls(folder)

    def words(self, playbook: str, *words: str) -> list[str]:
        """The command line of a playbook."""
        name = playbook if "/" in playbook else f"podnet.ovs.{playbook}"
        return [str(BIN / "ansible-playbook"), "-i", str(self.folder / "inventory"), name, *self.extra, *words]

    def env(self, collected: Path) -> dict[str, str]:
        """Its environment; what tasks change is written to a file."""
        return {
            **environment(self.folder),
            "ANSIBLE_CALLBACK_PLUGINS": str(self.folder / "callbacks"),
            "ANSIBLE_CALLBACKS_ENABLED": "collect",
            "PODNET_COLLECT": str(collected),
        }

    def start(self, playbook: str, *words: str) -> subprocess.Popen[bytes]:
        """Starts a playbook, for `end_all`."""
        return subprocess.Popen(
            self.words(playbook, *words),
            cwd=self.folder,
            env=environment(self.folder),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def play(self, playbook: str, *words: str) -> Run:
        """Runs a playbook of the collection."""
        collected = self.folder / "collected"
        collected.write_text("", encoding="utf-8")
        done = subprocess.run(
            self.words(playbook, *words),
            cwd=self.folder,
            env=self.env(collected),
            capture_output=True,
            text=True,
            timeout=PLAYBOOK_SECONDS,
            check=False,
        )
        rows = [json.loads(line) for line in collected.read_text(encoding="utf-8").splitlines()]
        return Run(done.returncode, done.stdout + done.stderr, tuple(rows))

    def good(self, playbook: str, *words: str) -> Run:
        """The same, and it must succeed."""
        run = self.play(playbook, *words)
        assert run.code == 0, run.text
        return run


def end_all(process: subprocess.Popen[bytes]) -> None:
    """Kills a playbook with all processes that came of it, as if the machine were gone: Ansible's workers live on."""
    found = [process.pid]
    for pid in found:  # grows
        for children in Path(f"/proc/{pid}/task").glob("*/children"):
            with contextlib.suppress(OSError):
                found += [int(word) for word in children.read_text(encoding="ascii").split()]
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    process.wait()


def objects_of(result: Mapping[str, Any]) -> Iterator[str]:
    """What a changed result touches, by name."""
    for step in result.get("operations", []):
        yield step if isinstance(step, str) else f"{step['kind']} {step['name']} {step['action']}"
    named = [result[key] for key in ("_ansible_item_label", "path", "name") if isinstance(result.get(key), str)]
    yield from named[:1]
    if "openvswitch-switch" in f"{result.get('msg', '')} {result.get('stdout', '')}":
        yield "package openvswitch-switch"


def environment(folder: Path) -> dict[str, str]:
    """A controller's: of all collections only those under `folder`."""
    return {
        **{key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "PYTHON"))},
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "PWD": str(folder),
        "SHELL": "/bin/sh",  # in which ssh runs a ProxyCommand: bash would read the developer's ~/.bashrc each time
        "LC_ALL": "C.UTF-8",
        "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
        "ANSIBLE_NOCOLOR": "1",
    }


def install(folder: Path) -> None:
    """Builds the collection's archive and installs it: what a user has."""
    env = environment(folder)
    galaxy = [str(BIN / "ansible-galaxy"), "collection"]
    build = [*galaxy, "build", "--output-path", str(folder)]
    subprocess.run(build, cwd=COLLECTION, env=env, check=True, capture_output=True, timeout=120)
    (built,) = folder.glob("podnet-ovs-*.tar.gz")
    words = [*galaxy, "install", "--offline", str(built), "-p", str(folder / "collections")]
    subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True, timeout=120)
