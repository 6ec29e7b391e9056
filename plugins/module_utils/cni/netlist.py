# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Network configuration lists: what a runtime makes of one for each of its plugins (specification 1.1.0, section 1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ConfigError
from ..model.names import parse_plugin_type
from .config import parse_name
from .versions import SUPPORTED, at_least, parse_version


@dataclass(frozen=True)
class NetworkList:
    """A network's plugins in order. `disable_check` and `disable_gc` as the list has them."""

    name: str
    version: str
    plugins: tuple[Mapping[str, Any], ...]
    disable_check: bool = False
    disable_gc: bool = False

    @classmethod
    def parse(cls, value: object, path: str, name: str = "", version: object = None) -> NetworkList:
        """From a list, or from the configuration of a single plugin. `name` and `version` are for one without.

        Raises ConfigError that names the key.
        """
        if not isinstance(value, Mapping):
            hint = 'an object with "type" or "plugins"'
            raise ConfigError(path, f"a network configuration is wanted, not {value!r}"[:200], hint)
        plugins = value.get("plugins")
        if plugins is None:
            plugins = [value]
        elif not isinstance(plugins, list) or not plugins:
            raise ConfigError(f"{path}.plugins", "a list of plugins is wanted", 'like [{"type": "podnet-ovs"}]')
        for index, plugin in enumerate(plugins):
            place = f"{path}.plugins[{index}]" if "plugins" in value else path
            if not isinstance(plugin, Mapping):
                raise ConfigError(place, f"a plugin's configuration is wanted, not {plugin!r}"[:200])
            parse_plugin_type(plugin.get("type"), f"{place}.type")
            capabilities = plugin.get("capabilities")
            if capabilities is not None and not isinstance(capabilities, Mapping):
                raise ConfigError(f"{place}.capabilities", f"an object is wanted, not {capabilities!r}"[:200])
        return cls(
            parse_name(value.get("name") or name, f"{path}.name"),
            _version(value, version),
            tuple(plugins),
            _flag(value, "disableCheck", path),
            _flag(value, "disableGC", path),
        )

    def to_dict(self) -> dict[str, Any]:
        """What `parse` takes."""
        return {
            "cniVersion": self.version, "name": self.name, "disableCheck": self.disable_check,
            "disableGC": self.disable_gc, "plugins": list(self.plugins),
        }  # fmt: skip

    def undeclared(self, runtime: Mapping[str, Any]) -> list[str]:
        """The values for which no plugin of the list declares the capability."""
        return sorted(key for key in runtime if not any(_declares(plugin, key) for plugin in self.plugins))

    def conf(self, plugin: Mapping[str, Any], runtime: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        """The configuration of one of its plugins, with the runtime's values for the capabilities that it declares."""
        wanted = {key: value for key, value in runtime.items() if _declares(plugin, key)}
        raw = {**plugin, "cniVersion": self.version, "name": self.name, **more}
        raw.pop("runtimeConfig", None)
        if wanted:
            raw["runtimeConfig"] = wanted
        return raw


def _declares(plugin: Mapping[str, Any], capability: str) -> bool:
    return (plugin.get("capabilities") or {}).get(capability) is True


def _version(value: Mapping[str, Any], otherwise: object) -> str:
    """The highest of `cniVersions` that is spoken here, or else `cniVersion` (specification 1.1.0)."""
    offered = value.get("cniVersions")
    known = [version for version in offered if version in SUPPORTED] if isinstance(offered, list) else []
    best = max(known, key=SUPPORTED.index, default=None)
    if best is not None and (value.get("cniVersion") is None or at_least(best, parse_version(value["cniVersion"]))):
        return str(best)
    return parse_version(value.get("cniVersion") or otherwise)


def _flag(value: Mapping[str, Any], key: str, path: str) -> bool:
    """libcni takes these as strings, too."""
    given = value.get(key)
    if given in (None, False, "false"):
        return False
    if given in (True, "true"):
        return True
    raise ConfigError(f"{path}.{key}", f"{given!r} is neither true nor false"[:200])
