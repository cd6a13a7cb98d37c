"""The OpenAI API in front of an engine that says what a test says."""

from typing import Any

import pytest

from outrider.worker.api.text import Text
from tests.tiny_models import write_tokenizer
from tests.unit.worker.api.scripted import CONTEXT, Scripted

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
HI = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Text:
    folder = tmp_path_factory.mktemp("tokenizer")
    write_tokenizer(folder)
    return Text.load(folder)


@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_a_chat_that_asks_for_more_than_the_context_has_gets_what_it_has(
    text: Text, name: str
) -> None:
    target = Scripted(text)
    for asked in ({name: 9000}, {}):
        assert target.post(CHAT, messages=HI, **asked).status_code == 200
        (submit,) = target.submits
        assert submit.max_tokens + len(submit.prompt) == CONTEXT
    target.post(CHAT, messages=HI, **{name: 3})
    assert target.submits[0].max_tokens == 3


def refused(target: Scripted, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return the error of a request with status 400."""
    response = target.post(path, **body)
    assert response.status_code == 400
    error: dict[str, Any] = response.json()["error"]
    return error


def test_others_are_told_of_the_limit_in_openais_words(text: Text) -> None:
    strict = Scripted(text, settings={"cut_max_tokens": False})
    sentence = f"This model's maximum context length is {CONTEXT} tokens. "
    long = [{"role": "user", "content": "x" * CONTEXT}]
    for path, body, param in (
        (CHAT, {"messages": HI, "max_tokens": 9000}, "max_tokens"),
        (CHAT, {"messages": HI, "max_completion_tokens": 9000}, "max_completion_tokens"),
        (CHAT, {"messages": long}, "messages"),
        (CHAT, {"messages": HI * 100}, "messages"),
        (COMPLETION, {"prompt": "hi", "max_tokens": 9000}, "max_tokens"),
        (COMPLETION, {"prompt": "x" * CONTEXT}, "prompt"),
        (COMPLETION, {"prompt": [1] * CONTEXT}, "prompt"),
        (COMPLETION, {"prompt": "x" * 10_000}, "prompt"),
    ):
        error = refused(strict, path, body)
        assert error["message"].startswith(f"{sentence}{param}: "), error
        assert (error["code"], error["param"]) == ("context_length_exceeded", param)


def test_an_error_names_the_field_that_the_client_sent(text: Text) -> None:
    target = Scripted(text)
    for more, param in (
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"ignore_eos": True, "response_format": {"type": "json_object"}}, "response_format"),
    ):
        error = refused(target, CHAT, {"messages": HI, **more})
        assert (error["param"], error["code"]) == (param, None)
        assert error["message"].startswith(f"{param}: "), error


def test_embeddings_are_refused_in_words(text: Text) -> None:
    response = Scripted(text).post("/v1/embeddings", input="hi")
    assert response.status_code == 404
    assert "this server has no embeddings" in response.json()["error"]["message"]
