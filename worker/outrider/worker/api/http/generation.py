"""Answers one request for text: admits its prompts, then collects or streams what comes.

Works on the same `Inference` as gRPC does. Leaves shapes to `replies`; every admitted request is
released, however the answer ends.
"""

import json
import logging
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from outrider.protos.v1 import inference_pb2 as pb
from outrider.worker.api.http import errors
from outrider.worker.api.http.disconnect import ClientGone, unless_gone
from outrider.worker.api.http.from_openai import Asked
from outrider.worker.api.http.merge_streams import merged
from outrider.worker.api.http.to_openai import Reply, ReplyShape
from outrider.worker.api.inference import Inference
from outrider.worker.api.response import Admitted
from outrider.worker.errors import WorkerError

logger = logging.getLogger(__name__)

DONE = b"data: [DONE]\n\n"


async def respond(
    inference: Inference, request: Request, asked: Asked, shape: ReplyShape, seconds: float
) -> Response:
    """The answer to one request, within `seconds`; raises `WorkerError` or `ClientGone`."""
    admitted = await admit_all(inference, asked, seconds, request.headers)
    reply = Reply(shape, asked, inference.model.name, lambda: inference.fingerprint)

    def release() -> None:
        for one in admitted:
            inference.release(one)

    if asked.stream:
        return EventStream(_events(inference, reply, admitted), release)
    try:
        await unless_gone(request.receive, _collect(inference, reply, admitted))
        return JSONResponse(reply.whole())
    finally:
        release()


async def admit_all(
    inference: Inference, asked: Asked, seconds: float, headers: Mapping[str, str]
) -> list[Admitted]:
    """Admits every choice of every prompt, or none; a prompt is tokenized once."""
    admitted: list[Admitted] = []
    try:
        for request in asked.requests:
            await _fit(inference, request, asked.max_tokens)
            for choice in range(asked.choices):
                if choice:
                    request.sampling.choice = choice
                admitted.append(await inference.admit(request, seconds, headers))
    except BaseException:
        for one in admitted:
            inference.release(one)
        raise
    return admitted


async def _fit(inference: Inference, request: pb.GenerateRequest, max_tokens: int | None) -> None:
    """Replaces the prompt by its tokens, and takes the default of `max_tokens`."""
    ids = await inference.encode(request)
    request.tokens.ids[:] = ids
    room = inference.model.context - len(ids)
    if not request.HasField("max_tokens"):
        request.max_tokens = room if max_tokens is None else min(room, max_tokens)


async def _collect(inference: Inference, reply: Reply, admitted: list[Admitted]) -> None:
    """One choice after the other: what comes meanwhile waits in the queues of the others."""
    for index, one in enumerate(admitted):
        async for response in inference.responses(one):
            reply.take(index, response)


async def _events(
    inference: Inference, reply: Reply, admitted: list[Admitted]
) -> AsyncGenerator[bytes, None]:
    """Server-sent events; an error ends them, in place of [DONE]."""
    for chunk in reply.begin():
        yield event(chunk)
    try:
        async with aclosing(merged([inference.responses(one) for one in admitted])) as responses:
            async for index, response in responses:
                for chunk in reply.take(index, response):
                    yield event(chunk)
    except WorkerError as error:
        yield event(errors.refusal(error)[1])
        return
    for chunk in reply.end():
        yield event(chunk)
    yield DONE


def event(value: dict[str, Any]) -> bytes:
    """One server-sent event."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"data: {text}\n\n".encode()


class EventStream(Response):
    """Sends events as they come, until they end or the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], release: Callable[[], None]) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends all of it; the requests behind it are released in any case."""
        try:
            await unless_gone(receive, self._send(send))
        except ClientGone:
            logger.info("a client left its stream; its requests are cancelled")
        finally:
            self._release()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async with aclosing(self._events) as events:
            async for data in events:
                await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
