# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container runtime's part of CNI: configuration lists, as libcni runs them.

A list's plugins in order, or in reverse for DEL; `prevResult` from one to the next and from ADD to CHECK and DEL;
`runtimeConfig` for declared capabilities only; the list of valid attachments for GC.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ansible_collections.podnet.ovs.tests.integration import cni

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light


@dataclass(frozen=True)
class At:
    """An attachment: container, name of the pod's namespace (empty if it is gone), interface."""

    container: str
    pod: str = ""
    ifname: str = "eth0"


def conflist(*plugins: Mapping[str, Any], name: str = "green", version: str = "1.0.0") -> dict[str, Any]:
    """A configuration list."""
    return {"cniVersion": version, "name": name, "plugins": list(plugins)}


def podnet(vlan: int = cni.GREEN, **keys: Any) -> dict[str, Any]:
    """The plugin podnet-ovs in a list."""
    return {"type": "podnet-ovs", "bridge": cni.BRIDGE, "vlan": vlan, **keys}


def static(*addresses: str) -> dict[str, Any]:
    """Addresses from Debian's static."""
    return {"type": "static", "addresses": [{"address": address} for address in addresses]}


class Caller:
    """A runtime on a node. It keeps the results of ADD, as libcni's cache does."""

    def __init__(self, node: Light) -> None:
        self.node = node
        self._results: dict[tuple[str, At], dict[str, Any]] = {}

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

        `runtime`: values for capabilities. `valid`: the attachments that GC keeps. `skip`: plugins that are left out.
        `seconds` are those of all plugins.
        """
        key = (network["name"], at or At(""))
        previous = self._results.get(key) if verb != "ADD" else None
        plugins = [plugin for plugin in network["plugins"] if plugin["type"] not in skip]
        answer = cni.Answer(0, "", "", 0.0)
        for plugin in reversed(plugins) if verb == "DEL" else plugins:
            conf = plugin_conf(network, plugin, runtime or {})
            if previous is not None:
                conf["prevResult"] = previous
            if valid is not None:
                conf["cni.dev/valid-attachments"] = [{"containerID": i.container, "ifname": i.ifname} for i in valid]
            answer = self._call(plugin["type"], verb, conf, at or At("", "", ""), answer.seconds)
            if answer.code:
                return answer
            if verb == "ADD":
                previous = answer.document
        if verb == "ADD":
            self._results[key] = answer.document
        if verb == "DEL":
            self._results.pop(key, None)
        return answer

    def add(self, network: Mapping[str, Any], at: At, **keys: Any) -> dict[str, Any]:
        """ADD, which succeeds; gives its result."""
        answer = self.ask("ADD", network, at, **keys)
        assert answer.code == 0, answer
        return answer.document

    def delete(self, network: Mapping[str, Any], at: At) -> None:
        """DEL, which succeeds and says nothing."""
        answer = self.ask("DEL", network, at)
        assert (answer.code, answer.stdout) == (0, ""), answer

    def _call(self, plugin: str, verb: str, conf: Mapping[str, Any], at: At, before: float) -> cni.Answer:
        env = {**cni.environment(verb, at.container, at.pod), "CNI_IFNAME": at.ifname}
        began = time.monotonic()
        done = self.node.run(self._find(plugin), input=json.dumps(conf), env=env, check=False)
        return cni.Answer(done.returncode, done.stdout, done.stderr, before + time.monotonic() - began)

    def _find(self, plugin: str) -> str:
        for folder in cni.PATH.split(":"):
            if os.path.lexists(self.node.host_path(f"{folder}/{plugin}")):
                return f"{folder}/{plugin}"
        raise FileNotFoundError(f"{self.node.name}: no {plugin} in {cni.PATH}")


def plugin_conf(network: Mapping[str, Any], plugin: Mapping[str, Any], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """What libcni gives one plugin of a list."""
    conf = {key: value for key, value in plugin.items() if key != "capabilities"}
    wanted = {key: value for key, value in runtime.items() if plugin.get("capabilities", {}).get(key)}
    if wanted:
        conf["runtimeConfig"] = wanted
    return {**conf, "cniVersion": network["cniVersion"], "name": network["name"]}
