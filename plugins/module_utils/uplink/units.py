# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The systemd units that keep a moved node reachable: installed by the role `runtime`, switched for each bridge here.

Switching is done by the links that `systemctl enable` would make: that works before systemd takes calls, and is
recorded and synced like every other file of a move. Without systemd the operator's init calls `podnet uplink guard`,
`ensure` and `watch`; nothing here is then an error.
"""

from __future__ import annotations

import os
import re
import string
import subprocess
from collections.abc import Iterator

from ..errors import PodnetError
from ..kernel import files
from ..model.paths import UNIT_FOLDERS
from .marks import unmark

GUARD = "podnet-guard.service"
FOLDER = UNIT_FOLDERS[0]
_SYSTEMD = "/run/systemd/system"
"""sd_booted(3)"""
_SECONDS = 15.0
_WANTED_BY = {
    "podnet-bridge@": ("multi-user.target", "ovs-vswitchd.service"),
    "podnet-rescue@": ("multi-user.target",),
}
_GUARD_WANTED_BY = "sysinit.target"
_PLAIN = string.ascii_letters + string.digits + ":_.-"
"""What stands for itself in a unit's name, systemd.unit(5). The hyphen does so here too: units pass %i, not %I."""


def have_systemd() -> bool:
    """Whether systemd runs this machine."""
    return os.path.isdir(_SYSTEMD)


def guard_ready() -> bool:
    """Whether an interrupted move would be undone at boot: the guard's unit is there and enabled.

    Without systemd the operator's init is trusted to call it, as the role's README asks.
    """
    wanted = f"{FOLDER}/{_GUARD_WANTED_BY}.wants/{GUARD}"
    return not have_systemd() or (_installed(GUARD) is not None and os.path.exists(wanted))


def enable(bridge: str) -> None:
    """From now on the bridge is kept up at each boot, and watched; the mark of an earlier rescue goes.

    What is done already is not done again. Raises PodnetError if a unit is not installed, or systemd does not answer.
    """
    unmark(bridge)
    if not have_systemd():
        return
    for unit, link, target in _links(bridge):
        if target is None:
            raise PodnetError(f"the unit {unit} is not installed", "run the role podnet.ovs.runtime")
        if not (os.path.islink(link) and os.readlink(link) == target):
            files.link(link, target)
    _systemctl("daemon-reload")
    _systemctl("start", "--no-block", *_names(bridge))


def disable(bridge: str) -> None:
    """The bridge is no longer kept up, nor watched. What is done already is fine. Raises PodnetError."""
    for _unit, link, _target in _links(bridge):
        files.remove(link)
    if have_systemd():
        _systemctl("daemon-reload")
        _systemctl("stop", "--no-block", *_names(bridge))
        _systemctl("reset-failed", *_names(bridge), check=False)
    unmark(bridge)


def enabled(bridge: str) -> bool:
    """Whether the bridge is kept up at each boot."""
    return all(os.path.islink(link) for _unit, link, _target in _links(bridge))


def _links(bridge: str) -> Iterator[tuple[str, str, str | None]]:
    """For each unit of a bridge its name, the link that enables it, and where that must lead (None: not installed)."""
    for template, targets in _WANTED_BY.items():
        unit = f"{template}{escaped(bridge)}.service"
        for target in targets:
            yield unit, f"{FOLDER}/{target}.wants/{unit}", _installed(f"{template}.service")


def _names(bridge: str) -> list[str]:
    return [f"{template}{escaped(bridge)}.service" for template in _WANTED_BY]


def escaped(name: str) -> str:
    """A bridge's name as a unit's instance, in which a sign that systemd does not take is written as its bytes."""
    return "".join(sign if sign in _PLAIN else "".join(f"\\x{byte:02x}" for byte in sign.encode()) for sign in name)


def unescaped(instance: str) -> str:
    """The bridge's name that `escaped` made an instance of, as a unit passes it with %i."""
    return re.sub(rb"\\x([0-9a-f]{2})", lambda found: bytes([int(found[1], 16)]), instance.encode()).decode()


def _installed(unit: str) -> str | None:
    return next((path for path in (f"{folder}/{unit}" for folder in UNIT_FOLDERS) if os.path.exists(path)), None)


def _systemctl(*words: str, check: bool = True) -> None:
    command = ["systemctl", "--no-ask-password", *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PodnetError(f"systemctl {words[0]} did not end well: {error}") from error
    if check and done.returncode != 0:
        raise PodnetError(f"systemctl {words[0]} failed: {done.stderr.strip()}")
