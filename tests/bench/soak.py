# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""An agent over many calls: what it holds may not grow."""

from __future__ import annotations

import sys
import time
from typing import Any

from . import cpu
from .place import Place
from .report import AGENT, Row

SIDE_BY_SIDE = 8
EVERY = 500
_LATE = 1.0
"""Seconds after which nothing of a call is under way any more: an attachment is announced for half a second."""


def soak(place: Place, count: int) -> Row:
    """So many ADDs, each with its DEL, beside the ports that stand; the agent is looked at after each EVERY of them."""
    kind = next(kind for kind in place.kinds if kind.name == AGENT)
    samples: list[dict[str, Any]] = []
    began, failures, said = time.monotonic(), 0, ""
    for first in range(0, count, EVERY):
        last = min(first + EVERY, count)
        lanes = [
            [
                kind.call(verb, f"soak-{number}", f"p{lane}")
                for number in range(first + lane, last, SIDE_BY_SIDE)
                for verb in ("ADD", "DEL")
            ]
            for lane in range(SIDE_BY_SIDE)
        ]
        bad = [done for done in kind.driver.run([lane for lane in lanes if lane]).calls if done.code]
        failures += len(bad)
        said = said or next((done.out + done.err for done in bad), "")
        time.sleep(_LATE)
        sample = {"pairs": last, "rss_mib": cpu.resident(place.agent), "descriptors": cpu.descriptors(place.agent)}
        samples.append(sample)
        print(f"soak: {last} of {count}, {sample['rss_mib']:.1f} MiB", file=sys.stderr, flush=True)
    seconds = time.monotonic() - began
    return {"pairs": count, "ports": place.standing, "seconds": seconds, "failures": failures, "said": said.strip(),
            "samples": samples}  # fmt: skip
