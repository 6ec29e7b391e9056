# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The role networks: NADs as files, and applied once per site through the real kubernetes.core.

Only the API server is a stand-in (kube_api.py), as no package brings one.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.podnet.ovs.tests.integration.kube_api import KubeApi
from ansible_collections.podnet.ovs.tests.lab.proc import STATE

TREE = Path(__file__).absolute().parents[5]
NETWORKS = [
    {
        "name": "blue",
        "bridge": "br-pod",
        "vlan": 100,
        "namespaces": ["shop", "bank"],
        "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.100.0.0/24"}]]},
    },
    {"name": "red", "bridge": "br-pod", "vlan": 200},
]
PLAY = [
    {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "roles": [{"role": "podnet.ovs.networks"}],
    }
]


def run_role(folder: Path, **variables: Any) -> dict[str, int]:
    """Runs the role for two nodes of one site; gives the sums of the recap."""
    (folder / "play.yml").write_text(yaml.safe_dump(PLAY))
    given = {
        "podnet_bridges": [{"name": "br-pod"}],
        "podnet_networks": NETWORKS,
        "podnet_nad_dir": str(folder / "nads"),
        "podnet_site_nodes_ready": ["n1", "n2"],
        "ansible_python_interpreter": sys.executable,
        **variables,
    }
    done = subprocess.run(
        ["ansible-playbook", "-i", "n1,n2,", "play.yml", "-e", json.dumps(given)],
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": f"{TREE}:{STATE}/collections", "ANSIBLE_NOCOLOR": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts: dict[str, int] = {}
    for key, value in re.findall(r"(ok|changed|failed)=(\d+)", done.stdout.partition("PLAY RECAP")[2]):
        counts[key] = counts.get(key, 0) + int(value)
    return counts


def test_files_hold_one_nad_for_each_namespace(tmp_path: Path) -> None:
    assert run_role(tmp_path)["changed"] > 0
    files = sorted((tmp_path / "nads" / "default").glob("*.yml"))
    assert [path.name for path in files] == ["bank-blue.yml", "default-red.yml", "shop-blue.yml"]
    nad = yaml.safe_load(files[0].read_text())
    assert (nad["kind"], nad["metadata"]["namespace"]) == ("NetworkAttachmentDefinition", "bank")
    conflist = json.loads(nad["spec"]["config"])
    assert conflist["cniVersion"] == "1.0.0"
    plugin = conflist["plugins"][0]
    assert (plugin["type"], plugin["bridge"], plugin["vlan"]) == ("podnet-ovs", "br-pod", 100)
    assert run_role(tmp_path)["changed"] == 0
    run_role(tmp_path, podnet_networks=NETWORKS[:1])
    assert not (tmp_path / "nads" / "default" / "default-red.yml").exists()


def test_apply_speaks_to_the_cluster_once_for_a_site(tmp_path: Path) -> None:
    with KubeApi() as api:
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(api.kubeconfig()))
        first = run_role(tmp_path, podnet_nads="apply", podnet_kubeconfig=str(kubeconfig))
        assert first["changed"] > 0
        assert sorted(api.objects) == [("bank", "blue"), ("default", "red"), ("shop", "blue")]
        patches = [call for call in api.calls if call.startswith("PATCH")]
        assert len(patches) == 3, "one apply for each NAD, not one for each node as well"
        again = run_role(tmp_path, podnet_nads="apply", podnet_kubeconfig=str(kubeconfig))
        assert again["changed"] == 0
