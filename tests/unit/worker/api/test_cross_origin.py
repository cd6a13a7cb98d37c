"""Web pages of other origins that may read responses, and what their browsers ask before (CORS)."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.text import Text
from tests.unit.worker.api.scripted import Scripted, ScriptedHandle

CHAT = "/v1/chat/completions"
HI = {"messages": [{"role": "user", "content": "hi"}]}
OBSIDIAN, CHATS = "app://obsidian.md", "https://chat.example.com"
ALLOWED = (OBSIDIAN, "chat.example.com", "VSCode-Webview://*")
PAGES = [OBSIDIAN, CHATS, f"{CHATS}:8443", "vscode-webview://1f0", "http://localhost:5173"]
STRANGERS = ["https://obsidian.md", "https://evil.example", "app://evil", "chrome-extension://1f0"]
OPENAI = "authorization,content-type,x-stainless-os,x-stainless-retry-count"
"""Headers for which a browser asks where OpenAI's client wants to send."""
LOCAL = {"Host": "localhost:8000"}


@pytest.fixture
def keys(tmp_path: Path) -> ApiKeys:
    file = tmp_path / "keys"
    file.write_text("secret\n")
    return ApiKeys(str(file))


def preflight(target: Scripted, path: str, origin: str, headers: str = OPENAI) -> httpx.Response:
    """Return what a browser is told that asks whether it may post."""
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": headers}
    return target.ask("OPTIONS", path, headers=LOCAL | {"Origin": origin} | asked)


def posted(target: Scripted, body: dict[str, Any], origin: str = OBSIDIAN) -> httpx.Response:
    return target.ask("POST", CHAT, json=body, headers=LOCAL | {"Origin": origin})


def may_read(response: httpx.Response) -> str | None:
    """Return the origin whose pages may read a response."""
    return response.headers.get("access-control-allow-origin")


@pytest.mark.parametrize("private", [True, False])
@pytest.mark.parametrize("origin", PAGES)
def test_an_allowed_page_may_send_what_openais_client_sends(
    text: Text, origin: str, private: bool
) -> None:
    target = Scripted(text, allowed=ALLOWED, private=private)
    for path in (CHAT, "/v1/completions", "/v1/models", "/infill", "/metrics", "/healthz"):
        told = preflight(target, path, origin)
        assert (told.status_code, told.content, may_read(told)) == (204, b"", origin)
        assert told.headers["access-control-allow-headers"] == OPENAI
        assert {"GET", "POST"} <= set(told.headers["access-control-allow-methods"].split(", "))
        assert int(told.headers["access-control-max-age"]) > 0
        assert told.headers["vary"] == "Origin"
        assert "access-control-allow-credentials" not in told.headers


def test_answers_streams_and_errors_are_for_the_page_that_asks(text: Text) -> None:
    target = Scripted(text, allowed=ALLOWED, private=True)
    for body, status in (
        (HI, 200),
        (HI | {"stream": True}, 200),
        (HI | {"max_tokens": 0}, 400),
        (HI | {"model": "other"}, 404),
    ):
        answer = posted(target, body)
        assert (answer.status_code, may_read(answer)) == (status, OBSIDIAN)
        assert answer.headers["vary"] == "Origin"
        assert answer.headers["access-control-expose-headers"] == "retry-after"
    for method, path, status in (("GET", "/v1/none", 404), ("PUT", CHAT, 405)):
        answer = target.ask(method, path, headers=LOCAL | {"Origin": OBSIDIAN})
        assert (answer.status_code, may_read(answer)) == (status, OBSIDIAN)


class Broken(ScriptedHandle):
    def send(self, message: Any) -> None:
        raise ZeroDivisionError


def test_a_page_reads_that_the_server_has_failed(text: Text) -> None:
    target = Scripted(text, allowed=ALLOWED, handle=Broken)
    answer = posted(target, HI)
    assert (answer.status_code, may_read(answer)) == (500, OBSIDIAN)


def test_a_page_is_asked_for_the_key_after_its_preflight(text: Text, keys: ApiKeys) -> None:
    target = Scripted(text, allowed=ALLOWED, keys=keys)
    assert preflight(target, CHAT, OBSIDIAN).status_code == 204
    without = posted(target, HI)
    assert (without.status_code, may_read(without)) == (401, OBSIDIAN)
    headers = {"Origin": OBSIDIAN, "Authorization": "Bearer secret"}
    answer = target.ask("POST", CHAT, json=HI, headers=headers)
    assert (answer.status_code, may_read(answer)) == (200, OBSIDIAN)


@pytest.mark.parametrize("origin", STRANGERS)
@pytest.mark.parametrize(("private", "first", "then"), [(True, 403, 403), (False, 405, 200)])
def test_pages_of_others_may_neither_send_nor_read(
    text: Text, origin: str, private: bool, first: int, then: int
) -> None:
    target = Scripted(text, allowed=ALLOWED, private=private)
    answers = preflight(target, CHAT, origin), posted(target, HI, origin)
    assert [answer.status_code for answer in answers] == [first, then]
    for answer in answers:
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_page_that_led_its_name_here_is_refused_though_it_asks_first(text: Text) -> None:
    target = Scripted(text, allowed=ALLOWED, private=True)
    name = {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}
    for headers in (name, name | {"Access-Control-Request-Method": "POST"}):
        answer = target.ask("OPTIONS", CHAT, headers=headers)
        assert (answer.status_code, may_read(answer)) == (403, None)


def test_one_star_lets_all_pages_read_even_those_of_files(text: Text) -> None:
    target = Scripted(text, allowed=("*",), private=True)
    for origin in (*STRANGERS, "null"):
        assert may_read(preflight(target, CHAT, origin)) == origin
        assert may_read(posted(target, HI, origin)) == origin


def test_who_names_no_origin_gets_what_a_cache_keeps_from_pages(text: Text) -> None:
    answer = Scripted(text, allowed=("*",)).ask("GET", "/v1/models")
    assert (may_read(answer), answer.headers["vary"]) == (None, "Origin")


def test_a_question_that_no_browser_asks_first_is_no_preflight(text: Text) -> None:
    answer = Scripted(text).ask("OPTIONS", CHAT, headers={"Origin": "http://localhost:5173"})
    assert answer.status_code == 405
