"""The OpenAI-compatible API of a real target, with OpenAI's own client, httpx and curl."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from outrider.client import Client, DeadlineExceeded, Message, Unauthenticated, Unavailable
from outrider.contract.settings import Role
from outrider.worker.api.http.request_body import MAX_BODY_BYTES
from tests.certificate_files import LOOPBACK_CERT, LOOPBACK_KEY
from tests.ports import free_port
from tests.process import workers
from tests.process.conftest import Folders, MortalDraft
from tests.process.event_stream import data_of
from tests.process.workers import ANSWER_SECONDS, PROMPT, Worker, pair_with, started, wait_until
from tests.tiny_models import END_ID

MODEL = "tiny"
GREEDY = {"temperature": 0.0, "extra_body": {"ignore_eos": True}}
CHAT: list[Any] = [{"role": "user", "content": "Hello"}]
LONG = 1900


JSON = {"Content-Type": "application/json"}


@pytest.fixture
def client(target: Worker) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{target.url}/v1", api_key="none", timeout=ANSWER_SECONDS, max_retries=0
    ) as made:
        yield made


@pytest.fixture
def http(target: Worker) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=target.url, timeout=ANSWER_SECONDS, trust_env=False) as made:
        yield made


def text_of(target: Worker, count: int, **options: Any) -> str:
    """What gRPC answers."""
    given = {"ignore_end": True, "timeout": ANSWER_SECONDS, **options}
    return target.client.complete(PROMPT, max_tokens=count, **given).text


def test_a_completion_is_the_text_that_grpc_gives(target: Worker, client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=40, **GREEDY)
    assert answer.choices[0].text == text_of(target, 40)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    counts = (answer.usage.prompt_tokens, answer.usage.completion_tokens)
    assert counts == (len(PROMPT), 40)
    revision, dtype = target.client.models()[0].revision, target.client.state().dtype
    assert answer.system_fingerprint == f"{revision}-{dtype}"
    assert answer.model_extra is not None
    figures = answer.model_extra["outrider"]["choices"][0]
    assert figures["total_seconds"] >= figures["first_token_seconds"] > 0


def test_a_completion_without_max_tokens_has_16(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT, **GREEDY)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_a_streamed_completion_has_the_same_text_and_then_its_usage(
    target: Worker, client: openai.OpenAI
) -> None:
    stream = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        max_tokens=40,
        stream=True,
        stream_options={"include_usage": True},
        **GREEDY,
    )
    chunks = list(stream)
    texts = [chunk.choices[0].text for chunk in chunks[:-1]]
    assert "".join(texts) == text_of(target, 40)
    assert len(texts) > 3
    assert chunks[-2].choices[0].finish_reason == "length"
    assert not chunks[-1].choices
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 40
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_prompts_may_be_text_or_token_ids_one_or_many(
    target: Worker, client: openai.OpenAI
) -> None:
    ids = list(target.client.tokenize(PROMPT))
    expected = text_of(target, 8)
    for prompt in (PROMPT, ids):
        one = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, **GREEDY)
        assert [choice.text for choice in one.choices] == [expected]
    for prompts in ([PROMPT, PROMPT], [ids, ids]):
        two = client.completions.create(model=MODEL, prompt=prompts, max_tokens=8, **GREEDY)
        assert [(c.index, c.text) for c in two.choices] == [(0, expected), (1, expected)]
        assert two.usage is not None
        assert two.usage.prompt_tokens == 2 * len(ids)


def test_a_chat_is_laid_out_by_the_template(target: Worker, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=CHAT, max_completion_tokens=12, **GREEDY
    )
    theirs = target.client.complete([Message("user", "Hello")], max_tokens=12, ignore_end=True)
    assert answer.choices[0].message.content == theirs.text
    assert answer.choices[0].message.role == "assistant"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == theirs.usage.prompt_tokens


def test_text_parts_and_developers_are_understood(client: openai.OpenAI) -> None:
    said: list[Any] = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
    ]
    plainly: list[Any] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello"},
    ]
    answers = [
        client.chat.completions.create(model=MODEL, messages=m, max_tokens=8, **GREEDY)
        for m in (said, plainly)
    ]
    assert answers[0].choices == answers[1].choices


def test_a_chat_goes_on_to_the_end_of_the_context(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET, max_context=64)
    with started(settings, folders.logs) as worker:
        url = f"{worker.url}/v1/chat/completions"
        body = {"messages": CHAT, "ignore_eos": True}
        answer = httpx.post(url, json=body, timeout=ANSWER_SECONDS, trust_env=False).json()
    assert answer["usage"]["total_tokens"] == 64


def test_several_choices_differ_and_each_can_be_had_again(client: openai.OpenAI) -> None:
    def ask(stream: bool) -> Any:
        return client.chat.completions.create(
            model=MODEL,
            messages=CHAT,
            n=3,
            seed=-7,
            max_tokens=12,
            stream=stream,
            extra_body={"ignore_eos": True},
        )

    whole = ask(stream=False)
    texts = [choice.message.content for choice in whole.choices]
    assert len(set(texts)) == 3
    assert whole.usage.completion_tokens == 36
    assert whole.model_extra["outrider"]["seed"] == -7
    streamed = ["", "", ""]
    for chunk in ask(stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_the_seed_that_was_drawn_gives_the_text_again(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "max_tokens": 12, "ignore_eos": True}
    first = http.post("/v1/completions", json=body).json()
    seed = first["outrider"]["seed"]
    second = http.post("/v1/completions", json={**body, "seed": seed}).json()
    assert second["choices"] == first["choices"]
    assert second["choices"] != http.post("/v1/completions", json=body).json()["choices"]


def test_a_stop_string_ends_the_text_wherever_tokens_cut_it(
    target: Worker, client: openai.OpenAI
) -> None:
    whole = text_of(target, 40)
    stop = whole[20:24]
    for stream in (False, True):
        answer: Any = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=40, stop=stop, stream=stream, **GREEDY
        )
        parts = list(answer) if stream else [answer]
        assert "".join(p.choices[0].text for p in parts) == whole[: whole.index(stop)]
        assert parts[-1].choices[0].finish_reason == "stop"


@pytest.mark.parametrize("speculate", [False, True])
def test_a_prompt_has_the_log_probabilities_that_it_had_as_an_answer(
    target: Worker, draft: MortalDraft, http: httpx.Client, speculate: bool
) -> None:
    pair_with(target, draft.address)
    asked = {"ignore_end": True, "max_tokens": 90, "speculate": speculate, "logprobs": 2}
    answer = target.client.complete(PROMPT, **asked)
    ids = [*target.client.tokenize(PROMPT), *answer.token_ids]
    body = {"echo": True, "logprobs": 2, "temperature": 0, "speculate": speculate}
    body |= {"ignore_eos": True, "prompt": [ids, ids[:40]]}
    more, none = (http.post("/v1/completions", json=body | {"max_tokens": n}) for n in (3, 0))
    assert none.json()["choices"][0]["text"] == PROMPT + answer.text
    assert more.json()["usage"]["prompt_tokens"] == len(ids) + 40
    assert more.json()["usage"]["completion_tokens"] == 6
    whole, begun = more.json()["choices"]
    found = whole["logprobs"]["token_logprobs"]
    assert whole["text"].startswith(PROMPT + answer.text)
    assert (found[0], whole["logprobs"]["top_logprobs"][0], len(found)) == (
        None,
        None,
        len(ids) + 3,
    )
    wanted = [one.token.logprob for one in answer.logprobs]
    assert found[len(ids) - len(wanted) : len(ids)] == wanted
    assert begun["logprobs"]["token_logprobs"] == found[:43], "the answer goes on in the same way"
    assert none.json()["choices"][0]["logprobs"]["token_logprobs"] == found[: len(ids)]


@pytest.mark.parametrize("speculate", [False, True])
def test_a_prompt_with_an_end_token_is_scored_where_hardly_any_answer_is_wanted(
    target: Worker, draft: MortalDraft, http: httpx.Client, speculate: bool
) -> None:
    pair_with(target, draft.address)
    ids = [*PROMPT.encode(), END_ID, *PROMPT.encode()]
    body = {"echo": True, "logprobs": 2, "speculate": speculate, "prompt": [ids, ids[:1]]}
    goes_on = {"prompt": ids, "max_tokens": 3, "ignore_eos": True}
    none, first, more = (
        http.post("/v1/completions", json=body | change).json()
        for change in ({"max_tokens": 0}, {"max_tokens": 1}, goes_on)
    )
    whole, one = (choice["logprobs"]["token_logprobs"] for choice in none["choices"])
    longer = more["choices"][0]["logprobs"]["token_logprobs"]
    assert whole == longer[: len(ids)]
    scored = first["choices"][0]["logprobs"]["token_logprobs"]
    assert (scored[:-1], len(scored)) == (whole, len(ids) + 1)
    assert (one, none["usage"]["prompt_tokens"]) == ([None], len(ids) + 1)
    assert none["usage"]["completion_tokens"] == 0


@pytest.mark.parametrize("speculate", [False, True])
def test_nothing_behind_a_stop_string_is_counted_or_shown(
    target: Worker, draft: MortalDraft, http: httpx.Client, speculate: bool
) -> None:
    pair_with(target, draft.address)
    asked = {"ignore_end": True, "max_tokens": 120, "speculate": speculate}
    whole = target.client.complete(PROMPT, logprobs=0, **asked)
    stop = [c for c in whole.text if c.isascii()][20]
    ids = [found.token.text for found in whole.logprobs]
    wanted = whole.token_ids[: ids.index(stop.encode()) + 1]
    counted = target.client.state().counters.generation_tokens
    given = target.client.complete(PROMPT, logprobs=0, stop=(stop,), **asked)
    assert tuple(given.token_ids) == tuple(wanted)
    assert given.logprobs == whole.logprobs[: len(wanted)]
    assert given.usage.completion_tokens == len(wanted)
    body = {"prompt": PROMPT, "n": 2, "max_tokens": 120, "temperature": 0, "stop": stop}
    body |= {"ignore_eos": True, "logprobs": 1, "speculate": speculate}
    answer = http.post("/v1/completions", json=body).json()
    for choice in answer["choices"]:
        assert choice["text"] == whole.text[: whole.text.index(stop)]
        assert len(choice["logprobs"]["tokens"]) == len(wanted)
    streamed = events(http, body | {"stream": True, "stream_options": {"include_usage": True}})
    assert answer["usage"] == streamed[-1]["usage"]
    assert answer["usage"]["completion_tokens"] == 2 * len(wanted)
    target.until(lambda seen: seen.counters.generation_tokens == counted + 5 * len(wanted))


NOTE: Any = {
    "type": "function",
    "function": {
        "name": "note",
        "parameters": {
            "type": "object",
            "properties": {"text": {"type": "string", "minLength": 500}},
            "required": ["text"],
        },
    },
}


def test_a_forced_call_that_is_cut_off_is_a_call(client: openai.OpenAI) -> None:
    asked: Any = {"model": MODEL, "messages": CHAT, "seed": 3, "max_tokens": 60}
    asked |= {"tools": [NOTE], "tool_choice": "required"}
    (choice,) = client.chat.completions.create(**asked).choices
    (call,) = choice.message.tool_calls
    assert (choice.message.content, choice.finish_reason) == (None, "length")
    assert call.function.name == "note"
    assert call.function.arguments.startswith("{")
    deltas = [
        delta
        for chunk in client.chat.completions.create(**asked, stream=True)
        for delta in chunk.choices[0].delta.tool_calls or ()
    ]
    assert [delta.function.name for delta in deltas if delta.id] == ["note"]
    assert "".join(delta.function.arguments for delta in deltas) == call.function.arguments


def test_what_a_schema_cannot_force_is_a_warning_or_refused_if_strict(http: httpx.Client) -> None:
    schema = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 9}}
    schema |= {"minItems": 2, "maxItems": 2, "uniqueItems": True}
    form: dict[str, Any] = {"name": "x", "schema": schema}
    shaped = {"type": "json_schema", "json_schema": form}
    body = {"messages": CHAT, "max_tokens": 200, "seed": 3, "response_format": shaped}
    answer = http.post("/v1/chat/completions", json=body).json()
    assert len(json.loads(answer["choices"][0]["message"]["content"])) == 2
    assert "uniqueItems" in answer["outrider"]["warnings"][0]
    assert "uniqueItems" in http.post("/v1/chat/completions", json=body | {"stream": True}).text
    form["strict"] = True
    refused = http.post("/v1/chat/completions", json=body)
    assert refused.status_code == 400
    assert "uniqueItems" in refused.json()["error"]["message"]


def test_no_event_holds_half_a_character(target: Worker, http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "max_tokens": 300, "stream": True, "temperature": 8.0, "seed": 3}
    texts = [c["choices"][0]["text"] for c in events(http, body | {"ignore_eos": True})]
    whole = http.post("/v1/completions", json={**body, "stream": False, "ignore_eos": True}).json()
    assert "".join(texts) == whole["choices"][0]["text"]
    assert any(ord(character) > 0x7F and character != "\ufffd" for character in "".join(texts))


def test_a_draft_shows_in_usage_and_not_in_the_text(
    target: Worker, draft: MortalDraft, client: openai.OpenAI
) -> None:

    def ask(speculate: bool) -> tuple[str, Any]:
        answer = client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=100,
            temperature=0.0,
            extra_body={"ignore_eos": True, "speculate": speculate},
        )
        assert answer.model_extra
        return answer.choices[0].text, answer.model_extra["outrider"]["choices"][0]

    pair_with(target, draft.address)
    try:
        text, drafted = ask(speculate=True)
        while not drafted["accepted_rows"]:  # no guess came in time
            text, drafted = ask(speculate=True)
        plain_text, plain = ask(speculate=False)
    finally:
        pair_with(target)
    assert text == plain_text
    assert drafted["draft_rows"] >= drafted["accepted_rows"]
    assert (plain["draft_rows"], plain["accepted_rows"]) == (0, 0)


def test_a_prediction_shows_in_usage_and_not_in_the_text(client: openai.OpenAI) -> None:
    def ask(**extra: Any) -> tuple[str, Any]:
        answer = client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=60,
            temperature=0.0,
            n=2,
            extra_body={"ignore_eos": True, **extra},
        )
        assert answer.usage
        return answer.choices[0].text, answer.usage.completion_tokens_details

    text, plain = ask()
    assert (plain.accepted_prediction_tokens, plain.rejected_prediction_tokens) == (0, 0)
    predicted, right = ask(prediction={"type": "content", "content": text})
    other, wrong = ask(prediction={"type": "content", "content": "\x01\x02" * 20})
    assert predicted == other == text
    assert right.accepted_prediction_tokens > 0
    assert (wrong.accepted_prediction_tokens, wrong.rejected_prediction_tokens) == (0, 80)
    with pytest.raises(openai.BadRequestError) as refusal:
        ask(prediction={"type": "content", "content": ""})
    assert refusal.value.param == "prediction.content"


def test_the_asynchronous_client_streams_and_completes(target: Worker) -> None:
    async def ask() -> tuple[str, str]:
        async with openai.AsyncOpenAI(base_url=f"{target.url}/v1", api_key="none") as client:
            whole = await client.chat.completions.create(
                model=MODEL, messages=CHAT, max_tokens=20, **GREEDY
            )
            stream = await client.chat.completions.create(
                model=MODEL, messages=CHAT, max_tokens=20, stream=True, **GREEDY
            )
            parts = [chunk.choices[0].delta.content or "" async for chunk in stream]
        return whole.choices[0].message.content or "", "".join(parts)

    whole, streamed = asyncio.run(ask())
    assert whole == streamed != ""


def test_models_are_listed(target: Worker, client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).owned_by == "outrider"
    with pytest.raises(openai.NotFoundError, match="'gpt/4' is not served here"):
        client.models.retrieve("gpt/4")


REFUSED: list[tuple[dict[str, Any], int, str | None, str | None, str]] = [
    ({"model": "gpt-4"}, 404, "model", "model_not_found", "'gpt-4' is not served here"),
    ({"messages": []}, 400, "messages", None, "at least one message"),
    ({"messages": [{"role": "wizard", "content": "x"}]}, 400, "messages[0].role", None, "wizard"),
    ({"messages": [{"content": "x"}]}, 400, "messages[0].role", None, "missing"),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "messages[0].content",
        None,
        "parts of type text",
    ),
    (
        {"messages": [{"role": "user", "content": "x" * 5000}]},
        400,
        "messages",
        "context_length_exceeded",
        "This model's maximum context length is 2048 tokens. messages: ",
    ),
    ({"max_tokens": 0}, 400, "max_tokens", None, "1 to 20"),
    ({"max_tokens": -1}, 400, "max_tokens", None, "greater than or equal to 0"),
    ({"max_tokens": 2**40}, 400, "max_tokens", None, "less than or equal"),
    ({"max_tokens": "9"}, 400, "max_tokens", None, "integer"),
    ({"temperature": -1}, 400, "temperature", None, "0 to 100"),
    ({"temperature": 1e300}, 400, "temperature", None, "0 to 100"),
    ({"top_p": 7.0}, 400, "top_p", None, "(0, 1]"),
    ({"min_p": -0.5}, 400, "min_p", None, "[0, 1]"),
    ({"n": 65}, 400, "n", None, "64"),
    ({"stop": ["a"] * 17}, 400, "stop", None, "at most 16"),
    ({"stop": [1]}, 400, "stop[0]", None, "string"),
    ({"seed": 2**64}, 400, "seed", None, "less than"),
    ({"logit_bias": {"x": 1.0}}, 400, "logit_bias", None, "token ids"),
    ({"stream_options": {}}, 400, "stream_options", None, "needs stream"),
    ({"top_logprobs": 3}, 400, "top_logprobs", None, "needs logprobs"),
    ({"functions": [{}]}, 400, "functions", None, "not supported"),
    ({"tool_choice": "required"}, 400, "tool_choice", None, "needs tools"),
    ({"tools": [{"type": "function"}]}, 400, "tools[0].function", None, "missing"),
    ({"response_format": {"type": "yaml"}}, 400, "response_format.type", None, "json_object"),
]


@pytest.mark.parametrize(("change", "status", "param", "code", "says"), REFUSED)
def test_a_refusal_has_openais_shape_and_names_the_parameter(
    http: httpx.Client,
    change: dict[str, Any],
    status: int,
    param: str | None,
    code: str | None,
    says: str,
) -> None:
    answer = http.post("/v1/chat/completions", json={"messages": CHAT} | change)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error
    assert error["type"] == "invalid_request_error"
    assert says in error["message"]


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"echo": True, "suffix": "x"}, "echo"),
        ({"echo": True, "logprobs": 0, "presence_penalty": 1}, "echo"),
        ({"best_of": 2}, "best_of"),
        ({"suffix": "end"}, "suffix"),
        ({"max_tokens": 4000}, "max_tokens"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[1], "a"]}, None),
        ({"prompt": [1, 2, 260]}, "prompt"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": ["a"] * 65}, "n"),
    ],
)
def test_prompts_and_parameters_of_completions_are_checked(
    http: httpx.Client, change: dict[str, Any], param: str | None
) -> None:
    answer = http.post("/v1/completions", json={"prompt": PROMPT, "max_tokens": 1} | change)
    if param is None:
        assert answer.status_code == 200
    else:
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, param), answer.text


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"prompt":"\\ud800"}'],
)
def test_a_body_that_is_no_request_is_refused(http: httpx.Client, body: bytes) -> None:
    for path in ("/v1/completions", "/v1/chat/completions"):
        answer = http.post(path, content=body, headers=JSON)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["message"]


def test_no_web_page_of_a_stranger_makes_a_target_compute(http: httpx.Client) -> None:
    body = json.dumps({"prompt": PROMPT, "max_tokens": 2})
    asked: list[tuple[dict[str, str], int]] = [
        ({}, 415),  # what a page may send to anybody: no kind, a form's, plain text
        ({"Content-Type": "text/plain"}, 415),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 415),
        (JSON | {"Origin": "https://evil.example"}, 403),
        (JSON | {"Host": "evil.example:8000", "Origin": "http://evil.example:8000"}, 403),
        (JSON | {"Origin": str(http.base_url).removesuffix("/")}, 200),
    ]
    for headers, status in asked:
        answer = http.post("/v1/completions", content=body, headers=headers)
        assert answer.status_code == status, (headers, answer.text)
    before_sending = {"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
    assert http.options("/v1/completions", headers=before_sending).status_code == 403


@pytest.mark.parametrize("origin", ["app://obsidian.md", "http://localhost:5173"])
def test_an_allowed_page_asks_first_and_then_reads_a_stream(
    http: httpx.Client, origin: str
) -> None:
    page = {"Origin": origin, "Sec-Fetch-Mode": "cors"}
    wanted = "authorization,content-type,x-stainless-lang"
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": wanted}
    told = http.options("/v1/chat/completions", headers=page | asked)
    assert told.status_code == 204
    assert told.headers["access-control-allow-headers"] == wanted
    assert "POST" in told.headers["access-control-allow-methods"]
    sent = page | {"Authorization": "Bearer none", "X-Stainless-Lang": "js"}
    body = {"messages": CHAT, "max_tokens": 4, "stream": True}
    with http.stream("POST", "/v1/chat/completions", json=body, headers=sent) as stream:
        assert stream.headers["access-control-allow-origin"] == origin
        assert stream.read().endswith(b"data: [DONE]\n\n")
    refused = http.post("/v1/chat/completions", json={"messages": []}, headers=sent)
    assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (400, origin)
    models = http.get("/v1/models", headers=page)
    assert models.headers["access-control-allow-origin"] == origin
    assert told.headers["vary"] == models.headers["vary"] == "Origin"


def test_no_refusal_is_a_bug_to_the_target(target: Worker, http: httpx.Client) -> None:
    for change, status, *_ in REFUSED:
        answer = http.post("/v1/chat/completions", json={"messages": CHAT} | change)
        assert answer.status_code == status
    assert "Traceback" not in target.log.read_text()


def test_unknown_paths_and_methods_are_refused_in_the_same_shape(http: httpx.Client) -> None:
    for answer, status in (
        (http.get("/v1/nothing"), 404),
        (http.post("/v1/completions/", json={}), 404),
        (http.get("/v1/completions"), 405),
        (http.delete("/v1/models"), 405),
    ):
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"


def test_unknown_parameters_are_ignored(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "max_tokens": 2, "user": "me", "nonsense": [1], "store": True}
    assert http.post("/v1/completions", json=body).status_code == 200


def test_a_body_that_is_too_large_is_refused_unread(target: Worker, http: httpx.Client) -> None:
    host, port = target.settings.http_listen.split(":")
    with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
        kind = "Host: localhost\r\nContent-Type: application/json"
        head = f"POST /v1/completions HTTP/1.1\r\n{kind}\r\nContent-Length: {MAX_BODY_BYTES + 1}"
        connection.sendall(head.encode() + b"\r\n\r\n{")
        assert b" 413 " in connection.recv(1 << 16).splitlines()[0]
    chunks = (b"x" * (1 << 20) for _ in range(2 * MAX_BODY_BYTES >> 20))
    with contextlib.suppress(httpx.WriteError):  # it closes while we still send
        assert http.post("/v1/completions", content=chunks, headers=JSON).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "x" * 10_000_000},
        {"prompt": [7] * 3_000_000},
        {"messages": [{"role": "user", "content": ""}] * 300_000},
        {"messages": CHAT, "logit_bias": {str(i): 1 for i in range(500_000)}},
    ],
    ids=["text", "tokens", "messages", "bias"],
)
def test_a_huge_body_is_refused_while_others_are_answered(
    target: Worker, http: httpx.Client, body: dict[str, Any]
) -> None:
    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
    data = json.dumps(body).encode()
    with ThreadPoolExecutor(1) as thread:
        refusal = thread.submit(http.post, path, content=data, headers=JSON)
        while not refusal.done():
            target.client.state(timeout=ANSWER_SECONDS)
    assert refusal.result().status_code in (400, 413), refusal.result().text


def test_a_full_queue_is_429_with_a_time_to_come_back(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET, max_waiting=0)
    with (
        started(settings, folders.logs) as worker,
        openai.OpenAI(base_url=f"{worker.url}/v1", api_key="none", max_retries=0) as client,
        client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=LONG, stream=True, **GREEDY
        ) as stream,
    ):
        next(iter(stream))
        with pytest.raises(openai.RateLimitError) as refusal:
            client.completions.create(model=MODEL, prompt=PROMPT)
        assert refusal.value.response.headers["retry-after"] == "1"
        assert refusal.value.code == "queue_full"


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_frees_its_request_at_once(target: Worker, stream: bool) -> None:
    body = {"prompt": PROMPT, "max_tokens": LONG, "stream": stream, "ignore_eos": True, "n": 2}
    before = target.client.state().counters.requests_cancelled
    data = json.dumps(body).encode()
    kind = b"Host: localhost\r\nContent-Type: application/json"
    head = b"POST /v1/completions HTTP/1.1\r\n%b\r\nContent-Length: %d\r\n\r\n" % (kind, len(data))
    host, port = target.settings.http_listen.split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head + data)
        target.until(lambda state: (state.running, state.waiting) == (1, 1))
        if stream:
            assert b"200 OK" in connection.recv(4096)
    target.until(lambda state: state.running + state.waiting == 0)
    assert target.client.state().counters.requests_cancelled == before + 2


def test_a_request_that_takes_too_long_is_ended_with_its_time_out(
    target: Worker, http: httpx.Client
) -> None:
    body = {"prompt": PROMPT, "max_tokens": LONG, "ignore_eos": True}
    answer = http.post("/v1/completions", json=body, headers={"X-Request-Timeout": "0.2"})
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout")
    target.until(lambda state: state.running + state.waiting == 0)
    for wrong in ("0", "soon", "inf", "-1"):
        refused = http.post("/v1/completions", json=body, headers={"X-Request-Timeout": wrong})
        assert refused.status_code == 400


def test_a_stream_that_takes_too_long_ends_with_an_error(http: httpx.Client) -> None:
    body = {"prompt": PROMPT, "max_tokens": LONG, "ignore_eos": True, "stream": True}
    *_, last = events(http, body, {"X-Request-Timeout": "0.5"})
    assert last["error"]["type"] == "timeout"


def test_grpc_requests_without_a_deadline_have_the_same_time_out(folders: Folders) -> None:
    with started(folders.settings(Role.TARGET, request_seconds=1), folders.logs) as worker:
        with Client(worker.address) as client, pytest.raises(DeadlineExceeded):
            client.complete(PROMPT, max_tokens=LONG, ignore_end=True)
        longer = worker.client.complete(
            PROMPT, max_tokens=LONG, ignore_end=True, timeout=ANSWER_SECONDS
        )
        assert len(longer.token_ids) == LONG


def signal_engine(worker: Worker, number: int) -> None:
    if sys.platform == "linux":  # elsewhere, an answer of that length takes long enough
        (engine,) = worker.children()
        os.kill(engine, number)


def test_a_target_is_alive_before_it_is_ready_and_unready_while_it_drains(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET)
    with (
        started(settings, folders.logs, ready=False) as worker,
        httpx.Client(base_url=worker.url, timeout=5.0, trust_env=False) as http,
    ):
        statuses: list[tuple[int, int]] = []

        def ready() -> bool:
            with contextlib.suppress(httpx.TransportError):
                both = (http.get("/healthz").status_code, http.get("/readyz").status_code)
                statuses.append(both)
                return both == (200, 200)
            return False

        wait_until(ready, workers.START_SECONDS, worker.tail)
        assert statuses[0] == (200, 503)
        body = {"prompt": PROMPT, "max_tokens": LONG, "ignore_eos": True, "stream": True}
        signal_engine(worker, signal.SIGSTOP)  # the answer cannot come to its end
        with http.stream("POST", "/v1/completions", json=body, timeout=ANSWER_SECONDS) as stream:
            assert stream.status_code == 200, "it is taken"
            worker.client.drain(grace_seconds=ANSWER_SECONDS)
            wait_until(lambda: get(worker.url, "/readyz") == 503, 5, "not ready while it drains")
            refused = httpx.post(f"{worker.url}/v1/completions", json=body, trust_env=False)
            assert refused.status_code == 503
            assert refused.headers["retry-after"]
            worker.client.drain(grace_seconds=0)
            last = [line for line in stream.iter_lines() if line][-1]
            signal_engine(worker, signal.SIGCONT)
        assert "the target stopped during this request" in last
        assert worker.process.wait(workers.END_SECONDS) == 0


def test_an_idle_connection_does_not_hold_up_the_end_of_a_target(folders: Folders) -> None:
    with (
        started(folders.settings(Role.TARGET), folders.logs) as worker,
        httpx.Client(base_url=worker.url, trust_env=False) as http,
    ):
        assert http.get("/healthz").status_code == 200
        worker.process.send_signal(signal.SIGTERM)
        assert worker.process.wait(workers.END_SECONDS) == 0


@pytest.fixture(scope="module")
def closed(folders: Folders) -> Iterator[Worker]:
    """A target with API keys."""
    file = folders.logs / "keys"
    file.write_text("first\n\nsecond\n")
    settings = folders.settings(Role.TARGET, api_keys_file=str(file))
    worker = workers.launch(settings, folders.logs)
    try:
        wait_until(lambda: get(worker.url, "/readyz") == 200, workers.START_SECONDS, worker.tail)
        yield worker
    finally:
        workers.stop(worker)


def test_http_needs_a_key_but_for_health(closed: Worker) -> None:
    for key in ("first", "second"):
        with openai.OpenAI(base_url=f"{closed.url}/v1", api_key=key) as client:
            assert client.models.list().data
    with (
        openai.OpenAI(base_url=f"{closed.url}/v1", api_key="third") as client,
        pytest.raises(openai.AuthenticationError, match="API keys") as refusal,
    ):
        client.models.list()
    assert refusal.value.code == "invalid_api_key"
    for wrong in ({}, {"Authorization": "first"}, {"Authorization": "Bearer x"}):
        answer = httpx.get(f"{closed.url}/v1/models", headers=wrong, trust_env=False)
        assert answer.status_code == 401
        answer = httpx.post(f"{closed.url}/infill", headers=wrong, json={}, trust_env=False)
        assert answer.status_code == 401
    assert get(closed.url, "/healthz") == 200
    by_a_name = {"Host": "chat.example", "Authorization": "Bearer first"}
    with_a_key = httpx.get(f"{closed.url}/v1/models", headers=by_a_name, trust_env=False)
    assert with_a_key.status_code == 200, "who has a key may come by any name"


def test_grpc_needs_a_key(closed: Worker) -> None:
    with Client(closed.address, api_key="second") as client:
        assert client.models()
        assert client.complete("x", max_tokens=2, ignore_end=True).token_ids
    for made in (Client(closed.address), Client(closed.address, api_key="x")):
        with made as client:
            for call in (client.models, client.state):
                with pytest.raises(Unauthenticated, match="API keys"):
                    call()


def test_keys_are_exchanged_while_a_target_runs(closed: Worker) -> None:
    assert closed.settings.api_keys_file is not None
    file = Path(closed.settings.api_keys_file)
    before = file.read_text()

    def statuses() -> list[int]:
        heads = ({"Authorization": f"Bearer {key}"} for key in ("first", "a third key"))
        url = f"{closed.url}/v1/models"
        return [httpx.get(url, headers=head, trust_env=False).status_code for head in heads]

    try:
        with Client(closed.address, api_key="a third key") as client:
            assert statuses() == [200, 401]
            file.write_text("a third key\n")
            assert statuses() == [401, 200]
            assert client.models()
            file.write_text(before)
            with pytest.raises(Unauthenticated):
                client.models()
        assert statuses() == [200, 401]
    finally:
        file.write_text(before)


def test_both_servers_speak_tls(folders: Folders) -> None:
    settings = folders.settings(Role.TARGET, tls_cert=str(LOOPBACK_CERT), tls_key=str(LOOPBACK_KEY))
    worker = workers.launch(settings, folders.logs)
    url = worker.url.replace("http:", "https:")
    try:
        context = ssl.create_default_context(cafile=LOOPBACK_CERT)
        wait_until(lambda: get(url, "/readyz", context) == 200, workers.START_SECONDS, worker.tail)
        pem = LOOPBACK_CERT.read_bytes()
        several = [worker.address, f"127.0.0.1:{free_port()}"]
        for address in (worker.address, several):
            with Client(address, tls=pem) as client:
                assert client.models()
        with (
            Client(worker.address, tls=pem, tls_name="other") as client,
            pytest.raises(Unavailable),
        ):
            client.models()
        with pytest.raises(Unavailable):
            worker.client.models()
    finally:
        workers.stop(worker)


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_curl_streams_an_answer(target: Worker) -> None:
    body = json.dumps({"model": MODEL, "messages": CHAT, "max_tokens": 5, "stream": True})
    done = subprocess.run(
        ["curl", "--noproxy", "*", "-sSN", f"{target.url}/v1/chat/completions",
         "-H", "Content-Type: application/json", "-d", body],
        capture_output=True, text=True, timeout=ANSWER_SECONDS, check=True,
    )  # fmt: skip
    assert done.stdout.endswith("data: [DONE]\n\n"), done.stdout
    assert json.loads(data_of(done.stdout)[0])["choices"]


def events(
    http: httpx.Client, body: dict[str, Any], headers: dict[str, str] | None = None
) -> list[dict[str, Any]]:
    """The events of a streamed completion, without [DONE]."""
    with http.stream("POST", "/v1/completions", json=body, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        found = data_of(answer.read().decode())
    return [json.loads(data) for data in found if data != "[DONE]"]


def get(url: str, path: str, verify: Any = True) -> int:
    """Status of a GET; 0 where nobody listens yet, or does not shake hands yet."""
    try:
        answer = httpx.get(url + path, timeout=10.0, trust_env=False, verify=verify)
    except (httpx.ConnectError, httpx.ConnectTimeout):
        return 0
    return answer.status_code
