# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A way for the frames of a NIC that is about to become a port.

The kernel datapath asks ovs-vswitchd about frames as soon as the port is there, and ovs-vswitchd drops what it is asked
until it knows the port itself, some milliseconds later. Flows for the number that the port will get need no asking:
what arrives goes to the bridge's own interface. ovs-vswitchd puts its own in their place, or takes them away if the
port does not come (revalidation, ovs-vswitchd(8)).
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
from typing import Any

_RUN = "/run/openvswitch"
_DATAPATH = "ovs-system"
"""All bridges on the kernel datapath share it (lib/dpif.c, dpif_create_and_open of ofproto-dpif)."""
_SECONDS = 2.0
_PORT = re.compile(r"^\s*port (\d+): (\S+)", re.MULTILINE)
_KEYS = ("eth_type(0x0800),ipv4()", "eth_type(0x0806),arp()", "eth_type(0x86dd),ipv6()")


def foresee_port(bridge: str) -> bool:
    """Prepares the kernel datapath for the port that is added next, by a transaction that follows at once.

    Gives whether it did: not if ovs-vswitchd cannot be asked. Then a few packets may be lost.
    """
    with contextlib.suppress(OSError, ValueError, KeyError):
        ports = {name: int(number) for number, name in _PORT.findall(_ask("dpctl/show", _DATAPATH))}
        own = ports[bridge]
        # the kernel gives the lowest that is free (net/openvswitch/datapath.c, ovs_vport_cmd_new)
        new = next(number for number in range(1, len(ports) + 2) if number not in ports.values())
        for key in _KEYS:
            _ask("dpctl/add-flow", _DATAPATH, f"recirc_id(0),in_port({new}),eth(),{key}", str(own))
        return True
    return False


def _ask(method: str, *words: str) -> str:
    """What ovs-vswitchd answers on its control socket (ovs-appctl(8)). Raises OSError, ValueError."""
    with open(f"{_RUN}/ovs-vswitchd.pid", encoding="ascii") as file:
        path = f"{_RUN}/ovs-vswitchd.{int(file.read())}.ctl"
    with contextlib.closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)) as link:
        link.settimeout(_SECONDS)
        link.connect(path)
        link.sendall(json.dumps({"id": 0, "method": method, "params": list(words)}).encode())
        text = ""
        while True:
            part = link.recv(1 << 16)
            text += part.decode("utf-8", "replace")
            with contextlib.suppress(ValueError):
                answer: Any = json.loads(text)
                break
            if not part:
                raise ValueError("no whole answer")
    if answer.get("error") is not None:
        raise ValueError(str(answer["error"]))
    return str(answer.get("result"))
