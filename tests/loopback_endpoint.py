"""A real HTTP server on loopback that speaks enough of OpenAI's API to be loaded.

What each request meets is the test's to say, by its number.
"""

import asyncio
import enum
import json
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.certificate_files import LOOPBACK_CERT, LOOPBACK_KEY

KEY = "the-key"


class Way(enum.Enum):
    """How a request is answered."""

    WELL = "well"
    REJECT = "reject"
    REFUSE = "refuse"
    BREAK = "break"
    ERROR = "error"
    GARBAGE = "garbage"
    STALL = "stall"
    WRONG = "wrong"


@dataclass
class LoopbackEndpoint:
    """Serves `models` from a thread of its own, between `with` and its end."""

    ways: Callable[[int], Way] = lambda number: Way.WELL
    """Way to answer a request, by its number from 0."""
    words: int = 4
    """Chunks of an answer; each reports two tokens."""
    pause: float = 0.0
    """Seconds before each chunk."""
    usage: bool = True
    needs_key: bool = False
    tls: bool = False
    models: tuple[str, ...] = ("tiny",)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    second: threading.Event = field(default_factory=threading.Event)
    """A second request has come."""
    left: threading.Event = field(default_factory=threading.Event)
    """A client has left a stream before its end."""

    def __enter__(self) -> Self:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = (
            f"{'https' if self.tls else 'http'}://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        )
        routes = [
            Route("/v1/models", self._models),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes),
            log_level="critical",
            lifespan="off",
            timeout_graceful_shutdown=1,
            ssl_certfile=LOOPBACK_CERT if self.tls else None,
            ssl_keyfile=LOOPBACK_KEY if self.tls else None,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],))
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    async def _models(self, request: Request) -> Response:
        if self.needs_key and request.headers.get("Authorization") != f"Bearer {KEY}":
            return JSONResponse({"error": {"message": "no such key"}}, 401)
        return JSONResponse({"object": "list", "data": [{"id": name} for name in self.models]})

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        way = self.ways(len(self.bodies))
        self.bodies.append(body)
        if len(self.bodies) == 2:
            self.second.set()
        if way is Way.REJECT:
            return JSONResponse({"error": {"message": "full"}}, 429, {"Retry-After": "0"})
        if way is Way.REFUSE:
            return JSONResponse({"error": {"message": "max_tokens is too large"}}, 400)
        return StreamingResponse(self._stream(body, way), media_type="text/event-stream")

    async def _stream(self, body: dict[str, Any], way: Way) -> AsyncIterator[str]:
        whole = False
        try:
            async for event in self._events(body, way):
                yield event if isinstance(event, str) else f"data: {json.dumps(event)}\n\n"
            whole = True
        finally:
            if not whole:
                self.left.set()

    async def _events(self, body: dict[str, Any], way: Way) -> AsyncIterator[Any]:
        yield choice({"role": "assistant", "content": ""})
        for number in range(self.words):
            await asyncio.sleep(self.pause)
            wrong = way is Way.WRONG and number == self.words - 1
            yield choice({"content": f"{body['seed']}-{'x' if wrong else number} "})
            if way is Way.STALL:
                await asyncio.Event().wait()
            if way is Way.BREAK:
                return
            if way is Way.ERROR:
                yield {"error": {"message": "worker lost", "type": "server_error"}}
                return
            if way is Way.GARBAGE:
                yield "data: {not json\n\n"
                return
        figures = {"index": 0, "draft_rows": self.words + 3, "accepted_rows": self.words}
        yield choice({}, "stop") | {"outrider": {"seed": 1, "choices": [figures]}}
        if self.usage and body["stream_options"]["include_usage"]:
            yield {"choices": [], "usage": usage(self.words)}
        yield "data: [DONE]\n\n"


def choice(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    """One chunk of a chat completion."""
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}


def usage(words: int) -> dict[str, Any]:
    """Two tokens a word."""
    return {"prompt_tokens": 7, "completion_tokens": 2 * words}
