# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The mark of a rescue: this NIC has the node's addresses itself, although a move gave them to a bridge.

It lies in /run: a full disk does not keep it away, and after a reboot the bridge is given another try.
"""

from __future__ import annotations

import json
import os
import time

from ..errors import PodnetError
from ..model.paths import RESCUED


def is_rescued(bridge: str) -> bool:
    """Whether the NIC of a bridge has the node's addresses since this boot, and no move took them again."""
    return os.path.exists(_path(bridge))


def mark(bridge: str, why: str) -> None:
    """Leaves the reason where the facts and `podnet uplink status` find it; the first one stays. Raises PodnetError."""
    path = _path(bridge)
    if os.path.exists(path):
        return
    try:
        os.makedirs(RESCUED, exist_ok=True)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump({"why": why, "at": round(time.time())}, file)
        os.replace(f"{path}.new", path)
    except OSError as error:
        raise PodnetError(f"cannot mark {bridge} as rescued: {error}") from error


def unmark(bridge: str) -> None:
    """The bridge carries the node again, or is not meant to. One without a mark is fine. Raises PodnetError."""
    try:
        os.unlink(_path(bridge))
    except FileNotFoundError:
        return
    except OSError as error:
        raise PodnetError(f"cannot take the mark from {bridge}: {error}") from error


def _path(bridge: str) -> str:
    return f"{RESCUED}/{bridge}.json"
