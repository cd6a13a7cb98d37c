"""An HTTP server on loopback in a Prometheus's place; what it answers is the test's to say."""

import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

EMPTY = '{"status": "success", "data": {"resultType": "matrix", "result": []}}'


@dataclass(slots=True)
class FakePrometheus:
    """The server, and what it was asked."""

    handle: Callable[[web.Request], Awaitable[web.StreamResponse]] | None = None
    """What answers instead of `EMPTY`."""
    url: str = ""
    asked: list[tuple[str, str, str]] = field(default_factory=list)
    """Path, query and credentials of each request."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        form = await request.post()
        credentials = request.headers.get("Authorization", "")
        self.asked.append((request.path, str(form.get("query", "")), credentials))
        if self.handle is not None:
            return await self.handle(request)
        return web.Response(text=EMPTY, content_type="application/json")


@contextlib.asynccontextmanager
async def serving(
    fake: FakePrometheus, context: ssl.SSLContext | None = None
) -> AsyncIterator[FakePrometheus]:
    """Serve until the end of the block."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", fake.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    _, port = runner.addresses[0]
    fake.url = f"{'http' if context is None else 'https'}://127.0.0.1:{port}"
    try:
        yield fake
    finally:
        await runner.cleanup()
