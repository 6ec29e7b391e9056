# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the action plugins share that bring the runtime's archive to a node."""

from __future__ import annotations

from pathlib import Path

from ansible import constants
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.podnet.ovs.plugins.plugin_utils.archive import ArchiveError, build_archive

COLLECTION = Path(__file__).resolve().parents[2]


class RuntimeCarrier(ActionBase):
    """An action that can build the archive and copy it into the remote temporary folder."""

    def archive(self) -> Path:
        """The archive on the controller, built once per run: its forks share Ansible's temporary folder."""
        folder = Path(constants.DEFAULT_LOCAL_TMP)
        built = sorted(folder.glob("podnet-runtime-*.zip"))
        if built:
            return built[0]
        try:
            return build_archive(COLLECTION, COLLECTION / "roles" / "runtime" / "files" / "wheels", folder).path
        except ArchiveError as error:
            raise AnsibleActionFail(str(error)) from error

    def bring(self, archive: Path) -> str:
        """Copies the archive to the node and gives its path there; it goes when the task ends."""
        shell = self._connection._shell
        if shell.tmpdir is None:
            self._make_tmp_path()
        remote: str = self._transfer_file(str(archive), shell.join_path(shell.tmpdir, archive.name))
        self._fixup_perms2((shell.tmpdir, remote))
        return remote
