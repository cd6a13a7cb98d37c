"""HTTP applications: a target's with the OpenAI API, and a draft's with health and metrics only.

Leaves sockets and TLS to `server`, responses to `generation` and metrics to their routes.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from outrider.contract.process import ENV_PAGE
from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.http import errors, from_openai, health, openapi
from outrider.worker.api.http.choice import AnswerChoice, ChatChoice, CompletionChoice
from outrider.worker.api.http.disconnect import ClientGone
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.generation import HttpResponse, respond
from outrider.worker.api.http.health import Trouble
from outrider.worker.api.http.infill import InfillBody, InfillResponse, infill
from outrider.worker.api.http.middleware import (
    EndMiddleware,
    PagesMiddleware,
    RefusalMiddleware,
    StartMiddleware,
    by_other_names,
    closing,
    without_key,
)
from outrider.worker.api.http.request_body import BodyBudget, Kind, read_request, seconds_for
from outrider.worker.api.http.responses.answer import ResponsesAnswer
from outrider.worker.api.http.responses.body import ResponsesBody, from_responses
from outrider.worker.api.http.schemas import ChatBody, CompletionBody
from outrider.worker.api.http.to_openai import OpenAIResponse
from outrider.worker.api.inference import Inference
from outrider.worker.api.reasoning import Place, first_place
from outrider.worker.api.response import Admitted
from outrider.worker.errors import UnknownModel, WorkerError

Choice = TypeVar("Choice", bound=AnswerChoice)
Responding = Callable[[OpenAIRequest, Sequence[Admitted]], HttpResponse]
"""Returns the response to a request that is admitted."""
NOT_READY = "the model is being loaded, or the worker drains"
CLIENT_GONE = 499
"""Status of a response that no client reads; logs of other servers use it too."""
FILES = Path(__file__).with_name("page_files")
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content-Security-Policy: nothing from elsewhere, and nothing inline."""
HEADERS = MappingProxyType(
    {
        "Content-Security-Policy": POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
)


def target_application(
    inference: Inference,
    keys: ApiKeys | None,
    more: tuple[BaseRoute, ...],
    allowed: Collection[str] = (),
    private: bool = False,
) -> ASGIApp:
    """Return the application of a target; `more` are routes that need no key, `allowed` the hosts
    and origins beside those of this machine whose web pages may read responses.

    A `private` one answers to no other names and pages.
    """
    names = frozenset(name.lower() for name in allowed)
    api = Api(inference)
    routes = [
        *health.routes(lambda: health.waiting_of(inference), inference.engine.heartbeat.trouble),
        *more,
        openapi.route(),
        Route("/v1/models", api.models),
        Route("/v1/models/{name:path}", api.model),
        Route("/v1/completions", api.completions, methods=["POST"]),
        Route("/v1/chat/completions", api.chat_completions, methods=["POST"]),
        Route("/v1/responses", api.responses, methods=["POST"]),
        Route("/v1/embeddings", embeddings, methods=["POST"]),
        Route("/infill", api.infill, methods=["POST"]),
    ]
    handlers: Mapping[Any, Any] = {
        WorkerError: errors.handle_refusal,
        errors.ApiError: errors.handle_refusal,
        ClientGone: handle_client_gone,
        HTTPException: errors.handle_http_error,
        Exception: errors.handle_bug,
    }
    begin = closing(lambda: inference.availability.draining)
    middleware = [Middleware(StartMiddleware, begin=begin)]
    if private:
        middleware.append(Middleware(RefusalMiddleware, refuse=by_other_names(names)))
    if keys is not None:
        middleware.append(Middleware(RefusalMiddleware, refuse=without_key(keys)))
    application = Starlette(routes=routes, exception_handlers=handlers, middleware=middleware)
    application.router.redirect_slashes = False  # a redirect has no body that says anything
    return PagesMiddleware(
        EndMiddleware(application), names
    )  # outside, so that pages can read of bugs, too


def draft_application(
    is_ready: Callable[[], bool], more: tuple[BaseRoute, ...], trouble: Trouble = lambda: ""
) -> ASGIApp:
    """Return the application of a draft, of a stage, or of ranks that follow; `more` are further
    routes. By default such a worker lives if it answers."""

    def waiting() -> str:
        return "" if is_ready() else NOT_READY

    return Starlette(routes=[*health.routes(waiting, trouble), *more])


@dataclass(frozen=True, slots=True)
class Api:
    """The endpoints of one target."""

    inference: Inference
    bodies: BodyBudget = field(default_factory=BodyBudget)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self._model()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.inference.model.name:
            raise UnknownModel(
                f"model: {name[:64]!r} is not served here; allowed: {self.inference.model.name!r}"
            )
        return JSONResponse(self._model())

    async def completions(self, request: Request) -> Response:
        response = self._openai(CompletionChoice)
        return await self._respond(request, CompletionBody, from_openai.completion, response)

    async def chat_completions(self, request: Request) -> Response:
        response = self._openai(ChatChoice)
        return await self._respond(request, ChatBody, from_openai.chat, response)

    async def responses(self, request: Request) -> Response:
        name, text = self.inference.model.name, self.inference.text

        def response(parsed: OpenAIRequest, admitted: Sequence[Admitted]) -> HttpResponse:
            (choice,) = self._choices(ChatChoice, parsed, admitted)
            return ResponsesAnswer(
                parsed, name, choice, lambda words: len(text.encode_prediction(words))
            )

        return await self._respond(request, ResponsesBody, from_responses, response)

    async def infill(self, request: Request) -> Response:
        model = self.inference.model

        def response(parsed: OpenAIRequest, admitted: Sequence[Admitted]) -> HttpResponse:
            return InfillResponse(parsed, model.name, model.context_length)

        return await self._respond(request, InfillBody, infill, response)

    def _openai(self, kind: type[AnswerChoice]) -> Responding:
        inference = self.inference

        def response(parsed: OpenAIRequest, admitted: Sequence[Admitted]) -> HttpResponse:
            choices = self._choices(kind, parsed, admitted)
            name = inference.model.name
            return OpenAIResponse(choices, parsed, name, lambda: inference.fingerprint)

        return response

    def _choices(
        self, kind: type[Choice], parsed: OpenAIRequest, admitted: Sequence[Admitted]
    ) -> list[Choice]:
        """Return what answers become; one in a given form leaves no room for thoughts."""
        text, free = self.inference.text, parsed.request.response_format is None
        place = first_place(text, admitted[0].submit.prompt) if free else Place.CONTENT
        how = parsed.calling, parsed.functions, text.call_tags, place
        return [kind(index, *how) for index in range(len(admitted))]

    async def _respond(
        self,
        request: Request,
        kind: type[Kind],
        convert: Callable[[Kind], OpenAIRequest],
        response: Responding,
    ) -> Response:
        seconds = seconds_for(request, self.inference.settings.request_seconds)
        parsed = await read_request(request, kind, convert, seconds, self.bodies)
        try:
            responding = partial(response, parsed)
            return await respond(self.inference, request, parsed, responding, seconds)
        except WorkerError as error:
            parsed.rename(error)
            raise

    def _model(self) -> dict[str, Any]:
        model = self.inference.model
        return {
            "id": model.name,
            "object": "model",
            "created": 0,
            "owned_by": "outrider",
            "max_model_len": model.context_length,
            "revision": model.revision,
        }


async def embeddings(request: Request) -> Response:
    """Refuse what clients ask every server for."""
    raise errors.ApiError(404, "this server has no embeddings: its model writes text")


async def handle_client_gone(request: Request, error: Exception) -> Response:
    """Return a response that no client reads."""
    return Response(status_code=CLIENT_GONE)


def page_routes(environment: Mapping[str, str]) -> tuple[Route, ...]:
    """Return the routes of the page at `/`, a chat and live figures in files that need no key; none
    where the environment asks for no page."""
    if environment.get(ENV_PAGE) != "1":
        return ()
    files = (Route(f"/page/{file.name}", _sender(file)) for file in sorted(FILES.iterdir()))
    return (Route("/", _sender(FILES / "index.html")), *files)


def _sender(file: Path) -> Callable[[Request], Awaitable[Response]]:
    async def send(request: Request) -> Response:
        return FileResponse(file, headers=HEADERS)

    return send
