# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Names under which IPAM plugins know an attachment besides its interface's own.

Whoever asks an IPAM plugin to free what is not in use has to list them, and not only the plugin that leased by them:
the plugins of one list may have one store of addresses. A file is kept for each attachment; a reboot ends them, as it
ends all that runs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from ..errors import PodnetError
from ..model.paths import RUN

FOLDER = RUN + "/leased"


@dataclass(frozen=True)
class Leased:
    """An attachment of a network, and the names beside its interface's."""

    container_id: str
    ifname: str
    network: str
    names: Sequence[str]

    @property
    def path(self) -> str:
        """Its file."""
        text = "\0".join((self.container_id, self.ifname, self.network, *self.names))
        return f"{FOLDER}/{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def remember(item: Leased) -> None:
    """To be called before anything is leased. Raises PodnetError."""
    if not item.names:
        return
    try:
        os.makedirs(FOLDER, mode=0o700, exist_ok=True)
        with open(f"{item.path}.new", "w", encoding="utf-8") as file:
            json.dump(asdict(item), file)
        os.replace(f"{item.path}.new", item.path)
    except OSError as error:
        raise PodnetError(f"cannot write {item.path}: {error.strerror}", "is there room in /run?") from error


def forget(item: Leased) -> None:
    """Nothing is leased by them any more."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(item.path)


def all_leased() -> Iterator[Leased]:
    """All that can be read."""
    with contextlib.suppress(FileNotFoundError):
        for name in sorted(os.listdir(FOLDER)):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                with open(f"{FOLDER}/{name}", encoding="utf-8") as file:
                    table = json.load(file)
                if not name.endswith(".new"):
                    yield Leased(
                        str(table["container_id"]), str(table["ifname"]), str(table["network"]),
                        tuple(map(str, table["names"])),
                    )  # fmt: skip
