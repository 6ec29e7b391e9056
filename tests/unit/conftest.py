# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Property tests look for wrong answers; how long one takes depends on what else the machine does."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("podnet", deadline=None)
settings.load_profile("podnet")
