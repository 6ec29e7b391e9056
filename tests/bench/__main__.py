# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Times ADD and DEL of podnet-ovs, with the agent and in the plugin's own process, beside Debian's `bridge` plugin.

All three have addresses from host-local and are called in turn in one run, so that what else the machine does
falls on all alike: compare ratios, not milliseconds of different machines.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.podnet.ovs.tests.lab import Lab, Light, Nic

PEER_PLUGINS = "/usr/lib/cni"
"""Debian's containernetworking-plugins."""
OURS, PEER = "/opt/cni/bin/podnet-ovs", f"{PEER_PLUGINS}/bridge"
AGENT, IN_PROCESS, BRIDGE = "podnet-ovs, agent", "podnet-ovs, in-process", "bridge"
KINDS = (AGENT, IN_PROCESS, BRIDGE)
NODE = {
    "schema": 1,
    "bridges": [{"name": "br-pod", "datapath_type": "netdev", "uplinks": [{"name": "eth1", "vlans": "100"}]}],
    "networks": [{"name": "bench", "bridge": "br-pod", "vlan": 100}],
}
LIMIT = 2.0
PROMISE = f"ADD with the agent at 0 ports takes at most {LIMIT} times as long as bridge (medians)"


class Driver:
    """A process in a node that starts plugins and times them."""

    def __init__(self, node: Light, *words: str) -> None:
        script = Path(__file__).with_name("driver.py")
        self._process = subprocess.Popen(
            [*node.enter(), *words, "/usr/bin/python3", "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.defpath},
        )

    def call(self, plugin: str, verb: str, container: str, netns: str, conf: str) -> float:
        """Milliseconds of one call. Raises RuntimeError if it failed."""
        env = {
            "CNI_COMMAND": verb,
            "CNI_CONTAINERID": container,
            "CNI_NETNS": f"/run/netns/{netns}",
            "CNI_IFNAME": "eth0",
            "CNI_PATH": f"/opt/cni/bin:{PEER_PLUGINS}",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=bench",
            "PATH": os.defpath,
        }
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"argv": [plugin], "env": env, "stdin": conf}).encode() + b"\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if answer["code"]:
            raise RuntimeError(f"{verb} by {plugin}: {answer['out']}")
        return float(answer["ms"])

    def close(self) -> None:
        """Ends the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(timeout=10)


@dataclass(frozen=True)
class Kind:
    """One thing to measure: a plugin, called by a driver for a pod's namespace."""

    name: str
    driver: Driver
    plugin: str
    conf: str
    netns: str


def configuration(plugin: str, network: str) -> str:
    """The same for both plugins, but for what makes the link."""
    own = {"bridge": "br-pod", "vlan": 100} if plugin == "podnet-ovs" else {"bridge": "cni0"}
    subnet = "10.50.0.0/16" if plugin == "podnet-ovs" else "10.60.0.0/16"
    ipam = {"type": "host-local", "ranges": [[{"subnet": subnet}]]}
    return json.dumps({"cniVersion": "1.0.0", "name": network, "type": plugin, **own, "ipam": ipam})


def prepare(lab: Lab) -> tuple[Light, Light]:
    """A node with bridge, uplink and agent, and one without Open vSwitch for the peer."""
    ours = lab.light("ours", nics=[Nic("eth1", lab.lan("trunk"))])
    peer = lab.light("peer", ovs=False)
    ours.install_runtime()
    ours.write("/tmp/node.json", json.dumps(NODE))
    ours.run("/opt/podnet/current/bin/podnet", "node", "apply", "/tmp/node.json")
    ours.popen("/opt/podnet/current/bin/podnet-agent", "--socket", "/run/podnet/agent.sock", stdout=subprocess.DEVNULL)
    ours.sh("for i in $(seq 100); do [ -S /run/podnet/agent.sock ] && exit; sleep 0.1; done; exit 1")
    return ours, peer


def measure(kinds: Sequence[Kind], rounds: int, pause: float) -> dict[str, dict[str, list[float]]]:
    """Milliseconds by kind and verb, from calls in turn."""
    times: dict[str, dict[str, list[float]]] = {kind.name: {"ADD": [], "DEL": []} for kind in kinds}
    for number in range(rounds + 1):
        first = number % len(kinds)
        for kind in [*kinds[first:], *kinds[:first]]:
            for verb in ("ADD", "DEL"):
                took = kind.driver.call(kind.plugin, verb, f"{kind.netns}-{number}", kind.netns, kind.conf)
                time.sleep(pause)
                if number:  # the first round warms caches
                    times[kind.name][verb].append(took)
    return times


def figures(times: Sequence[float]) -> dict[str, float]:
    """Median and 95th percentile, in milliseconds."""
    ordered = sorted(times)
    return {"median": statistics.median(ordered), "p95": ordered[math.ceil(len(ordered) * 0.95) - 1]}


def report(ports: int, times: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """A row for each kind and verb, with its ratio to the peer's median."""
    rows = []
    for verb in ("ADD", "DEL"):
        base = figures(times[BRIDGE][verb])["median"]
        for name, by_verb in times.items():
            row = figures(by_verb[verb])
            rows.append({"ports": ports, "verb": verb, "plugin": name, "calls": len(by_verb[verb]), **row})
            rows[-1]["ratio"] = row["median"] / base
    return rows


def run(rounds: int, counts: Sequence[int], pause: float) -> list[dict[str, Any]]:
    """All rows, in a lab of its own."""
    rows: list[dict[str, Any]] = []
    with Lab(f"bench-{os.getpid()}") as lab:
        ours, peer = prepare(lab)
        names = ["one", "two", *(f"s{number}" for number in range(max(counts)))]
        for node in (ours, peer):
            node.sh("\n".join(f"ip netns add {name}" for name in names))
        hidden = ["unshare", "--mount", "sh", "-ec", 'mount -t tmpfs none /run/podnet; exec "$@"', "hide"]
        agent, alone, beside = Driver(ours), Driver(ours, *hidden), Driver(peer)
        kinds = [
            Kind(AGENT, agent, OURS, configuration("podnet-ovs", "bench"), "one"),
            Kind(IN_PROCESS, alone, OURS, configuration("podnet-ovs", "bench"), "two"),
            Kind(BRIDGE, beside, PEER, configuration("bridge", "bench"), "one"),
        ]
        standing = 0
        for count in counts:
            for kind in (kinds[0], kinds[2]):
                for number in range(standing, count):
                    kind.driver.call(kind.plugin, "ADD", f"standing-{number}", f"s{number}", kind.conf)
            standing = max(standing, count)
            rows += report(count, measure(kinds, rounds, pause))
        for driver in (agent, alone, beside):
            driver.close()
    return rows


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people."""
    lines = [f"{'ports':>5}  {'verb':4}  {'plugin':24}  {'median ms':>9}  {'p95 ms':>7}  {'x bridge':>8}"]
    lines += [
        f"{row['ports']:>5}  {row['verb']:4}  {row['plugin']:24}  {row['median']:>9.1f}  {row['p95']:>7.1f}"
        f"  {row['ratio']:>8.2f}"
        for row in rows
    ]
    return "\n".join(lines)


def judge(rows: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """The one promise that a figure is held to: PROMISE. None if its row was not measured."""
    row = next((row for row in rows if (row["ports"], row["verb"], row["plugin"]) == (0, "ADD", AGENT)), None)
    if row is None:
        return None
    return {"promise": PROMISE, "limit": LIMIT, "ratio": row["ratio"], "holds": row["ratio"] <= LIMIT}


def main() -> int:
    """Prints table and JSON. Exit status 1 if the promise does not hold."""
    parser = argparse.ArgumentParser(prog="dev/bench", description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=50, help="calls of each kind (default: 50)")
    parser.add_argument("--ports", default="0,100", help="standing attachments, comma separated (default: 0,100)")
    parser.add_argument("--pause", type=float, default=0.05, help="seconds between calls (default: 0.05)")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    options = parser.parse_args()
    rows = run(options.runs, sorted(int(word) for word in options.ports.split(",")), options.pause)
    verdict = judge(rows)
    document = {
        "schema": 1,
        "when": time.strftime("%FT%TZ", time.gmtime()),
        "cpus": os.cpu_count(),
        "load": os.getloadavg()[0],
        "rows": rows,
        "checked": verdict,
    }
    print(table(rows))
    if verdict is None:
        print("\nnothing is checked: no row at 0 ports")
    else:
        word = "holds" if verdict["holds"] else "DOES NOT HOLD"
        print(f"\n{PROMISE}: {word}, it is {verdict['ratio']:.2f}")
    text = json.dumps(document)
    print("\n" + text)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(text + "\n", encoding="utf-8")
    return 0 if verdict is None or verdict["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
