# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""python -m ansible_collections.podnet.ovs.tests.lab.make recipe|make PART: what dev/setup calls."""

from __future__ import annotations

import sys

from .build import PARTS, make, recipe


def main(words: list[str]) -> None:
    """`recipe` prints each part with the digest of all that decides how it is built; `make` builds the parts."""
    if not words or words[0] not in ("recipe", "make") or not set(words[1:]) <= set(PARTS):
        sys.exit(__doc__)
    for part in words[1:]:
        if words[0] == "recipe":
            print(part, recipe(part))
        else:
            make(part)


if __name__ == "__main__":
    main(sys.argv[1:])
