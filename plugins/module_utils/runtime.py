# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime on a node: version folders under /opt/podnet, and the links through which it is called.

A version becomes visible by one rename, is switched by another, and the one before is kept for the way back. Links in
the CNI folder come last, so that a container runtime never finds a plugin that cannot run. Only the standard library.
"""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .errors import ConfigError, DecodeError, PodnetError, RefusedError
from .kernel.files import locked
from .model.paths import CNI_BIN, META, OPT, PLUGINS, ROUTED
from .uplink.journal import open_moves

SCHEMA = 1
"""Of manifest.json: keys may be added, a newer one is refused."""
PYTHON = "/usr/bin/python3"
PREVIOUS = "previous"
ALIASES = ("ovs", "antrea")
"""Types of peers whose configurations the plugin takes as they are, when it is called by their names."""
ALIASED = "podnet-ovs"
COMPILE_TIMEOUT = 180.0
OLDEST_PYTHON = (3, 9)


@dataclass(frozen=True)
class Place:
    """Where the runtime lies on a node. `command` is the link for a person's path, or None; `aliases` are those of
    ALIASES by which the plugin is to be found too.
    """

    opt: str = OPT
    bin_dir: str = CNI_BIN
    python: str = PYTHON
    command: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Manifest:
    """What an archive brings: its version, its executables, and those that are CNI plugins."""

    version: str
    bin: tuple[str, ...]
    cni: tuple[str, ...]

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Manifest:
        """From manifest.json. Raises DecodeError for a newer schema, or a file that is none."""
        if value.get("schema") != SCHEMA:
            raise DecodeError(f"the runtime's manifest has schema {value.get('schema')!r}, known here is {SCHEMA}")
        try:
            return cls(str(value["version"]), tuple(value["bin"]), tuple(value["cni"]))
        except (KeyError, TypeError) as error:
            raise DecodeError(f"the runtime's manifest lacks {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """What `parse` takes."""
        return {"schema": SCHEMA, "version": self.version, "bin": list(self.bin), "cni": list(self.cni)}


@dataclass(frozen=True)
class State:
    """What is installed. `links` are those of ours outside of the version folders, with their targets; `bin_dir` is the
    folder for CNI plugins that is remembered on the node.
    """

    current: str | None = None
    previous: str | None = None
    versions: tuple[str, ...] = ()
    python: str | None = None
    links: Mapping[str, str] = field(default_factory=dict)
    bin_dir: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """As a module shows it; `versions` is left out, for it follows from the other two."""
        return {
            "current": self.current,
            "previous": self.previous,
            "python": self.python,
            "bin_dir": self.bin_dir,
            "links": dict(sorted(self.links.items())),
        }


def observe(place: Place) -> State:
    """Reads what is installed."""
    opt = Path(place.opt)
    versions = [path.name for path in _entries(opt) if _is_version(path)]
    current, previous = (_target(opt / name, versions) for name in ("current", PREVIOUS))
    remembered = opt / PLUGINS
    bin_dir = os.readlink(remembered) if remembered.is_symlink() else None
    candidates = [
        link for folder in sorted({place.bin_dir, bin_dir or place.bin_dir}) for link in _entries(Path(folder))
    ]
    candidates += [Path(place.command)] if place.command else []
    links = {str(link): os.readlink(link) for link in candidates if _is_ours(link, opt)}
    return State(current, previous, tuple(versions), _python_of(opt / current) if current else None, links, bin_dir)


def manifest_of(place: Place, version: str) -> Manifest:
    """The manifest of an installed version; `previous` is the one before. Raises PodnetError if it is not there."""
    state = observe(place)
    name = state.previous if version == PREVIOUS else version
    if name is None or name not in state.versions:
        there = ", ".join(state.versions) or "none"
        raise PodnetError(f"the runtime {version} is not on this node", f"there are: {there}")
    return Manifest.parse(json.loads((Path(place.opt) / name / "manifest.json").read_text(encoding="utf-8")))


def read_manifest(archive: str) -> Manifest:
    """The manifest of an archive. Raises DecodeError if the file is no runtime archive."""
    try:
        with zipfile.ZipFile(archive) as zipped:
            return Manifest.parse(json.loads(zipped.read("manifest.json")))
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DecodeError(f"{archive} is not a runtime archive: {error}") from error


def wanted(state: State, place: Place, manifest: Manifest) -> State:
    """What should be installed so that this version is in use: the plan's other half.

    Raises ConfigError for an alias that is not one of ALIASES.
    """
    opt = Path(place.opt)
    unknown = sorted(set(place.aliases) - set(ALIASES))
    if unknown:
        raise ConfigError("aliases", f"{unknown[0]!r} is no plugin that this one stands in for", " or ".join(ALIASES))
    names = {**{name: name for name in manifest.cni}, **dict.fromkeys(place.aliases, ALIASED)}
    links = {str(Path(place.bin_dir) / name): str(opt / "current" / "bin" / file) for name, file in names.items()}
    if place.command:
        links[place.command] = str(opt / "current" / "bin" / "podnet")
    previous = state.previous if state.current in (None, manifest.version) else state.current
    versions = {manifest.version, previous, *_in_use(state, opt)} - {None}
    there = tuple(sorted(str(name) for name in versions))
    return State(manifest.version, previous, there, place.python, links, place.bin_dir)


def operations(before: State, after: State) -> list[str]:
    """In words, in order, what leads from the one to the other; empty if nothing is to do."""
    words = []
    if after.current is not None and after.current not in before.versions:
        words.append(f"unpack {after.current}")
    elif after.current is not None and before.python != after.python and before.current == after.current:
        words.append(f"launchers for {after.python}")
    if after.current is not None and before.current != after.current:
        words.append(f"switch from {before.current or 'nothing'} to {after.current}")
    if before.bin_dir != after.bin_dir:
        words.append(f"remember {after.bin_dir}" if after.bin_dir else f"forget {before.bin_dir}")
    words += [f"link {link}" for link in after.links if before.links.get(link) != after.links[link]]
    words += [f"unlink {link}" for link in before.links if link not in after.links]
    words += [f"remove {version}" for version in before.versions if version not in after.versions]
    return words


def install(
    archive: str | None,
    opt: str = OPT,
    bin_dir: str = CNI_BIN,
    python: str = PYTHON,
    command: str | None = None,
    version: str | None = None,
    aliases: tuple[str, ...] = (),
) -> tuple[State, State]:
    """Puts a version in use, from its archive or, with `version`, one that is on the node already.

    Gives what was and what is. Raises RefusedError where a link's place holds a file that is not ours, and PodnetError
    if the interpreter cannot compile the files; what was in use stays so.
    """
    place = Place(opt, bin_dir, python, command, aliases)
    before = observe(place)
    if archive is None and version is None:
        raise PodnetError("neither an archive nor a version is given")
    manifest = manifest_of(place, version) if version is not None else read_manifest(str(archive))
    after = wanted(before, place, manifest)
    apply(place, before, after, manifest, archive)
    return before, observe(place)


def apply(place: Place, before: State, after: State, manifest: Manifest, archive: str | None) -> None:
    """Does what `operations` says, and clears away what an interrupted run has left. Two runs follow one another."""
    check_free(place, after)
    with locked(f"{place.opt}/.lock", COMPILE_TIMEOUT):
        _apply(place, before, after, manifest, archive)


def _apply(place: Place, before: State, after: State, manifest: Manifest, archive: str | None) -> None:
    folder = Path(place.opt) / manifest.version
    if not _is_version(folder):
        if archive is None:
            raise PodnetError(f"the runtime {manifest.version} is not on this node")
        _check_python(place.python)
        _unpack(archive, folder, manifest, place.python)
    elif _python_of(folder) != place.python:
        _check_python(place.python)
        _compile(folder / "lib", folder / "lib", place.python)
        _write_launchers(folder, folder, manifest, place.python)
    if before.current != after.current:
        _relink(Path(place.opt) / "current", manifest.version)
    if after.previous is not None and before.previous != after.previous:
        _relink(Path(place.opt) / PREVIOUS, after.previous)
    if after.bin_dir is not None and before.bin_dir != after.bin_dir:
        _relink(Path(place.opt) / PLUGINS, after.bin_dir)
    for link, target in after.links.items():
        if before.links.get(link) != target:
            _relink(Path(link), target)
    for link in before.links:
        if link not in after.links:
            Path(link).unlink()
    for path in _entries(Path(place.opt)):
        if path.is_dir() and not path.is_symlink() and path.name not in after.versions:
            shutil.rmtree(path)


def refuse_attached() -> None:
    """Raises RefusedError if a pod has an attachment that only these plugins can take away, and that is no port of
    a bridge: those are looked for before the bridges go.
    """
    found = [path.name for path in _entries(Path(ROUTED)) if os.path.exists(f"/sys/class/net/{path.name}")]
    found += [
        table["ifname"] + " of " + table["container_id"][:13] for table in map(_state, _entries(Path(META))) if table
    ]
    if found:
        raise RefusedError(f"pods are attached: {', '.join(found[:10])}", "drain the node first")


def _state(path: Path) -> dict[str, Any]:
    """What is known of an attachment of podnet-meta; nothing if its pod is gone, or it cannot be read."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        alive = os.stat(table["netns"]).st_ino == table["inode"]
        return {key: str(table[key]) for key in ("ifname", "container_id")} if alive else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def uninstall(opt: str = OPT, bin_dir: str = CNI_BIN, command: str | None = None) -> State:
    """Removes the links, then all versions. Gives what was there. Nothing of ours there is success.

    Raises RefusedError while pods need the plugins.
    """
    refuse_attached()
    place = Place(opt, bin_dir, command=command)
    before = observe(place)
    for link in before.links:
        Path(link).unlink()
    shutil.rmtree(opt, ignore_errors=True)
    if Path(opt).exists():
        raise PodnetError(f"{opt} could not be removed")
    return before


def check_free(place: Place, after: State) -> None:
    """Raises RefusedError if something that is not ours is where one of the links should be."""
    for link in after.links:
        path = Path(link)
        if not os.path.lexists(path) or _is_ours(path, Path(place.opt)):
            continue
        hint = "move it away, or choose another folder"
        if path.name in place.aliases:
            hint = (
                f"take {path.name} out of podnet_cni_aliases; or, when no pod is attached by it any more, remove what "
                "installs it (a DaemonSet would put it back), and then the file"
            )
        raise RefusedError(f"{link} is there and not of podnet.ovs", hint)


def _in_use(state: State, opt: Path) -> set[str]:
    """The versions from which a move of the node's NIC is carried out: one that loses its program is not undone."""
    folders = [Path(journal.program).parent.parent for journal in open_moves()]
    return {folder.name for folder in folders if folder.parent == opt and folder.name in state.versions}


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_version(path: Path) -> bool:
    """Whether a folder holds a version that can run: one that lost its parts is unpacked anew."""
    if path.suffix == ".new" or path.is_symlink():
        return False
    try:
        names = json.loads((path / "manifest.json").read_text(encoding="utf-8"))["bin"]
        launchers = [path / "bin" / name for name in names]
    except (OSError, ValueError, KeyError, TypeError):
        return False
    return all(file.is_file() for file in (path / "lib" / "podnet" / "__init__.py", *launchers))


def _target(link: Path, versions: list[str]) -> str | None:
    name = os.readlink(link) if link.is_symlink() else ""
    return name if name in versions else None


def _is_ours(link: Path, opt: Path) -> bool:
    return link.is_symlink() and os.readlink(link).startswith(f"{opt}/")


def _python_of(folder: Path) -> str | None:
    """The interpreter that the launchers of a version name."""
    try:
        first = (folder / "bin" / "podnet").read_text(encoding="utf-8").split("\n", 1)[0]
    except OSError:
        return None
    return first[2:].split(" ")[0] if first.startswith("#!") else None


def _unpack(archive: str, folder: Path, manifest: Manifest, python: str) -> None:
    """Unpacks beside the version folder and renames, so that a half-written version is never taken for one."""
    new = folder.with_name(f"{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True, mode=0o755)
    with zipfile.ZipFile(archive) as zipped:
        zipped.extractall(new)
    for parent, folders, files in os.walk(new):
        for name in folders:
            os.chmod(os.path.join(parent, name), 0o755)
        for name in files:
            os.chmod(os.path.join(parent, name), 0o644)
    os.chmod(new, 0o755)
    _write_launchers(new, folder, manifest, python)
    _compile(new / "lib", folder / "lib", python)
    os.sync()  # a loss of power may not leave the name of a version with empty files in it
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)
    _sync(folder.parent)


def _write_launchers(source: Path, final: Path, manifest: Manifest, python: str) -> None:
    """Fills in the interpreter and the folder of the libraries; the templates stay beside them for the next time."""
    for name in manifest.bin:
        template = source / "bin" / f".{name}.in"
        if not template.exists():
            (source / "bin" / name).rename(template)
        text = template.read_text(encoding="utf-8").replace("@PYTHON@", python).replace("@LIB@", str(final / "lib"))
        new = source / "bin" / f".{name}.new"
        new.write_text(text, encoding="utf-8")
        new.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        new.replace(source / "bin" / name)


def _check_python(python: str) -> None:
    """Raises PodnetError if the interpreter cannot run the executables."""
    hint = "set podnet_python to the node's Python 3.9 or later"
    try:
        command = [python, "-IS", "-c", "import sys; print(*sys.version_info[:2])"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False)
        version = tuple(int(word) for word in done.stdout.split())
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise PodnetError(f"{python} does not run: {error}", hint) from error
    if done.returncode != 0 or len(version) != 2 or version < OLDEST_PYTHON:
        found = ".".join(map(str, version)) or "no version"
        raise PodnetError(f"{python} is no Python that runs the plugins: it says {found}", hint)


def _compile(lib: Path, final: Path, python: str) -> None:
    """Byte-compiles under the interpreter that will run it. Its files never change, so their dates are not checked."""
    command = [python, "-IS", "-m", "compileall", "-q", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(lib), "-p", str(final), str(lib)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMPILE_TIMEOUT, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PodnetError(
            f"{python} does not run: {error}", "set podnet_python to the node's Python 3.9 or later"
        ) from error
    if done.returncode != 0:
        raise PodnetError(f"{python} cannot compile the runtime: {done.stderr.strip() or done.stdout.strip()}")


def _relink(link: Path, target: str) -> None:
    link.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    new = link.with_name(f".{link.name}.new")
    if os.path.lexists(new):
        new.unlink()
    new.symlink_to(target)
    new.replace(link)
    _sync(link.parent)


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
