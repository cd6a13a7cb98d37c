"""ASGI middleware: refusal of requests without an API key or from strangers' web pages, and what is
done with each response as it begins.

Leaves keys and their comparison to `outrider.worker.api.auth`, and names to `own_names`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from outrider.worker.api.auth import AUTHORIZATION, REFUSAL, ApiKeys
from outrider.worker.api.http import errors, own_names

CLOSED = ("/v1/", "/infill/")
"""Paths that need a key; health and metrics stay open."""
Refuse = Callable[[Scope], tuple[int, str] | None]
"""Returns the status and the words with which a request is refused; None: it may come in."""


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
    names = frozenset(name.lower() for name in allowed)

    def refuse(scope: Scope) -> tuple[int, str] | None:
        headers = Headers(scope=scope)
        words = own_names.refusal(headers.get("host", ""), headers.get("origin"), names)
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


def closing(is_draining: Callable[[], bool]) -> Callable[[Message], None]:
    """Ask clients of a worker that is to stop to connect anew for their next request."""

    def close(start: Message) -> None:
        if is_draining():
            MutableHeaders(scope=start)["Connection"] = "close"

    return close
