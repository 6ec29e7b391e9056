# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The node becomes what was wished: observe, plan, apply, read back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..errors import DeadlineExceeded, OvsdbUnavailable, PodnetError, RefusedError
from ..kernel.files import locked, write_text
from ..kernel.links import change_addresses, ignore_routers, set_up, wait_for_addresses, wait_for_links
from ..model import plan
from ..model.move import MovePlan, Request
from ..model.moves import after_moves, plan_of_moves, plan_with_moves
from ..model.paths import NODE_LOCK, OVSDB
from ..model.plan import Operation, Plan, plan_between
from ..model.safety import check_safe
from ..model.state import State
from ..model.target import without_leftovers
from ..vswitch.bridges import change_switch, check_switch, no_datapath, observe_switch
from ..vswitch.session import Session
from .journal import open_moves
from .observe import observe

Wish = Callable[[State], State]
"""From what is to what should be; raises RefusedError or ConfigError for what cannot be."""
_TURN_SECONDS = 120.0
_SECONDS_A_STEP = 0.1
"""What a slow machine gets for each bridge or port, on top: several hundred of them are made in one go."""


@dataclass(frozen=True)
class Moves:
    """The moves that a wish needs first: which ones, from a state, and what each of them will do."""

    wanted: Callable[[State], tuple[Request, ...]]
    foresee: Callable[[Request], MovePlan]


def converge(
    wish: Wish,
    endpoint: str = OVSDB,
    check: bool = False,
    assume: Wish | None = None,
    timeout: float = 10.0,
    moves: Moves | None = None,
) -> Plan:
    """Makes the wish true, and returns the plan that did it; with `check`, the plan that would.

    `timeout` (seconds) bounds each wait for the switch, which is longer where much is to do. What fails half-way is
    taken back, so one run waits for the other. Without a database, `check` plans from an empty one and says so in a
    warning; `assume` adds to what is there what an earlier task would have made. Where the wish needs `moves`, nothing
    is changed: they are `pending` in the plan, which then is theirs alone, or with `check` that of all that would be
    done. Refuses to change anything while a move is under way. Raises PodnetError.
    """
    if not check:
        with locked(NODE_LOCK, _TURN_SECONDS):
            _check_no_move()
            return _converge(wish, endpoint, False, _as_it_is, timeout, moves)
    return _converge(wish, endpoint, True, assume or _as_it_is, timeout, moves)


def _check_no_move() -> None:
    for journal in open_moves():
        holder = journal.holder
        who = "@".join(str(holder[key]) for key in ("user", "host") if holder.get(key)) or "somebody"
        way = f"{journal.request.source} to {journal.request.target}"
        raise RefusedError(
            f"a move is under way: {journal.id} ({way}, {journal.state}), begun by {who}",
            "wait until it is over; on the node: podnet uplink status",
        )


def _converge(wish: Wish, endpoint: str, check: bool, assume: Wish, timeout: float, moves: Moves | None = None) -> Plan:
    try:
        session = Session.open(endpoint, min(timeout, 5.0))
    except OvsdbUnavailable as error:
        if not check:
            raise
        state = assume(without_leftovers(observe(None)))
        warning = f"planned as if Open vSwitch were running and empty: {error.message}"
        foreseen = _with_moves(state, wish, moves, check) or plan_between(state, _safe(state, wish))
        return replace(foreseen, warnings=(warning, *foreseen.warnings))
    with session:
        before = assume(without_leftovers(observe(session)))
        with_moves = _with_moves(before, wish, moves, check)
        if with_moves:
            return with_moves
        wanted = _safe(before, wish)
        todo = plan_between(before, wanted)
        if todo.operations and not check:
            _carry_out(session, before, wanted, todo, timeout + _SECONDS_A_STEP * len(todo.operations))
            _read_back(session, wish)
        return todo


def _with_moves(before: State, wish: Wish, moves: Moves | None, check: bool) -> Plan | None:
    """The plan for a wish that needs moves, after a look whether it can come true at all; None if it needs none."""
    first = moves.wanted(before) if moves else ()
    if not moves or not first:
        return None
    state, later = after_moves(before, first), list(first)
    while more := moves.wanted(state):  # out of one bridge, and then to another
        later += more
        state = after_moves(state, more)
    wanted = _safe(state, wish)
    plans = [moves.foresee(request) for request in first]
    if not check:
        return plan_of_moves(before, plans)
    return plan_with_moves(before, wanted, [*plans, *(MovePlan(request) for request in later[len(first) :])])


def _safe(state: State, wish: Wish) -> State:
    wanted = wish(state)
    check_safe(state, wanted)
    return wanted


def _as_it_is(state: State) -> State:
    return state


def apply_links(operations: Iterable[Operation], timeout: float) -> None:
    """Carries out what a plan has for the kernel. Raises KernelError, DeadlineExceeded."""
    steps = [step for step in operations if step.kind in (plan.LINK, plan.ADDRESS)]
    names = list(dict.fromkeys(step.name for step in steps))
    wait_for_links(names, timeout)
    for name in names:
        change_addresses(name, remove=_addresses(steps, name, plan.REMOVE))
    for step in steps:
        if step.kind == plan.LINK:
            if not step.detail.get("accept_ra", True):
                ignore_routers(step.name)
            set_up(step.name, step.action == plan.UP)
    for name in names:
        change_addresses(name, add=_addresses(steps, name, plan.ADD))
    for name in names:
        wait_for_addresses(name, [address for address in _addresses(steps, name, plan.ADD) if ":" in address])


def _addresses(steps: list[Operation], name: str, action: str) -> list[str]:
    return [step.detail["address"] for step in steps if (step.name, step.action) == (name, action)]


def _carry_out(session: Session, before: State, wanted: State, todo: Plan, timeout: float) -> None:
    try:
        change_switch(session, todo.operations, timeout)
        check_switch(session, todo.operations, timeout)
        _check_devices(session, todo)
        apply_links(_link_steps(observe(session), wanted, todo), timeout)
        _check_mtus(observe(session), todo)
        for step in todo.operations:
            if step.kind == plan.FILE:
                write_text(step.name, step.detail["text"])
    except PodnetError as error:
        left = _take_back(session, before, todo, wait=not isinstance(error, DeadlineExceeded))
        if left:
            error.message += f"; and what was done could not be taken back: {left}"
        raise


def _link_steps(now: State, wanted: State, todo: Plan) -> list[Operation]:
    """What the kernel still lacks. A new datapath makes all devices of a bridge anew, not only those of the plan."""
    bridges = {step.name for step in todo.operations if step.kind == plan.BRIDGE}
    names = {step.name for step in todo.operations}
    for bridge in wanted.bridges.values():
        if bridge.name in bridges:
            names |= {row.name for port in bridge.ports.values() for row in port.interfaces}
    steps = plan_between(now, wanted).operations
    return [step for step in steps if step.kind in (plan.LINK, plan.ADDRESS) and step.name in names]


def _check_devices(session: Session, todo: Plan) -> None:
    """A bridge has a device in the kernel, or it has no datapath: the switch itself may still report what was."""
    names = {step.name for step in todo.operations if step.kind == plan.BRIDGE and step.action != plan.REMOVE}
    for bridge in observe_switch(session).bridges.values():
        if bridge.name in names:
            try:
                wait_for_links([bridge.name], 1.0)
            except DeadlineExceeded as error:
                raise no_datapath(bridge.name, bridge.datapath_type) from error


def _take_back(session: Session, before: State, todo: Plan, wait: bool) -> str:
    """Undoes of the plan what was done of it, with `wait` in the switch too; what others did meanwhile stays.

    Gives the reason if it fails.
    """
    touched = {(step.kind, step.name) for step in todo.operations if step.kind != plan.FILE}
    try:
        back = [step for step in plan_between(observe(session), before).operations if (step.kind, step.name) in touched]
        change_switch(session, back, 5.0, wait)
        apply_links(_link_steps(observe(session), before, todo), 5.0)
    except PodnetError as error:
        return error.message
    return ""


def _read_back(session: Session, wish: Wish) -> None:
    state = observe(session)
    rest = plan_between(state, wish(state))
    if rest.operations:
        steps = ", ".join(f"{step.kind} {step.name} {step.action}" for step in rest.operations)
        raise PodnetError(f"the node did not become what was asked for; still to do: {steps}", "run it again")


def _check_mtus(state: State, done: Plan) -> None:
    """An MTU that a link does not take is no error of the switch's: it says so in its log only."""
    touched = {name for step in done.operations for name in (step.name, *step.detail.get("interfaces", {}))}
    for name in sorted(touched & state.links.keys()):
        owner = state.port_of(name)
        row = owner[1].interface(name) if owner else None
        mtu = state.links[name].mtu
        if row and row.mtu_request not in (None, mtu):
            raise PodnetError(
                f"{name} has an MTU of {mtu} bytes and does not take {row.mtu_request}", "ask for one that it can do"
            )
