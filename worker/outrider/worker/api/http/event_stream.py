"""Server-sent events: several streams merged into one, sent until they end or the client goes away.

Leaves what an event says to `generation`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

DONE = b"data: [DONE]\n\n"
PING = b": ping\n\n"
"""A comment, which clients skip and proxies take for life: many cut what is silent for a minute."""
PING_SECONDS = 15.0
SEPARATORS = {ord(mark): f"\\u{ord(mark):04x}" for mark in "\u0085\u2028\u2029"}
"""Ends of lines to readers that split events by Unicode's rules; JSON may escape them."""

Item = TypeVar("Item")


def event(value: dict[str, Any]) -> bytes:
    """Encode one server-sent event, with the name of its type if it has one."""
    name = f"event: {value['type']}\n" if "type" in value else ""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return f"{name}data: {text.translate(SEPARATORS)}\n\n".encode()


class EventStream(StreamingResponse):
    """Sends events as they come, until they end or the client goes away."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncGenerator[bytes, None], release: Callable[[], None]) -> None:
        super().__init__(events, headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        self._events = events
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send all events; release the requests behind them in any case."""
        try:
            async with aclosing(self._events):
                await super().__call__(scope, receive, send)
        finally:
            self._release()


async def merged(
    streams: Sequence[AsyncIterator[Item]], quiet_seconds: float = PING_SECONDS
) -> AsyncGenerator[Item | None, None]:
    """Yield the items of several streams as they come; None when none has come for `quiet_seconds`.

    Raises what a stream raises. All streams end when one fails or the generator is closed.
    """
    queue: asyncio.Queue[Item | Exception | None] = asyncio.Queue()
    tasks = [asyncio.create_task(_forward(stream, queue)) for stream in streams]
    open_streams = len(tasks)
    try:
        while open_streams:
            try:
                async with asyncio.timeout(quiet_seconds):
                    item = await queue.get()
            except TimeoutError:
                yield None
                continue
            if item is None:
                open_streams -= 1
            elif isinstance(item, Exception):
                raise item
            else:
                yield item
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _forward(
    stream: AsyncIterator[Item], queue: "asyncio.Queue[Item | Exception | None]"
) -> None:
    try:
        async for item in stream:
            queue.put_nowait(item)
    except Exception as error:  # not handled here: `merged` raises it
        queue.put_nowait(error)
    else:
        queue.put_nowait(None)
