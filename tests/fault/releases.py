# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Another version of the runtime on a full node, put in use as the role does it: its function, then its handler."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from ansible_collections.podnet.ovs.plugins.plugin_utils.archive import build_archive
from ansible_collections.podnet.ovs.tests.lab.proc import STATE
from ansible_collections.podnet.ovs.tests.lab.runtime import COLLECTION

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Full

INSTALL = """
import sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.runtime import install
archive, version = sys.argv[1:]
install(archive or None, command="/usr/local/bin/podnet", version=version or None)
"""
ARCHIVE = "/run/runtime.zip"


class Releases:
    """The versions of a node's runtime. `switched` is the one that `switch` has put in use last."""

    def __init__(self, node: Full, folder: Path) -> None:
        self.node = node
        self.switched = ""
        self._folder = folder

    def current(self) -> str:
        """The version in use."""
        return self.node.run("readlink", "/opt/podnet/current").stdout.strip()

    def of_agent(self) -> str:
        """The version that the agent runs from, by its own word."""
        return str(json.loads(self.node.run("podnet", "status", "--json", check=False).stdout)["agent"]["version"])

    def build_another(self) -> str:
        """Brings the archive of a version of another content to the node; gives its name."""
        tree = self._folder / "tree"
        for part in ("plugins", "roles/runtime/files"):
            shutil.copytree(COLLECTION / part, tree / part, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
        shutil.copy(COLLECTION / "galaxy.yml", tree)
        with open(tree / "plugins/module_utils/version.py", "a", encoding="utf-8") as file:
            file.write("\n# another one\n")
        archive = build_archive(tree, STATE / "wheels", self._folder / "archive")
        self.node.put(archive.path, ARCHIVE)
        return archive.version

    def switch(self, version: str) -> None:
        """Puts a version in use: from its archive, or the folder that is still there."""
        there = self.node.run("test", "-d", f"/opt/podnet/{version}", check=False).returncode == 0
        words = ("", version) if there else (ARCHIVE, "")
        self.node.run("/usr/bin/python3", "-IS", "-c", INSTALL, *words, timeout=120)
        self.node.run("systemctl", "try-restart", "podnet-agent.service")
        self.switched = version
