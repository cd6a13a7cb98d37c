"""The HTTP application of a target: which path answers what, and what stands in front of all.

Leaves sockets and TLS to `server`, answers to the modules that it names.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.http import errors, from_openai
from outrider.worker.api.http.authorization import RequireKey
from outrider.worker.api.http.disconnect import ClientGone
from outrider.worker.api.http.errors import ApiError
from outrider.worker.api.http.generation import respond
from outrider.worker.api.http.request_body import read_asked, seconds_for
from outrider.worker.api.http.schemas import ChatBody, CompletionBody
from outrider.worker.api.http.to_openai import CHAT, COMPLETION
from outrider.worker.api.inference import Inference
from outrider.worker.errors import UnknownModel, WorkerError

CLIENT_GONE = 499
"""What nobody reads; logs of other servers use it too."""


def application(
    inference: Inference,
    seconds: float,
    keys: ApiKeys | None = None,
    more: tuple[BaseRoute, ...] = (),
) -> Starlette:
    """The application; `seconds` is the longest answer, `more` are routes that need no key."""
    api = Api(inference, seconds)
    routes = [
        Route("/healthz", healthz),
        Route("/readyz", api.readyz),
        *more,
        Route("/v1/models", api.models),
        Route("/v1/models/{name:path}", api.model),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/chat/completions", api.chat_completions, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {
        WorkerError: errors.answer_refusal,
        ApiError: errors.answer_refusal,
        ClientGone: answer_nobody,
        HTTPException: errors.answer_http,
        Exception: errors.answer_bug,
    }
    middleware = [Middleware(RequireKey, keys=keys)] if keys else []
    return Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)


@dataclass(frozen=True, slots=True)
class Api:
    """The endpoints of one target."""

    inference: Inference
    seconds: float

    async def readyz(self, request: Request) -> Response:
        """Whether new requests should be sent here."""
        ready, linking = self.inference.ready, self.inference.linking
        if ready and not linking:
            return PlainTextResponse("ready\n")
        loading = "it waits for its first draft" if ready else "the model is being loaded"
        why = "draining" if self.inference.draining else loading
        return PlainTextResponse(f"not ready: {why}\n", 503)

    async def models(self, request: Request) -> Response:
        """GET /v1/models."""
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{name}."""
        name = request.path_params["name"]
        if name != self.inference.model.name:
            raise UnknownModel(
                f"model: {name[:64]!r} is not served here; allowed: {self.inference.model.name!r}"
            )
        return JSONResponse(self._model())

    async def completions(self, request: Request) -> Response:
        """POST /v1/completions."""
        seconds = seconds_for(request, self.seconds)
        asked = await read_asked(request, CompletionBody, from_openai.completion, seconds)
        return await respond(self.inference, request, asked, COMPLETION, seconds)

    async def chat_completions(self, request: Request) -> Response:
        """POST /v1/chat/completions."""
        seconds = seconds_for(request, self.seconds)
        asked = await read_asked(request, ChatBody, from_openai.chat, seconds)
        return await respond(self.inference, request, asked, CHAT, seconds)

    def _model(self) -> dict[str, Any]:
        model = self.inference.model
        return {
            "id": model.name,
            "object": "model",
            "created": 0,
            "owned_by": "outrider",
            "max_model_len": model.context,
            "revision": model.revision,
        }


async def healthz(request: Request) -> Response:
    """Whether the process lives."""
    return PlainTextResponse("alive\n")


async def answer_nobody(request: Request, error: Exception) -> Response:
    """Handler of `ClientGone`."""
    return Response(status_code=CLIENT_GONE)
