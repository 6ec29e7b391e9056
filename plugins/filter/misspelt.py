# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: misspelt
short_description: Names that look like a known one, but are not
version_added: 0.1.0
author:
  - The podnet.ovs authors
description:
  - Finds variables whose author meant another name. Ansible itself ignores a variable that nobody reads, and a node
    whose bridges stand under a misspelt name looks like a node without any.
options:
  _input:
    description: The names to look at.
    type: list
    elements: str
    required: true
  known:
    description: The names that are right. Names that are like none of them are somebody's own, and are left out.
    type: list
    elements: str
    required: true
"""

EXAMPLES = r"""
- name: Print podnet_bridge (podnet_bridges?)
  ansible.builtin.debug:
    msg: "{{ ['podnet_bridge', 'my_own'] | podnet.ovs.misspelt(['podnet_bridges']) }}"
"""

RETURN = r"""
_value:
  description: Each misspelt name with the one that was probably meant.
  type: list
  elements: str
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches
from typing import Any

LIKENESS = 0.9
"""A letter more, less or swapped in a name of this length. A variable of one's own is further away."""


def misspelt(names: Iterable[str], known: Iterable[str]) -> list[str]:
    """The filter."""
    right = sorted(known)
    found = []
    for name in sorted(set(names) - set(right)):
        meant = get_close_matches(name, right, n=1, cutoff=LIKENESS)
        if meant:
            found.append(f"{name} ({meant[0]}?)")
    return found


class FilterModule:
    """Ansible's entry."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """The filters of this file."""
        return {"misspelt": misspelt}
