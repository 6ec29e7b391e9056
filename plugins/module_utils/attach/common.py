# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the verbs of the plugins share."""

from __future__ import annotations

from collections.abc import Callable

from ..cni.result import Result, parse_result
from ..errors import TRY_AGAIN, ConfigError, NetnsError, PodnetError, RefusedError
from ..kernel.fastpath import PodSpace
from ..kernel.netns import is_own
from ..kernel.pod import PodRoute, exists
from ..model.paths import OVSDB
from .call import Call
from .wish import host_name, load_node


def netns_of(call: Call) -> int:
    """The descriptor of the pod's namespace. Raises NetnsError if there is none, or it is the node's own."""
    if call.netns_fd is None:
        raise NetnsError(f"CNI_NETNS {call.request.netns!r} cannot be opened", "is the container gone?")
    if is_own(call.netns_fd) and not call.env.get("CNI_NETNS_OVERRIDE"):
        raise NetnsError(
            f"CNI_NETNS {call.request.netns!r} is the node's own network namespace",
            "a pod of the host's network has no CNI",
        )
    return call.netns_fd


def open_space(call: Call) -> PodSpace:
    """The pod's namespace, to work in. Raises NetnsError that names what CNI_NETNS is."""
    netns_fd = netns_of(call)
    try:
        return PodSpace(netns_fd)
    except NetnsError as error:
        raise NetnsError(f"CNI_NETNS {call.request.netns!r}: {error.message}", error.hint) from error


def taken(ifname: str, just_now: bool = False) -> PodnetError:
    """The error for an interface that the pod has already, or that another call has made while this one waited.

    The other one may be this one's own, in an agent that hung: its result is lost, and the runtime begins anew.
    """
    if just_now:
        return PodnetError(f"another call has just made {ifname}", "DEL that attachment, and try again", TRY_AGAIN)
    hint = "DEL that attachment first, or take another CNI_IFNAME"
    return RefusedError(f"the container has an interface {ifname} already", hint)


def refuse_taken(call: Call, space: PodSpace) -> None:
    """Raises PodnetError if this attachment is there already."""
    request = call.request
    if space.index(request.ifname) is not None:
        raise taken(request.ifname, call.waited or call.means.doubled)
    if exists(host_name(request.container_id, request.ifname)):
        # It is live in another namespace: this one has no such interface.
        raise RefusedError(
            f"container {request.container_id[:13]} has its interface {request.ifname} already, in another namespace",
            "DEL that attachment first",
        )


def known_endpoint() -> str:
    """The node's database; of a node that is not prepared (any more) the usual one."""
    try:
        return load_node().ovsdb
    except PodnetError:
        return OVSDB


def attempt(failed: list[PodnetError], step: Callable[[], object]) -> None:
    """Does it; what goes wrong, whatever it is, is added to `failed` and keeps no later step from being done."""
    try:
        step()
    except PodnetError as error:
        failed.append(error)
    except OSError as error:
        failed.append(PodnetError(str(error)))
    except Exception as error:
        failed.append(PodnetError(f"internal error: {error!r}", "report it, with the agent's log"))


def earlier(call: Call) -> Result:
    """The result of the plugins before this one in the list, empty if it is the first. Raises DecodeError."""
    return parse_result(call.conf.prev_result, "prevResult") if call.conf.prev_result else Result()


def pod_routes(given: Result) -> list[PodRoute]:
    """Routes for the kernel. One without a gateway goes by the gateway of the first address of its family with one.

    Raises ConfigError for a gateway of the other family.
    """
    for item in given.routes:
        if item.gateway and (":" in item.gateway) != (item.family == 6):
            raise ConfigError(
                "ipam", f"the route to {item.destination} goes by {item.gateway}, of the other family",
                "mend the routes that the IPAM plugin gives",
            )  # fmt: skip
    gateways = {item.family: item.gateway for item in reversed(given.addresses) if item.gateway}
    return [
        PodRoute(item.destination, item.gateway or gateways.get(item.family, ""), **item.extra) for item in given.routes
    ]
