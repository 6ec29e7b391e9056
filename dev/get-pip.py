# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Gives a new virtual environment its pip from Python's own bundle.

`ansible-test sanity` runs a file of this purpose in each environment that it makes, and would fetch it from a site
that a machine with nothing but a package index does not reach. dev/setup puts this one where ansible-test looks.
"""

from __future__ import annotations

import subprocess
import sys

OPTIONS_OF_GET_PIP = {"--no-setuptools", "--no-wheel"}

subprocess.run([sys.executable, "-m", "ensurepip", "--default-pip"], check=True, stdout=subprocess.DEVNULL)
wanted = [word for word in sys.argv[1:] if word not in OPTIONS_OF_GET_PIP]
if any(not word.startswith("-") for word in wanted):
    sys.exit(subprocess.run([sys.executable, "-m", "pip", "install", *wanted], check=False).returncode)
