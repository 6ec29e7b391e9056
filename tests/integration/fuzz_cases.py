# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Calls of CNI plugins that no runtime would make, from a seed and a number: configuration, environment, and what the
IPAM plugin does. Each begins as one that is right, and is then spoilt in some places, or in none.

No imports but the standard library's: the process that makes the calls is one of the node's.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.podnet.ovs.tests.integration.fuzz_words import (
    BASES,
    CODES,
    ELSEWHERE,
    ENVIRONMENT,
    ERROR,
    FLOOD,
    FOLDER,
    GIVEN,
    HANG,
    IPAM,
    JUNK,
    KILL,
    NETNS,
    NEWER,
    OLDEST,
    PROTOCOL,
    SPOILS,
    WORDS,
)


@dataclass(frozen=True)
class Answer:
    """What the IPAM plugin prints for a verb, and how it ends: with a status, or HANG, KILL, FLOOD."""

    printed: bytes = b""
    end: str = "0"

    @property
    def is_error(self) -> bool:
        """Whether it is an error of the specification: it holds nothing then."""
        try:
            said = json.loads(self.printed)
        except ValueError:
            return False
        return self.end not in ("0", HANG, KILL, FLOOD) and isinstance(said, dict) and "code" in said


VERSIONS = b'{"cniVersion":"1.1.0","supportedVersions":["0.3.1","1.0.0","1.1.0"]}'
FINE: Mapping[str, Answer] = {
    "ADD": Answer(json.dumps(GIVEN).encode()), "DEL": Answer(), "CHECK": Answer(), "GC": Answer(), "STATUS": Answer(),
    "VERSION": Answer(VERSIONS),
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A call of a plugin. `base` is its configuration before it was spoilt, `again` the verbs that follow an ADD that
    succeeds, before its DEL.
    """

    number: int
    plugin: str
    env: Mapping[str, str]
    stdin: bytes
    base: bytes
    ipam: Mapping[str, Answer] = field(default_factory=lambda: FINE)
    again: tuple[str, ...] = ()

    @property
    def verb(self) -> str:
        """As the environment has it."""
        return self.env.get("CNI_COMMAND", "")


def environment(verb: str, number: int) -> dict[str, str]:
    """What a runtime would set."""
    args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=p1"
    return {
        "CNI_COMMAND": verb, "CNI_CONTAINERID": f"c{number}", "CNI_NETNS": NETNS, "CNI_IFNAME": "eth0",
        "CNI_PATH": FOLDER, "CNI_ARGS": args, "PATH": "/usr/bin:/bin",
    }  # fmt: skip


def configuration(plugin: str, own: Mapping[str, Any]) -> dict[str, Any]:
    """A right configuration of a plugin."""
    whole = {"cniVersion": "1.0.0", "name": "green", "type": plugin, "ipam": {"type": IPAM}, **own}
    return {key: copy.deepcopy(value) for key, value in whole.items() if value is not None}


def sound_cases(plugin: str) -> list[Case]:
    """Each kind of configuration of a plugin, not spoilt, of each version."""
    cases: list[Case] = []
    for own in BASES.get(plugin, ({},)):
        # without an address the oldest version has nothing to say
        for version in ("0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")[plugin in ELSEWHERE :]:
            stdin = json.dumps({**configuration(plugin, own), "cniVersion": version}).encode()
            again = ("CHECK",) if version >= "0.4.0" else ()
            cases.append(Case(-1, plugin, environment("ADD", 0), stdin, stdin, again=again))
    return cases


def make_case(seed: str, number: int, plugins: list[str]) -> Case:
    """The call of that number."""
    rng = random.Random(f"{seed}:{number}")
    plugin = plugins[number % len(plugins)]
    conf = configuration(plugin, rng.choice(BASES.get(plugin, ({},))))
    conf["cniVersion"] = rng.choice(("0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.0.0", "1.1.0", "1.1.0"))
    if rng.random() < 0.2:
        conf.pop("ipam", None)
    base = json.dumps(conf).encode()
    verb = rng.choices(("ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"), (75, 6, 6, 5, 6, 2))[0]
    env = environment(verb, number)
    ipam = dict(FINE)
    spoil = rng.choices((_spoil_conf, _spoil_env, _spoil_ipam), (50, 20, 30), k=rng.choice((0, 1, 1, 1, 1, 2, 3)))
    stdin = base
    if _spoil_env in spoil:
        _spoil_env(rng, env)
    if _spoil_ipam in spoil:
        _spoil_ipam(rng, ipam)
    if _spoil_conf in spoil:
        stdin = _spoil_conf(rng, conf, plugin)
    again = tuple(rng.sample(("CHECK", "CHECK", "GC", "STATUS", "ADD"), rng.choice((0, 0, 1, 2))))
    return Case(number, plugin, env, stdin, base, ipam, again)


def spoil(rng: random.Random, value: Any, times: int = 1) -> Any:
    """A JSON value, changed in some places."""
    value = copy.deepcopy(value)
    for _turn in range(times):
        places = list(_places(value))
        if not places:
            return copy.deepcopy(rng.choice(JUNK))
        holder, key = rng.choice(places)
        rng.choices(_OPERATIONS, (7, 2, 1, 1, 1))[0](rng, holder, key)
    return value


def spoil_text(rng: random.Random, text: bytes) -> bytes:
    """Text, changed in some places."""
    for _turn in range(rng.choice((1, 1, 2, 5))):
        at = rng.randrange(len(text) + 1)
        to = min(len(text), at + rng.choice((0, 1, 1, 5, 50)))
        text = rng.choice((
            text[:at], text[:at] + text[to:], text[:at] + rng.choice(SPOILS) + text[at:], text[at:],
            text[:at] + rng.choice(SPOILS) + text[to:], text[:at] + text[at:to] * 2 + text[to:], text + text,
            text.replace(b"{", b'{"name":"green",', 1), text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :],
        ))  # fmt: skip
    return text


def _spoil_conf(rng: random.Random, conf: dict[str, Any], plugin: str) -> bytes:
    for _turn in range(rng.choice((0, 1, 1, 2, 3))):
        words = WORDS.get(plugin if rng.random() < 0.9 else rng.choice(list(WORDS)), PROTOCOL)
        words = words if rng.random() < 0.6 else PROTOCOL
        key = rng.choice(list(words))
        conf[key] = rng.choice(words[key])
    spoilt = spoil(rng, conf, rng.choice((0, 1, 1, 2, 3)))
    if rng.random() < 0.05:
        spoilt = {**conf, "deep": _nested(rng)}
    text = json.dumps(spoilt).encode()
    return spoil_text(rng, text) if rng.random() < 0.2 else text


def _spoil_env(rng: random.Random, env: dict[str, str]) -> None:
    for _turn in range(rng.choice((1, 1, 2))):
        name = rng.choice(list(ENVIRONMENT))
        if rng.random() < 0.15:
            env.pop(name, None)
        else:
            env[name] = rng.choice(ENVIRONMENT[name])


def _spoil_ipam(rng: random.Random, ipam: dict[str, Answer]) -> None:
    """For ADD mostly; at times for another verb as well."""
    for verb in ("ADD", *rng.choices(("DEL", "CHECK", "GC", "STATUS", "VERSION"), k=rng.choice((0, 0, 1, 2)))):
        kind = rng.random()
        said = rng.choice((GIVEN, OLDEST, NEWER)) if verb == "ADD" else json.loads(FINE[verb].printed or b"{}")
        if kind < 0.45:
            ipam[verb] = Answer(json.dumps(spoil(rng, said, rng.choice((0, 1, 1, 2, 3)))).encode())
        elif kind < 0.65:
            error = {**ERROR, "code": rng.choice(CODES)}
            ipam[verb] = Answer(json.dumps(spoil(rng, error, rng.choice((0, 0, 1)))).encode(), rng.choice("1123"))
        elif kind < 0.85:
            ipam[verb] = Answer(spoil_text(rng, json.dumps(said).encode()), rng.choice("0001"))
        elif kind < 0.95:
            ipam[verb] = Answer(rng.choice((b"", b" \n", b"null", b"[]", b"0", b'"x"')), rng.choice(("0", "1", "255")))
        else:
            ipam[verb] = Answer(b"{", rng.choices((KILL, FLOOD, HANG), (70, 29, 1))[0])


def _nested(rng: random.Random) -> Any:
    value: Any = 1
    for _level in range(rng.choice((10, 60, 70, 200))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All places of a value: what holds it, and its key or number there."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        yield value, key
        yield from _places(inner)


def _replace(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = copy.deepcopy(rng.choice(JUNK))


def _remove(_rng: random.Random, holder: Any, key: Any) -> None:
    del holder[key]


def _wrap(rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = rng.choice(([holder[key]], {"x": holder[key]}, [holder[key], holder[key]]))


def _rename(rng: random.Random, holder: Any, key: Any) -> None:
    if isinstance(holder, dict):
        holder[rng.choice((key.upper(), key + "x", key[:-1], ""))] = holder.pop(key)


def _empty(_rng: random.Random, holder: Any, key: Any) -> None:
    holder[key] = type(holder[key])() if holder[key] is not None else ""


_OPERATIONS: tuple[Callable[[random.Random, Any, Any], None], ...] = (_replace, _remove, _wrap, _rename, _empty)
