"""The OpenAI API in front of an engine that says what a test says."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer, normalizers
from transformers import PreTrainedTokenizerFast

from outrider.worker.api.text import Text
from outrider.worker.messages import Finish, Submit
from outrider.worker.sampling.params import MAX_BIASES
from tests.tiny_models import END_ID
from tests.unit.worker.api.scripted import CONTEXT, Scripted, ScriptedHandle

CHAT, COMPLETION, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
HI = [{"role": "user", "content": "hi"}]


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
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"structured_outputs": {"regex": "a"}}, "structured_outputs"),
    ):
        error = refused(target, CHAT, {"messages": HI, **more})
        assert (error["param"], error["code"]) == (param, None)
        assert error["message"].startswith(f"{param}: "), error


class Stuck(ScriptedHandle):
    """An engine whose answers cannot go on as their grammar wants."""

    def messages(self, submit: Submit) -> list[Any]:
        *tokens, end = super().messages(submit)
        return [*tokens, dataclasses.replace(end, finish=Finish.GRAMMAR_FAILED, detail="too wide")]


TOOL = {"type": "function", "function": {"name": "f"}}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "asked", "param"),
    [
        (CHAT, {"messages": HI, "response_format": {"type": "json_object"}}, "response_format"),
        (CHAT, {"messages": HI, "tools": [TOOL], "tool_choice": "required"}, "tools"),
        (COMPLETION, {"prompt": "hi", "guided_regex": "a+"}, "guided_regex"),
        (COMPLETION, {"prompt": "hi", "structured_outputs": {"regex": "a"}}, "structured_outputs"),
        (RESPONSES, {"input": "hi", "text": {"format": {"type": "json_object"}}}, "text.format"),
    ],
)
def test_an_answer_that_its_form_stops_names_the_field_of_the_form(
    text: Text, path: str, asked: dict[str, Any], param: str, stream: bool
) -> None:
    target = Scripted(text, formats=True, handle=Stuck)
    response = target.post(path, **asked, stream=stream)
    assert f'"param":"{param}"' in response.text
    assert "too wide" in response.text


def test_a_token_that_ends_the_answer_is_shown_only_if_asked(text: Text) -> None:
    target = Scripted(text, b"hello")
    asked = {"prompt": "hi", "stop_token_ids": [ord("o"), 9]}
    (choice,) = target.post(COMPLETION, **asked).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("hell", "stop")
    assert target.submits[0].end_ids == (END_ID, ord("o"), 9)
    (choice,) = target.post(COMPLETION, **asked, include_stop_str_in_output=True).json()["choices"]
    assert choice["text"] == "hello"
    target.post(COMPLETION, **asked, ignore_eos=True)
    assert target.submits[0].end_ids == (ord("o"), 9)


def test_a_stop_string_is_shown_if_asked(text: Text) -> None:
    for shows, shown in ((True, "hell"), (False, "he")):
        asked = {"prompt": "hi", "stop": "ll", "include_stop_str_in_output": shows}
        body = Scripted(text).post(COMPLETION, **asked).json()
        assert (body["choices"][0]["text"], body["usage"]["completion_tokens"]) == (shown, 4)


@pytest.mark.parametrize(("least", "shown"), [(0, ""), (3, "heh"), (4, "hehe"), (6, "hehehe")])
def test_no_stop_string_ends_the_first_tokens(text: Text, least: int, shown: str) -> None:
    target = Scripted(text, b"heheheheh")
    body = target.post(COMPLETION, prompt="hi", stop=["he", "eh"], min_tokens=least).json()
    assert body["choices"][0]["text"] == shown
    sampling = target.submits[0].sampling
    assert (sampling.min_tokens, sampling.late) == (least, (END_ID,) if least else ())


def test_bad_words_are_the_tokens_that_write_them(text: Text) -> None:
    target = Scripted(text)
    target.post(COMPLETION, prompt="hi", bad_words=["no", " no", "é"])
    assert target.submits[0].sampling.forbidden == (
        *(tuple(b"no"), tuple(b" no")),
        *(tuple("é".encode()), tuple(" é".encode())),
    )


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"stop_token_ids": [300]}, "stop_token_ids"),
        ({"stop_token_ids": [-1]}, "stop_token_ids[0]"),
        ({"stop_token_ids": [7] * 129}, "stop_token_ids"),
        ({"bad_words": ["a", ""]}, "bad_words"),
        ({"bad_words": [" "]}, "bad_words"),
        ({"bad_words": ["x" * MAX_BIASES]}, "bad_words"),
        ({"bad_words": "x"}, "bad_words"),
    ],
)
def test_ends_and_words_out_of_their_limits_are_refused_by_name(
    text: Text, asked: dict[str, Any], param: str
) -> None:
    assert refused(Scripted(text), COMPLETION, {"prompt": "hi", **asked})["param"] == param


def test_an_echo_is_the_prompt_and_then_the_answer(text: Text) -> None:
    target = Scripted(text, b"hello")
    asked = {"prompt": "né", "max_tokens": 3}
    (choice,) = target.post(COMPLETION, **asked, echo=True).json()["choices"]
    assert (choice["text"], choice["logprobs"]) == ("néhel", None)
    assert target.submits[0].sampling.forced == ()
    (choice,) = target.post(COMPLETION, **asked).json()["choices"]
    assert choice["text"] == "hel"


def test_a_prompt_whose_log_probabilities_are_wanted_is_the_begin_of_the_answer(text: Text) -> None:
    target = Scripted(text, "éhello".encode())
    asked = {"prompt": "né", "echo": True, "logprobs": 0, "stop": "é", "max_tokens": 3}
    body = target.post(COMPLETION, **asked).json()
    (submit,) = target.submits
    forced = tuple("é".encode())
    assert (submit.prompt.tolist(), submit.sampling.forced) == ([ord("n")], forced)
    assert (tuple(submit.prediction.tolist()), submit.max_tokens) == (forced, 2 + 3)
    assert body["choices"][0]["text"] == "néhel"
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (3, 3)
    assert target.post(COMPLETION, **asked | {"max_tokens": 0}).status_code == 200
    assert target.submits[0].max_tokens == 2


def test_an_echo_has_no_space_that_the_tokenizer_puts_before_a_prompt(
    sentencepiece: Text, tmp_path: Path
) -> None:
    tokenizer = Tokenizer.from_str(sentencepiece._backend.to_str())
    spaces = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    tokenizer.normalizer = normalizers.Sequence(spaces)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(tmp_path)
    text = Text.load(tmp_path)
    for prompt in ("s s", " s"):
        forced = bytes(text.encode(prompt)[1:])
        asked = {"prompt": prompt, "max_tokens": 1, "echo": True}
        (choice,) = Scripted(text, b"\4").post(COMPLETION, **asked).json()["choices"]
        assert choice["text"] == f"{prompt} cat"
        scored = Scripted(text, forced + b"\4").post(COMPLETION, **asked, logprobs=0).json()
        (choice,) = scored["choices"]
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"] == f"{prompt} cat"
        assert choice["logprobs"]["text_offset"][-1] == len(prompt)


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"prompt": [1, END_ID]}, "prompt"),
        ({"prompt": [1, 2], "stop_token_ids": [2]}, "prompt"),
        ({"prompt": [1, 2], "frequency_penalty": 1}, "echo"),
        ({"prompt": [1, 2], "bad_words": ["x"]}, "echo"),
        ({"prompt": [1, 2], "max_tokens": 0, "echo": False}, "max_tokens"),
    ],
)
def test_a_prompt_that_cannot_be_scored_is_refused_by_name(
    text: Text, asked: dict[str, Any], param: str
) -> None:
    target = Scripted(text)
    assert refused(target, COMPLETION, {"echo": True, "logprobs": 0, **asked})["param"] == param
    assert target.post(COMPLETION, prompt=[END_ID, 1], echo=True, logprobs=0).status_code == 200


def test_a_models_own_penalties_are_not_those_of_a_prompt_that_is_scored(text: Text) -> None:
    target = Scripted(text, default_sampling={"repetition_penalty": 1.1, "top_k": 20})
    asked = {"prompt": [1, 2], "echo": True, "logprobs": 0}
    assert target.post(COMPLETION, **asked).status_code == 200
    sampling = target.submits[0].sampling
    assert (sampling.repetition_penalty, sampling.top_k) == (1.0, 20)
    assert refused(target, COMPLETION, asked | {"repetition_penalty": 1.1})["param"] == "echo"
    for more in ({"echo": False}, {"logprobs": None}):
        target.post(COMPLETION, **asked | more)
        assert target.submits[0].sampling.repetition_penalty == 1.1


@pytest.mark.parametrize("most", [0, 1])
def test_a_prompt_may_hold_what_ends_answers_where_hardly_any_is_wanted(
    text: Text, most: int
) -> None:
    target = Scripted(text, [END_ID, 2, 3][: 2 + most])
    asked = {"prompt": [1, END_ID, 2], "echo": True, "logprobs": 0, "max_tokens": most}
    assert refused(target, COMPLETION, asked | {"max_tokens": 2})["param"] == "prompt"
    (choice,) = target.post(COMPLETION, **asked).json()["choices"]
    assert len(choice["logprobs"]["token_logprobs"]) == 3 + most
    assert target.submits[0].end_ids == ()


def test_a_prompt_of_one_token_is_scored_without_the_engine(text: Text) -> None:
    target = Scripted(text)
    asked = {"prompt": "n", "echo": True, "logprobs": 1}
    body = target.post(COMPLETION, **asked, max_tokens=0).json()
    (choice,) = body["choices"]
    assert (choice["text"], choice["finish_reason"]) == ("n", "length")
    assert choice["logprobs"] == {
        "tokens": ["n"],
        "token_logprobs": [None],
        "top_logprobs": [None],
        "text_offset": [0],
    }
    assert (body["usage"]["prompt_tokens"], body["usage"]["completion_tokens"]) == (1, 0)
    assert target.submits == []
    (choice,) = target.post(COMPLETION, **asked, max_tokens=2).json()["choices"]
    assert choice["text"] == "nhe"


def test_embeddings_are_refused_in_words(text: Text) -> None:
    response = Scripted(text).post("/v1/embeddings", input="hi")
    assert response.status_code == 404
    assert "this server has no embeddings" in response.json()["error"]["message"]
