# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The environment of a call (specification 1.1.0, section "Parameters"), checked before anything is done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import ConfigError, InvalidEnvironment
from ..model.names import parse_ifname

ADD, DEL, CHECK, GC, STATUS, VERSION = "ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"
VERBS = (ADD, DEL, CHECK, GC, STATUS, VERSION)

_NEEDED = {
    ADD: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"),
    DEL: ("CNI_CONTAINERID", "CNI_IFNAME"),
    CHECK: ("CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME"),
    GC: ("CNI_PATH",),
    STATUS: (),
    VERSION: (),
}
MAX_ID = 255
"""Characters of a container id: what a file's name may have, for runtimes and IPAM plugins make one of it."""
MAX_ARG = 253
"""Of a value in CNI_ARGS: no name in Kubernetes is longer (RFC 1123 subdomain)."""
_CONTAINER_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.\-]*")
_KNOWN_ARGS = ("IgnoreUnknown", "K8S_POD_NAMESPACE", "K8S_POD_NAME", "K8S_POD_UID", "K8S_POD_INFRA_CONTAINER_ID")
_PEERS_ARGS = ("mac", "ovnport")
"""What ovs-cni reads, in any case of letters. The second gets an error of its own."""
_IPAMS_ARGS = ("IP", "GATEWAY")
"""What the reference IPAM plugins read."""
_TRUE = ("1", "t", "true")


class Impossible(InvalidEnvironment):
    """A name that no ADD takes: there is no such attachment, and so nothing of it that a DEL could take away."""


@dataclass(frozen=True)
class Request:
    """One call. `args` are the pairs of CNI_ARGS, `path` the folders of CNI_PATH."""

    verb: str
    container_id: str = ""
    netns: str = ""
    ifname: str = ""
    args: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()

    @property
    def pod_namespace(self) -> str:
        """The pod's Kubernetes namespace, empty outside of Kubernetes."""
        return self.args.get("K8S_POD_NAMESPACE", "")


def parse_request(env: Mapping[str, str]) -> Request:
    """Reads a call's environment. Raises InvalidEnvironment that names the variable, Impossible if it is the name."""
    verb = env.get("CNI_COMMAND", "")
    if not verb:
        raise InvalidEnvironment("CNI_COMMAND is not set", f"one of {', '.join(VERBS)}; a container runtime calls this")
    if verb not in VERBS:
        raise InvalidEnvironment(f"unknown CNI_COMMAND: {verb}", f"one of {', '.join(VERBS)}")
    missing = [name for name in _NEEDED[verb] if not env.get(name)]
    if missing:
        raise InvalidEnvironment(f"{', '.join(missing)} is not set", f"{verb} needs {', '.join(_NEEDED[verb])}")
    container_id, ifname = env.get("CNI_CONTAINERID", ""), env.get("CNI_IFNAME", "")
    if container_id and (len(container_id) > MAX_ID or not _CONTAINER_ID.fullmatch(container_id)):
        hint = f"letters and digits, and then also . _ -; at most {MAX_ID}"
        raise Impossible(f"CNI_CONTAINERID {container_id!r} is not an id", hint)
    if ifname:
        try:
            parse_ifname(ifname, "CNI_IFNAME")
        except ConfigError as error:
            raise Impossible(error.message, error.hint) from error
    args = _args(env.get("CNI_ARGS", ""), strict=verb == ADD)
    path = _path(env.get("CNI_PATH", ""), strict=verb == ADD)
    return Request(verb, container_id, env.get("CNI_NETNS", ""), ifname, args, path)


def _path(text: str, strict: bool) -> tuple[str, ...]:
    """Folders. One that is not absolute would be another one for the agent than for the runtime."""
    folders = [folder for folder in text.split(":") if folder]
    wrong = next((folder for folder in folders if not folder.startswith("/")), None)
    if strict and wrong is not None:
        raise InvalidEnvironment(f"CNI_PATH: {wrong!r} is not an absolute path", "folders with plugins, separated by :")
    if strict and not folders:
        raise InvalidEnvironment("CNI_PATH names no folder", "folders with plugins, separated by :")
    return tuple(folder for folder in folders if folder.startswith("/"))


def _args(text: str, strict: bool) -> dict[str, str]:
    """`K=V;K=V`. Unknown keys are refused unless IgnoreUnknown says otherwise (CNI conventions, "CNI_ARGS")."""
    args: dict[str, str] = {}
    for pair in text.split(";"):
        key, equals, value = pair.partition("=")
        if not pair:
            continue
        if not equals and strict:
            raise InvalidEnvironment(f"CNI_ARGS: {pair!r} is not KEY=VALUE")
        if strict and key in _KNOWN_ARGS and not (len(value) <= MAX_ARG and value.isprintable()):
            raise InvalidEnvironment(f"CNI_ARGS: {key} {value!r} is no name", f"at most {MAX_ARG} characters in a line")
        args[key] = value
    unknown = [key for key in args if key not in (*_KNOWN_ARGS, *_IPAMS_ARGS) and key.lower() not in _PEERS_ARGS]
    if unknown and strict and args.get("IgnoreUnknown", "").lower() not in _TRUE:
        raise InvalidEnvironment(f"CNI_ARGS: unknown key {unknown[0]}", "add IgnoreUnknown=1 to have it ignored")
    return args
