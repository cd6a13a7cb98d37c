"""Health and version of a worker over HTTP: `/health`, `/healthz`, `/readyz` and `/version`.

None of them needs a key. Leaves what makes a worker ready to `inference` and `server`, and whether
its engine lives to `heartbeat`.
"""

import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from outrider.contract.version import version
from outrider.worker.api.inference import Inference

logger = logging.getLogger(__name__)

Waiting = Callable[[], str]
"""Says why new requests should go elsewhere; nothing: they should come."""
Trouble = Callable[[], str]
"""Says why the worker has to be started again; nothing: it lives."""


def routes(waiting: Waiting, trouble: Trouble) -> list[Route]:
    """Return the routes of a worker."""

    async def healthz(request: Request) -> Response:
        if why := trouble():
            logger.error("/healthz fails: %s", why)
            return PlainTextResponse(f"{why}\n", 503)
        return PlainTextResponse("alive\n")

    async def readyz(request: Request) -> Response:
        if why := trouble() or waiting():
            return PlainTextResponse(f"not ready: {why}\n", 503)
        return PlainTextResponse("ready\n")

    async def health(request: Request) -> Response:
        if why := trouble() or waiting():
            return JSONResponse({"status": "unavailable", "reason": why}, 503)
        return JSONResponse({"status": "ok"})

    async def outrider_version(request: Request) -> Response:
        return JSONResponse({"version": version()})  # as vLLM does

    return [
        Route("/health", health),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/version", outrider_version),
    ]


def waiting_of(inference: Inference) -> str:
    """Say why a target is not ready; nothing if it is."""
    ready, availability = inference.ready, inference.availability
    if ready and not availability.linking:
        return ""
    if availability.draining:
        return "draining"
    return "it waits for its first draft" if ready else "the model is being loaded"
