# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The virtual machine, and the data path on its stock kernel: Open vSwitch's kernel datapath, and no ear of the node's
own kernel on pods' frames.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ansible_collections.podnet.ovs.tests.lab import Lab, Vm

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def vm(lab: Lab) -> Vm:
    """A machine with a stock kernel."""
    return lab.vm()


def test_the_machine_gives_exit_status_and_output(vm: Vm) -> None:
    done = vm.run("sh", "-c", "uname -v; echo oops >&2; exit 7", check=False)
    assert done.returncode == 7
    assert "Debian" in done.stdout
    assert done.stderr == "oops\n"


@pytest.mark.holds("on a stock kernel: pod to pod, host VLAN interface, bond uplink, isolation")
def test_the_data_path_on_a_stock_kernel(vm: Vm) -> None:
    passes(vm, "tests/integration/test_datapath.py")


@pytest.mark.holds("each port mode, tags seen on the wire: kernel datapath in the vm")
def test_port_modes_on_a_stock_kernel(vm: Vm, request: pytest.FixtureRequest) -> None:
    sample = ["-k", "two and (native-untagged or of-cvlans-and-untagged)"]
    passes(vm, "tests/integration/test_port_modes.py", *(["--full"] if request.config.getoption("--full") else sample))


@pytest.mark.holds("VLANs inside pods: side by side, behind an adopted interface, on one trunk; tags seen on the wire")
def test_vlans_inside_pods(vm: Vm) -> None:
    chosen = "side_by_side or second_list or on_one_trunk"
    passes(vm, "tests/integration/test_vlan.py", "tests/integration/test_subinterfaces.py", "-k", chosen)


@pytest.mark.full
@pytest.mark.holds("VLANs inside pods: nested, in any state; 200 on one trunk beside one ip -batch")
@pytest.mark.parametrize("file", ["test_vlan.py", "test_subinterfaces.py"])
def test_all_of_vlans_inside_pods(vm: Vm, file: str) -> None:
    passes(vm, f"tests/integration/{file}", "--full", "-s", timeout=3600)


@pytest.mark.full
def test_spoilt_calls_where_the_kernel_has_vlans(vm: Vm) -> None:
    passes(vm, "tests/integration/test_fuzz.py", timeout=3600)


@pytest.mark.full
@pytest.mark.holds("on a stock kernel: spoof check, isolation, bandwidth as measured, CHECK")
@pytest.mark.parametrize("file", ["test_spoof.py", "test_capabilities.py"])
def test_guards_and_limits_on_a_stock_kernel(vm: Vm, file: str) -> None:
    passes(vm, f"tests/integration/{file}")


@pytest.mark.full
@pytest.mark.holds("on a stock kernel: a second ADD costs the first pod no packet; the life of an attachment")
def test_attachments_on_a_stock_kernel(vm: Vm) -> None:
    chosen = "lifecycle or second_add"
    passes(vm, "tests/integration/test_cni.py", "tests/integration/test_cni_lifecycle.py", "-k", chosen)


@pytest.mark.holds("refused: Wi-Fi (mac80211_hwsim in the vm), macvlan on it")
def test_what_a_move_is_refused_for_on_a_stock_kernel(vm: Vm) -> None:
    passes(vm, "tests/integration/test_obstacles.py", "-k", "wi_fi or macvlan_that")


@pytest.mark.full
@pytest.mark.holds("refused: VLAN child as the only path; bonds by what they do")
@pytest.mark.parametrize("chosen", ["bond", "only_path or beside_the or takes_the_frames or vxlan or tunnel"])
def test_links_that_a_stock_kernel_has(vm: Vm, chosen: str) -> None:
    passes(vm, "tests/integration/test_obstacles.py", "-k", chosen)


@pytest.mark.full
@pytest.mark.holds("packets lost on the kernel datapath (vm), TCP session kept; un-bridge the same")
def test_a_move_loses_nothing_on_a_stock_kernel(vm: Vm, request: pytest.FixtureRequest) -> None:
    tier = ["--full"] if request.config.getoption("--full") else []
    passes(vm, "tests/integration/test_loss.py", "-s", *tier, timeout=3600)


@pytest.mark.full
@pytest.mark.holds("every route of every table, rules, multipath, source addresses, address order, lifetimes")
def test_layer_3_state_on_a_stock_kernel(vm: Vm) -> None:
    passes(vm, "tests/integration/test_l3.py")


@pytest.mark.full
def test_layer_3_attachments_on_a_stock_kernel(vm: Vm) -> None:
    chosen = "in-process and (found_by_it or made_anew or link_local or same_rules or gc_takes)"
    passes(vm, "tests/integration/test_routed.py", "-k", chosen, timeout=1800)


RUNTIMES = """
for tool in podman runc containerd containerd-shim-runc-v2 conmon ctr umoci skopeo; do
    for folder in bin sbin; do [ ! -e /tools/$folder/$tool ] || ln -sf /tools/$folder/$tool /usr/bin/; done
done
mkdir -p /usr/libexec /usr/share
ln -sfn /tools/libexec/podman /usr/libexec/podman
ln -sfn /tools/share/containers /usr/share/containers
for tool in podman runc containerd conmon umoci skopeo; do
    for library in $(ldd "$(readlink -f /usr/bin/$tool)" | sed -n 's/ => not found//p'); do
        ln -sf /tools/lib/x86_64-linux-gnu/$library /usr/lib/x86_64-linux-gnu/
    done
done
mkdir -p /etc/containers
echo '{"default": [{"type": "insecureAcceptAnything"}]}' > /etc/containers/policy.json
touch /etc/resolv.conf
# as on any machine of today: runtimes take the mix of both generations that the lab has for one of the first
umount -l /sys/fs/cgroup/unified /sys/fs/cgroup
mount -t cgroup2 cgroup2 /sys/fs/cgroup
"""
"""Brings the container runtimes of this machine, which has the same release of Debian, to the virtual one."""


@pytest.mark.full
@pytest.mark.holds("merged result of bridge + podnet-ovs + podnet-vlan, dual stack, through containerd and podman")
def test_merged_results_through_runtimes_on_a_stock_kernel(lab: Lab) -> None:
    vm = lab.vm("runtimes", memory=4096)
    vm.run("sh", "-ec", RUNTIMES, timeout=300)
    passes(vm, "tests/integration/test_cni_runtimes.py", "-k", "primary", timeout=1800)


def passes(vm: Vm, *words: str, timeout: float = 900) -> None:
    """Runs tests in the machine. What it says is shown when they fail."""
    done = vm.pytest("-q", "--durations=5", *words, timeout=timeout)
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout)
