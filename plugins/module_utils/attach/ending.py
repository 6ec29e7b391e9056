# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""DEL of an attachment with a pair of links: the part that the plugins share."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from ..cni.reply import Reported
from ..cni.request import Request
from ..errors import PodnetError
from . import lease as ipam, owed
from .call import Call, Means
from .common import attempt
from .wish import host_name

LetGo = Callable[[Request, Means], tuple[list[PodnetError], bool]]
"""All of an attachment but its lease goes: what went wrong, and whether there was or may be anything."""


Others = Callable[[str, bool], list[PodnetError]]
"""Further leases go: by the host's end, and whether there was or may be anything. Gives what went wrong."""


def delete(call: Call, let_go: LetGo, others: Others | None = None) -> None:
    """Link and what belongs to it, then the leases, each whether or not the one before failed; what is missing is done.

    Needs neither namespace nor database nor prevResult. Raises PodnetError for a link or lease that could not go. An
    attachment of which there is no trace has no lease either: an IPAM plugin that then refuses a configuration, which
    ADD got to hear too, does not keep the runtime from going on.
    """
    host = host_name(call.request.container_id, call.request.ifname)
    refused: list[PodnetError] = []
    releases: list[ipam.Release] = []
    attempt(refused, lambda: releases.append(ipam.Release(call)))
    call.steps.done("ipam starts")
    failed, trace = let_go(call.request, call.means)
    call.steps.done("link and port")
    for release in releases:
        attempt(refused, partial(release.run, call.deadline))
    call.steps.done("ipam")
    if not refused:
        owed.forget(host)
    elif trace or owed.is_owed(host) or not isinstance(refused[0], Reported):
        attempt(failed, lambda: owed.remember(host))
        failed += refused
    if others is not None:
        failed += others(host, trace)
        call.steps.done("further ipam")
    if failed:
        raise failed[0]
