"""Whatever is sent to the HTTP API is answered or refused in its own shape, and breaks nothing."""

import copy
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.process.event_stream import data_of
from tests.process.fuzzing import (
    NASTY_NUMBERS,
    NASTY_REGEXES,
    NASTY_SCHEMAS,
    PROMPT,
    SECONDS,
    Fuzzed,
    fuzzed,
    seldom,
    texts,
)

COMPLETIONS, CHATS, RESPONSES = "/v1/completions", "/v1/chat/completions", "/v1/responses"
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SHARED: dict[str, Any] = {
    "model": "tiny",
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 2,
    "stop": ["zz"],
    "seed": 3,
    "max_tokens": 6,
    "temperature": 0.7,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.01,
    "frequency_penalty": 0.1,
    "presence_penalty": 0.1,
    "repetition_penalty": 1.1,
    "logit_bias": {"97": 1},
    "priority": 1,
    "speculate": True,
    "ignore_eos": True,
}
COMPLETION = {"prompt": PROMPT, "logprobs": 2} | SHARED
CHAT: dict[str, Any] = {
    "messages": [
        {"role": "system", "content": "x"},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}], "name": "me"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
        },
    ],
    "logprobs": True,
    "top_logprobs": 2,
    "tools": [TOOL],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "max_completion_tokens": 6,
    "modalities": ["text"],
} | SHARED
FORMED = {k: v for k, v in CHAT.items() if k != "ignore_eos"} | {
    "response_format": {
        "type": "json_schema",
        "json_schema": {
            "name": "s",
            "schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
}
RESPONSE: dict[str, Any] = {
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
    ],
    "instructions": "x",
    "tools": [{"type": "function", "name": "f", "parameters": {"type": "object"}}],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low"},
    "max_output_tokens": 6,
    "include": [],
    "metadata": {"a": "b"},
    "store": False,
    "temperature": 0.7,
    "seed": 3,
    "stream": True,
}
BODIES = [(COMPLETIONS, COMPLETION), (CHATS, CHAT), (CHATS, FORMED), (RESPONSES, RESPONSE)]
METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"]
PATHS = [
    *("/", "/v1", "/v1/", "/v1/models", "/v1/models/", "/v1/models/tiny", "/v1/models/%ff%00"),
    *(
        "/v1/completions/",
        "//v1/models",
        "/v1/../etc/passwd",
        "/health",
        "/healthz",
        "/readyz",
        "/version",
        "/metrics",
    ),
    *("/v1/models?x=%", "/v1/chat/completions#x", "/v1/embeddings", "/v1/models/" + "a" * 3000),
    *(COMPLETIONS, CHATS, RESPONSES),
]
JSON = {"Content-Type": "application/json"}
HEADERS = {
    "Origin": ["null", "", "https://evil.example", "http://localhost:3000", "\xff"],
    "Content-Type": ["text/plain", "application/json; charset=utf-16", "\xff", "multipart/x", ""],
    "Content-Encoding": ["gzip", "br"],
    "X-Request-Timeout": ["", "0", "-1", "nan", "inf", "1e400", "x", "30", "²", "9" * 5000],
    "Authorization": ["Bearer", "Basic \xff", ""],
    "Accept": ["text/html", "*/*;q=x"],
    "Host": ["[", "", "a b", "[::1", "\xff", "x:99999999"],
    "Expect": ["100-continue", "x"],
}
KIND = b"Host: localhost\r\nContent-Type: application/json\r\n"
POST = b"POST /v1/completions HTTP/1.1\r\n" + KIND
POST_CHAT = b"POST /v1/chat/completions HTTP/1.1\r\n" + KIND
RAW = [
    b"\x00" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET / HTTP/1.1\r\n\r\n",
    b"GET /v1/models HTTP/1.1\r\nHost: [\r\n\r\n",
    b"GET http://[/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 20_000 + b"\r\n",
    POST + b"Content-Length: -1\r\n\r\n",
    POST + b"Content-Length: " + b"9" * 400 + b"\r\n\r\n",
    POST + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
    POST + b"Content-Length: 50\r\n\r\n{",
    POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"PUT /v1/models HTTP/1.1\r\n" + KIND + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n",
    b"CONNECT x:1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"GET / HTTP/1.1\r\n" + KIND + b"Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n\x81\x00",
]


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fuzzed]:
    with fuzzed(tmp_path_factory.mktemp("fuzzed")) as made:
        yield made
        made.check_alive()
        made.check_idle()


@pytest.fixture(scope="module")
def http(target: Fuzzed) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=target.worker.url, timeout=SECONDS, trust_env=False) as made:
        yield made


def values() -> st.SearchStrategy[Any]:
    """What may stand anywhere in a body."""
    single = st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from(NASTY_NUMBERS),
        st.integers(-(2**65), 2**65),
        st.floats(),
        texts(),
        st.sampled_from([{"type": "json_schema", "json_schema": {"schema": s}} for s in schemas()]),
        st.sampled_from([{"type": "json_object"}, {"type": "text"}, TOOL, [TOOL] * 200]),
    )
    return st.recursive(
        single,
        lambda inner: st.one_of(
            st.lists(inner, max_size=4), st.dictionaries(texts(), inner, max_size=3)
        ),
        max_leaves=6,
    )


def schemas() -> list[Any]:
    """Schemas that are JSON, and patterns within them."""
    made: list[Any] = [{"type": "string", "pattern": pattern} for pattern in NASTY_REGEXES]
    for text in NASTY_SCHEMAS:
        try:
            made.append(json.loads(text))
        except (ValueError, RecursionError):
            made.append({"const": text})
    return made


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths of everything within a body."""
    found = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in items:
        found.append((*path, key))
        if isinstance(inner, dict | list):
            found += places(inner, (*path, key))
    return found


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """A path, and a valid body of which up to three things were changed."""
    path, valid = draw(st.sampled_from(BODIES))
    body = copy.deepcopy(valid)
    for _ in range(draw(st.integers(1, 3))):
        *way, last = draw(st.sampled_from(places(body)))
        inner = body
        for key in way:
            inner = inner[key]
        if draw(st.booleans()) or not isinstance(inner, dict):
            inner[last] = copy.deepcopy(draw(values()))
        else:
            del inner[last]
        if not body:
            break
    return path, body


@seldom(250)
@given(requests(), st.booleans())
def test_a_changed_body_is_answered_or_refused(
    target: Fuzzed, http: httpx.Client, request_: tuple[str, Any], stream: bool
) -> None:
    path, body = request_
    if not stream and isinstance(body, dict):
        body = {k: v for k, v in body.items() if k not in ("stream", "stream_options")}
    answer = http.post(path, content=json.dumps(body), headers=JSON)
    check(answer)


@pytest.mark.parametrize(("number", "schema"), [*enumerate(schemas())], ids=repr)
def test_any_schema_is_followed_or_refused(
    target: Fuzzed, http: httpx.Client, number: int, schema: Any
) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    body = {"messages": CHAT["messages"], "response_format": form, "stream": number % 2 == 1}
    text = json.dumps(body | {"temperature": 1.0, "seed": 2})
    answer = http.post(CHATS, content=text, headers=JSON)
    check(answer)


@seldom(80)
@given(st.sampled_from(BODIES), st.data())
def test_bytes_that_are_no_body_are_refused(
    target: Fuzzed, http: httpx.Client, request_: tuple[str, Any], data: st.DataObject
) -> None:
    path, valid = request_
    check(http.post(path, content=data.draw(broken(json.dumps(valid))), headers=JSON))


@st.composite
def broken(draw: st.DrawFn, text: str) -> bytes:
    """A body cut, doubled, nested or in an encoding that JSON does not have."""
    at = draw(st.integers(0, len(text)))
    deep = draw(st.sampled_from([100, 5000, 100_000]))
    name = draw(st.sampled_from(["n", "prompt", "messages", "seed", "max_tokens"]))
    return draw(
        st.sampled_from(
            [
                text[:at].encode(),
                text.encode("utf-16"),
                text.encode("utf-8-sig"),
                text.encode("utf-32"),
                text[:at].encode() + b"\xff\xfe\xc3" + text[at:].encode(),
                text[:at].encode() + b"\x00" + text[at:].encode(),
                text[:at].encode() + draw(st.binary(max_size=8)) + text[at:].encode(),
                (text[:-1] + f', "{name}": null, "{name}": -1, "{name}": ' + "}").encode(),
                (text[:-1] + f', "{name}": 1, "{name}": "x"' + "}").encode(),
                (text[:-1] + ', "' + name + '": ' + "[" * deep + "]" * deep + "}").encode(),
                (
                    text[:-1] + ', "' + name + '": ' + '{"a":' * deep + "1" + "}" * (deep + 1)
                ).encode(),
                b"[" * deep,
                b"9" * deep,
                b"",
                b"null",
                b"[]",
                b'"' + b"x" * deep,
            ]
        )
    )


@seldom(100)
@given(
    st.sampled_from(METHODS),
    st.one_of(st.sampled_from(PATHS), texts()),
    st.fixed_dictionaries({}, optional={k: st.sampled_from(v) for k, v in HEADERS.items()}),
    st.booleans(),
)
def test_any_method_path_and_header_is_answered(
    target: Fuzzed,
    http: httpx.Client,
    method: str,
    path: str,
    headers: dict[str, str],
    valid: bool,
) -> None:
    body = json.dumps(COMPLETION | {"messages": CHAT["messages"]}) if valid else ""
    raw = [(k.encode(), v.encode("latin-1")) for k, v in (JSON | headers).items()]
    url = httpx.URL(target.worker.url, raw_path=b"/" + quoted(path).lstrip(b"/"))
    try:
        answer = http.request(method, url, content=body, headers=raw)
    except httpx.LocalProtocolError:
        return  # httpx does not send it
    check(answer, bare=method == "HEAD")


def quoted(path: str) -> bytes:
    """A path as the client can send it: in its paths there is no bare #."""
    return quote(path, safe="/%?&=", errors="replace").encode()


@pytest.mark.parametrize("sent", RAW)
def test_what_is_no_http_ends_its_connection_alone(target: Fuzzed, sent: bytes) -> None:
    code = raw_status(target.worker.settings.http_listen, sent)
    assert code is None or 200 <= code < 500
    target.check_alive()


@seldom(40)
@given(st.binary(max_size=60), st.booleans())
@example(POST + b"Content-Length: 9\r\n\r\n" + b"\xff" * 9, True)
def test_garbage_on_the_socket_is_no_bug(target: Fuzzed, sent: bytes, begins: bool) -> None:
    start = POST_CHAT if begins else b""
    code = raw_status(target.worker.settings.http_listen, start + sent)
    assert code is None or 200 <= code < 500


def raw_status(address: str, sent: bytes) -> int | None:
    """Sends bytes, says that no more come, and reads all; the status, None without an answer."""
    host, _, port = address.rpartition(":")
    data = b""
    with socket.create_connection((host, int(port)), timeout=SECONDS) as s:
        try:
            s.sendall(sent)
            s.shutdown(socket.SHUT_WR)
            while piece := s.recv(1 << 16):
                data += piece
        except ConnectionError:
            pass  # the server has heard enough
    return int(data.split()[1]) if data.startswith(b"HTTP/1.1 ") else None


def check(answer: httpx.Response, bare: bool = False) -> None:
    """It is a valid answer or a refusal of the API; errors within a stream count."""
    code = answer.status_code
    assert 200 <= code < 500, (code, answer.text)
    kind = answer.headers.get("content-type", "")  # redirections have none
    if bare:
        return
    if code >= 400:
        check_error(answer.json())
    elif kind.startswith("text/event-stream"):
        check_events(answer.text)
    elif kind == "application/json":
        whole = answer.json()
        assert not whole.get("error")
        assert all(choice["finish_reason"] for choice in whole.get("choices", ()))
        assert whole.get("status", "completed") in ("completed", "incomplete")


def check_error(body: Any) -> None:
    """OpenAI's shape."""
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert body["error"]["message"]
    assert body["error"]["type"] != "server_error", body


def check_events(text: str) -> None:
    """They end with [DONE], a whole response, or an error that is the request's own fault."""
    *shown, last = data_of(text)
    events = [json.loads(data) for data in shown]
    assert all("id" in event or "sequence_number" in event for event in events)
    end = {} if last == "[DONE]" else json.loads(last)
    if end.get("type") == "response.failed":
        error = events[-1]
        assert set(error) == {"type", "code", "message", "param", "sequence_number"}
        assert error["message"]
        assert error["code"] != "server_error", error
    elif "type" in end:
        assert end["type"] in ("response.completed", "response.incomplete")
    elif end:
        check_error(end)
