"""Bodies of requests: on which thread they are parsed."""

import asyncio
import threading
from typing import Any, cast

import pytest
from starlette.requests import Request

from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.request_body import LARGE_BYTES, read_request
from outrider.worker.api.http.schemas import Body


class Said(Body):
    text: str


def parsing_thread(length: int) -> int:
    """Return the thread that converts a body with a text of so many characters."""
    body = b'{"text": "' + b"x" * length + b'"}'
    threads: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    def convert(said: Said) -> OpenAIRequest:
        assert len(said.text) == length
        threads.append(threading.get_ident())
        return cast(OpenAIRequest, None)

    request = Request({"type": "http", "headers": []}, receive)
    asyncio.run(read_request(request, Said, convert, 60.0))
    return threads[0]


@pytest.mark.parametrize(("length", "here"), [(1, True), (LARGE_BYTES, False)])
def test_a_large_body_is_parsed_where_it_holds_up_no_other_request(length: int, here: bool) -> None:
    assert (parsing_thread(length) == threading.get_ident()) is here
