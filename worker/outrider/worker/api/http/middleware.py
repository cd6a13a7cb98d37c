"""ASGI middleware: refusal of requests without an API key or from strangers' web pages, counts of
statuses, and the end of connections to a worker that is to stop.

Leaves keys and their comparison to `outrider.worker.api.auth`, and names to `own_names`.
"""

from collections import Counter
from collections.abc import Callable, Collection

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.worker.api.auth import AUTHORIZATION, REFUSAL, ApiKeys
from outrider.worker.api.http import errors, own_names

CLOSED = "/v1/"
"""Paths that need a key; health and metrics stay open."""
UNAUTHORIZED, FORBIDDEN = 401, 403


class KeyMiddleware:
    """401 for requests without a key."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request if it is allowed."""
        if self._is_closed(scope) and not self._is_allowed(scope):
            refusal = JSONResponse(
                errors.body(UNAUTHORIZED, REFUSAL), UNAUTHORIZED, errors.headers(UNAUTHORIZED)
            )
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_closed(self, scope: Scope) -> bool:
        return scope["type"] == "http" and f"{scope['path']}/".startswith(CLOSED)

    def _is_allowed(self, scope: Scope) -> bool:
        return self._keys.allows(Headers(scope=scope).get(AUTHORIZATION, ""))


class NameMiddleware:
    """403 for requests by a name that is not this server's, or from a page that is not."""

    def __init__(self, app: ASGIApp, allowed: Collection[str]) -> None:
        self._app = app
        self._allowed = frozenset(name.lower() for name in allowed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request if it is allowed."""
        headers = Headers(scope=scope)
        words = own_names.refusal(headers.get("host", ""), headers.get("origin"), self._allowed)
        if words:
            refusal = JSONResponse(
                errors.body(FORBIDDEN, words), FORBIDDEN, errors.headers(FORBIDDEN)
            )
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)


class StatusCounter:
    """Counts the responses of an application by status."""

    def __init__(self, app: ASGIApp, statuses: "Counter[str]") -> None:
        self._app = app
        self._statuses = statuses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request and count its response."""

        async def count(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._statuses[str(message["status"])] += 1
            await send(message)

        await self._app(scope, receive, count)


class DrainMiddleware:
    """Asks clients of a worker that is to stop to connect anew for their next request."""

    def __init__(self, app: ASGIApp, is_draining: Callable[[], bool]) -> None:
        self._app = app
        self._is_draining = is_draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request; its response says that the connection closes."""

        async def close(message: Message) -> None:
            if message["type"] == "http.response.start" and self._is_draining():
                MutableHeaders(scope=message)["Connection"] = "close"
            await send(message)

        await self._app(scope, receive, close)
