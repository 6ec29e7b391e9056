# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Between the modules and the rest: the only file here that imports Ansible.

What needs the runtime's packages is imported after they were put on the path, hence inside functions.
"""

from __future__ import annotations

import os
import sys
import zipfile
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any, NoReturn

from ansible.module_utils.basic import AnsibleModule

from .errors import OvsdbUnavailable, PodnetError
from .model.move import CONFIRMERS, MANAGERS, TIMEOUT, MovePlan, Request, parse_probes, parse_timeout
from .model.moves import Terms
from .model.node import DATAPATH_TYPES, Bridge
from .model.paths import NODE_UNIT, OVSDB, RUNTIME_LIB, UNIT_FOLDERS
from .model.plan import FILE, Plan
from .model.state import State
from .model.target import put_bridge

OVSDB_ARGUMENT = {"ovsdb": {"type": "str", "default": OVSDB}, "_podnet_archive": {"type": "path"}}
"""Options of each module that talks to the switch. The hidden one is set by the action plugin with the runtime."""

MOVE_ARGUMENTS: dict[str, dict[str, Any]] = {
    "confirm": {"type": "str", "choices": list(CONFIRMERS), "default": CONFIRMERS[0]},
    "confirm_timeout": {"type": "int", "default": TIMEOUT},
    "probes": {"type": "list", "elements": "str", "default": []},
    "manager": {"type": "str", "choices": list(MANAGERS), "default": MANAGERS[0]},
}
"""Options of the modules that may move a NIC."""

WantedMoves = Callable[[State, Terms], "tuple[Request, ...]"]
_PACKAGES = ("pyroute2", "ovsdbapp")


def require_runtime(module: AnsibleModule) -> None:
    """Puts the runtime's packages on the path: those that travelled with the module, or those installed.

    Ends the module with `runtime_missing` if neither is there, upon which the action plugin sends them.
    """
    archive = module.params.get("_podnet_archive")
    if archive:
        # unpacked, for packages look for their own metadata, and not inside a ZIP
        with zipfile.ZipFile(archive) as zipped:
            zipped.extractall(module.tmpdir)
    sys.path.insert(0, os.path.join(module.tmpdir, "lib") if archive else RUNTIME_LIB)
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        found = f"the runtime of podnet.ovs is not on this node: no {' and no '.join(missing)} in {sys.path[0]}"
        fail(module, PodnetError(found, "run the role podnet.ovs.runtime"), runtime_missing=True)


def run(
    module: AnsibleModule,
    wish: Callable[[State], State],
    warnings: tuple[str, ...] = (),
    wanted_moves: WantedMoves | None = None,
    foresee: Callable[[Request], MovePlan] | None = None,
) -> None:
    """Makes the wish true, or in check mode says what would be done, and ends the module.

    In check mode, the bridge that the option `bridge` names may be one that an earlier task would have made. Moves that
    the wish needs first end the module too, with `move_pending`: the action plugin has them carried out, and runs the
    module once more.
    """
    require_runtime(module)
    from .kernel.machine import has_module
    from .uplink.converge import Moves, converge

    def assume(state: State) -> State:
        bridge = module.params.get("bridge")
        if not bridge or bridge in state.bridges:
            return state
        module.warn(f"there is no bridge {bridge} yet; this check takes it that an earlier task makes it")
        kind = DATAPATH_TYPES[0] if has_module("openvswitch") else DATAPATH_TYPES[1]  # no other one can be made
        return put_bridge(state, Bridge(bridge, datapath_type=kind))

    try:
        moves = None
        if wanted_moves and foresee:
            terms, wanted = _terms(module), wanted_moves
            moves = Moves(lambda state: wanted(state, terms), foresee)
        plan = converge(wish, module.params["ovsdb"], module.check_mode, assume, moves=moves)
    except PodnetError as error:
        fail(module, error)
    for text in (*plan.warnings, *warnings, *_lasting_warnings(module, plan)):
        module.warn(text)
    result = result_of(plan)
    if plan.pending and not module.check_mode:
        result.update(changed=False, move_pending=[request.to_dict() for request in plan.pending])
    module.exit_json(**result)


def look(module: AnsibleModule) -> tuple[State, list[str]]:
    """The node's state, and why there is none of the switch if there is none."""
    require_runtime(module)
    from .uplink.observe import observe
    from .vswitch.session import Session

    try:
        try:
            with Session.open(module.params["ovsdb"]) as session:
                return observe(session), []
        except OvsdbUnavailable as error:
            return observe(None), [str(error)]
    except PodnetError as error:
        fail(module, error)


def fail(module: AnsibleModule, error: PodnetError, **more: Any) -> NoReturn:
    """Ends the module with the error's message and its hint."""
    module.fail_json(msg=str(error), hint=error.hint, **more)
    raise SystemExit(1)  # for those who check types: Ansible does not say that it never comes back


def result_of(plan: Plan) -> dict[str, Any]:
    """The result keys of a plan: changed, operations, before, after, diff."""
    return {
        "changed": plan.changed,
        "operations": [step.to_dict() for step in plan.operations],
        "before": dict(plan.before),
        "after": dict(plan.after),
        "diff": [_diff_of_objects(plan), *_diffs_of_files(plan)] if plan.changed else [],
    }


def given(module: AnsibleModule, *names: str) -> dict[str, Any]:
    """Those of the options that the user set, for the model's parsers."""
    return {name: module.params[name] for name in names if module.params[name] is not None}


def _terms(module: AnsibleModule) -> Terms:
    """How moves are carried out, from the options. Raises ConfigError."""
    params = module.params
    timeout = parse_timeout(params["confirm_timeout"], "confirm_timeout")
    probes = tuple(params["probes"])
    parse_probes(probes)
    return Terms(params["ovsdb"], params["manager"], params["confirm"], timeout, probes)


def _diff_of_objects(plan: Plan) -> dict[str, str]:
    return {
        "before_header": "node before",
        "after_header": "node after",
        "before": "".join(f"{line}\n" for line in _lines(plan.before)),
        "after": "".join(f"{line}\n" for line in _lines(plan.after)),
    }


def _diffs_of_files(plan: Plan) -> list[dict[str, str]]:
    return [
        {
            "before_header": step.name,
            "after_header": step.name,
            "before": step.detail["previous"],
            "after": step.detail["text"],
        }
        for step in plan.operations
        if step.kind == FILE
    ]


def _lines(value: Mapping[str, Any], indent: str = "") -> list[str]:
    """YAML-like lines: one for each plain value, so that a diff shows only what differs."""
    lines = []
    for key, item in value.items():
        if isinstance(item, Mapping):
            lines += [f"{indent}{key}:", *_lines(item, f"{indent}  ")]
        elif isinstance(item, list):
            lines += [f"{indent}{key}:", *(f"{indent}  - {entry}" for entry in item)]
        else:
            lines.append(f"{indent}{key}: {str(item).lower() if isinstance(item, bool) else item}")
    return lines


def _lasting_warnings(module: AnsibleModule, plan: Plan) -> list[str]:
    if module.check_mode or not plan.after.get("bridges"):
        return []
    if any(os.path.exists(os.path.join(folder, NODE_UNIT)) for folder in UNIT_FOLDERS):
        return []
    return [
        "this will not survive a reboot whole: NICs stay down and host interfaces lose their addresses, "
        f"for there is no {NODE_UNIT}; the role podnet.ovs.runtime installs it"
    ]
