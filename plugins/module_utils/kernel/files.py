# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that survive a crash: whole and old, or whole and new."""

from __future__ import annotations

import os
import tempfile

from ..errors import PodnetError


def read_text(path: str) -> str | None:
    """The text of a file; None if there is none, or an empty one. Raises PodnetError if it cannot be read."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read() or None
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise PodnetError(f"cannot read {path}: {error}", "run as root (become: true)") from error


def write_text(path: str, text: str, mode: int = 0o644) -> None:
    """Replaces a file by renaming a complete new one over it; makes its folder. Raises PodnetError."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{os.path.basename(path)}.")
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise PodnetError(f"cannot write {path}: {error}", "run as root (become: true)") from error


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
