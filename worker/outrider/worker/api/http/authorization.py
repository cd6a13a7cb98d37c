"""Refuses HTTP requests under /v1 that bring no API key.

Leaves keys and their comparison to `outrider.worker.api.auth`; health and metrics stay open.
"""

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from outrider.worker.api.auth import REFUSAL, ApiKeys
from outrider.worker.api.http import errors

CLOSED = "/v1/"
STATUS = 401


class RequireKey:
    """401 for requests without a key."""

    def __init__(self, app: ASGIApp, keys: ApiKeys) -> None:
        self._app = app
        self._keys = keys

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands over what is allowed."""
        if self._is_closed(scope) and not self._is_allowed(scope):
            refusal = JSONResponse(errors.body(STATUS, REFUSAL), STATUS, errors.headers(STATUS))
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_closed(self, scope: Scope) -> bool:
        return scope["type"] == "http" and f"{scope['path']}/".startswith(CLOSED)

    def _is_allowed(self, scope: Scope) -> bool:
        return self._keys.allows(Headers(scope=scope).get("authorization", ""))
