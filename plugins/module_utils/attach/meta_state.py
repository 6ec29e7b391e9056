# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What an attachment of `podnet-meta` was made of: kept on the disk, since DEL may come with another configuration.

What cannot be read counts as not there, and is then recomputed from the configuration. What the networks gave is kept
for as long as the node runs: pods do not outlive that.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..errors import DeadlineExceeded, DecodeError, PodnetError
from ..kernel.files import sweep, write_text
from ..model.paths import META, META_RESULTS
from .meta_wish import Member

SCHEMA = 1
"""Keys may be added, a newer one is refused."""
_ENDING = ".json"
_HALF = ".new"
"""Of a file that is being written."""


@dataclass(frozen=True)
class Attachment:
    """An attachment with its networks, the primary one first. `network` is the name of the list they make up.

    `netns` is the path of the pod's namespace, `inode` its number: a path may become another pod's.
    """

    network: str
    container_id: str
    ifname: str
    members: tuple[Member, ...]
    netns: str = ""
    inode: int = 0

    @property
    def live_netns(self) -> str:
        """The path if it still leads to that namespace, or nothing."""
        try:
            return self.netns if self.netns and os.stat(self.netns).st_ino == self.inode else ""
        except OSError:
            return ""


class Writing:
    """The state on its way to the disk, while the networks are at work: `wait` returns when it is there."""

    def __init__(self, attachment: Attachment) -> None:
        self._path = _path(META, attachment.container_id, attachment.ifname)
        self._text = json.dumps({
            "schema": SCHEMA,
            "network": attachment.network,
            "container_id": attachment.container_id,
            "ifname": attachment.ifname,
            "netns": attachment.netns,
            "inode": attachment.inode,
            "members": [member.to_dict() for member in attachment.members],
        })  # fmt: skip
        self._error: PodnetError | None = None
        self._thread = threading.Thread(target=self._write, name="meta-state", daemon=True)
        self._thread.start()

    def wait(self, seconds: float) -> None:
        """Raises PodnetError if it cannot be written, DeadlineExceeded if the disk takes too long."""
        self._thread.join(seconds)
        if self._thread.is_alive():
            raise DeadlineExceeded(f"{self._path} could not be written in time", "is the disk at work?")
        if self._error is not None:
            raise self._error

    def _write(self) -> None:
        try:
            write_text(self._path, self._text, 0o600)
        except PodnetError as error:
            self._error = error


def read(container_id: str, ifname: str) -> Attachment | None:
    """The attachment; None if nothing that can be used is known of it. Raises DecodeError for a newer release's."""
    return _read(_path(META, container_id, ifname))


def of_network(network: str) -> Iterator[Attachment]:
    """All that are known of a network. Raises DecodeError for a newer release's."""
    with suppress(FileNotFoundError):
        for name in sorted(os.listdir(META)):
            found = _read(f"{META}/{name}") if name.endswith(_ENDING) else None
            if found is not None and found.network == network:
                yield found


def keep_results(container_id: str, ifname: str, results: Sequence[Mapping[str, Any]]) -> None:
    """Keeps what the networks gave, in their order. Raises PodnetError."""
    path = _path(META_RESULTS, container_id, ifname)
    try:
        os.makedirs(META_RESULTS, mode=0o700, exist_ok=True)
        with open(path + _HALF, "w", encoding="utf-8") as file:
            json.dump({"schema": SCHEMA, "results": list(results)}, file)
        os.replace(path + _HALF, path)
    except OSError as error:
        raise PodnetError(f"cannot write {path}: {error.strerror}", "is there room in /run?") from error


def results(container_id: str, ifname: str, count: int) -> list[Mapping[str, Any]] | None:
    """What the networks gave; None if that is not known of all of them."""
    try:
        with open(_path(META_RESULTS, container_id, ifname), encoding="utf-8") as file:
            found = json.load(file)["results"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    whole = isinstance(found, list) and len(found) == count and all(isinstance(item, dict) for item in found)
    return found if whole else None


def forget(container_id: str, ifname: str, with_results: bool = True) -> None:
    """The attachment is gone. If a power cut brings it back, its networks are taken away once more: no harm.

    Without `with_results` what the networks gave stays.

    Raises PodnetError.
    """
    own, given = (_path(folder, container_id, ifname) for folder in (META, META_RESULTS))
    for path in (own, given, given + _HALF) if with_results else (own,):
        try:
            os.unlink(path)
        except OSError as error:
            # On a disk that is only read the kernel says so of files that are not there, too.
            if os.path.lexists(path):
                raise PodnetError(f"cannot remove {path}: {error.strerror}", "is the disk only read?") from error
    sweep(own)


def _path(folder: str, container_id: str, ifname: str) -> str:
    return f"{folder}/{hashlib.sha256(f'{container_id}/{ifname}'.encode()).hexdigest()[:32]}{_ENDING}"


def _read(path: str) -> Attachment | None:
    try:
        with open(path, encoding="utf-8") as file:
            table = json.load(file)
        schema = table["schema"]
        if isinstance(schema, int) and schema > SCHEMA:
            hint = "a newer release wrote it: use that one"
            raise DecodeError(f"{path} has schema {schema}, known here is {SCHEMA}", hint)
        return Attachment(
            str(table["network"]), str(table["container_id"]), str(table["ifname"]),
            tuple(Member.from_dict(item) for item in table["members"]), str(table["netns"]), int(table["inode"]),
        )  # fmt: skip
    except DecodeError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, PodnetError):
        return None
