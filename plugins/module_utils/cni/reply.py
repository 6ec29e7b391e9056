# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a plugin gives back: bytes for standard output and standard error, and an exit status.

The one place that turns an error into the JSON of the specification, section "Error".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import INTERNAL, PodnetError
from .versions import NEWEST, SUPPORTED

MAX_CHARS = 1000
"""Of a text in an error. It may repeat a value of any length, and begins with what tells of it."""


@dataclass(frozen=True)
class Reply:
    """`code` is the exit status: 0, or 1 with an error on `stdout`."""

    code: int
    stdout: bytes = b""
    stderr: bytes = b""


class DelegateError(PodnetError):
    """What a delegated plugin reported; passed on in its own words. `details` is its own field of that name."""

    def __init__(self, message: str, hint: str = "", code: int = INTERNAL, details: str = "") -> None:
        super().__init__(message, hint, code)
        self.details = details


class Reported(DelegateError):
    """An error that the plugin itself reported, as the specification has it: it holds nothing then."""


def success(document: Mapping[str, Any] | None = None, notes: Iterable[str] = ()) -> Reply:
    """Exit status 0, with a result or with nothing. Notes are for a person, on standard error."""
    lines = "".join(f"{_short(note)}\n" for note in notes)
    return Reply(0, b"" if document is None else encode(document), lines.encode())


def failure(error: PodnetError, version: object = None) -> Reply:
    """Exit status 1 and the error's JSON: the message names what is wrong, `details` the way out."""
    spoken = version if version in SUPPORTED else NEWEST
    details = "; ".join(text for text in (error.hint, getattr(error, "details", "")) if text)
    document = {"cniVersion": spoken, "code": error.code, "msg": _short(str(error.message))}
    if details:
        document["details"] = _short(details)
    return Reply(1, encode(document), f"{_short(str(error))}\n".encode())


def _short(text: str) -> str:
    """The text as any JSON parser takes it, cut where it is too long."""
    whole = text if len(text) <= MAX_CHARS else text[:MAX_CHARS] + " …"
    return whole.encode(errors="replace").decode()


def encode(document: Mapping[str, Any]) -> bytes:
    """Compact JSON in one line."""
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"
