# Copyright: the podnet.ovs authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A stand-in for the Kubernetes API, since no package brings kube-apiserver to a test machine.

It knows one resource, NetworkAttachmentDefinition, and of the API's verbs discovery, GET, list, server-side apply
(PATCH of a whole object) and DELETE: what kubernetes.core.k8s calls for it. It validates as the CRD does: `spec.config`
is a string.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import yaml

GROUP = "k8s.cni.cncf.io"
PLURAL = "network-attachment-definitions"
KIND = "NetworkAttachmentDefinition"


class KubeApi:
    """The server on a free loopback port. `objects` maps (namespace, name) to what was applied; `calls` lists verbs."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.calls: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_args: Any) -> None:
                """Stay silent; `calls` is the log."""

            def _answer(self, body: dict[str, Any], status: int = 200) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def _respond(self) -> None:
                length = int(self.headers.get("Content-Length") or 0)
                body = yaml.safe_load(self.rfile.read(length)) if length else None
                path, _mark, query = self.path.partition("?")
                status, answer = api.handle(self.command, path, query, body)
                self._answer(answer, status)

            do_GET = do_PATCH = do_POST = do_DELETE = _respond

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> KubeApi:
        self._thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def kubeconfig(self) -> dict[str, Any]:
        """A kubeconfig that leads here."""
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "lab", "cluster": {"server": self.url}}],
            "users": [{"name": "lab", "user": {}}],
            "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
            "current-context": "lab",
        }

    def handle(self, verb: str, path: str, query: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Status and body of one call."""
        self.calls.append(f"{verb} {path}")
        discovery = _discovery().get(path)
        if discovery is not None:
            return 200, discovery
        parts = path.strip("/").split("/")
        if parts[:3] != ["apis", GROUP, "v1"]:
            return 404, _status(404, "NotFound", path)
        if len(parts) >= 6 and parts[3] == "namespaces" and parts[5] == PLURAL:
            return self._objects(verb, parts[4], parts[6] if len(parts) > 6 else "", body, query)
        return 404, _status(404, "NotFound", path)

    def _objects(self, verb: str, namespace: str, name: str, body: Any, query: str) -> tuple[int, dict[str, Any]]:
        key = (namespace, name)
        if verb == "GET" and not name:
            items = [o for (ns, _name), o in self.objects.items() if ns == namespace]
            return 200, {"apiVersion": f"{GROUP}/v1", "kind": KIND + "List", "metadata": {}, "items": items}
        if verb == "GET":
            found = self.objects.get(key)
            return (200, found) if found else (404, _status(404, "NotFound", name))
        if verb == "DELETE":
            self.objects.pop(key, None)
            return 200, _status(200, "Success", name)
        if not isinstance(body.get("spec", {}).get("config", ""), str):
            return 422, _status(422, "Invalid", "spec.config: must be of type string")
        before = self.objects.get(key)
        version = int(before["metadata"]["resourceVersion"]) if before else 0
        same = before is not None and before["spec"] == body["spec"] and _labels(before) == _labels(body)
        stored = json.loads(json.dumps(body))
        stored["metadata"].update(namespace=namespace, resourceVersion=str(version if same else version + 1), uid="1")
        if "dryRun" not in query:
            self.objects[key] = stored
        return (200 if before else 201), stored


def _labels(body: dict[str, Any]) -> tuple[Any, Any]:
    meta = body["metadata"]
    return meta.get("labels"), meta.get("annotations")


def _status(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Success" if code < 300 else "Failure",
        "reason": reason,
        "message": message,
        "code": code,
    }


def _discovery() -> dict[str, dict[str, Any]]:
    version = {"groupVersion": f"{GROUP}/v1", "version": "v1"}
    group = {"name": GROUP, "versions": [version], "preferredVersion": version}
    resource = {
        "name": PLURAL,
        "singularName": "network-attachment-definition",
        "namespaced": True,
        "kind": KIND,
        "verbs": ["get", "list", "create", "patch", "update", "delete"],
    }
    return {
        "/version": {"major": "1", "minor": "32", "gitVersion": "v1.32.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [group]},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **group},
        f"/apis/{GROUP}/v1": {"kind": "APIResourceList", "groupVersion": f"{GROUP}/v1", "resources": [resource]},
    }
