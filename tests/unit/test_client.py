# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What each attachment pays for: the client's imports, in a process as the runtime starts it."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils import client

UTILS = Path(__file__).resolve().parents[2] / "plugins" / "module_utils"
ALLOWED = {"client", "_socket"}
"""Beyond what an interpreter has anyway; `_socket` is built in, or one file."""

LIST = """
import sys
sys.path.insert(0, {folder!r})
before = set(sys.modules)
import client
print(*sorted(set(sys.modules) - before))
"""


def test_the_client_imports_next_to_nothing() -> None:
    code = LIST.format(folder=str(UTILS))
    done = subprocess.run([sys.executable, "-IS", "-c", code], capture_output=True, text=True, check=True, timeout=30)
    assert set(done.stdout.split()) <= ALLOWED


@pytest.fixture
def listener(tmp_path: Path) -> socket.socket:
    """A socket where an agent might listen, at `agent.sock` of the folder."""
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(tmp_path / "agent.sock"))
    made.listen(1)
    return made


def test_without_an_agent_nothing_is_done(tmp_path: Path, listener: socket.socket) -> None:
    listener.close()
    for name in ("agent.sock", "other.sock"):
        with pytest.raises(client.NoAgent):
            client.ask("podnet-ovs", {}, b"", str(tmp_path / name))


def test_an_agent_that_hangs_is_bypassed(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "SIGN_SECONDS", 0.2)
    with pytest.raises(client.NoAgent):
        client.ask("podnet-ovs", {}, b"{}", str(tmp_path / "agent.sock"))


@pytest.mark.parametrize("reply", [b"", b"nonsense\n", b"PODNET/2 0 1", b"..", b"PODNET/2 0\n"])
def test_a_reply_that_is_none(tmp_path: Path, listener: socket.socket, reply: bytes) -> None:
    def answer() -> None:
        pipe, _address = listener.accept()
        with pipe:
            call = b""
            while not call.endswith(b"{}"):
                call += pipe.recv(65536)
            pipe.sendall(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(OSError, match="cut off"):
        client.ask("podnet-ovs", {}, b"{}", str(tmp_path / "agent.sock"))
    thread.join()


def test_a_call_and_its_reply(tmp_path: Path, listener: socket.socket) -> None:
    seen: list[bytes] = []

    def answer() -> None:
        pipe, _address = listener.accept()
        with pipe:
            data, fds, _flags, _sender = socket.recv_fds(pipe, 65536, 1)
            while not data.endswith(b"{}"):
                data += pipe.recv(65536)
            seen.extend([data, str(len(fds)).encode()])
            pipe.sendall(b"..PODNET/2 1 3 2 more\nouter")

    thread = threading.Thread(target=answer)
    thread.start()
    env = {b"CNI_COMMAND": b"ADD", b"CNI_NETNS": b"/proc/self/ns/net"}
    began = time.monotonic()
    assert client.ask("podnet-ovs", env, b"{}", str(tmp_path / "agent.sock")) == (1, b"out", b"er")
    thread.join()
    block = b"CNI_COMMAND=ADD\0CNI_NETNS=/proc/self/ns/net\0"
    line, _newline, rest = seen[0].partition(b"\n")
    *words, begin_by = line.split()
    assert words == [b"PODNET/2", b"podnet-ovs", str(len(block)).encode(), b"2"]
    assert 0 < int(begin_by) - began * 1000 < 2000, "in milliseconds of the monotonic clock"
    assert (rest, seen[1]) == (block + b"{}", b"1")


@pytest.mark.parametrize("reply", [b"PODNET/1 1 2 0\n{}", b"PODNET/3 0 0 0 0 0\n"])
def test_an_agent_of_another_release_is_bypassed(tmp_path: Path, listener: socket.socket, reply: bytes) -> None:
    def answer() -> None:
        pipe, _address = listener.accept()
        with pipe:
            pipe.recv(65536)
            pipe.sendall(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(client.NoAgent):
        client.ask("podnet-ovs", {}, b"{}", str(tmp_path / "agent.sock"))
    thread.join()


def test_an_agent_that_dies_at_work_is_an_error(
    tmp_path: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "DOT_SECONDS", 0.2)

    def answer() -> None:
        pipe, _address = listener.accept()
        with pipe:
            pipe.sendall(b".")
            over.wait(10)

    over = threading.Event()
    thread = threading.Thread(target=answer)
    thread.start()
    with pytest.raises(OSError, match="timed out"):
        client.ask("podnet-ovs", {}, b"{}", str(tmp_path / "agent.sock"))
    over.set()
    thread.join()
