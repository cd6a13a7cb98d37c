"""The HTTP server of a target, on the event loop that gRPC runs on.

Leaves signals to the worker's own server and requests to `app`.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from outrider.contract import listening
from outrider.contract.addresses import host_of
from outrider.contract.settings import SettingsError, WorkerSettings
from outrider.worker.api.http.connection import LimitedConnection, OpenConnections
from outrider.worker.api.server_certificate import ServerCertificate
from outrider.worker.host.descriptors import most_descriptors

GRACE_SECONDS = 1
"""For answers that ended just now to be sent."""
KEEP_ALIVE_SECONDS = 30
MAX_CONNECTIONS = 4096
"""Most connections, or half of the descriptors that the process may have, if these are fewer."""
BACKLOG = 4096
"""Connections that wait to be accepted, as many as Linux lets wait by default: one more waits for a
second, until its client tries again."""
ACCEPTED_AT_ONCE = 64
"""Connections that are accepted one after the other before anything else is done: 2,048 take more
than a second."""


class CountedListener(socket.socket):
    """A listening socket whose connections count from the beginning, before TLS."""

    def __init__(self, listener: socket.socket, limits: OpenConnections) -> None:
        # which finds out its protocol: only where that is TCP, not 0, does asyncio set TCP_NODELAY,
        # without which an event waits up to 40 ms for the acknowledgement of the one before
        super().__init__(fileno=listener.detach())
        self.limits = limits

    def accept(self) -> "tuple[socket.socket, Any]":
        """Accept a connection, as asyncio asks."""
        accepted, address = super().accept()
        self.limits.accept(accepted)
        return accepted, address


class HttpServer:
    """One server behind a listening socket; `start` it, then `close` it."""

    def __init__(self, app: ASGIApp, listener: CountedListener, settings: WorkerSettings) -> None:
        certificate = ServerCertificate.of(settings)
        config = uvicorn.Config(
            app,
            http=functools.partial(LimitedConnection, limits=listener.limits),  # type: ignore[arg-type]
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=ACCEPTED_AT_ONCE,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            ssl_context_factory=None if certificate is None else lambda *_: certificate.context(),
        )
        self._server = _WithoutSignals(config)
        self._listener = listener
        self._serving: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to serve."""
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    def send_clients_away(self) -> None:
        """Close connections that are idle, and the others after their answers."""
        for connection in self._connections():
            connection.send_away()

    async def close(self) -> None:
        """Refuse what has not come, end open responses and stop."""
        if self._serving is None:
            self._listener.close()
            return
        for connection in self._connections():
            connection.refuse_rest()
        self._server.should_exit = True
        await self._serving

    def _connections(self) -> Iterator[LimitedConnection]:
        for connection in tuple(self._server.server_state.connections):
            assert isinstance(connection, LimitedConnection)
            yield connection


class _WithoutSignals(uvicorn.Server):
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to accept; asyncio takes the backlog for how many at once, too."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(BACKLOG)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Do nothing: the worker stops both of its servers."""
        yield


def listen(address: str) -> CountedListener:
    """Return a socket that listens at host:port; raise `SettingsError` or `OSError`.

    A client that connects before the server has started waits: only a listening socket keeps the
    port from other processes.
    """
    _, colon, port = address.rpartition(":")
    if not (colon and port.isascii() and port.isdigit() and int(port) < 2**16):
        raise SettingsError(f"settings.http_listen: {address!r} is not allowed; it is host:port")
    listener = listening.listen(host_of(address), int(port), BACKLOG)
    return CountedListener(listener, OpenConnections(min(MAX_CONNECTIONS, most_descriptors() // 2)))
