# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The runtime's archive, and its life on a node: install, again, upgrade, back, remove. In a temporary folder."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils import runtime
from ansible_collections.podnet.ovs.plugins.module_utils.errors import (
    ConfigError,
    DecodeError,
    PodnetError,
    RefusedError,
)
from ansible_collections.podnet.ovs.plugins.plugin_utils.archive import (
    CNI_TYPES,
    Archive,
    ArchiveError,
    build_archive,
)


def wheel(folder: Path, name: str, tag: str = "py3-none-any") -> None:
    """A wheel of one module, with tests and what an installer reads."""
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.0-{tag}.whl", "w") as zipped:
        zipped.writestr(f"{name}/__init__.py", f"NAME = {name!r}\n")
        zipped.writestr(f"{name}/tests/test_it.py", "")
        zipped.writestr(f"{name}-1.0.dist-info/METADATA", f"Name: {name}\nVersion: 1.0\n")
        zipped.writestr(f"{name}-1.0.dist-info/RECORD", "")
        zipped.writestr(f"{name}-1.0.dist-info/licenses/LICENSE", "MIT")


@pytest.fixture(name="collection")
def _collection(tmp_path: Path) -> Path:
    """A small collection: two modules of its own and one wheel."""
    root = tmp_path / "collection"
    utils = root / "plugins" / "module_utils"
    (utils / "agent").mkdir(parents=True)
    (root / "galaxy.yml").write_text("---\nnamespace: podnet\nname: ovs\nversion: 1.2.3\n", encoding="utf-8")
    for name in ("__init__.py", "agent/__init__.py"):
        (utils / name).touch()
    (utils / "cli.py").write_text("def main():\n    import dep\n    print(dep.NAME)\n", encoding="utf-8")
    (utils / "ansible_glue.py").touch()
    lock = root / "roles" / "runtime" / "files" / "wheels.lock"
    lock.parent.mkdir(parents=True)
    lock.write_text("# why\ndep==1.0 --hash=sha256:00\n", encoding="utf-8")
    wheel(tmp_path / "wheels", "dep")
    return root


def build(collection: Path, out: str = "out") -> Archive:
    """Builds the archive of the small collection."""
    return build_archive(collection, collection.parent / "wheels", collection.parent / out)


def test_the_archive_is_reproducible(collection: Path) -> None:
    first = build(collection)
    for path in collection.rglob("*"):
        os.utime(path, (1, 1))
    second = build(collection, "elsewhere")
    assert (first.version, first.sha256) == (second.version, second.sha256)
    assert first.version.startswith("1.2.3-")


def test_the_version_follows_the_content(collection: Path) -> None:
    first = build(collection)
    (collection / "plugins" / "module_utils" / "cli.py").write_text("def main(): ...\n", encoding="utf-8")
    assert build(collection).version != first.version


def test_what_is_in_the_archive(collection: Path) -> None:
    with zipfile.ZipFile(build(collection).path) as zipped:
        names = zipped.namelist()
    assert names == sorted(names)
    assert [name for name in names if name.startswith("lib/")] == [
        "lib/dep-1.0.dist-info/METADATA",
        "lib/dep-1.0.dist-info/licenses/LICENSE",
        "lib/dep/__init__.py",
        "lib/podnet/__init__.py",
        "lib/podnet/agent/__init__.py",
        "lib/podnet/cli.py",
    ]
    assert {"bin/podnet", "bin/podnet-agent", "bin/podnet-ovs", "manifest.json"} < set(names)


@pytest.mark.parametrize("tag", ["cp311-cp311-linux_x86_64", ""])
def test_a_wheel_that_is_missing_or_not_pure(collection: Path, tag: str) -> None:
    wheels = collection.parent / "wheels"
    next(wheels.iterdir()).unlink()
    if tag:
        wheel(wheels, "dep", tag)
    with pytest.raises(ArchiveError, match="not pure" if tag else "holds 0 wheels"):
        build(collection)


class Node:
    """A node's folders."""

    def __init__(self, root: Path) -> None:
        self.opt, self.bin_dir, self.command = str(root / "opt"), str(root / "cni"), str(root / "sbin" / "podnet")

    def install(
        self, archive: Archive | None, version: str | None = None, aliases: tuple[str, ...] = ()
    ) -> list[str]:  # fmt: skip
        """Installs, and gives what was done."""
        path = str(archive.path) if archive else None
        place = runtime.Place(self.opt, self.bin_dir, sys.executable, self.command)
        before = runtime.observe(place)
        runtime.install(path, self.opt, self.bin_dir, sys.executable, self.command, version, aliases)
        return runtime.operations(before, runtime.observe(place))

    def state(self) -> runtime.State:
        """What is installed."""
        return runtime.observe(runtime.Place(self.opt, self.bin_dir, sys.executable, self.command))


@pytest.fixture(name="node")
def _node(tmp_path: Path) -> Node:
    return Node(tmp_path / "node")


def changed(collection: Path, text: str) -> Archive:
    """Another version."""
    (collection / "plugins" / "module_utils" / "cli.py").write_text(
        f"def main():\n    print({text!r})\n", encoding="utf-8"
    )
    return build(collection)


def test_it_runs(collection: Path, node: Node) -> None:
    node.install(build(collection))
    done = subprocess.run([node.command], capture_output=True, text=True, check=True, env={})
    assert done.stdout == "dep\n"
    assert os.readlink(f"{node.bin_dir}/podnet-ovs") == f"{node.opt}/current/bin/podnet-ovs"
    version = node.state().current
    assert list(Path(node.opt, str(version), "lib", "podnet", "__pycache__").glob("cli.*.pyc"))


def test_again_does_nothing(collection: Path, node: Node) -> None:
    archive = build(collection)
    assert node.install(archive)
    assert node.install(archive) == []


def test_upgrade_back_and_on(collection: Path, node: Node) -> None:
    first, second = build(collection), changed(collection, "two")
    node.install(first)
    node.install(second)
    state = node.state()
    assert (state.current, state.previous) == (second.version, first.version)
    node.install(None, "previous")
    state = node.state()
    assert (state.current, state.previous) == (first.version, second.version)
    third = changed(collection, "three")
    node.install(third)
    assert node.state().versions == tuple(sorted([first.version, third.version]))
    assert subprocess.run([node.command], capture_output=True, text=True, check=True).stdout == "three\n"


def test_another_interpreter_changes_the_launchers_only(collection: Path, node: Node, tmp_path: Path) -> None:
    archive = build(collection)
    node.install(archive)
    other = tmp_path / "python"
    other.symlink_to(sys.executable)
    place = runtime.Place(node.opt, node.bin_dir, str(other), node.command)
    before = runtime.observe(place)
    after = runtime.wanted(before, place, runtime.read_manifest(str(archive.path)))
    assert runtime.operations(before, after) == [f"launchers for {other}"]
    runtime.install(str(archive.path), node.opt, node.bin_dir, str(other), node.command)
    assert Path(node.bin_dir, "podnet-ovs").read_text(encoding="utf-8").startswith(f"#!{other} -IS\n")


def test_an_interpreter_that_is_not_there_leaves_all_as_it_was(collection: Path, node: Node) -> None:
    node.install(build(collection))
    before = node.state()
    with pytest.raises(PodnetError, match="/nowhere/python3"):
        runtime.install(str(changed(collection, "two").path), node.opt, node.bin_dir, "/nowhere/python3", node.command)
    assert node.state() == before


def test_a_foreign_file_is_not_replaced(collection: Path, node: Node) -> None:
    foreign = Path(node.bin_dir, "podnet-ovs")
    foreign.parent.mkdir(parents=True)
    foreign.write_text("not ours", encoding="utf-8")
    with pytest.raises(RefusedError, match="podnet-ovs"):
        node.install(build(collection))
    assert foreign.read_text(encoding="utf-8") == "not ours"
    assert node.state().current is None


def test_what_is_half_unpacked_is_no_version(collection: Path, node: Node) -> None:
    archive = build(collection)
    half = Path(node.opt, f"{archive.version}.new")
    half.mkdir(parents=True)
    (half / "manifest.json").write_text("{}", encoding="utf-8")
    assert node.state().versions == ()
    node.install(archive)
    assert node.state().versions == (archive.version,)


@pytest.mark.parametrize("lost", ["lib", "bin/podnet", "manifest.json"])
def test_a_version_that_lost_its_parts_is_unpacked_anew(collection: Path, node: Node, lost: str) -> None:
    archive = build(collection)
    node.install(archive)
    killed, part = Path(node.opt, "0.9.0-killed.new"), Path(node.opt, archive.version, lost)
    killed.mkdir()
    part.rename(Path(node.opt, "lost"))
    assert f"unpack {archive.version}" in runtime.operations(node.state(), _wanted(node, archive))
    node.install(archive)
    assert part.exists() and not killed.exists() and not Path(node.opt, "lost").is_dir()
    subprocess.run([node.command], check=True, capture_output=True)


def _wanted(node: Node, archive: Archive) -> runtime.State:
    place = runtime.Place(node.opt, node.bin_dir, sys.executable, node.command)
    return runtime.wanted(node.state(), place, runtime.read_manifest(str(archive.path)))


@pytest.mark.parametrize("python", ["/nowhere/python3", "/bin/true", "/bin/false"])
def test_an_interpreter_that_cannot_run_it_does_not_come_into_use(collection: Path, node: Node, python: str) -> None:
    archive = build(collection)
    node.install(archive)
    with pytest.raises(PodnetError) as caught:
        runtime.install(str(archive.path), node.opt, node.bin_dir, python, node.command)
    assert python in str(caught.value) and "podnet_python" in caught.value.hint
    subprocess.run([node.command], check=True, capture_output=True)


def test_removal_takes_our_links_only(collection: Path, node: Node) -> None:
    node.install(build(collection))
    other = Path(node.bin_dir, "bridge")
    other.touch()
    runtime.uninstall(node.opt, node.bin_dir, node.command)
    assert os.listdir(node.bin_dir) == ["bridge"]
    assert not os.path.lexists(node.command)
    assert not Path(node.opt).exists()
    assert runtime.uninstall(node.opt, node.bin_dir, node.command) == runtime.State()


def test_the_plugins_stay_while_a_pod_needs_them(
    node: Node, collection: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    """Layer-3 attachments and those of podnet-meta are no ports of a bridge, which would be found otherwise."""
    for name in ("META", "ROUTED"):
        monkeypatch.setattr(runtime, name, str(tmp_path / name))
        (tmp_path / name).mkdir()
    node.install(build(collection))
    (tmp_path / "ROUTED" / "pn000000000000").touch()
    state = tmp_path / "META" / "a.json"
    pod = tmp_path / "pod"
    pod.touch()
    known = {"ifname": "eth0", "container_id": "c1", "netns": str(pod), "inode": pod.stat().st_ino}
    state.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(RefusedError, match="eth0 of c1") as caught:
        runtime.uninstall(node.opt, node.bin_dir, node.command)
    assert "pn0" not in caught.value.message, "its pod is gone" and "drain" in caught.value.hint
    (tmp_path / "ROUTED" / "lo").touch()
    state.write_text(json.dumps({**known, "inode": 0}), encoding="utf-8")
    with pytest.raises(RefusedError, match="lo"):
        runtime.uninstall(node.opt, node.bin_dir, node.command)
    (tmp_path / "ROUTED" / "lo").unlink()
    runtime.uninstall(node.opt, node.bin_dir, node.command)


def test_another_folder_for_plugins_takes_the_links_of_the_one_before_with_it(collection: Path, node: Node) -> None:
    archive, first = build(collection), node.bin_dir
    node.install(archive, aliases=("ovs",))
    node.bin_dir = first + "-of-k3s"
    assert node.install(archive) == [
        f"remember {node.bin_dir}", *(f"link {node.bin_dir}/{name}" for name in sorted(CNI_TYPES)),
        *(f"unlink {first}/{name}" for name in sorted((*CNI_TYPES, "ovs"))),
    ]  # fmt: skip
    assert os.listdir(first) == [] and sorted(os.listdir(node.bin_dir)) == sorted(CNI_TYPES)
    assert node.install(archive) == []
    runtime.uninstall(node.opt, first, node.command)
    assert os.listdir(node.bin_dir) == [], "whoever removes it need not know the folder"


def test_names_of_peers_lead_to_the_plugin_as_long_as_they_are_listed(collection: Path, node: Node) -> None:
    archive = build(collection)
    ovs, antrea = f"{node.bin_dir}/ovs", f"{node.bin_dir}/antrea"
    assert f"link {ovs}" in node.install(archive, aliases=("ovs",))
    assert os.readlink(ovs) == os.readlink(f"{node.bin_dir}/podnet-ovs") and not os.path.lexists(antrea)
    assert node.install(archive, aliases=("ovs",)) == []
    assert node.install(archive, aliases=("antrea",)) == [f"link {antrea}", f"unlink {ovs}"]
    assert sorted(os.listdir(node.bin_dir)) == sorted(("antrea", *CNI_TYPES))
    second = changed(collection, "two")
    assert f"unlink {antrea}" not in node.install(second, aliases=("antrea",))
    runtime.uninstall(node.opt, node.bin_dir, node.command)
    assert os.listdir(node.bin_dir) == []


@pytest.mark.parametrize("foreign", ["file", "link"])
def test_a_peer_that_is_installed_itself_is_not_replaced(collection: Path, node: Node, foreign: str) -> None:
    node.install(build(collection))
    peer = Path(node.bin_dir, "ovs")
    if foreign == "file":
        peer.write_text("ovs-cni's own", encoding="utf-8")
    else:
        peer.symlink_to("/usr/libexec/ovs-cni")
    before = node.state()
    with pytest.raises(RefusedError, match=r"/ovs is there and not of podnet.ovs") as caught:
        node.install(changed(collection, "two"), aliases=("antrea", "ovs"))
    assert "take ovs out of podnet_cni_aliases" in caught.value.hint and "DaemonSet" in caught.value.hint
    assert node.state() == before and sorted(os.listdir(node.bin_dir)) == sorted(("ovs", *CNI_TYPES))
    runtime.uninstall(node.opt, node.bin_dir, node.command)
    assert os.listdir(node.bin_dir) == ["ovs"], "what is not ours stays"


@pytest.mark.parametrize("name", ["bridge", "../ovs", "", "podnet-ovs"])
def test_a_name_that_the_plugin_does_not_stand_in_for(collection: Path, node: Node, name: str) -> None:
    with pytest.raises(ConfigError, match="ovs or antrea"):
        node.install(build(collection), aliases=(name,))
    assert node.state() == runtime.State()


def test_what_is_no_archive(tmp_path: Path) -> None:
    path = tmp_path / "x.zip"
    path.write_bytes(b"not a zip")
    with pytest.raises(DecodeError, match="not a runtime archive"):
        runtime.read_manifest(str(path))


def test_a_newer_manifest_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as zipped:
        zipped.writestr("manifest.json", json.dumps({"schema": 2, "version": "9", "bin": [], "cni": []}))
    path = tmp_path / "x.zip"
    path.write_bytes(data.getvalue())
    with pytest.raises(DecodeError, match="schema 2"):
        runtime.read_manifest(str(path))
