# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The agent's metrics: what they say, that no input makes them grow, and the HTTP port."""

from __future__ import annotations

import socket
import threading
import time
import urllib.request

import pytest

from ansible_collections.podnet.ovs.plugins.module_utils.agent import metrics as module
from ansible_collections.podnet.ovs.plugins.module_utils.agent.metrics import Metrics, parse_address
from ansible_collections.podnet.ovs.plugins.module_utils.errors import ConfigError, PodnetError


def lines(metrics: Metrics) -> list[str]:
    """The samples, without comments."""
    return [line for line in metrics.text().splitlines() if not line.startswith("#")]


def free_port() -> int:
    """A port that nobody had just now."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port: int = taken.getsockname()[1]
        return port


def test_what_a_call_leaves() -> None:
    metrics = Metrics("1.2.3")
    metrics.observe("ADD", 0, 0.018, {"lease": 0.002, "switch": 0.012})
    metrics.observe("ADD", 11, 29.0, {"switch": 28.9})
    metrics.observe("GC", 999, 1.0, {})
    found = lines(metrics)
    assert 'podnet_call_seconds_bucket{le="0.01",verb="ADD"} 0.0' in found
    assert 'podnet_call_seconds_bucket{le="0.02",verb="ADD"} 1.0' in found
    assert 'podnet_call_seconds_bucket{le="30.0",verb="ADD"} 2.0' in found
    assert 'podnet_call_seconds_count{verb="ADD"} 2.0' in found
    assert 'podnet_step_seconds_count{step="switch",verb="ADD"} 2.0' in found
    assert 'podnet_step_seconds_sum{step="lease",verb="ADD"} 0.002' in found
    assert 'podnet_calls_total{code="0",verb="ADD"} 1.0' in found
    assert 'podnet_calls_total{code="11",verb="ADD"} 1.0' in found
    assert 'podnet_calls_total{code="999",verb="GC"} 1.0' in found, "an error of our own is seen by its code"
    assert 'podnet_build_info{version="1.2.3"} 1.0' in found


def test_what_the_agent_says_of_itself() -> None:
    metrics, calls = Metrics("1"), [1]
    metrics.ports(7, 2)
    metrics.running(lambda: len(calls))
    metrics.removed_stale(3)
    metrics.restored(4)
    calls.append(2)
    found = lines(metrics)
    assert "podnet_attachments 7.0" in found and "podnet_broken_ports 2.0" in found
    assert "podnet_calls_running 2.0" in found
    assert "podnet_stale_ports_removed_total 3.0" in found and "podnet_flows_restored_total 4.0" in found
    assert any(line.startswith("process_resident_memory_bytes ") for line in found)
    assert any(line.startswith("process_open_fds ") for line in found)


def test_no_input_makes_them_grow() -> None:
    metrics = Metrics("1")
    for number in range(200):
        metrics.observe("ADD" if number % 2 else f"verb{number}", 100 + number, 0.1, {f"step{number}": 0.1})
        metrics.observe("DEL", -number - 1, 0.1, {})
    counts = [line for line in lines(metrics) if line.startswith("podnet_calls_total")]
    assert sorted(counts) == [
        'podnet_calls_total{code="other",verb="ADD"} 100.0',
        'podnet_calls_total{code="other",verb="DEL"} 200.0',
        'podnet_calls_total{code="other",verb="other"} 100.0',
    ]
    steps = [line for line in lines(metrics) if line.startswith("podnet_step_seconds_count")]
    assert len(steps) <= 2 * 33
    before = len(lines(metrics))
    for number in range(200, 300):
        metrics.observe(f"verb{number}", number, 0.1, {f"step{number}": 0.1})
    assert len(lines(metrics)) == before


def test_the_buckets_reach_from_a_millisecond_to_the_longest_add() -> None:
    assert module.BUCKETS[0] == 0.001 and module.BUCKETS[-1] == 30.0
    assert list(module.BUCKETS) == sorted(module.BUCKETS)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "[::]"])
def test_the_port(host: str) -> None:
    metrics, port = Metrics("1"), free_port()
    metrics.observe("DEL", 0, 0.1, {})
    end = metrics.serve(f"{host}:{port}")
    near = host if host == "127.0.0.1" else "[::1]"
    with urllib.request.urlopen(f"http://{near}:{port}/metrics", timeout=10) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert b'podnet_calls_total{code="0",verb="DEL"} 1.0' in answer.read()
    end()
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(f"http://{near}:{port}/metrics", timeout=10)


def test_who_connects_and_says_nothing_costs_no_thread_and_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._Handler, "timeout", 0.3)
    port = free_port()
    end = Metrics("1").serve(f"127.0.0.1:{port}")
    idle = [socket.create_connection(("127.0.0.1", port)) for _number in range(3)]
    time.sleep(0.1)
    assert [thread.name for thread in threading.enumerate()].count("metrics") == 1
    assert not [thread for thread in threading.enumerate() if "process_request" in thread.name]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
        assert answer.status == 200
    for pipe in idle:
        assert pipe.recv(1) == b""
        pipe.close()
    end()


def test_an_address_that_is_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(PodnetError, match=f"127.0.0.1:{port}.*podnet_metrics_listen"):
            Metrics("1").serve(f"127.0.0.1:{port}")


@pytest.mark.parametrize(
    "text",
    ["", "9469", "127.0.0.1", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:٣", "::1:9469", "[::1]",
     "[127.0.0.1]:9469", "localhost:9469", "127.1:9469", "[fe80::1%eth0]:9469", "127.0.0.1:9469 --socket /x"],
)  # fmt: skip
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ConfigError, match="no address"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("127.0.0.1:9469") == ("127.0.0.1", 9469)
    assert parse_address("[::]:65535") == ("::", 65535)
