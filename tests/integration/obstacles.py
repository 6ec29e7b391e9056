# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What stands in the way of a move, asked of a node as the move itself asks it, and what the node holds on disk."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Light

ASK = r"""
import json, os, sys
sys.path.insert(0, "/opt/podnet/current/lib")
from podnet.errors import OvsdbUnavailable
from podnet.model.move import Request
from podnet.uplink.obstacles import obstacles
from podnet.uplink.observe import observe
from podnet.vswitch.session import Session
request = Request.parse(json.load(sys.stdin))
try:
    with Session.open(request.ovsdb) as session:
        state = observe(session)
except OvsdbUnavailable:
    state = observe(None)
began = sum(os.times()[:4])
found = obstacles(request, state, None)
seconds = sum(os.times()[:4]) - began
json.dump({"found": [[item.level, item.text, item.hint] for item in found], "seconds": seconds}, sys.stdout)
"""
PYTHON = "/usr/bin/python3"
SECONDS = 240
"""How long an answer may take in the emulated machine, on a busy host."""
KEPT = "/etc /var/lib /opt /run /var/log"


@dataclass(frozen=True)
class Answer:
    """The obstacles of a request: rows of level, text and hint. `seconds`: of processor time, children's too."""

    rows: tuple[tuple[str, str, str], ...]
    seconds: float

    def of(self, level: str) -> list[str]:
        """The texts of a level."""
        return [text for grade, text, _hint in self.rows if grade == level]

    @property
    def blocking(self) -> list[str]:
        """What the move would be refused for."""
        return self.of("blocking")

    def row(self, words: str) -> tuple[str, str, str]:
        """The one row whose text holds these words."""
        found = [row for row in self.rows if words in row[1]]
        assert len(found) == 1, f"{words!r} is in {len(found)} of {self.rows}"
        return found[0]


def request(nic: str = "eth0", datapath: str = "netdev", direction: str = "move", **bridge: Any) -> dict[str, Any]:
    """A request as JSON. Keys of `bridge` are those of its declaration."""
    uplinks = [{"name": nic, "move": True}]
    declared = {"name": "br-x", "datapath_type": datapath, "uplinks": uplinks, **bridge}
    return {"direction": direction, "nic": nic, "bridge": declared}


def ask(node: Light, wanted: dict[str, Any], visit: str = "") -> Answer:
    """Asks a node. `visit`: as from SSH, the variable SSH_CONNECTION. Nothing on its disk changes."""
    before = listing(node)
    env = {"SSH_CONNECTION": visit} if visit else {}
    done = node.run(PYTHON, "-IS", "-c", ASK, input=json.dumps(wanted), env=env, timeout=SECONDS)
    written = set(listing(node).splitlines()) ^ set(before.splitlines())
    assert not written, f"something was written: {written}"
    answer = json.loads(done.stdout)
    rows = [tuple(row) for row in answer["found"]]
    assert all(text for _level, text, _hint in rows)
    assert all(hint for level, _text, hint in rows if level == "blocking"), "a refusal without a way out"
    return Answer(tuple(rows), answer["seconds"])


def listing(node: Light) -> str:
    """Every file of the node's own folders with size and time of change, and its links.

    Not what Open vSwitch logs, the clock that libuuid keeps when Python asks it for a number, and addresses that the
    kernel is still trying out.
    """
    skipped = " ".join(f"-not -path '{path}/*'" for path in ("/var/log", "/var/lib/libuuid"))
    files = f"find {KEPT} -xdev -type f {skipped} -printf '%p %s %T@\\n' 2> /dev/null | sort"
    links = "ip -o link | cut -d: -f2"
    layer3 = "(ip -o addr; ip route show table all) | sed 's/[0-9]*sec//g' | grep -v fe80"
    return node.run("sh", "-c", f"{files}; {links}; {layer3}", timeout=SECONDS).stdout
