# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The owner mark under the name of the place where it is written; the plan needs it too, so it lives in the model."""

from __future__ import annotations

from ..model.ownership import (
    KEY_ADDRESSES,
    KEY_CONTAINER_ID,
    KEY_IFNAME,
    KEY_MTU,
    KEY_NETWORK,
    KEY_OWNER,
    KEY_POD_NAME,
    KEY_POD_NAMESPACE,
    KEY_POD_UID,
    KEY_SCHEMA,
    OWNER_NODE,
    OWNER_OVS,
    PREFIX,
    SCHEMA,
    Mark,
    foreign,
)

__all__ = [
    "KEY_ADDRESSES", "KEY_CONTAINER_ID", "KEY_IFNAME", "KEY_MTU", "KEY_NETWORK", "KEY_OWNER", "KEY_POD_NAME",
    "KEY_POD_NAMESPACE", "KEY_POD_UID", "KEY_SCHEMA", "OWNER_NODE", "OWNER_OVS", "PREFIX", "SCHEMA", "Mark", "foreign",
]  # fmt: skip
