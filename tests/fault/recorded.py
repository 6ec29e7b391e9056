# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records in a node, in order, what happens to some files and folders: written, made durable, renamed, removed.

Wraps the calls of `os` by which the product makes files durable or moves names. Before each, the folders are looked
through: what has changed by other means, by whatever process, is logged as a write that nothing has made durable yet.
The log is `events` (JSON lines); contents lie in `blobs` by their digest. Only the standard library.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Union

Event = dict[str, Any]
Seen = dict[str, list[Any]]
"""By path: kind, digest or target, mode, and what tells that a file has not changed."""
Call = Callable[..., Any]
Where = Union[str, bytes, "os.PathLike[str]"]


class Recorder:
    """Records all below `what["folders"]`, and `what["files"]`, which others write. `alone`: one process at a time."""

    def __init__(
        self, folder: Path, alone: Callable[[], AbstractContextManager[None]], what: Mapping[str, Sequence[str]]
    ) -> None:
        self._alone = alone
        self._folders, self._files = tuple(what["folders"]), tuple(what["files"])
        self._blobs, self._events, self._model = folder / "blobs", folder / "events", folder / "model"
        self._busy = False
        self._blobs.mkdir(parents=True, exist_ok=True)

    def start(self) -> None:
        """From now on, in this process."""
        wrappers = {
            "replace": self._of_two,
            "rename": self._of_two,
            "unlink": self._of_one("unlink"),
            "remove": self._of_one("unlink"),
            "mkdir": self._of_one("mkdir"),
            "rmdir": self._of_one("rmdir"),
            "fsync": self._of_descriptor,
            "fdatasync": self._of_descriptor,
            "sync": self._of_all,
        }
        for name, wrapper in wrappers.items():
            setattr(os, name, wrapper(getattr(os, name)))
        self.mark("")

    def mark(self, point: str) -> None:
        """Logs that a point was reached."""
        with self._alone():
            self._log([*self._changes(), {"op": "mark", "point": point}])

    def _of_one(self, name: str) -> Callable[[Call], Call]:
        def wrapper(call: Call) -> Call:
            def instead(path: Where, *words: Any, **more: Any) -> Any:
                event = {"op": name, "path": absolute(path, more.get("dir_fd"))}
                return self._around(lambda: call(path, *words, **more), event)

            return instead

        return wrapper

    def _of_two(self, call: Call) -> Call:
        def instead(source: Where, target: Where, **more: Any) -> Any:
            event = {"op": "rename", "path": absolute(source, None), "to": absolute(target, None)}
            return self._around(lambda: call(source, target, **more), event)

        return instead

    def _of_descriptor(self, call: Call) -> Call:
        def instead(file: Any) -> Any:
            number = file if isinstance(file, int) else file.fileno()
            return self._around(lambda: call(file), {"op": "fsync", "path": os.readlink(f"/proc/self/fd/{number}")})

        return instead

    def _of_all(self, call: Call) -> Call:
        return lambda: self._around(call, {"op": "sync", "path": self._folders[0]})

    def _around(self, call: Callable[[], Any], event: Event) -> Any:
        """Looks, does it, and logs both; a call that fails is none."""
        if self._busy or not (self._within(event["path"]) or self._within(event.get("to", ""))):
            return call()
        with self._alone():
            self._busy = True
            try:
                self._log(self._changes())
                result = call()
                self._log([event])
                self._changes()  # what the call itself did is in its event
            finally:
                self._busy = False
        return result

    def _within(self, path: str) -> bool:
        tops = (*self._folders, *(os.path.dirname(top) for top in self._folders))
        return path in (*tops, *self._files) or any(path.startswith(f"{top}/") for top in self._folders)

    def _log(self, events: Sequence[Event]) -> None:
        with open(self._events, "a", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in events)

    def _changes(self) -> list[Event]:
        """What is not as it was at the last look; the first look is at what was there before."""
        op = "write"
        old: Seen = {}
        try:
            old = json.loads(self._model.read_text(encoding="utf-8"))
        except OSError:
            op = "there"
        new: Seen = {}
        for path in (*self._folders, *self._files):
            self._look(path, old, new)
        if new != old:
            self._model.write_text(json.dumps(new), encoding="utf-8")
        changed = [path for path, seen in sorted(new.items()) if path not in old or old[path][:3] != seen[:3]]
        gone = [path for path in sorted(old, reverse=True) if path not in new]
        found: list[Event] = [
            {"op": op, "path": path, "kind": new[path][0], "data": new[path][1], "mode": new[path][2]}
            for path in changed
        ]
        return found + [{"op": "unlink", "path": path} for path in gone]

    def _look(self, path: str, old: Seen, new: Seen) -> None:
        try:
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISLNK(status.st_mode):
                new[path] = ["link", os.readlink(path), mode, []]
            elif stat.S_ISDIR(status.st_mode):
                new[path] = ["folder", "", mode, []]
                for name in sorted(os.listdir(path)):
                    self._look(f"{path}/{name}", old, new)
            elif stat.S_ISREG(status.st_mode):
                traits = [status.st_ino, status.st_mtime_ns, status.st_size]
                known = old.get(path, [])
                same = known[2:] == [mode, traits]
                new[path] = known if same else ["file", self._keep(path), mode, traits]
        except FileNotFoundError:
            return

    def _keep(self, path: str) -> str:
        content = Path(path).read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        blob = self._blobs / digest
        if not blob.exists():
            blob.write_bytes(content)
        return digest


def absolute(path: Where, folder: int | None) -> str:
    """The path that a call means, with the folder that it has opened."""
    text = os.fsdecode(path)
    return os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text) if folder is not None else os.path.abspath(text)
