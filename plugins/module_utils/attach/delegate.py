# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls another CNI plugin (specification, section 4 "Plugin Delegation"): found on CNI_PATH, never through a shell,
killed at the deadline.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Iterable, Mapping
from typing import Any

from ..cni.config import decode_result
from ..cni.reply import DelegateError, Reported
from ..errors import INTERNAL, INVALID_CONFIG, DeadlineExceeded, DecodeError

_CHUNK = 1 << 16
_MOST = 1 << 22
"""More than any plugin has to say."""
_PAUSE = 0.0005
"""Between looks at a process that has closed its outputs, where the kernel has no descriptors of processes."""
_KEPT = ("PATH", "CNI_NETNS_OVERRIDE")


def find_plugin(plugin: str, path: Iterable[str]) -> str | None:
    """The executable of that name in the first folder that has it."""
    for folder in path:
        candidate = os.path.join(folder, plugin)
        if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
            return candidate
    return None


def missing(plugin: str, path: Iterable[str], key: str = "ipam.type") -> DelegateError:
    """The error for a plugin that no folder has; `key` is where it is named."""
    return DelegateError(
        f"{key}: no plugin {plugin!r} in {':'.join(path) or 'an empty CNI_PATH'}",
        "install it there, or name another plugin",
        INVALID_CONFIG,
    )


class Delegate:
    """A running plugin. Its process starts when this is made, which takes half of its time; `begin`, or else `result`,
    gives it its configuration, without which it does nothing.

    It inherits `turn_fd`, and so holds the attachment's turn as long as it lives.
    """

    def __init__(
        self, executable: str, verb: str, env: Mapping[str, str], stdin: bytes, turn_fd: int = -1
    ) -> None:  # fmt: skip
        self.name = os.path.basename(executable)
        self.verb = verb
        kept = {key: env[key] for key in env if key.startswith("CNI_") or key in _KEPT}
        kept["CNI_COMMAND"] = verb
        kept.setdefault("PATH", os.defpath)
        self._input = memoryview(stdin)
        ours = [os.pipe() for _stream in range(3)]
        (child_in, self._in), (self._out, child_out), (self._err, child_err) = ours
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate((child_in, child_out, child_err))]
        if turn_fd >= 0:
            actions.append((os.POSIX_SPAWN_DUP2, turn_fd, len(actions)))
        try:
            # setpgroup: at the deadline its children go with it
            self._pid = os.posix_spawn(executable, [executable], kept, file_actions=actions, setpgroup=0)
        except OSError as error:
            for pair in ours:
                for fd in pair:
                    os.close(fd)
            raise DelegateError(f"cannot run {executable}: {error.strerror}", "is it an executable?") from error
        for fd in (child_in, child_out, child_err):
            os.close(fd)
        os.set_blocking(self._in, False)
        self._ended = _ended(self._pid)

    def begin(self) -> None:
        """Gives it its configuration, as much as it takes at once, so that it works while the caller does."""
        if self._in >= 0 and not self._feed():
            self._close_input()

    def end(self) -> None:
        """Ends it. For one that has not begun: another one might leave something behind."""
        self._close()
        self._reap(kill=True, deadline=0.0)

    def result(self, deadline: float) -> dict[str, Any] | None:
        """Its result, None if it printed nothing. `deadline` is of time.monotonic().

        Raises DelegateError with the plugin's own words and code, DeadlineExceeded after it was killed.
        """
        output = {self._out: b"", self._err: b""}
        try:
            quiet = self._talk(output, deadline)
        finally:
            self._close()
        status = self._reap(kill=not quiet, deadline=deadline)
        if not quiet and any(len(data) > _MOST for data in output.values()):
            raise DelegateError(f"the plugin {self.name} does not stop talking: {_short(output[self._out][:80])}")
        if not quiet:
            raise DeadlineExceeded(f"the plugin {self.name} did not end its {self.verb} in time; it was ended")
        stdout, stderr = output[self._out], output[self._err]
        document, wrong = _decode(stdout)
        if status != 0:
            raise self._error(document, stdout, stderr, status)
        if wrong:
            raise DelegateError(f"the plugin {self.name} printed no JSON that can be used: {_short(stdout)}", wrong)
        return document

    def _talk(self, output: dict[int, bytes], deadline: float) -> bool:
        """Feeds and drains it until it has closed both outputs and ended; False at the deadline, or when it says too
        much.
        """
        poll = select.poll()
        waiting = {*output, self._ended} - {-1}
        for fd in waiting:
            poll.register(fd, select.POLLIN)
        if self._in >= 0:
            poll.register(self._in, select.POLLOUT)
        while waiting:
            left = deadline - time.monotonic()
            events = poll.poll(max(left, 0) * 1000)
            if not events and left <= 0:
                return False
            for fd, _event in events:
                if fd == self._in:
                    if not self._feed():
                        poll.unregister(fd)
                        self._close_input()
                    continue
                if fd == self._ended:
                    poll.unregister(fd)
                    waiting.discard(fd)
                    continue
                data = os.read(fd, _CHUNK)
                output[fd] += data
                if len(output[fd]) > _MOST:
                    return False
                if not data:
                    poll.unregister(fd)
                    waiting.discard(fd)
        return True

    def _close(self) -> None:
        for fd in (self._in, self._out, self._err, self._ended):
            if fd >= 0:
                os.close(fd)

    def _close_input(self) -> None:
        os.close(self._in)
        self._in = -1

    def _feed(self) -> bool:
        """Writes what the pipe takes; False when there is no more to write, or nobody to read."""
        try:
            self._input = self._input[os.write(self._in, self._input[:_CHUNK]) :]
        except BlockingIOError:
            return True
        except BrokenPipeError:
            return False
        return len(self._input) > 0

    def _reap(self, kill: bool, deadline: float) -> int:
        while not kill:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
            if time.monotonic() >= deadline:
                break
            time.sleep(_PAUSE)
        os.killpg(self._pid, signal.SIGKILL)
        return os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])

    def _error(self, document: Any, stdout: bytes, stderr: bytes, status: int) -> DelegateError:
        if isinstance(document, dict) and _is_code(document.get("code")):
            details = str(document.get("details") or "")
            return Reported(f"{self.name}: {document.get('msg') or 'failed'}", "", document["code"], details)
        how = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
        return DelegateError(f"the plugin {self.name} {how}: {_short(stderr or stdout)}", "", INTERNAL)


def _is_code(value: object) -> bool:
    """Whether runtimes can read it as the code of an error."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31


def _ended(pid: int) -> int:
    """A descriptor that can be read when the process has ended (pidfd_open(2), Linux 5.3); -1 without such."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def _decode(stdout: bytes) -> tuple[dict[str, Any] | None, str]:
    """What it printed, None for nothing, and what is wrong with it."""
    if not stdout.strip():
        return None, ""
    try:
        return decode_result(stdout), ""
    except DecodeError as error:
        return None, f"{error.message} ({error.hint})" if error.hint else error.message


def _short(text: bytes) -> str:
    return text.decode(errors="replace").strip()[:300] or "without a word"
