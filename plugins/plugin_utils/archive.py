# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime of a node as one file, built on the controller from the collection's own files and its wheels.

The archive is a ZIP with

- `lib/`: the unpacked wheels, and `plugins/module_utils` as the package `podnet`;
- `bin/`: launchers, in which the node's interpreter and the place of `lib` are filled in at installation;
- `manifest.json`: version, launchers, wheels.

Equal inputs give equal bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

SCHEMA = 1
PACKAGE = "podnet"
CNI_TYPES = ("podnet-ovs", "podnet-vlan", "podnet-adopt", "podnet-routed", "podnet-meta")
"""The CNI plugins; each becomes a link in the CNI folder."""
LAUNCHERS = {
    "podnet": ("podnet.cli", "main()"),
    "podnet-agent": ("podnet.agent.main", "main()"),
    "podnet-watch": ("podnet.uplink.watch", "main()"),
    **{name: ("podnet.client", f'main("{name}")') for name in CNI_TYPES},
}
"""Executable: the module that it imports `main` from, and the call."""

_NOT_FOR_NODES = ("ansible_glue.py",)
_NEVER_IMPORTED = (
    "*/tests/*",
    "ovs/flow/*",
    "ovs/flowviz/*",
    "ovsdbapp/schema/ovn_*",
    "prometheus_client/aiohttp/*",
    "prometheus_client/bridge/*",
    "prometheus_client/django/*",
    "prometheus_client/twisted/*",
    "*.data/*",
    "*.dist-info/RECORD",
    "*.dist-info/WHEEL",
    "*.dist-info/top_level.txt",
    "*.dist-info/entry_points.txt",
)
"""Tests, what needs packages that are not on the list, other databases' schemas, and what only an installer reads.
The rest of `*.dist-info` stays: licences, and the versions that `importlib.metadata` gives."""
_EPOCH = (1980, 1, 1, 0, 0, 0)


class ArchiveError(Exception):
    """The archive cannot be built from what is there."""


@dataclass(frozen=True)
class Archive:
    """A built archive. `version` names its content: the collection's version and a digest of all files."""

    path: Path
    version: str
    sha256: str


def build_archive(collection: Path, wheels: Path, out_dir: Path) -> Archive:
    """Builds the archive in `out_dir` from the collection's root folder and the folder with its wheels.

    Raises ArchiveError if a wheel of `wheels.lock` is not there or is not pure Python.
    """
    names = [wheel.name for wheel in _wheels(collection, wheels)]
    files: dict[str, bytes] = {}
    for name in names:
        files.update(_wheel_files(wheels / name))
    files.update(_own_files(collection))
    files.update({f"bin/{name}": _launcher(*target) for name, target in LAUNCHERS.items()})
    version = f"{_collection_version(collection)}-{_digest(files)}"
    manifest = {
        "schema": SCHEMA,
        "version": version,
        "wheels": names,
        "bin": sorted(LAUNCHERS),
        "cni": sorted(CNI_TYPES),
    }
    files["manifest.json"] = (json.dumps(manifest, indent=2, sort_keys=True) + "\n").encode()
    out_dir.mkdir(parents=True, exist_ok=True)
    path = out_dir / f"podnet-runtime-{version}.zip"
    _write_zip(path, files)
    return Archive(path, version, hashlib.sha256(path.read_bytes()).hexdigest())


def _wheels(collection: Path, wheels: Path) -> list[Path]:
    """The wheels of the lock file, in its order."""
    lock = collection / "roles" / "runtime" / "files" / "wheels.lock"
    found = []
    for line in lock.read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, _equals, version = line.split()[0].partition("==")
        there = sorted(wheels.glob(f"{name}-{version}-*.whl"))
        if len(there) != 1:
            raise ArchiveError(
                f"{wheels} holds {len(there)} wheels of {name} {version}, where one is wanted: "
                "install the collection from its built archive, or run dev/setup in a checkout"
            )
        if not there[0].name.endswith("-none-any.whl"):
            raise ArchiveError(f"{there[0].name} is not pure Python, and so not for every node")
        found.append(there[0])
    return found


def _wheel_files(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(wheel) as zipped:
        for name in zipped.namelist():
            if not name.endswith("/") and not any(fnmatchcase(name, pattern) for pattern in _NEVER_IMPORTED):
                yield f"lib/{name}", zipped.read(name)


def _own_files(collection: Path) -> Iterator[tuple[str, bytes]]:
    source = collection / "plugins" / "module_utils"
    for path in sorted(source.rglob("*.py")):
        name = path.relative_to(source).as_posix()
        if name not in _NOT_FOR_NODES:
            yield f"lib/{PACKAGE}/{name}", path.read_bytes()


def _launcher(module: str, call: str) -> bytes:
    lines = ("#!@PYTHON@ -IS", "import sys", "", 'sys.path.insert(0, "@LIB@")', f"from {module} import main", "")
    return "\n".join((*lines, f"sys.exit({call})", "")).encode()


def _collection_version(collection: Path) -> str:
    """From MANIFEST.json of an installed collection, or galaxy.yml of a checkout."""
    manifest = collection / "MANIFEST.json"
    if manifest.exists():
        return str(json.loads(manifest.read_text(encoding="utf-8"))["collection_info"]["version"])
    for line in (collection / "galaxy.yml").read_text(encoding="utf-8").splitlines():
        key, _colon, value = line.partition(":")
        if key == "version":
            return value.strip()
    raise ArchiveError(f"{collection} says nowhere which version it is")


def _digest(files: Mapping[str, bytes]) -> str:
    sums = "".join(f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items()))
    return hashlib.sha256(sums.encode()).hexdigest()[:12]


def _write_zip(path: Path, files: Mapping[str, bytes]) -> None:
    """Sorted names, one date, no owner; by rename, since several processes may build at once."""
    new = path.with_name(f"{path.name}.{os.getpid()}")
    with zipfile.ZipFile(new, "w") as zipped:
        for name, data in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.create_system = 3
            entry.external_attr = (0o100755 if name.startswith("bin/") else 0o100644) << 16
            zipped.writestr(entry, data)
    new.replace(path)
