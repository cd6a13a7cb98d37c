"""Bodies of requests: of which kind they are, and on which thread they are parsed."""

import asyncio
import threading
from typing import Any, cast

import pytest
from starlette.requests import Request

from outrider.worker.api.http.errors import ApiError
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.request_body import (
    JSON,
    LARGE_BYTES,
    BodyBudget,
    read_body,
    read_request,
)
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

    request = Request({"type": "http", "headers": kind_header(JSON)}, receive)
    asyncio.run(read_request(request, Said, convert, 60.0, BodyBudget()))
    return threads[0]


def kind_header(kind: str) -> list[tuple[bytes, bytes]]:
    return [(b"content-type", kind.encode("latin-1"))]


def read(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a body that comes with these headers; it is read only if they are allowed."""
    pieces = [{"type": "http.request", "body": b"{}", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return pieces.pop()

    request = Request({"type": "http", "headers": headers}, receive)
    return asyncio.run(read_body(request, 60.0, lambda size: None))


@pytest.mark.parametrize("kind", [JSON, f"{JSON}; charset=utf-8", "Application/JSON ;x"])
def test_json_is_read_whatever_is_said_beside_it(kind: str) -> None:
    assert read(kind_header(kind)) == b"{}"


@pytest.mark.parametrize(
    "kind",
    [
        *("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "\xff"),
        *("text/plain; application/json", "application/jsonp", "application/json, text/plain"),
    ],
)
def test_what_a_web_page_sends_without_asking_is_refused(kind: str) -> None:
    with pytest.raises(ApiError, match="content-type") as refused:
        read(kind_header(kind))
    assert refused.value.status == 415


def test_a_body_of_no_kind_is_refused() -> None:
    with pytest.raises(ApiError, match="content-type: nothing"):
        read([])


@pytest.mark.parametrize(("length", "here"), [(1, True), (LARGE_BYTES, False)])
def test_a_large_body_is_parsed_where_it_holds_up_no_other_request(length: int, here: bool) -> None:
    assert (parsing_thread(length) == threading.get_ident()) is here


def test_bodies_have_one_budget_and_give_it_back() -> None:
    budget = BodyBudget(100)
    with budget.share() as one, budget.share() as other:
        one(LARGE_BYTES)  # free
        one(LARGE_BYTES + 60)
        one(LARGE_BYTES + 70)
        other(LARGE_BYTES + 30)
        with pytest.raises(ApiError, match="requests of 100 bytes are on their way") as refused:
            other(LARGE_BYTES + 31)
        assert refused.value.status == 503
    with budget.share() as again:
        again(LARGE_BYTES + 100)
