"""A kept worker's health, asked for over HTTP on loopback."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from outrider.worker.host.keep import answers


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """Yield the address of a server that answers every request with these bytes."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(reply)

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"0.0.0.0:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(
    ("reply", "alive"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\nok", True),
        (b"HTTP/1.0 503 Service Unavailable\r\n\r\n", False),
        (b"not HTTP\r\n\r\n", False),
        (b"", False),
    ],
)
def test_only_200_is_health(reply: bytes, alive: bool) -> None:
    with answering(reply) as address:
        assert answers(address) is alive
    assert not answers(address), "nobody is there any more"


def test_no_proxy_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with (
        answering(b"HTTP/1.0 200 OK\r\n\r\n") as worker,
        answering(b"HTTP/1.0 502 Bad Gateway\r\n\r\n") as proxy,
    ):
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, proxy.replace("0.0.0.0", "http://127.0.0.1"))
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        assert answers(worker)
