# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Connects to a host and port and hands the open connection to ssh: a ProxyCommand for ProxyUseFdpass.

It runs in the namespace of a LAN. ssh itself stays outside and goes on alone, so that nothing has to be relayed.
"""

from __future__ import annotations

import socket
import sys


def main(host: str, port: str, source: str) -> None:
    """Sends the descriptor of a new TCP connection from an address over standard output."""
    connection = socket.create_connection((host, int(port)), timeout=10, source_address=(source, 0))
    connection.settimeout(None)
    with socket.socket(fileno=1) as ssh:
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3])
