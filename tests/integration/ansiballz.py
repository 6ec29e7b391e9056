# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Modules as Ansible runs them: packed by its own code, executed by the node's own Python, without the controller.

Ansible wants to be the one that imports the collection, so the packing is done by a process of its own, which this file
is as well: a line of JSON in, a line of JSON out.
"""

from __future__ import annotations

import atexit
import base64
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

COLLECTION = Path(__file__).absolute().parents[2]
PYTHON = "/usr/bin/python3"


def run_module(node: Any, module: str, check: bool = False, **options: Any) -> dict[str, Any]:
    """Runs a module of the collection on a node (with a `run` method), and gives its result, failed or not."""
    sent = payload(module, {"_ansible_check_mode": check, "_ansible_diff": True, **options})
    done = node.run(PYTHON, "-", input=sent, check=False)
    try:
        result = json.loads(done.stdout)
    except ValueError:
        raise AssertionError(f"{module} gave no result: {done.stdout}{done.stderr}") from None
    assert isinstance(result, dict)
    return result


def payload(module: str, arguments: dict[str, Any]) -> bytes:
    """What Ansible sends to a node."""
    return base64.b64decode(_ask({"module": module, "arguments": arguments})["payload"])


def parts(module: str) -> list[str]:
    """The files inside what Ansible sends to a node, by their paths."""
    return list(_ask({"module": module, "arguments": {}})["parts"])


def _ask(question: dict[str, Any]) -> dict[str, Any]:
    packer = _packer()
    assert packer.stdin is not None and packer.stdout is not None
    packer.stdin.write(json.dumps(question) + "\n")
    packer.stdin.flush()
    answer = json.loads(packer.stdout.readline())
    assert isinstance(answer, dict)
    return answer


@functools.cache
def _packer() -> subprocess.Popen[str]:
    packer = subprocess.Popen(
        [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    )
    atexit.register(packer.terminate)
    return packer


def main() -> None:
    """The packing process."""
    from ansible.executor.module_common import modify_module
    from ansible.parsing.dataloader import DataLoader
    from ansible.plugins.loader import init_plugin_loader
    from ansible.template import Templar

    init_plugin_loader([str(COLLECTION.parents[2])])
    for line in sys.stdin:
        question = json.loads(line)
        built = modify_module(
            module_name=f"ansible_collections.podnet.ovs.plugins.modules.{question['module']}",
            module_path=str(COLLECTION / "plugins" / "modules" / f"{question['module']}.py"),
            module_args=question["arguments"],
            templar=Templar(DataLoader()),
            task_vars={"ansible_python_interpreter": PYTHON},
            module_compression="ZIP_DEFLATED",
        )
        answer = {"payload": base64.b64encode(built.b_module_data).decode(), "parts": _parts(built.b_module_data)}
        print(json.dumps(answer), flush=True)


def _parts(data: bytes) -> list[str]:
    import ast
    import io
    import zipfile

    texts = (node.value for node in ast.walk(ast.parse(data)) if isinstance(node, ast.Constant))
    packed = max((text for text in texts if isinstance(text, str)), key=len)
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as zipped:
        return sorted(zipped.namelist())


if __name__ == "__main__":
    main()
