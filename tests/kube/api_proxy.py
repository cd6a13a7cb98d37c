"""Stands between an operator and the API server: remembers what is asked, holds it, goes silent.

    with ApiProxy.started(control_plane) as proxy:
        operator = operators.start(kubeconfig=proxy.kubeconfig)
        proxy.silent = lambda asked: asked.watches

The operator speaks plain HTTP to it, with its own token or else as the administrator. What a test
sets here is called on the proxy's thread.
"""

import asyncio
import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from tests.kube.control_plane import ControlPlane

HOST = "127.0.0.1"
POLL_SECONDS = 0.02
BUSY_SECONDS = 3
CLOSING_SECONDS = 60.0
"""Far more than sockets take to close once both of their ends are shut down."""
HOP = frozenset({"connection", "content-encoding", "content-length", "host", "transfer-encoding"})
"""Headers that belong to one connection."""
LEASES, EVENTS, REVIEWS = "leases", "events", "selfsubjectaccessreviews"


class Killed(Exception):
    """Whoever asked was killed meanwhile: nothing is to go on."""


@dataclass(slots=True)
class Asked:
    """One request."""

    method: str
    path: str
    watches: bool
    body: bytes
    at: float
    status: int = 0
    """Status of the answer; 0 as long as there is none."""
    passed: bool = False
    """Whether the API server got it."""
    dry: bool = False
    """Whether nothing is to be stored of it."""

    @property
    def writes(self) -> bool:
        """Whether it changes something; leases and what is only asked by POST do not count."""
        aside = any(f"/{word}" in self.path for word in (LEASES, REVIEWS))
        return self.method not in ("GET", "HEAD") and not aside and not self.dry

    @property
    def content(self) -> Any:
        """The body of a write."""
        return json.loads(self.body)

    def about(self, plural: str, name: str = "", subresource: str = "") -> bool:
        """Whether it is about one object, or about any of a kind."""
        end = f"/{plural}" + (f"/{name}" if name else "")
        end += f"/{subresource}" if subresource else ""
        return self.path.endswith(end) if name else f"/{plural}/" in self.path + "/"


def nobody(asked: Asked) -> bool:
    """Of all requests none."""
    return False


def nothing(asked: Asked) -> None:
    """Happens."""


@dataclass(slots=True)
class ApiProxy:
    """One proxy."""

    control_plane: ControlPlane
    folder: Path
    silent: Callable[[Asked], bool] = nobody
    """Whose answers stop, those that have begun included, for as long as this says so."""
    refused: Callable[[Asked], bool] = nobody
    """Who is answered 403."""
    absent: Callable[[Asked], bool] = nobody
    """Who is answered 404."""
    busy: Callable[[Asked], bool] = nobody
    """Who is answered 429 and asked to come back after `BUSY_SECONDS`."""
    before: Callable[[Asked], None] = nothing
    """Called with a request before it goes on; may raise `Killed`."""
    after: Callable[[Asked], None] = nothing
    """Called with a request that the API server has answered; may raise `Killed`."""
    asked: list[Asked] = field(default_factory=list)
    port: int = 0
    _loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _began: threading.Event = field(default_factory=threading.Event)
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _upstream: aiohttp.ClientSession = field(init=False)
    _sockets: list[socket.socket] = field(default_factory=list)
    """Sockets of all connections, taken and made; transports and sessions forget theirs before they
    are closed."""

    @classmethod
    @contextlib.contextmanager
    def started(cls, control_plane: ControlPlane, folder: Path) -> "Iterator[ApiProxy]":
        """Listens until the end of the block."""
        folder.mkdir(parents=True, exist_ok=True)
        proxy = cls(control_plane, folder)
        thread = threading.Thread(target=proxy._run, name="api-proxy")
        thread.start()
        try:
            assert proxy._began.wait(60), "the proxy did not begin to listen"
            yield proxy
        finally:
            proxy._loop.call_soon_threadsafe(proxy._ending.set)
            thread.join()

    @property
    def kubeconfig(self) -> Path:
        """With it a program asks this proxy, as the administrator."""
        return self.kubeconfig_of({})

    def kubeconfig_of(self, user: dict[str, str]) -> Path:
        """As somebody else: `{"token": ...}`."""
        file = self.folder / f"proxy-{self.port}{'-token' * bool(user)}.kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": f"http://{HOST}:{self.port}"}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        file.write_text(json.dumps(config))
        return file

    @property
    def writes(self) -> list[Asked]:
        """Those that the API server got, in order."""
        return [one for one in list(self.asked) if one.writes and one.passed]

    def cut(self) -> None:
        """Ends all connections, watches too; whoever had one may open another."""
        for one in list(self._sockets):
            with contextlib.suppress(OSError):  # it is closed already
                one.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.run_until_complete(self._end_all())
        self._loop.close()

    async def _end_all(self) -> None:
        """Requests that were being made while the proxy ended would leave their sockets open, and
        so would connections that brought none yet, TLS that waits for the other side's farewell,
        and answers that nobody reads any more."""
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        async with asyncio.timeout(CLOSING_SECONDS):
            while left := [one for one in self._sockets if one.fileno() >= 0]:
                for one in left:
                    with contextlib.suppress(OSError):  # the other side was quicker
                        one.shutdown(socket.SHUT_RDWR)
                await asyncio.sleep(POLL_SECONDS)

    async def _serve(self) -> None:
        everything = aiohttp.ClientTimeout(total=None)
        self._upstream = aiohttp.ClientSession(timeout=everything, connector=self._connector())
        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        await runner.setup()
        assert runner.server is not None
        with socket.create_server((HOST, 0), backlog=100) as listener:
            listener.setblocking(False)
            self.port = listener.getsockname()[1]
            accepting = asyncio.create_task(self._accept(listener, runner.server))
            self._began.set()
            await self._ending.wait()
            listener.shutdown(socket.SHUT_RDWR)  # `accept` fails; cancelled, it may lose a socket
            await accepting
        await runner.cleanup()
        await self._upstream.close()

    def _connector(self) -> aiohttp.TCPConnector:
        """A new connection for each request: the identity is the connection's."""
        return aiohttp.TCPConnector(force_close=True, limit=0, socket_factory=self._new_socket)

    def _new_socket(self, address: aiohttp.AddrInfoType) -> socket.socket:
        family, kind, protocol, *_ = address
        self._sockets.append(socket.socket(family, kind, protocol))
        return self._sockets[-1]

    async def _accept(self, listener: socket.socket, server: web.Server) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(OSError):
                taken, _ = await self._loop.sock_accept(listener)
                self._sockets.append(taken)
                await self._loop.connect_accepted_socket(server, taken)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = Asked(
            request.method,
            request.path,
            request.query.get("watch") in ("1", "true"),
            await request.read(),
            time.monotonic(),
            dry="dryRun" in request.query,
        )
        self.asked.append(asked)
        try:
            await self._heard(asked)
            if self.refused(asked):
                body = {"kind": "Status", "code": 403, "message": "refused by the test"}
                return web.json_response(body, status=403)
            if self.absent(asked):
                body = {"kind": "Status", "code": 404, "message": "the test has no such thing"}
                return web.json_response(body, status=404)
            if self.busy(asked):
                asked.status = 429
                body = {"kind": "Status", "code": 429, "message": "too many requests"}
                headers = {"Retry-After": str(BUSY_SECONDS)}
                return web.json_response(body, status=429, headers=headers)
            self.before(asked)
            return await self._pass_on(request, asked)
        except (Killed, aiohttp.ClientError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPBadGateway from None

    async def _heard(self, asked: Asked) -> None:
        """Returns once nobody wants silence."""
        while self.silent(asked):
            await asyncio.sleep(POLL_SECONDS)

    async def _pass_on(self, request: web.Request, asked: Asked) -> web.StreamResponse:
        headers = {k: v for k, v in request.headers.items() if k.lower() not in HOP}
        headers["Accept-Encoding"] = "identity"
        asked.passed = True
        async with self._upstream.request(
            request.method,
            f"{self.control_plane.place.url}{request.path_qs}",
            data=asked.body or None,
            headers=headers,
            ssl=self._context("Authorization" in request.headers),
        ) as answer:
            asked.status = answer.status
            kept = {k: v for k, v in answer.headers.items() if k.lower() not in HOP}
            if asked.watches and answer.status == 200:
                return await self._stream(request, asked, answer, kept)
            body = await answer.read()
            self.after(asked)
            await self._heard(asked)
            return web.Response(status=answer.status, headers=kept, body=body)

    async def _stream(
        self,
        request: web.Request,
        asked: Asked,
        answer: aiohttp.ClientResponse,
        headers: dict[str, str],
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        await response.prepare(request)
        async for chunk in answer.content.iter_any():
            await self._heard(asked)
            await response.write(chunk)
        await self._heard(asked)
        await response.write_eof()
        return response

    def _context(self, own_token: bool) -> ssl.SSLContext:
        place = self.control_plane.place
        context = ssl.create_default_context(cafile=str(place.authority.certificate))
        if not own_token:
            context.load_cert_chain(place.admin.certificate, place.admin.key)
        return context
