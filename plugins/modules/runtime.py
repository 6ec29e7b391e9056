#!/usr/bin/python
# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
module: runtime
short_description: Install the podnet.ovs runtime on a node
version_added: 0.1.0
author:
  - The podnet.ovs authors (@podnet)
description:
  - The runtime is what runs on a node without Ansible, that is the CNI plugins, the agent, the command C(podnet), and
    the Python libraries that they need.
  - It goes to a folder of its own under C(/opt/podnet), named by its version and a digest of its content. The version
    before is kept.
  - The archive is built on the controller from the collection itself. The node needs neither pip nor a network.
options:
  state:
    description:
      - V(present) puts a version in use, V(absent) removes all versions and every link to them.
    type: str
    choices:
      - present
      - absent
    default: present
  version:
    description:
      - A version that is on the node already, to be put in use instead of the collection's own. V(previous) is the one
        before.
    type: str
  bin_dir:
    description:
      - The folder in which the container runtime looks for CNI plugins. Links in the one that was given before go.
    type: path
    default: /opt/cni/bin
  python:
    description:
      - The node's Python, 3.9 or later, that the executables name in their first line.
    type: path
    default: /usr/bin/python3
  command:
    description:
      - Where a link to the command C(podnet) is kept for people. An empty text means nowhere.
    type: str
    default: /usr/local/bin/podnet
  aliases:
    description:
      - Types of other plugins whose configurations C(podnet-ovs) serves unchanged. Each becomes a link to it in
        O(bin_dir). V(ovs) is that of ovs-cni, V(antrea) is Antrea's for secondary networks of the type C(vlan).
      - Refused, before anything is changed, where a file of that name is there that is not of this collection.
      - A link whose name is not listed any more goes. Pods that were attached by it need it for their end, so drain the
        node first.
    type: list
    elements: str
    choices:
      - ovs
      - antrea
    default: []
  _manifest:
    description:
      - Set by the collection itself, what its archive would bring. Not for tasks.
    type: dict
  _archive:
    description:
      - Set by the collection itself, where the archive is on the node. Not for tasks.
    type: path
extends_documentation_fragment:
  - podnet.ovs.attributes
"""

EXAMPLES = r"""
- name: Install this collection's runtime on a k3s node
  podnet.ovs.runtime:
    bin_dir: /var/lib/rancher/k3s/data/cni

- name: Serve the networks of ovs-cni too, which is not installed on this node
  podnet.ovs.runtime:
    aliases: [ovs]

- name: Go back to the version before
  podnet.ovs.runtime:
    version: previous

- name: Remove it
  podnet.ovs.runtime:
    state: absent
"""

RETURN = r"""
version:
  description: The version in use after the task, or the one that would be.
  returned: O(state=present)
  type: str
  sample: 0.1.0-24cf93729ba9
operations:
  description: What was done, or would be done, in order.
  returned: success
  type: list
  elements: str
  sample:
    - unpack 0.1.0-24cf93729ba9
    - switch from nothing to 0.1.0-24cf93729ba9
    - remember /opt/cni/bin
    - link /opt/cni/bin/podnet-ovs
before:
  description: What was in use.
  returned: success
  type: dict
  sample:
    current:
    previous:
    python:
    bin_dir:
    links: {}
after:
  description: What is in use.
  returned: success
  type: dict
  sample:
    current: 0.1.0-24cf93729ba9
    previous:
    python: /usr/bin/python3
    bin_dir: /opt/cni/bin
    links:
      /opt/cni/bin/podnet-ovs: /opt/podnet/current/bin/podnet-ovs
"""

from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.podnet.ovs.plugins.module_utils import runtime
from ansible_collections.podnet.ovs.plugins.module_utils.errors import PodnetError


def answer(before: runtime.State, after: runtime.State) -> dict[str, Any]:
    """The module's result for a change from the one to the other."""
    operations = runtime.operations(before, after)
    was, will_be = before.to_dict(), after.to_dict()
    return {
        "changed": bool(operations),
        "operations": operations,
        "before": was,
        "after": will_be,
        "diff": {"before": was, "after": will_be, "before_header": "runtime", "after_header": "runtime"},
    }


def present(module: AnsibleModule, place: runtime.Place) -> dict[str, Any]:
    """Puts a version in use. Without its archive, where that is needed, only says so."""
    version, archive = module.params["version"], module.params["_archive"]
    manifest = (
        runtime.manifest_of(place, version) if version else runtime.Manifest.parse(module.params["_manifest"] or {})
    )
    before = runtime.observe(place)
    after = runtime.wanted(before, place, manifest)
    runtime.check_free(place, after)
    result = {"version": manifest.version, **answer(before, after)}
    if not result["changed"] or module.check_mode:
        return result
    if manifest.version not in before.versions and not archive:
        return {"changed": False, "archive_wanted": True}
    runtime.apply(place, before, after, manifest, archive)
    return result


def absent(module: AnsibleModule, place: runtime.Place) -> dict[str, Any]:
    """Removes all of it."""
    if not module.check_mode:
        return answer(runtime.uninstall(place.opt, place.bin_dir, place.command), runtime.State())
    runtime.refuse_attached()
    return answer(runtime.observe(place), runtime.State())


def main() -> None:
    """Ansible's entry."""
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "version": {"type": "str"},
            "bin_dir": {"type": "path", "default": "/opt/cni/bin"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "command": {"type": "str", "default": "/usr/local/bin/podnet"},
            "aliases": {"type": "list", "elements": "str", "choices": ["ovs", "antrea"], "default": []},
            "_manifest": {"type": "dict"},
            "_archive": {"type": "path"},
        },
        supports_check_mode=True,
    )
    place = runtime.Place(
        bin_dir=module.params["bin_dir"],
        python=module.params["python"],
        command=module.params["command"] or None,
        aliases=tuple(module.params["aliases"]),
    )
    try:
        result = present(module, place) if module.params["state"] == "present" else absent(module, place)
    except PodnetError as error:
        module.fail_json(msg=f"runtime: {error.message}", hint=error.hint)
    except OSError as error:
        module.fail_json(msg=f"runtime: {error}")
    module.exit_json(**result)


if __name__ == "__main__":
    main()
