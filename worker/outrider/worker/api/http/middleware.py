"""ASGI middleware: refusal of requests without an API key or from strangers' web pages, permission
for pages to read responses, and what is done with each response as it begins.

Leaves keys and their comparison to `outrider.worker.api.auth`, and names to `own_names`.
"""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import dataclass
from types import MappingProxyType

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.contract.errors import RETRY_AFTER
from outrider.worker.api.auth import AUTHORIZATION, REFUSAL, ApiKeys
from outrider.worker.api.http import errors, own_names

CLOSED = ("/v1/", "/infill/")
"""Paths that need a key; health and metrics stay open."""
ENDS = "this target stops; send the request again"
Refuse = Callable[[Scope], tuple[int, str] | None]
"""Returns the status and the words with which a request is refused; None: it may come in."""
PREFLIGHT = MappingProxyType(
    {
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Max-Age": "7200",  # seconds: the longest that Chrome takes
    }
)
"""Headers that tell a browser what a page may send, beside the headers for which it asks."""


@dataclass(frozen=True, slots=True)
class RefusalMiddleware:
    """Refuses requests."""

    app: ASGIApp
    refuse: Refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request if it is allowed."""
        app = self.app
        if refused := self.refuse(scope):
            status, words = refused
            app = JSONResponse(errors.body(status, words), status, errors.headers(status))
        await app(scope, receive, send)


def without_key(keys: ApiKeys) -> Refuse:
    """Refuse with 401 what needs a key and has none."""

    def refuse(scope: Scope) -> tuple[int, str] | None:
        closed = scope["type"] == "http" and f"{scope['path']}/".startswith(CLOSED)
        if closed and not keys.allows(Headers(scope=scope).get(AUTHORIZATION, "")):
            return 401, REFUSAL
        return None

    return refuse


def by_other_names(allowed: Collection[str]) -> Refuse:
    """Refuse with 403 what comes by a name that is not this server's, or from a page that is
    not."""

    def refuse(scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        words = own_names.refusal(headers.get("host", ""), headers.get("origin"), allowed)
        return (403, words) if words else None

    return refuse


@dataclass(frozen=True, slots=True)
class StartMiddleware:
    """Hands the start of each response to a function, which may change it."""

    app: ASGIApp
    begin: Callable[[Message], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request."""

        async def send_on(message: Message) -> None:
            if message["type"] == "http.response.start":
                self.begin(message)
            await send(message)

        await self.app(scope, receive, send_on)


@dataclass(frozen=True, slots=True)
class EndMiddleware:
    """Answers requests that the closing server cuts off before their response has begun."""

    app: ASGIApp

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request."""
        begun = False

        def begin(start: Message) -> None:
            nonlocal begun
            begun = True

        try:
            await StartMiddleware(self.app, begin)(scope, receive, send)
        except asyncio.CancelledError:
            if begun:
                raise
            response = JSONResponse(errors.body(503, ENDS), 503, errors.headers(503))
            await response(scope, receive, send)


@dataclass(frozen=True, slots=True)
class PagesMiddleware:
    """Lets web pages of allowed origins read responses, and tells browsers that ask first (CORS).

    Starlette's own middleware knows origins by a list or a pattern, and answers those of others
    itself instead of the application.
    """

    app: ASGIApp
    allowed: Collection[str]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request, unless a browser only asks whether it may send one."""
        headers = Headers(scope=scope)
        origin = headers.get("origin")
        may_read = origin is not None and own_names.is_allowed(origin, self.allowed)
        asks_first = scope["method"] == "OPTIONS" and "access-control-request-method" in headers
        app = _preflight(headers) if may_read and asks_first else self.app

        def begin(start: Message) -> None:
            response = MutableHeaders(scope=start)
            response.add_vary_header("Origin")
            if origin is not None and may_read:
                response["Access-Control-Allow-Origin"] = origin
                response["Access-Control-Expose-Headers"] = RETRY_AFTER

        await StartMiddleware(app, begin)(scope, receive, send)


def _preflight(headers: Headers) -> Response:
    wanted = headers.get("access-control-request-headers", "")
    asked = {"Access-Control-Allow-Headers": wanted} if wanted else {}
    return Response(status_code=204, headers={**PREFLIGHT, **asked})


def closing(is_draining: Callable[[], bool]) -> Callable[[Message], None]:
    """Ask clients of a worker that is to stop to connect anew for their next request."""

    def close(start: Message) -> None:
        if is_draining():
            MutableHeaders(scope=start)["Connection"] = "close"

    return close
