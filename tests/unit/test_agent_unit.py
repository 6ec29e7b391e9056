# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's unit as the role runtime writes it, and the address for metrics that the role lets through."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml

from ansible_collections.podnet.ovs.plugins.module_utils import runtime
from ansible_collections.podnet.ovs.plugins.module_utils.agent.metrics import parse_address
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError

ROLE = Path(__file__).resolve().parents[2] / "roles" / "runtime"


def read(path: str) -> Any:
    """A YAML file of the role."""
    return yaml.safe_load((ROLE / path).read_text(encoding="utf-8"))


def command(**given: str) -> list[str]:
    """What the unit starts."""
    values = {"ansible_managed": "", **read("defaults/main/role.yml"), **read("vars/main.yml"), **given}
    text = (ROLE / "templates/podnet-agent.service.j2").read_text(encoding="utf-8")
    unit = jinja2.Environment(undefined=jinja2.StrictUndefined, autoescape=False).from_string(text).render(values)
    (line,) = re.findall(r"^ExecStart=(.*)$", unit, flags=re.M)
    return list(line.split())


def test_without_an_address_there_is_no_port() -> None:
    assert command() == ["/opt/podnet/current/bin/podnet-agent"]


def test_the_address_reaches_the_agent() -> None:
    assert command(podnet_metrics_listen="[::]:9469")[1:] == ["--metrics", "[::]:9469"]


@pytest.mark.parametrize(
    ("text", "good"),
    [
        ("127.0.0.1:9469", True), ("0.0.0.0:1", True), ("255.249.199.99:65535", True), ("[::]:9469", True),
        ("[2001:db8::1]:9469", True), ("[::ffff:192.0.2.1]:9469", True),
        ("9469", False), (":9469", False), ("127.0.0.1", False), ("127.0.0.1:0", False), ("127.0.0.1:65536", False),
        ("127.0.0.256:9469", False), ("127.1:9469", False), ("localhost:9469", False), ("::1:9469", False),
        ("[127.0.0.1]:9469", False), ("[fe80::1%eth0]:9469", False), ("127.0.0.1:9469 --socket /x", False),
        ("127.0.0.1:9469\n", False), ("127.0.0.1:9469\nExecStartPre=/x", False),
    ],
)  # fmt: skip
def test_the_role_lets_the_addresses_through_that_the_agent_takes(text: str, good: bool) -> None:
    try:
        parse_address(text)
        taken = True
    except ConfigError:
        taken = False
    pattern = read("vars/main.yml")["__podnet_address_and_port"]
    let_through = re.match(pattern, text) is not None and int(text.rpartition(":")[2]) < 65536
    assert (taken, let_through) == (good, good)


def test_role_and_module_know_the_same_peers() -> None:
    option = read("meta/argument_specs.yml")["argument_specs"]["main"]["options"]["podnet_cni_aliases"]
    assert option["choices"] == list(runtime.ALIASES)
    assert read("defaults/main/role.yml")["podnet_cni_aliases"] == []
