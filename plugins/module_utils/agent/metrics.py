# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the agent counts and times, in the exposition format of Prometheus.

Labels are bounded, whatever a caller or a delegate says: a verb, a step or a code that is not known counts as "other".
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Mapping
from socketserver import TCPServer
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from ..cni.request import ADD, CHECK, DEL, GC, STATUS, VERSION
from ..errors import INTERNAL, IO_FAILURE, ConfigError, PodnetError

BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds: close together where an attachment should be, up to the longest that an ADD may take."""
OTHER = "other"
CLIENT_SECONDS = 5.0
"""How long who asks for the metrics may keep the one thread that answers waiting."""
_VERBS = (ADD, DEL, CHECK, GC, STATUS, VERSION)
_MOST_CODE = 99
"""CNI specification, section "Error": 0 to 99 are the specification's, the others a plugin's own."""
_MOST_STEPS = 32


class Metrics:
    """The agent's figures. Safe for threads; each set is a registry of its own."""

    def __init__(self, version: str) -> None:
        # Loaded here and not with the file, which can so be imported where the library is not.
        from prometheus_client import (
            CollectorRegistry,
            Counter,
            Gauge,
            Histogram,
            ProcessCollector,
            disable_created_metrics,
        )

        disable_created_metrics()  # half as many series; rates need none
        self._registry = CollectorRegistry()
        self._steps: set[str] = set()
        own: dict[str, Any] = {"registry": self._registry}
        timed: dict[str, Any] = {"unit": "seconds", "buckets": BUCKETS, **own}
        self._calls = Histogram("podnet_call", "How long calls took.", ["verb"], **timed)
        self._step = Histogram("podnet_step", "How long the steps of calls took.", ["verb", "step"], **timed)
        self._codes = Counter("podnet_calls", "Calls by CNI error code; 0 is success.", ["verb", "code"], **own)
        self._attachments = Gauge("podnet_attachments", "Ports of pods on this node.", **own)
        self._broken = Gauge("podnet_broken_ports", "Ports of pods that ovs-vswitchd cannot use.", **own)
        self._running = Gauge("podnet_calls_running", "Calls at work.", **own)
        self._removed = Counter("podnet_stale_ports_removed", "Ports removed because their pod was gone.", **own)
        self._restored = Counter("podnet_flows_restored", "Flows of spoof checks that were put back.", **own)
        Gauge("podnet_build_info", "The version of the agent.", ["version"], **own).labels(version).set(1)
        ProcessCollector(registry=self._registry)

    def observe(self, verb: str, code: int, seconds: float, steps: Mapping[str, float]) -> None:
        """A call has ended. `code` is its CNI error code, 0 for success; `steps` are the seconds of each step."""
        known = verb if verb in _VERBS else OTHER
        self._calls.labels(known).observe(seconds)
        self._codes.labels(known, str(code) if 0 <= code <= _MOST_CODE or code == INTERNAL else OTHER).inc()
        for step, took in steps.items():
            self._step.labels(known, self._bounded(step)).observe(took)

    def ports(self, attachments: int, broken: int) -> None:
        """How many ports of pods there are, and how many of them ovs-vswitchd cannot use."""
        self._attachments.set(attachments)
        self._broken.set(broken)

    def running(self, calls: Callable[[], int]) -> None:
        """Where the number of calls at work is to be had; it is asked when the metrics are read."""
        self._running.set_function(calls)

    def removed_stale(self, ports: int = 1) -> None:
        """So many ports were removed whose pod was gone."""
        self._removed.inc(ports)

    def restored(self, flows: int = 1) -> None:
        """So many flows were put back."""
        self._restored.inc(flows)

    def text(self) -> str:
        """All of it, in the text format 0.0.4."""
        from prometheus_client import generate_latest

        return generate_latest(self._registry).decode()

    def serve(self, address: str) -> Callable[[], None]:
        """Answers HTTP requests at HOST:PORT from now on, in one thread; gives what ends that.

        Raises ConfigError for an address that is none, PodnetError if it cannot be had.
        """
        from prometheus_client import make_wsgi_app

        place = parse_address(address)
        try:
            server = (_Server6 if ":" in place[0] else _Server)(place, _Handler)
        except OSError as error:
            raise PodnetError(
                f"cannot serve metrics at {address}: {error.strerror}", "see podnet_metrics_listen", IO_FAILURE
            ) from error
        server.set_app(make_wsgi_app(self._registry))
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

        def end() -> None:
            server.shutdown()
            server.server_close()

        return end

    def _bounded(self, step: str) -> str:
        if step not in self._steps:
            if len(self._steps) >= _MOST_STEPS:
                return OTHER
            self._steps.add(step)
        return step


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:9469` or `[::]:9469`. Raises ConfigError."""
    host, _colon, port = text.rpartition(":")
    bare = host[1:-1] if host[:1] == "[" and host[-1:] == "]" else host
    family = socket.AF_INET if bare == host else socket.AF_INET6
    try:
        socket.inet_pton(family, bare)
    except OSError as error:
        raise _no_address(text) from error
    if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise _no_address(text)
    return bare, int(port)


def _no_address(text: str) -> ConfigError:
    return ConfigError("metrics", f"{text!r} is no address and port", "write 127.0.0.1:9469, or [::]:9469 for all")


class _Server(WSGIServer):
    """One request at a time: strangers that connect cost one thread and one descriptor, and not the agent's calls."""

    def server_bind(self) -> None:
        """Without the look-up of the host's name in the DNS, which could take longer than a start may."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that breaks off is no matter for the log."""


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    timeout = CLIENT_SECONDS

    def log_message(self, *_words: Any) -> None:
        """Nothing: a line for each scrape would bury those of the calls."""
