"""A kept worker's health, asked for over HTTP on loopback."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from outrider.worker.host.keep import CANNOT_START, Keeper, KeeperTimes, answers


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


def test_a_worker_that_cannot_be_started_now_is_started_later(tmp_path: Path) -> None:
    program = tmp_path / "worker"
    statuses: list[int] = []

    async def lives() -> None:
        keeper = Keeper((str(program),), None, KeeperTimes(first=0.01, last=0.01))

        def ended(status: int) -> None:
            statuses.append(status)
            if len(statuses) == 2:
                program.write_text("#!/bin/sh\nexit 7\n")
                program.chmod(0o700)
            if status == 7:
                keeper.stop.set()

        await keeper.keep(ended)

    asyncio.run(asyncio.wait_for(lives(), 60.0))
    assert statuses == [CANNOT_START, CANNOT_START, 7]
