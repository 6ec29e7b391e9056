# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A virtual machine with Debian's own kernel, for what only a kernel shows: its datapath, 802.1Q, bonding."""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from .proc import COLLECTION, KERNEL, LABS, PLAIN, ROOTS, STATE, TREE, CommandFailed, LabError, Result, run, until
from .space import cgroup_name, clear_part, valid_name

TOOLS = Path("/tools")
"""Where a machine finds this one's programs, for tests that need more than its root has."""
MAIN = r"""
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -t tmpfs -o mode=755 cgroup /sys/fs/cgroup 2> /dev/null && mkdir /sys/fs/cgroup/unified &&
    mount -t cgroup2 cgroup2 /sys/fs/cgroup/unified
ip link set lo up
hostname vm
modprobe -a openvswitch 8021q bonding veth bridge nf_tables virtio_net
cd /
touch /jobs/ready
n=1
while :; do
    while [ ! -e /jobs/$n.go ]; do sleep 0.05; done
    sh /jobs/$n.sh > /jobs/$n.out 2> /jobs/$n.err < /dev/null
    echo $? > /jobs/$n.new
    mv /jobs/$n.new /jobs/$n.status
    n=$((n + 1))
done
"""


class Vm:
    """A machine that boots Debian's kernel on a root with Open vSwitch, and runs commands in it one after the other.

    The developer's virtual environment, tree and wheels are there at the paths that they have here, and this machine's
    /usr at TOOLS, read-only; `output` is a folder that both sides write to, at one path. What else is written there is
    gone when it ends.
    """

    def __init__(self, lab: str, name: str, *, memory: int = 2048, cpus: int = 2) -> None:
        self.lab = lab
        self.name = valid_name(name)
        if not (KERNEL / "initrd.gz").exists() or not (ROOTS / "vm").is_dir():
            raise LabError(f"{name}: run dev/setup --lab vm first")
        self.memory = memory
        self.cpus = cpus
        self.folder = LABS / lab / name
        self.jobs = self.folder / "jobs"
        self.output = self.folder / "output"
        self._count = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Switches the machine on; `run` waits until it is up."""
        for folder in (self.jobs, self.output):
            folder.mkdir(parents=True)
        # the machine's folders are read-only there, and compiling a tree under emulation takes longer than running it
        run([sys.executable, "-m", "compileall", "-q", COLLECTION / "plugins", COLLECTION / "tests"], check=False)
        from .runtime import RUNTIMES, runtime

        runtime()
        same = [
            ("runtime", "ro", RUNTIMES),
            ("venv", "ro", STATE / "venv"),
            ("tree", "ro", TREE),
            ("wheels", "ro", STATE / "wheels"),
            ("output", "rw", self.output),
        ]
        shares: list[tuple[str, str, Path]] = [*same, ("tools", "ro", Path("/usr"))]
        lines = [f"{tag} {mode} {path}\n" for tag, mode, path in [*same, ("tools", "ro", TOOLS)]]
        (self.jobs / "shares").write_text("".join(lines), encoding="utf-8")
        (self.jobs / "main").write_text(MAIN, encoding="utf-8")
        words = ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", str(self.cpus)]
        words += ["-m", str(self.memory), "-display", "none", "-nodefaults", "-no-reboot"]
        words += ["-serial", f"file:{self.folder}/console", "-pidfile", f"{self.folder}/pid"]
        words += ["-kernel", str(next((KERNEL / "files/boot").glob("vmlinuz-*"))), "-initrd", str(KERNEL / "initrd.gz")]
        words += ["-append", "console=ttyS0 panic=-1 quiet mitigations=off net.ifnames=0"]
        modules = KERNEL / "files/lib/modules"
        for tag, mode, path in [
            ("root", "ro", ROOTS / "vm"),
            ("modules", "ro", modules),
            ("jobs", "rw", self.jobs),
            *shares,
        ]:
            readonly = ",readonly=on" if mode == "ro" else ""
            words += ["-fsdev", f"local,id={tag},path={path},security_model=none,multidevs=remap{readonly}"]
            words += ["-device", f"virtio-9p-pci,fsdev={tag},mount_tag={tag}"]
        with open(self.folder / "qemu", "wb") as log:
            self._process = subprocess.Popen(
                words, env=PLAIN, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        join_cgroup(cgroup_name(self.lab, self.name), self._process.pid)

    def _alive(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise LabError(f"{self.name} has ended:\n{self.console()}")
        return True

    def wait(self, timeout: float = 120) -> None:
        """Waits until the machine takes commands."""
        until(lambda: self._alive() and (self.jobs / "ready").exists(), timeout, f"{self.name} up:\n{self.console()}")

    def console(self) -> str:
        """What the kernel has printed, and qemu."""
        text = ""
        for name in ("qemu", "console"):
            with contextlib.suppress(FileNotFoundError):
                text += (self.folder / name).read_text(encoding="utf-8", errors="replace")
        return text

    def run(
        self, *argv: str | Path, check: bool = True, timeout: float = 300, env: Mapping[str, str] | None = None
    ) -> Result:
        """Runs a command in the machine to its end and gives its exit status and output.

        `env` is added to a plain environment. Raises CommandFailed on a status other than 0 (unless `check` is false);
        after `timeout` seconds subprocess.TimeoutExpired, and then the machine is switched off: it cannot go on.
        """
        self.wait()
        self._count += 1
        job = self.jobs / str(self._count)
        words = [str(word) for word in argv]
        sets = [f"{key}={value}" for key, value in (env or {}).items()]
        job.with_suffix(".sh").write_text("exec " + shlex.join(["env", *sets, *words]) + "\n", encoding="utf-8")
        job.with_suffix(".go").touch()
        end = time.monotonic() + timeout
        while not job.with_suffix(".status").exists():
            self._alive()
            if time.monotonic() > end:
                output = job.with_suffix(".out").read_bytes()
                self.down()
                raise subprocess.TimeoutExpired(words, timeout, output)
            time.sleep(0.05)
        out, err = (job.with_suffix(end).read_bytes().decode("utf-8", "surrogateescape") for end in (".out", ".err"))
        result = subprocess.CompletedProcess(words, int(job.with_suffix(".status").read_text()), out, err)
        if check and result.returncode:
            raise CommandFailed(result)
        return result

    def pytest(self, *words: str, timeout: float = 600) -> Result:
        """Runs tests of the tree in the machine, on the kernel datapath; paths are those of the collection."""
        script = f'cd "$1"; shift; exec {shlex.quote(sys.executable)} -m pytest -p no:cacheprovider "$@"'
        env = {"PYTHONPATH": str(TREE), "PODNET_DEV": str(STATE), "PYTHONDONTWRITEBYTECODE": "1"}
        env["PODNET_PATIENCE"] = "4"
        env["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # importing plugins takes longer there than many a test
        argv = ["sh", "-ec", script, "sh", str(COLLECTION), "--datapath=system", *words]
        return self.run(*argv, check=False, timeout=timeout, env=env)

    def down(self) -> None:
        """Switches the machine off at once."""
        clear_part(self.lab, self.name)
        if self._process is not None:
            self._process.wait(timeout=5)


def join_cgroup(name: str, pid: int) -> None:
    """Puts a process into a control group of that name, by which a killed lab's machine is found again."""
    top = Path("/sys/fs/cgroup")
    tree = top if (top / "cgroup.procs").exists() else top / "unified"
    group = tree / name
    os.makedirs(group, exist_ok=True)
    (group / "cgroup.procs").write_text(str(pid), encoding="utf-8")
