# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Light nodes: namespaces with an Open vSwitch of their own, up in well under a second."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from .lan import Nic
from .node import Node
from .proc import LABS, PLAIN, LabError, Result, run, until
from .space import RUN_NETNS, clear_part

HOLD = r"""
set -e
node=$1 mine=$2 labs=$3
# mounts that other nodes have made would live on in this one
others=
while read -r _ _ _ _ where _; do
    case $where in /run/netns/* | "$labs"/*) others="$where $others" ;; esac
done < /proc/self/mountinfo
[ -z "$others" ] || umount --lazy $others
mount -t tmpfs -o mode=755 podnet-lab "$mine"
cd "$mine"
places='etc opt var/lib var/log'
mkdir -p cgroup $(printf 'files/%s work/%s ' $(for place in $places; do echo $place $place; done))
{
    # a view of the node's own NICs, with the machine's control groups for container runtimes
    echo "/sys/fs/cgroup $mine/cgroup none rbind"
    echo "podnet-lab /sys sysfs defaults"
    echo "$mine/cgroup /sys/fs/cgroup none rbind"
    for place in $places; do
        echo "podnet-lab /$place overlay lowerdir=/$place,upperdir=$mine/files/$place,workdir=$mine/work/$place"
    done
    echo "podnet-lab /run tmpfs mode=755"
} > mounts
mount --all --fstab mounts
cd /etc
rm -rf openvswitch cni podnet ../opt/podnet ../opt/cni ../var/lib/podnet ../var/lib/cni ../var/log/openvswitch
mkdir -p openvswitch /run/netns /run/lock /run/openvswitch /var/log/openvswitch /opt/cni/bin
echo "$node" > hostname
hostname "$node"
cd /
echo ready
exec sleep infinity > /dev/null 2>&1
"""

START_DATABASE = r"""
db=/etc/openvswitch/conf.db
[ -e $db ] || ovsdb-tool create $db /usr/share/openvswitch/vswitch.ovsschema
ovsdb-server $db --remote=punix:/run/openvswitch/db.sock --remote=db:Open_vSwitch,Open_vSwitch,manager_options \
    --pidfile --log-file --detach --no-chdir -vconsole:off
ovs-vsctl --no-wait -- init -- set Open_vSwitch . "external_ids:system-id=$(cat /etc/hostname)" $1
"""
START_SWITCH = "ovs-vswitchd --pidfile --log-file --detach --no-chdir -vconsole:off\n"
# Without it the userspace datapath passes on checksums that veth left to hardware, and TCP and UDP die.
OFFLOADS = "other_config:userspace-tso-enable=true"


class Ovs:
    """The Open vSwitch of a light node, and what can go wrong with it."""

    daemons = ("ovsdb-server", "ovs-vswitchd")

    def __init__(self, node: Light) -> None:
        self.node = node

    def start(self, *daemons: str) -> None:
        """Starts both daemons, or those named; the database is kept if there is one."""
        for daemon in daemons or self.daemons:
            script = START_DATABASE if daemon == "ovsdb-server" else START_SWITCH
            self.node.run("sh", "-ec", script, "sh", OFFLOADS if self.node.datapath == "netdev" else "")

    def stop(self, *daemons: str) -> None:
        """Ends both daemons, or those named, as their service would; bridges and ports stay."""
        for daemon in daemons or ("ovs-vswitchd", "ovsdb-server"):
            pid = self.pid(daemon)
            self.node.run("ovs-appctl", "--timeout=10", "-t", daemon, "exit")
            self._gone(daemon, pid)

    def restart(self) -> None:
        """Both daemons, one after the other, as the service does."""
        self.stop()
        self.start()

    def pid(self, daemon: str) -> int:
        """The process of a daemon, a number of this machine."""
        if daemon not in self.daemons:
            raise LabError(f"no daemon {daemon}: {self.daemons}")
        return int(self.node.run("cat", f"/run/openvswitch/{daemon}.pid").stdout)

    def signal(self, daemon: str, number: int) -> None:
        """Sends a signal to a daemon."""
        os.kill(self.pid(daemon), number)

    def kill(self, daemon: str) -> None:
        """Ends a daemon at once, in the middle of what it does."""
        pid = self.pid(daemon)
        os.kill(pid, signal.SIGKILL)
        self._gone(daemon, pid)

    @staticmethod
    def _gone(daemon: str, pid: int) -> None:
        until(lambda: not Path(f"/proc/{pid}").exists(), 10, f"the end of {daemon}", 0.01)

    def freeze(self, daemon: str) -> None:
        """Stops a daemon where it is; its sockets still take connections."""
        self.signal(daemon, signal.SIGSTOP)

    def thaw(self, daemon: str) -> None:
        """Lets a frozen daemon go on."""
        self.signal(daemon, signal.SIGCONT)

    def vsctl(self, *words: str, check: bool = True) -> Result:
        """Runs ovs-vsctl in the node, for at most 10 seconds."""
        return self.node.run("ovs-vsctl", "--timeout=10", *words, check=check)


class Light(Node):
    """A node of namespaces: network, mounts and host name.

    It has the machine's programs, and folders of its own under /etc, /opt, /var/lib, /var/log and /run: the product's
    default paths hold in it, Open vSwitch's too. Processes are the machine's, so that a test can end or freeze them.
    """

    def __init__(self, lab: str, name: str, nics: Sequence[Nic], datapath: str = "netdev", ovs: bool = True) -> None:
        super().__init__(lab, name, nics, datapath)
        self.ovs = Ovs(self)
        self.with_ovs = ovs
        self.holder = 0
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Makes the namespaces, lays the cables, gives static NICs their addresses and starts Open vSwitch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        run(["sh", "-c", self.link_script()], env=PLAIN)
        words = [
            "nsenter",
            f"--net={self.netns_path}",
            "unshare",
            "--mount",
            "--uts",
            "--propagation=private",
            "sh",
            "-c",
            HOLD,
            "hold",
            self.name,
            str(self.folder),
            str(LABS),
        ]
        self._process = subprocess.Popen(
            words,
            env=PLAIN,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdout is not None and self._process.stderr is not None
        if self._process.stdout.readline() != b"ready\n":
            raise LabError(f"{self.name}: {self._process.stderr.read().decode()}")
        self._process.stdout.close()
        self._process.stderr.close()
        self.holder = self._process.pid
        batch = []
        for port in self.ports.values():
            if port.nic.mode == "none":
                continue
            batch.append(f"link set {port.nic.name} up")
            for address in port.addresses:
                nodad = " nodad" if address.version == 6 else ""
                batch.append(f"addr add {address} dev {port.nic.name}{nodad}")
            batch += [f"route add default via {gateway.ip}" for gateway in port.nic.lan.gateways]
        if batch:
            run(["ip", "-n", self.netns_name, "-batch", "-"], input="\n".join(batch))
        if self.with_ovs:
            self.ovs.start()

    def enter(self) -> list[str]:
        """In the node's namespaces; the command replaces `nsenter`, so that its process is the command's."""
        return enter_words(self.holder)

    def install_runtime(self) -> str:
        """Puts the runtime of this tree into the node, as the product would, and gives its version."""
        from .runtime import runtime

        script = r"""
        upper=$2/files/runtime work=$2/work/runtime
        mkdir -p "$upper" "$work" /opt/podnet /opt/cni/bin
        mount -t overlay -o "lowerdir=$1/podnet,upperdir=$upper,workdir=$work" podnet-lab /opt/podnet
        cp -a "$1/cni/bin/." /opt/cni/bin/
        readlink /opt/podnet/current
        """
        return self.run("sh", "-ec", script, "sh", runtime(), self.folder).stdout.strip()

    def host_path(self, path: str) -> Path:
        """The path on this machine at which a file of the node can be read."""
        return Path(f"/proc/{self.holder}/root{path}")

    def netns_names(self) -> list[str]:
        """The pods' namespaces of the node."""
        found = json.loads(self.run("ip", "-j", "netns", "list").stdout or "[]")
        return [entry["name"] for entry in found]

    def down(self) -> None:
        """Ends what runs in the node, and the node."""
        clear_part(self.lab, self.name)
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout=5)
        assert not (RUN_NETNS / self.netns_name).exists()


def enter_words(holder: int) -> list[str]:
    """The words before a command that make it run in the node that this process holds."""
    return ["nsenter", f"--target={holder}", "--net", "--mount", "--uts", "--"]
