"""A small server of external metrics in an adapter's place, behind the API server's own address.

    with served(control_plane, namespace, {"queue": lambda: 3.0}):
        ...

Only answers what it is asked; what its values are is its test's to say.
"""

import base64
import contextlib
import datetime
import json
import ssl
import threading
import urllib.error
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.kube.control_plane import ControlPlane

GROUP, VERSION = "external.metrics.k8s.io", "v1beta1"
ROOT = f"/apis/{GROUP}/{VERSION}"
NAME = "external-metrics"
Object = dict[str, Any]
Values = Mapping[str, Callable[[], float | None]]
"""Values by name; None: there is no such series now."""


@contextlib.contextmanager
def served(control_plane: ControlPlane, namespace: str, values: Values) -> Iterator[list[str]]:
    """Serve them to the whole cluster; yields the selectors that were asked for."""
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(values, asked))
    host = f"{NAME}.{namespace}.svc"
    pair = control_plane.authority.server(NAME, [host], [])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        with _announced(control_plane, namespace, server.server_port):
            yield asked
    finally:
        server.shutdown()
        server.server_close()


@contextlib.contextmanager
def _announced(control_plane: ControlPlane, namespace: str, port: int) -> Iterator[None]:
    """The API server leads to it. No namespace can be deleted while it knows of a group that
    nobody serves, so that it forgets the group at the end."""
    bundle = base64.b64encode(control_plane.authority.pair.certificate.read_bytes()).decode()
    here = {"name": NAME, "namespace": namespace}
    control_plane.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": here,
            "spec": {"type": "ExternalName", "externalName": "localhost"},
        },
        {
            "apiVersion": "apiregistration.k8s.io/v1",
            "kind": "APIService",
            "metadata": {"name": f"{VERSION}.{GROUP}"},
            "spec": {
                "group": GROUP,
                "version": VERSION,
                "service": {**here, "port": port},
                "caBundle": bundle,
                "groupPriorityMinimum": 100,
                "versionPriority": 100,
            },
        },
    )

    def known() -> bool:
        with contextlib.suppress(urllib.error.HTTPError), control_plane.open(ROOT, 5) as answer:
            return bool(json.load(answer)["groupVersion"])
        return False

    try:
        control_plane.wait_until(known, "external metrics are served")
        yield
    finally:
        control_plane.kubectl("delete", "apiservice", f"{VERSION}.{GROUP}")


def _handler(values: Values, asked: list[str]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path, _, query = self.path.partition("?")
            content: Object | None = _resources(values) if path == ROOT else None
            if path.startswith(f"{ROOT}/namespaces/"):
                name = path.rpartition("/")[2]
                asked.append(f"{name}?{query}")
                content = _list(name, values[name]())
            body = json.dumps(content or {}).encode()
            self.send_response(404 if content is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its own name
            """Says nothing."""

    return Handler


def _resources(values: Values) -> Object:
    kind = "ExternalMetricValueList"
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": f"{GROUP}/{VERSION}",
        "resources": [
            {"name": name, "singularName": "", "namespaced": True, "kind": kind, "verbs": ["get"]}
            for name in values
        ],
    }


def _list(name: str, value: float | None) -> Object:
    """As an adapter answers: no item where Prometheus has no series."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now}
    items = [] if value is None else [{**item, "value": f"{round(value * 1000)}m"}]
    kind = {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}"}
    return {**kind, "metadata": {}, "items": items}
