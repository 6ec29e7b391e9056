# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The product on a full node's disk before the node boots: its runtime and its units, as role `runtime` leaves them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .proc import run
from .runtime import COLLECTION, runtime

ROLE = COLLECTION / "roles" / "runtime"


def put_runtime(disk: Path) -> None:
    """Puts the runtime of this tree, the command and the enabled units on a disk.

    A disk is a folder that holds `etc`, `opt` and so on; the caller enables the units, see `full.enable`.
    """
    source = runtime()
    (disk / "opt/cni").mkdir(parents=True, exist_ok=True)
    run(["cp", "-a", source / "podnet", disk / "opt/"])
    run(["cp", "-a", source / "cni/bin", disk / "opt/cni/"])
    link = disk / "usr/local/bin/podnet"
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to("/opt/podnet/current/bin/podnet")
    folder = disk / "etc/systemd/system"
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in units().items():
        (folder / name).write_text(text, encoding="utf-8")


def units() -> dict[str, str]:
    """The units of the role by their names, filled in with its own defaults."""
    import jinja2
    import yaml

    values: dict[str, Any] = {"ansible_managed": "Ansible managed"}
    for path in (ROLE / "defaults/main/role.yml", ROLE / "vars/main.yml"):
        values.update(yaml.safe_load(path.read_text(encoding="utf-8")) or {})
    reader = jinja2.Environment(undefined=jinja2.StrictUndefined, keep_trailing_newline=True, autoescape=False)
    found = {}
    for path in sorted((ROLE / "templates").glob("*.j2")):
        found[path.stem] = reader.from_string(path.read_text(encoding="utf-8")).render(values)
    return found
