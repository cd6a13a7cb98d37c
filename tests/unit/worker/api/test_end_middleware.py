"""Requests that a closing server cuts off."""

import asyncio
import json
from typing import Any

import pytest
from starlette.types import Message, Receive, Scope, Send

from outrider.worker.api.http.middleware import EndMiddleware

SCOPE: dict[str, Any] = {"type": "http", "method": "POST", "path": "/", "headers": []}
START: Message = {"type": "http.response.start", "status": 200, "headers": []}


async def cut_off(begins: bool) -> list[Message]:
    """Return what is sent for a request that is cancelled while it is worked on."""
    sent: list[Message] = []
    waits = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if begins:
            await send(START)
        waits.set()
        await asyncio.Event().wait()

    async def send(message: Message) -> None:
        sent.append(message)

    async def receive() -> Message:
        raise AssertionError("there is no body")

    task = asyncio.create_task(EndMiddleware(app)(SCOPE, receive, send))
    await waits.wait()
    task.cancel()
    if begins:
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task
    return sent


def test_a_request_without_response_is_told_that_the_server_stops() -> None:
    start, body = asyncio.run(cut_off(begins=False))
    assert start["status"] == 503
    assert b"retry-after" in {name for name, _ in start["headers"]}
    assert json.loads(body["body"])["error"]["code"] == "stopping"


def test_a_response_that_has_begun_is_cut() -> None:
    assert asyncio.run(cut_off(begins=True)) == [START]
