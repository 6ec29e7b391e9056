# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Typed errors: what went wrong, what to do about it, and the CNI code it is reported under.

The codes are those of the CNI specification 1.1.0, section "Error"; 8 is libcni's own for an unusable network
namespace. Every error that a user may see is one of these, so that a module, a CNI plugin and the command line
word it alike.
"""

from __future__ import annotations

INCOMPATIBLE_VERSION = 1
UNSUPPORTED_FIELD = 2
UNKNOWN_CONTAINER = 3
INVALID_ENVIRONMENT = 4
IO_FAILURE = 5
DECODE_FAILURE = 6
INVALID_CONFIG = 7
INVALID_NETNS = 8
TRY_AGAIN = 11
UNAVAILABLE = 50
UNAVAILABLE_LIMITED = 51
INTERNAL = 999


class PodnetError(Exception):
    """An error for a user: `message` says what is wrong, `hint` the way out, `code` is its CNI code."""

    code: int = INTERNAL

    def __init__(self, message: str, hint: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(PodnetError):
    """A value that cannot be used. `path` is the key that holds it, such as `bridges[0].uplinks[1].vlans`."""

    code = INVALID_CONFIG

    def __init__(self, path: str, message: str, hint: str = "", code: int | None = None) -> None:
        super().__init__(f"{path}: {message}" if path else message, hint, code)
        self.path = path


class UnsupportedField(ConfigError):
    """A key that is not known here."""

    code = UNSUPPORTED_FIELD


class DecodeError(PodnetError):
    """Input that is not JSON, or not of the wanted shape."""

    code = DECODE_FAILURE


class InvalidEnvironment(PodnetError):
    """A CNI environment variable that is missing or malformed; the message names it."""

    code = INVALID_ENVIRONMENT


class NetnsError(PodnetError):
    """A network namespace that cannot be opened or entered."""

    code = INVALID_NETNS


class PolicyError(PodnetError):
    """A bridge, VLAN or endpoint that the node does not open to this pod."""

    code = INVALID_CONFIG


class KernelError(PodnetError):
    """The kernel refused a change, or did something else."""

    code = INTERNAL


class OvsdbUnavailable(PodnetError):
    """The Open vSwitch database does not answer at its endpoint."""

    code = UNAVAILABLE


class OvsdbError(PodnetError):
    """A transaction was refused, or ovs-vswitchd reports an error for what it made."""

    code = INTERNAL


class DeadlineExceeded(PodnetError):
    """Something did not happen in its time; the message names what was waited for."""

    code = TRY_AGAIN


class RefusedError(PodnetError):
    """A change that would lose a node, foreign ports or traffic, and that the user did not ask for by name."""

    code = INVALID_CONFIG
