"""Answers one request for text: admits its prompts, then collects or streams the responses.

Works on the same `Inference` as gRPC does. Leaves shapes to `to_openai`; every admitted request is
released, however the answer ends.
"""

import dataclasses
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Protocol

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from outrider.worker.api.http import errors
from outrider.worker.api.http.disconnect import unless_gone
from outrider.worker.api.http.event_stream import PING, EventStream, event, merged
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.inference import Inference
from outrider.worker.api.prompt import Chat, Prompt
from outrider.worker.api.request import GenerateRequest
from outrider.worker.api.response import Admitted, GenerateResponse
from outrider.worker.errors import WorkerError


class HttpResponse(Protocol):
    """The response to one HTTP request, while its parts come."""

    @property
    def last(self) -> bytes:
        """The last event of a stream, after all chunks."""

    def begin(self) -> list[dict[str, Any]]:
        """Return the chunks before the first token."""

    def take(self, index: int, part: GenerateResponse) -> list[dict[str, Any]]:
        """Return the chunks of the next part of an answer."""

    def end(self) -> list[dict[str, Any]]:
        """Return the chunks after the last token."""

    def fail(self, error: dict[str, Any]) -> list[dict[str, Any]]:
        """Return the chunks that end a stream with an error, the body of a refusal."""

    def whole(self) -> dict[str, Any]:
        """Return the response that is not streamed."""


async def respond(
    inference: Inference,
    http_request: Request,
    request: OpenAIRequest,
    responding: Callable[[Sequence[Admitted]], HttpResponse],
    seconds: float,
) -> Response:
    """Answer one request within `seconds`; raise `WorkerError` or `ClientGone`.

    `responding` returns the response, once the request is admitted.
    """
    admitted = await admit_all(inference, request, seconds, http_request.headers)
    response = responding(admitted)

    def release() -> None:
        for one in admitted:
            inference.release(one)

    if request.stream:
        return EventStream(_events(inference, request, response, admitted), release)
    try:
        await unless_gone(http_request.receive, _collect(inference, response, admitted))
        return JSONResponse(response.whole())
    finally:
        release()


async def admit_all(
    inference: Inference, request: OpenAIRequest, seconds: float, headers: Mapping[str, str]
) -> list[Admitted]:
    """Admit every choice of every prompt, or none; a text is tokenized once."""
    admitted: list[Admitted] = []
    prediction = await inference.encode_prediction(request.request.prediction)
    try:
        for prompt in request.prompts:
            first = await _tokenized(inference, request, prompt)
            first = dataclasses.replace(first, prediction=prediction)
            for choice in range(request.choices):
                sampling = {**first.sampling, "choice": choice}
                wanted = dataclasses.replace(first, sampling=sampling)
                admitted.append(await inference.admit(wanted, seconds, headers))
    except BaseException:
        for one in admitted:
            inference.release(one)
        raise
    return admitted


async def _tokenized(
    inference: Inference, request: OpenAIRequest, prompt: Prompt
) -> GenerateRequest:
    """Return the request for the token ids of `prompt`, with the default of `max_tokens`; what a
    chat asks for beyond its room is cut, if the settings say so."""
    ids = await inference.encode(request.request.model, prompt)
    max_tokens, default = request.request.max_tokens, request.max_tokens
    if max_tokens is None or (default is None and inference.settings.cut_max_tokens):
        room = inference.model.context_length - len(ids)
        max_tokens = min(each for each in (max_tokens, default, room) if each is not None)
    chat = prompt if isinstance(prompt, Chat) else None
    return dataclasses.replace(request.request, prompt=ids, max_tokens=max_tokens, chat=chat)


async def _collect(inference: Inference, response: HttpResponse, admitted: list[Admitted]) -> None:
    """Take one choice after the other; meanwhile the queues of the others keep their events."""
    for index, one in enumerate(admitted):
        async for part in inference.responses(one):
            response.take(index, part)


async def shown(
    response: HttpResponse, index: int, parts: AsyncIterator[GenerateResponse]
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield the chunks of the parts of a choice; nothing for one of which nothing is shown yet."""
    async for part in parts:
        if chunks := response.take(index, part):
            yield chunks


async def _events(
    inference: Inference, request: OpenAIRequest, response: HttpResponse, admitted: list[Admitted]
) -> AsyncGenerator[bytes, None]:
    """Yield server-sent events; an error ends them, in place of [DONE]."""
    for chunk in response.begin():
        yield event(chunk)
    choices = [shown(response, i, inference.responses(one)) for i, one in enumerate(admitted)]
    try:
        async with aclosing(merged(choices)) as taken:
            async for chunks in taken:
                for chunk in chunks or ():
                    yield event(chunk)
                if chunks is None:
                    yield PING
    except WorkerError as error:
        request.rename(error)
        for chunk in response.fail(errors.refusal(error)[1]):
            yield event(chunk)
        return
    for chunk in response.end():
        yield event(chunk)
    if response.last:
        yield response.last
