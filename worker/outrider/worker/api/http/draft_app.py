"""The HTTP application of a draft: health and metrics, nothing that answers prompts.

Leaves sockets to `server` and what metrics there are to `outrider.worker.metrics`.
"""

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from outrider.worker.api.http.app import healthz


def draft_application(is_ready: Callable[[], bool], more: tuple[BaseRoute, ...]) -> Starlette:
    """The application; `more` are further routes."""

    async def readyz(request: Request) -> Response:
        """Whether new sessions should be opened here."""
        if is_ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("not ready\n", 503)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz), *more])
