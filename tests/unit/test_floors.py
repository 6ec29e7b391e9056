# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The floors of the house: a file imports from its own floor or lower, never higher, never in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

UTILS = Path(__file__).resolve().parents[2] / "plugins" / "module_utils"

# From the ground up. The longest matching prefix decides.
FLOORS = {
    "errors": 0,
    "model": 1,
    "cni": 1,
    "version": 1,
    "ipam.allocate": 1,
    "kernel": 2,
    "vswitch": 2,
    "ipam": 3,
    "attach": 4,
    "uplink": 4,
    "agent": 5,
    "client": 5,
    "cli": 5,
    "terminal": 5,
    "status_cli": 5,
    "attachments_cli": 5,
    "uplink_cli": 5,
    "runtime": 5,
    "ansible_glue": 6,
}
SIDE_BY_SIDE = [{"kernel", "vswitch"}, {"attach", "uplink"}]
"""Folders of one floor that know nothing of each other."""
ONLY_IN = {
    "pyroute2": "kernel",
    "ovsdbapp": "vswitch",
    "ovs": "vswitch",
    "prometheus_client": "agent",
    "ansible": "ansible_glue",
}
"""Third-party packages and the one place that may import them."""


def files() -> list[Path]:
    """Every Python file of module_utils but the empty `__init__.py` files."""
    return sorted(path for path in UTILS.rglob("*.py") if path.name != "__init__.py")


def name_of(path: Path) -> str:
    """`kernel/links.py` is `kernel.links`."""
    return ".".join(path.relative_to(UTILS).with_suffix("").parts)


def floor_of(name: str) -> int:
    """The floor of a dotted name; KeyError for a folder that the house does not have."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        floor = FLOORS.get(".".join(parts[:end]))
        if floor is not None:
            return floor
    raise KeyError(f"{name} stands on no floor: name it in FLOORS")


def imports_of(path: Path) -> Iterator[tuple[str, int]]:
    """Dotted names that a file imports: relative ones resolved and prefixed with a dot, each with its line."""
    package = list(path.relative_to(UTILS).parent.parts)
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            if node.level == 0:
                yield node.module or "", node.lineno
                continue
            up = node.level - 1
            assert up <= len(package), f"{path}:{node.lineno} climbs out of module_utils"
            base = package[: len(package) - up] + (node.module.split(".") if node.module else [])
            for alias in node.names:
                target = [*base, alias.name]
                is_file = UTILS.joinpath(*target).with_suffix(".py").exists()
                yield "." + ".".join(target if is_file else base), node.lineno


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in files()}
    missing = [str(folder.relative_to(UTILS)) for folder in sorted(folders) if not (folder / "__init__.py").exists()]
    assert not missing, f"without __init__.py: {missing}"


def test_packages_are_empty() -> None:
    full = [str(p.relative_to(UTILS)) for p in UTILS.rglob("__init__.py") if p.read_text(encoding="utf-8").strip()]
    assert not full, f"an __init__.py holds code, which every import of the folder would pay for: {full}"


def test_no_import_goes_up() -> None:
    wrong = []
    for path in files():
        name = name_of(path)
        for imported, line in imports_of(path):
            target = imported[1:]
            if not imported.startswith(".") or not target:
                continue
            mine, theirs = name.partition(".")[0], target.partition(".")[0]
            if floor_of(target) > floor_of(name):
                wrong.append(f"{name}:{line} imports {target}, a floor up")
            if mine != theirs and any({mine, theirs} == pair for pair in SIDE_BY_SIDE):
                wrong.append(f"{name}:{line} imports {target}, which stands beside it")
    assert not wrong, "\n".join(wrong)


def test_no_circle() -> None:
    graph = {name_of(p): {t[1:] for t, _line in imports_of(p) if t.startswith(".")} for p in files()}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, "circle: " + " -> ".join([*trail[trail.index(name) :], name])
        if name in done:
            return
        for target in graph.get(name, ()):
            visit(target, (*trail, name))
        done.add(name)

    for name in graph:
        visit(name, ())


def test_third_party_packages_have_one_home() -> None:
    wrong = []
    for path in files():
        name = name_of(path)
        for target, line in imports_of(path):
            home = ONLY_IN.get(target.partition(".")[0])
            if home and name.partition(".")[0] != home:
                wrong.append(f"{name}:{line} imports {target}, which only {home} may")
    assert not wrong, "\n".join(wrong)


def test_nothing_names_the_collection_by_its_absolute_path() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {target}"
        for path in files()
        for target, line in imports_of(path)
        if target.startswith("ansible_collections")
    ]
    assert not wrong, "relative imports only, so that the same files serve as the package podnet:\n" + "\n".join(wrong)
