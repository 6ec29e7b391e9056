# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container runtime's part of CNI: configuration lists, as libcni runs them.

A list's plugins in order, or in reverse for DEL, which stops at the first error; `prevResult` from one to the next, and
from ADD to CHECK and DEL by a cache of files; `runtimeConfig` for declared capabilities only; DEL and then the verb GC
for what is not valid any more. Plugins in files beside the list (`loadOnlyInlinedPlugins`) are not read.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ansible_collections.podnet.ovs.plugins.module_utils.cni.versions import SUPPORTED, at_least
from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light

CACHE = "/var/lib/cni/results"
_DONE = cni.Answer(0, "", "", 0.0)


@dataclass(frozen=True)
class At:
    """An attachment: container, name of the pod's namespace (empty if it is gone), interface."""

    container: str
    pod: str = ""
    ifname: str = "eth0"


class NotCached(LookupError):
    """CHECK of what was never attached, or whose file in the cache is gone or torn."""


def conflist(*plugins: Mapping[str, Any], name: str = "green", version: str = "1.0.0", **keys: Any) -> dict[str, Any]:
    """A configuration list."""
    return {"cniVersion": version, "name": name, "plugins": list(plugins), **keys}


def podnet(vlan: int = cni.GREEN, **keys: Any) -> dict[str, Any]:
    """The plugin podnet-ovs in a list."""
    return {"type": "podnet-ovs", "bridge": cni.BRIDGE, "vlan": vlan, **keys}


def static(*addresses: str) -> dict[str, Any]:
    """Addresses from Debian's static."""
    return {"type": "static", "addresses": [{"address": address} for address in addresses]}


def version_of(network: Mapping[str, Any]) -> str:
    """The version that a list is run in: the newest known of those that it names (specification 1.1.0, section 1)."""
    named = {network.get("cniVersion"), *network.get("cniVersions", ())}
    return next((version for version in reversed(SUPPORTED) if version in named), str(network.get("cniVersion")))


class Caller:
    """A runtime on a node. What ADD gave is kept in the node, in files like libcni's."""

    def __init__(self, node: Light) -> None:
        self.node = node

    def ask(
        self,
        verb: str,
        network: Mapping[str, Any],
        at: At | None = None,
        *,
        runtime: Mapping[str, Any] | None = None,
        valid: Sequence[At] | None = None,
        skip: Collection[str] = (),
    ) -> cni.Answer:
        """One verb for a whole list; the answer is that of the first plugin that fails, or of the last one.

        `runtime`: values for capabilities; those of ADD if none are given. `valid`: the attachments that GC keeps.
        `skip`: plugins that are left out. `seconds` are those of all plugins. What the list's version does not have is
        not asked of the plugins. Raises NotCached.
        """
        network = {**network, "plugins": [plugin for plugin in network["plugins"] if plugin["type"] not in skip]}
        if verb == "STATUS":
            newest = at_least(version_of(network), "1.1.0")
            return self._each(verb, network, network["plugins"], At("", "", "")) if newest else _DONE
        if verb == "GC":
            return _DONE if network.get("disableGC") else self._collect(network, valid)
        assert at is not None, f"{verb} is of an attachment"
        if verb == "ADD":
            return self._add(network, at, runtime or {})
        if verb == "DEL":
            return self._delete(network, at, runtime)
        return _DONE if _as_bool(network.get("disableCheck")) else self._check(network, at, runtime)

    def add(self, network: Mapping[str, Any], at: At, **keys: Any) -> dict[str, Any]:
        """ADD, which succeeds; gives its result."""
        answer = self.ask("ADD", network, at, **keys)
        assert answer.code == 0, answer
        return answer.document

    def delete(self, network: Mapping[str, Any], at: At) -> None:
        """DEL, which succeeds and says nothing."""
        answer = self.ask("DEL", network, at)
        assert (answer.code, answer.stdout) == (0, ""), answer

    def cache_file(self, network: Mapping[str, Any], at: At) -> Path:
        """The file, as this machine sees it, that holds what ADD of an attachment gave: to be lost, or torn."""
        return self.node.host_path(f"{CACHE}/{network['name']}-{at.container}-{at.ifname}")

    def _add(self, network: Mapping[str, Any], at: At, runtime: Mapping[str, Any]) -> cni.Answer:
        answer = _DONE
        for plugin in network["plugins"]:
            previous = {"prevResult": answer.document} if answer.stdout else {}
            answer = self._call("ADD", plugin_conf(network, plugin, runtime, **previous), at, answer.seconds)
            if answer.code:
                return answer
        self._keep(network, at, runtime, answer.document)
        return answer

    def _check(self, network: Mapping[str, Any], at: At, runtime: Mapping[str, Any] | None) -> cni.Answer:
        if not at_least(version_of(network), "0.4.0"):
            raise ValueError(f"version {version_of(network)} has no CHECK")
        kept = self._kept(self.cache_file(network, at))
        if kept is None:
            raise NotCached(f"{network['name']}: nothing is kept of {at}")
        given = runtime if runtime is not None else kept["capabilityArgs"]
        return self._each("CHECK", network, network["plugins"], at, given, prevResult=kept["result"])

    def _delete(self, network: Mapping[str, Any], at: At, runtime: Mapping[str, Any] | None) -> cni.Answer:
        """Without what is kept it goes on all the same."""
        kept = self._kept(self.cache_file(network, at)) or {}
        given = runtime if runtime is not None else kept.get("capabilityArgs", {})
        has_previous = kept and at_least(version_of(network), "0.4.0")
        previous = {"prevResult": kept["result"]} if has_previous else {}
        answer = self._each("DEL", network, list(reversed(network["plugins"])), at, given, **previous)
        if answer.code == 0:
            self.cache_file(network, at).unlink(missing_ok=True)
        return answer

    def _collect(self, network: Mapping[str, Any], valid: Sequence[At] | None) -> cni.Answer:
        """All is tried, whatever fails; the answer is the first that failed."""
        keys = {(at.container, at.ifname) for at in valid or ()}
        answers = []
        for kept in self._all_kept():
            at = At(kept["containerId"], os.path.basename(kept["netns"]), kept["ifName"])
            if kept["networkName"] == network["name"] and (at.container, at.ifname) not in keys:
                answers.append(self._delete(network, at, kept["capabilityArgs"]))
        if at_least(version_of(network), "1.1.0"):
            listed = None if valid is None else [{"containerID": at.container, "ifname": at.ifname} for at in valid]
            given = {} if valid is None else {"cni.dev/valid-attachments": listed, "cni.dev/attachments": listed}
            nobody = At("", "", "")
            answers += [
                self._call("GC", plugin_conf(network, item, {}, **given), nobody) for item in network["plugins"]
            ]
        return next((answer for answer in answers if answer.code), answers[-1] if answers else _DONE)

    def _each(
        self, verb: str, network: Mapping[str, Any], plugins: Sequence[Mapping[str, Any]], at: At,
        runtime: Mapping[str, Any] | None = None, **keys: Any,
    ) -> cni.Answer:  # fmt: skip
        answer = _DONE
        for plugin in plugins:
            answer = self._call(verb, plugin_conf(network, plugin, runtime or {}, **keys), at, answer.seconds)
            if answer.code:
                break
        return answer

    def _call(self, verb: str, conf: Mapping[str, Any], at: At, before: float = 0.0) -> cni.Answer:
        env = {**cni.environment(verb, at.container, at.pod), "CNI_IFNAME": at.ifname}
        began = time.monotonic()
        done = self.node.run(self._find(conf["type"]), input=json.dumps(conf), env=env, check=False)
        return cni.Answer(done.returncode, done.stdout, done.stderr, before + time.monotonic() - began)

    def _find(self, plugin: str) -> str:
        for folder in cni.PATH.split(":"):
            if os.path.lexists(self.node.host_path(f"{folder}/{plugin}")):
                return f"{folder}/{plugin}"
        raise FileNotFoundError(f"{self.node.name}: no {plugin} in {cni.PATH}")

    def _keep(self, network: Mapping[str, Any], at: At, runtime: Mapping[str, Any], result: Mapping[str, Any]) -> None:
        path = self.cache_file(network, at)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {
            "kind": "cniCacheV1",
            "containerId": at.container,
            "config": base64.b64encode(json.dumps(network).encode()).decode(),
            "ifName": at.ifname,
            "networkName": network["name"],
            "netns": f"/run/netns/{at.pod}",
            "capabilityArgs": runtime,
            "result": result,
        }
        path.write_text(json.dumps(kept), encoding="utf-8")

    def _kept(self, path: Path) -> dict[str, Any] | None:
        with contextlib.suppress(OSError, ValueError):
            kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return kept
        return None

    def _all_kept(self) -> Iterator[dict[str, Any]]:
        for path in sorted(self.node.host_path(CACHE).glob("*")):
            kept = self._kept(path)
            if kept is not None:
                yield kept


def plugin_conf(
    network: Mapping[str, Any], plugin: Mapping[str, Any], runtime: Mapping[str, Any], **keys: Any
) -> dict[str, Any]:  # fmt: skip
    """What libcni gives one plugin of a list."""
    conf = {key: value for key, value in plugin.items() if key != "capabilities"}
    wanted = {key: value for key, value in runtime.items() if plugin.get("capabilities", {}).get(key)}
    if wanted:
        conf["runtimeConfig"] = wanted
    return {**conf, "cniVersion": version_of(network), "name": network["name"], **keys}


def _as_bool(value: object) -> bool:
    """A list may write it as a string."""
    return value is True or (isinstance(value, str) and value.lower() == "true")
