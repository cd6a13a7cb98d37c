"""A server in a Prometheus's place that scrapes the workers of pods when it is asked.

Answers range vectors over HTTP as Prometheus does, for the pods that the query names. What it keeps
back, and whether it answers at all, is the test's to say.
"""

import json
import re
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families

from outrider.contract.process import HTTP_PORT
from outrider.contract.settings import Role
from tests.kube.pod_workers import PodWorkers

PODS = re.compile(r'pod=~"([^"]*)"')
SECONDS = 5.0


@dataclass(slots=True)
class PodPrometheus:
    """The server. Use as `with`."""

    workers: PodWorkers
    namespace: str
    refuses: str = ""
    """What it says instead of an answer."""
    credentials: list[str] = field(default_factory=list)
    """Those of each request."""
    _server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        answer = self._answer

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = self.rfile.read(int(self.headers["Content-Length"])).decode()
                status, body = answer(
                    urllib.parse.parse_qs(form)["query"][0], self.headers.get("Authorization", "")
                )
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 # its own name
                """Says nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it answers."""
        assert self._server is not None, "use `with`"
        return f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, query: str, credentials: str) -> tuple[int, bytes]:
        self.credentials.append(credentials)
        if self.refuses:
            return 503, json.dumps({"status": "error", "error": self.refuses}).encode()
        found = PODS.search(query)
        wanted = set() if found is None else set(found[1].split("|"))
        result = [series for name in wanted for series in self._scraped(name)]
        data = {"resultType": "matrix", "result": result}
        return 200, json.dumps({"status": "success", "data": data}).encode()

    def _scraped(self, name: str) -> Iterator[dict[str, Any]]:
        workers = [one for role in Role for one in self.workers.of(role) if one.name == name]
        for worker in workers:
            try:
                url = f"http://{worker.ip}:{HTTP_PORT}/metrics"
                with urllib.request.urlopen(url, timeout=SECONDS) as answer:
                    text = answer.read().decode()
            except (urllib.error.URLError, TimeoutError):
                continue
            at, own = time.time(), {"namespace": self.namespace, "pod": name, "job": "pods"}
            for family in text_string_to_metric_families(text):
                for one in family.samples:
                    metric = {"__name__": one.name, **one.labels, **own}
                    yield {"metric": metric, "values": [[at, str(one.value)]]}
