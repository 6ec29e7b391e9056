# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the container runtime executes: hands the call to the agent, or serves it in its own process without one.

Every attachment pays for each import here, so only what is built into the interpreter is loaded before the agent has
been asked: `posix` in place of `os`, and no `__future__`, which is a file.

The protocol, schema 2: one line `PODNET/2 PLUGIN ENV_BYTES STDIN_BYTES BEGIN_BY`, to which words may be added, then the
environment (`KEY=VALUE` and a zero byte each), then standard input. The container's network namespace travels as a
descriptor with it. BEGIN_BY is a time of the monotonic clock in milliseconds, after which the agent does not
begin with the call: its client does not wait any longer then, and serves itself. The reply is a dot for each half
second that the agent is at work, one line `PODNET/2 STATUS STDOUT_BYTES STDERR_BYTES`, and then both; or the one line
`PODNET/2 late` of an agent that has not begun and will not.
"""

import _socket
import posix
import sys
import time

SOCKET = "/run/podnet/agent.sock"
GREETING = b"PODNET/2"
LATE = b"late"
CONNECT_SECONDS = 2.0
BEGIN_SECONDS = 1.5
"""Within this the agent begins with a call, or never."""
SIGN_SECONDS = 2.5
"""A client that has heard nothing for so long serves itself. More than BEGIN_SECONDS and the pause between two dots."""
DOT_SECONDS = 10.0
"""An agent that is at work and says nothing for so long has died on it."""
REPLY_SECONDS = 75.0
"""More than the agent gives any call."""
MAX_STDIN = (1 << 20) + 1
VERSIONS = b'{"cniVersion":"1.1.0","supportedVersions":["0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}\n'
_LOST = (
    b'{"cniVersion":"1.0.0","code":11,"msg":"the agent took the call but did not answer: %s",'
    b'"details":"try again; systemctl status podnet-agent"}\n'
)


class NoAgent(Exception):
    """Nobody took the call; with an argument, an agent may have done so that did not say it in time."""


def main(plugin: str) -> None:
    """One call of the plugin, from the environment and standard input; ends the process."""
    env = {key: value for key, value in posix.environ.items() if key.startswith(b"CNI_") or key == b"PATH"}
    if env.get(b"CNI_COMMAND") == b"VERSION":
        _write(1, VERSIONS)
        posix._exit(0)
    stdin = _read_stdin()
    try:
        status, stdout, stderr = ask(plugin, env, stdin)
    except NoAgent as none:
        from .attach.inprocess import run

        status = run(plugin, env, stdin, bool(none.args))
        posix._exit(status)
    except OSError as error:
        status, stdout, stderr = 1, _LOST % str(error).replace('"', "'").encode(), b""
    _write(1, stdout)
    _write(2, stderr)
    posix._exit(status)


def ask(plugin: str, env: "dict[bytes, bytes]", stdin: bytes, path: str = SOCKET) -> "tuple[int, bytes, bytes]":
    """Exit status, standard output and standard error from the agent.

    Raises NoAgent if there is none, it hangs, or it is of another release (nothing has been done then), and OSError if
    it took the call and broke off.
    """
    pipe = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM | _socket.SOCK_CLOEXEC)
    pipe.settimeout(CONNECT_SECONDS)
    try:
        pipe.connect(path)
    except OSError:
        raise NoAgent from None
    began = time.monotonic()
    block = b"".join([key + b"=" + value + b"\0" for key, value in env.items()])
    begin_by = int((began + BEGIN_SECONDS) * 1000)
    line = b"%s %s %d %d %d\n" % (GREETING, plugin.encode(), len(block), len(stdin), begin_by)
    try:
        pipe.settimeout(SIGN_SECONDS)
        _send(pipe, line + block + stdin, env.get(b"CNI_NETNS", b""))
        data = pipe.recv(65536)
    except _socket.timeout:
        pipe.close()  # an agent that goes on with the call after all can tell that nobody hears it
        raise NoAgent("it hangs") from None
    more = data
    while more:
        left = began + REPLY_SECONDS - time.monotonic()
        if left <= 0:
            raise OSError("it took too long")
        pipe.settimeout(min(DOT_SECONDS, left))
        more = pipe.recv(65536)
        data += more
    return _parse(data.lstrip(b"."))


def _parse(data: bytes) -> "tuple[int, bytes, bytes]":
    head, newline, body = data.partition(b"\n")
    words = head.split()
    if newline and words and words[0].startswith(b"PODNET/") and (words[0] != GREETING or words[1:] == [LATE]):
        raise NoAgent
    if not newline or len(words) < 4 or words[0] != GREETING:
        raise OSError("its reply was cut off")
    status, size = int(words[1]), int(words[2])
    return status, body[:size], body[size : size + int(words[3])]


def _send(pipe: "_socket.socket", call: bytes, netns: bytes) -> None:
    try:
        fd = posix.open(netns, posix.O_RDONLY | posix.O_NONBLOCK | posix.O_CLOEXEC) if netns else -1
    except (OSError, ValueError):
        fd = -1
    if fd < 0:
        pipe.sendall(call)
        return
    rights = [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, fd.to_bytes(4, sys.byteorder))]
    sent = pipe.sendmsg([call], rights)
    if sent < len(call):
        pipe.sendall(call[sent:])
    posix.close(fd)


def _read_stdin() -> bytes:
    data = b""
    while len(data) < MAX_STDIN:
        more = posix.read(0, 65536)
        if not more:
            break
        data += more
    return data[:MAX_STDIN]


def _write(number: int, data: bytes) -> None:
    while data:
        data = data[posix.write(number, data) :]
