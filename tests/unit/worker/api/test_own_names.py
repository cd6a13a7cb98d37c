"""Names by which a server without keys on loopback may be asked, and pages that may ask it."""

import asyncio
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from outrider.worker.api.http.middleware import RefusalMiddleware, by_other_names
from outrider.worker.api.http.own_names import refusal

OWN = ["localhost", "127.0.0.1:8000", "127.8.8.8", "[::1]:8000", "LocalHost:1", "chat.localhost:8"]
ADDRESSES = ["10.0.0.7:8000", "[2001:db8::1]:8000", "0.0.0.0:80"]
FOREIGN = ["evil.example", "evil.example:8000", "localhost.evil.example", "127.0.0.1.evil.example"]


@pytest.mark.parametrize("host", [*OWN, *ADDRESSES, "localhost.:8000", ""])
def test_this_machine_and_addresses_are_answered(host: str) -> None:
    assert refusal(host, None, ()) == ""


@pytest.mark.parametrize("host", [*FOREIGN, "[", "a b", "@localhost.evil", "xlocalhost"])
def test_a_name_that_may_have_been_led_here_is_refused(host: str) -> None:
    assert "--allow-host" in refusal(host, None, ())


@pytest.mark.parametrize(
    "origin",
    ["http://127.0.0.1:8000", "http://localhost:3000", "https://localhost", "http://[::1]:5173"],
)
def test_pages_of_this_machine_may_ask(origin: str) -> None:
    assert refusal("127.0.0.1:8000", origin, ()) == ""


def test_a_page_that_came_from_this_address_may_ask() -> None:
    assert refusal("10.0.0.7:8000", "http://10.0.0.7:8000", ()) == ""
    assert "origin" in refusal("10.0.0.7:8000", "http://10.0.0.7:9000", ())


@pytest.mark.parametrize(
    "origin",
    [
        *("https://evil.example", "null", "", "http://10.0.0.7:8000", "file://", "http://[", "x"),
        *("chrome-extension://abcdef", "http://localhost.evil.example", "http://127.0.0.1@evil"),
    ],
)
def test_pages_of_others_are_refused(origin: str) -> None:
    assert refusal("127.0.0.1:8000", origin, ()).startswith("origin: ")


def test_an_origin_that_is_named_with_its_default_port_is_the_one_without() -> None:
    allowed = ("https://a.example:443", "http://b.example:80")
    assert refusal("127.0.0.1:8000", "https://a.example", allowed) == ""
    assert refusal("127.0.0.1:8000", "http://b.example", allowed) == ""
    assert refusal("127.0.0.1:8000", "http://a.example", allowed) != ""


def test_a_proxy_is_answered_under_the_name_that_it_hands_on() -> None:
    allowed = ("chat.example.com", "abcdef")
    for host in ("chat.example.com", "chat.example.com:443", "127.0.0.1:8000"):
        assert refusal(host, "https://chat.example.com", allowed) == ""
    assert refusal("127.0.0.1:8000", "chrome-extension://abcdef", allowed) == ""
    assert refusal("other.example.com", None, allowed)
    assert refusal("chat.example.com", "https://other.example.com", allowed)


def test_a_whole_origin_lets_in_its_own_pages_alone() -> None:
    allowed = ("app://obsidian.md", "https://chat.example.com:8443", "vscode-webview://*")
    pages = ("app://Obsidian.md", "https://chat.example.com:8443", "vscode-webview://1f0")
    for origin in pages:
        assert refusal("127.0.0.1:8000", origin, allowed) == ""
    for origin in ("https://obsidian.md", "https://chat.example.com", "vscode-webview.example"):
        assert origin in refusal("127.0.0.1:8000", origin, allowed)
    assert refusal("obsidian.md", None, allowed).startswith("host: ")


def test_an_origin_is_named_whole_so_that_it_can_be_allowed() -> None:
    webview = f"vscode-webview://{'1f0' * 18}"
    assert repr(webview) in refusal("127.0.0.1:8000", webview, ())


def test_one_star_allows_all() -> None:
    assert refusal("evil.example", "https://evil.example", ("*",)) == ""


@given(st.text(), st.none() | st.text())
def test_any_header_has_an_answer(host: str, origin: str | None) -> None:
    assert isinstance(refusal(host, origin, ()), str)


async def answer(request: Any) -> PlainTextResponse:
    return PlainTextResponse("in")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "127.0.0.1"}, 200),
        ({"Host": "Chat.Example"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1", "Origin": "https://evil.example"}, 403),
    ],
)
def test_a_refusal_has_the_shape_of_others(headers: dict[str, str], status: int) -> None:
    async def ask() -> httpx.Response:
        named = Middleware(RefusalMiddleware, refuse=by_other_names(("chat.example",)))
        application = Starlette(routes=[Route("/", answer)], middleware=[named])
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return await client.get("/", headers=headers)

    answered = asyncio.run(ask())
    assert answered.status_code == status
    if status == 403:
        assert answered.json()["error"]["code"] == "host_not_allowed"
