"""OpenAI's JSON to messages and back: what a body asks for, and how an answer looks."""

import asyncio
import dataclasses
import errno
import json
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher
from pydantic import ValidationError
from starlette.requests import Request

from outrider.contract.inference import MAX_STREAM_INTERVAL_MS, Likely, Timing, TokenLogprobs, Usage
from outrider.contract.settings import SettingsError
from outrider.kernels.sampling.gumbel_max import Sampler
from outrider.worker.api.auth import ApiKeys
from outrider.worker.api.fim import FimPrompt
from outrider.worker.api.http import errors, from_openai
from outrider.worker.api.http.choice import ChatChoice, CompletionChoice
from outrider.worker.api.http.event_stream import PING, event, merged
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.generation import shown
from outrider.worker.api.http.schemas import ChatBody, CompletionBody
from outrider.worker.api.http.server import listen
from outrider.worker.api.http.to_openai import OpenAIResponse
from outrider.worker.api.http.tool_calls import Calling, ToolCalls
from outrider.worker.api.http.unserved import OF_CHATS, UNSERVED
from outrider.worker.api.prompt import Chat
from outrider.worker.api.response import AnswerEnd, GenerateResponse, ShownTree, float32
from outrider.worker.api.response_format import ResponseFormat, ResponseFormats
from outrider.worker.api.tool_schemas import MAX_TOOLS
from outrider.worker.errors import InvalidField, QueueFull, Stopping, UnknownModel, WorkerError
from outrider.worker.messages import NO_KEY, Finish
from outrider.worker.sampling.params import SamplingParams
from tests.unit.worker.api.test_forced_calls import tokenizer

HANGS_SECONDS = 60
CHATTING = {"messages": [{"role": "user", "content": "hi"}]}
TOOL = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "of a city",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
    "strict": True,
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Köln"}}\n</tool_call>'
SAMPLED = {
    "temperature": 0.5,
    "top_p": 0.25,
    "top_k": 7,
    "min_p": 0.125,
    "frequency_penalty": -0.5,
    "presence_penalty": 1.5,
    "repetition_penalty": 1.25,
    "seed": 11,
}


def chat(**fields: Any) -> OpenAIRequest:
    return from_openai.chat(ChatBody.model_validate_json(json.dumps(CHATTING | fields)))


def numbered(count: int) -> list[Any]:
    """Tools, each of a name of its own."""
    return [{"type": "function", "function": {"name": f"t{at}"}} for at in range(count)]


def completion(**fields: Any) -> OpenAIRequest:
    body = {"prompt": "hi"} | fields
    return from_openai.completion(CompletionBody.model_validate_json(json.dumps(body)))


def test_a_suffix_makes_prompts_to_fill_in_the_middle() -> None:
    one = completion(prompt=["a", ""], suffix="b")
    assert one.prompts == (FimPrompt("a", "b", 16), FimPrompt("", "b", 16))
    assert completion(suffix="b", max_tokens=7).prompts == (FimPrompt("hi", "b", 7),)
    for none in (completion(), completion(suffix=""), completion(suffix=None)):
        assert none.prompts == ("hi",)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"prompt": [1, 2], "suffix": "b"}, "suffix needs a prompt that is text, not token ids"),
        ({"suffix": 7}, "suffix: 7 is not allowed; input should be a valid string"),
        ({"suffix": "b", "echo": True}, "echo shows no prompt that has a suffix"),
    ],
)
def test_a_suffix_that_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError) as found:
        completion(**change)
    assert str(errors.unreadable(found.value)) == says


def test_a_chat_has_no_suffix() -> None:
    with pytest.raises(ValidationError) as found:
        chat(suffix="b")
    refusal = errors.unreadable(found.value)
    assert refusal.param == "suffix"
    assert chat(suffix="").prompts == chat().prompts


@pytest.mark.parametrize(
    ("error", "status", "seconds"), [(QueueFull("full", 7), 429, "7"), (Stopping("bye"), 503, "1")]
)
def test_a_refusal_says_when_to_come_back(error: WorkerError, status: int, seconds: str) -> None:
    refused = asyncio.run(errors.handle_refusal(Request({"type": "http"}), error))
    assert (refused.status_code, refused.headers["retry-after"]) == (status, seconds)


def test_an_error_that_nobody_foresaw_is_the_servers_and_says_nothing_of_itself() -> None:
    answer = asyncio.run(errors.handle_bug(Request({"type": "http"}), ValueError("a secret")))
    assert answer.status_code == 500
    assert json.loads(bytes(answer.body))["error"]["type"] == "server_error"
    assert b"secret" not in bytes(answer.body)


@pytest.mark.parametrize("ask", [chat, completion])
def test_defaults_are_openais(ask: Any) -> None:
    request = ask().request
    seed = request.sampling["seed"]
    assert request.sampling_params({}) == SamplingParams(temperature=1.0, seed=seed)
    assert request.sampling_params({"temperature": 0.6, "top_k": 20}) == SamplingParams(
        temperature=0.6, top_k=20, seed=seed
    )
    assert request.speculate
    assert request.logprobs is None
    assert request.response_format is None
    assert (ask().choices, ask().stream, ask().include_usage) == (1, False, False)
    assert ask().seed != ask().seed
    assert 0 <= ask().seed < 2**53


@pytest.mark.parametrize("ask", [chat, completion])
def test_every_setting_reaches_the_request(ask: Any) -> None:
    parsed = ask(
        **SAMPLED,
        logit_bias={"5": -100, "259": 2.5},
        max_tokens=9,
        stop=["a", "b"],
        priority=-3,
        speculate=False,
        ignore_eos=True,
        model="tiny",
        n=4,
        stream=True,
        stream_options={"include_usage": True},
        stream_interval_ms=0,
        prediction={"type": "content", "content": "hello"},
    )
    request = parsed.request
    assert request.prediction == "hello"
    assert request.stream_interval_ms == 0
    assert {name: request.sampling[name] for name in SAMPLED} == SAMPLED
    assert dict(request.sampling["logit_bias"]) == {5: -100.0, 259: 2.5}
    assert (request.max_tokens, list(request.stop), request.model) == (9, ["a", "b"], "tiny")
    assert (request.priority, request.speculate, request.ignore_end) == (-3, False, True)
    assert (parsed.choices, parsed.stream, parsed.include_usage) == (4, True, True)


@pytest.mark.parametrize("ask", [chat, completion])
def test_text_parts_of_a_prediction_follow_each_other(ask: Any) -> None:
    parts = [{"type": "text", "text": "def f():\n"}, {"type": "text", "text": "    pass\n"}]
    parsed = ask(prediction={"type": "content", "content": parts})
    assert parsed.request.prediction == "def f():\n    pass\n"
    assert ask().request.prediction == ask(prediction=None).request.prediction == ()


@pytest.mark.parametrize("ask", [chat, completion])
def test_tokens_of_an_answer_that_is_not_streamed_come_seldom(ask: Any) -> None:
    assert ask().request.stream_interval_ms == MAX_STREAM_INTERVAL_MS
    assert ask(stream=True).request.stream_interval_ms is None, "the default"


def test_numbers_are_those_that_the_grpc_api_can_carry() -> None:
    assert completion(temperature=0.7).request.sampling["temperature"] == float32(0.7) != 0.7


def test_null_is_as_good_as_nothing() -> None:
    nulls = dict.fromkeys([*SAMPLED, "max_tokens", "stop", "n", "logit_bias", "response_format"])
    request = chat(**nulls, tools=None, tool_choice=None).request
    assert request.sampling_params({}).temperature == 1.0
    assert request.max_tokens is None


def test_top_k_of_minus_one_keeps_all() -> None:
    assert completion(top_k=-1).request.sampling_params({"top_k": 20}).top_k == 0


@pytest.mark.parametrize("top_p", [0, 0.0])
def test_a_top_p_of_nothing_keeps_the_likeliest_token(top_p: float) -> None:
    params = completion(top_p=top_p).request.sampling_params({})
    params.validate(vocabulary=6)
    logits = np.array([[0.0, 9.0, 9.0, 8.9, -3.0, 8.9999]] * 50, np.float32)
    logits = np.concatenate([logits, np.full((50, 9000), 8.0, np.float32)], axis=1)
    found = Sampler(logits.shape[1]).sample(logits, np.arange(50), params)
    assert found.tolist() == [1] * 50


@pytest.mark.parametrize("ask", [chat, completion])
def test_whole_numbers_may_have_a_point(ask: Any) -> None:
    wanted = {"max_tokens": 4, "n": 2, "seed": 42, "top_k": 7, "priority": -1}
    parsed = ask(**{name: float(value) for name, value in wanted.items()})
    request = parsed.request
    found = (request.max_tokens, parsed.choices, parsed.seed, request.sampling["top_k"])
    assert (*found, request.priority) == (4, 2, 42, 7, -1)
    for value in (4.5, 1e400, True):
        with pytest.raises(ValidationError):
            ask(max_tokens=value)


def test_a_negative_seed_is_taken_modulo_two_to_the_64() -> None:
    parsed = completion(seed=-2)
    assert (parsed.seed, parsed.request.sampling["seed"]) == (-2, 2**64 - 2)


def test_a_seed_of_minus_one_is_none() -> None:
    seeds = {completion(seed=-1).request.sampling["seed"] for _ in range(9)}
    assert len(seeds) == 9
    assert max(seeds) < 2**53


def test_either_name_of_the_limit_of_tokens_is_taken() -> None:
    for limits in ({"max_tokens": 7}, {"max_completion_tokens": 7}):
        assert chat(**limits).request.max_tokens == 7
    assert chat(max_tokens=7, max_completion_tokens=7).request.max_tokens == 7


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, ResponseFormat(json_object=True)),
        (
            {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}},
            ResponseFormat(json_schema='{"type": "array"}', strict=False),
        ),
    ],
)
def test_a_response_format_is_read(given: dict[str, Any], wanted: ResponseFormat | None) -> None:
    for ask in (chat, completion):
        assert ask(response_format=given).request.response_format == wanted


ANY_LIST = {"type": "array"}
VLLM_UNSET = {
    **dict.fromkeys(("json", "regex", "choice", "grammar", "json_object"), None),
    **dict.fromkeys(("whitespace_pattern", "structural_tag", "_backend"), None),
    **dict.fromkeys(("disable_fallback", "disable_any_whitespace", "_backend_was_auto"), False),
    **dict.fromkeys(("disable_additional_properties", "json_object"), False),
}
"""Fields of vLLM's `StructuredOutputsParams` of no form."""
AS_SCHEMA = ("json_schema", '{"type": "array"}')


@pytest.mark.parametrize(
    ("given", "kind", "text"),
    [
        ({"response_format": {"type": "json_object", "schema": ANY_LIST}}, *AS_SCHEMA),
        ({"response_format": {"type": "json_schema", "schema": ANY_LIST}}, *AS_SCHEMA),
        ({"guided_json": ANY_LIST}, *AS_SCHEMA),
        ({"guided_json": AS_SCHEMA[1]}, *AS_SCHEMA),
        ({"json_schema": ANY_LIST}, *AS_SCHEMA),
        ({"structured_outputs": {"json": ANY_LIST}}, *AS_SCHEMA),
        ({"structured_outputs": {"json_object": True}}, "json_object", True),
        ({"structured_outputs": VLLM_UNSET | {"json": ANY_LIST}}, *AS_SCHEMA),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+"),
        ({"guided_regex": "a+"}, "regex", "a+"),
        ({"regex": "a+"}, "regex", "a+"),
        ({"structured_outputs": {"choice": ["a b", "c.d"]}}, "regex", r"a\ b|c\.d"),
        ({"guided_choice": ["a b", "c.d"]}, "regex", r"a\ b|c\.d"),
        ({"structured_outputs": {"grammar": "root ::= [a]"}}, "grammar", "root ::= [a]"),
        ({"guided_grammar": "root ::= [a]"}, "grammar", "root ::= [a]"),
        ({"grammar": "root ::= [a]"}, "grammar", "root ::= [a]"),
        ({"ebnf": "root ::= [a]"}, "grammar", "root ::= [a]"),
        ({"grammar": "", "regex": "", "guided_json": None}, None, None),
    ],
)
def test_a_form_is_read_by_the_names_of_other_servers(
    given: dict[str, Any], kind: str | None, text: Any
) -> None:
    for ask in (chat, completion):
        found = ask(**given).request.response_format
        wanted = ResponseFormat(**{kind: text}, strict=False) if kind else None
        assert found == (dataclasses.replace(wanted, strict=True) if text is True else wanted)


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": VLLM_UNSET}, "structured_outputs"),
        *(
            ({"structured_outputs": {"regex": "a", name: value}}, f"structured_outputs.{name}")
            for value, names in (
                (True, ("disable_any_whitespace", "disable_additional_properties", "unknown")),
                ("x", ("structural_tag", "whitespace_pattern", "_backend", "json_object")),
            )
            for name in names
        ),
        ({"structured_outputs": {"json": 7}}, "structured_outputs.json"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_choice": [7]}, "guided_choice"),
        ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex"),
    ],
)
def test_a_form_that_cannot_be_is_refused_by_name(given: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        chat(**given)
    assert errors.unreadable(refusal.value).param == param


@pytest.mark.parametrize(
    "choices", [["zebra", "ze bra!"], ["a|b", "c"], ["\n\t", "\u00e9\u2028"], ["<x>", "-#&~^$"]]
)
def test_choices_are_texts_whatever_they_hold(choices: list[str]) -> None:
    wanted = chat(guided_choice=choices).request.response_format
    assert wanted is not None
    made = ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
    for choice in choices:
        matcher = LLMatcher(tokenizer(), made.grammar, log_level=0)
        assert matcher.consume_tokens(list(choice.encode()))
        assert matcher.is_accepting()
    other = LLMatcher(tokenizer(), made.grammar, log_level=0)
    assert not other.validate_tokens(list(b"Q"))


def test_logprobs_are_asked_for_in_both_ways() -> None:
    assert completion(logprobs=3).request.logprobs == 3
    assert chat(logprobs=True).request.logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).request.logprobs == 4
    assert chat(logprobs=False).request.logprobs is None


def only_chat(parsed: OpenAIRequest) -> Chat:
    (prompt,) = parsed.prompts
    assert isinstance(prompt, Chat)
    return prompt


def schema_of(parsed: OpenAIRequest) -> Any:
    wanted = parsed.request.response_format
    assert wanted is not None
    assert wanted.json_schema is not None
    return json.loads(wanted.json_schema)


def test_tools_and_calls_go_to_the_template() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "developer", "content": "Be brief."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "rain", "tool_call_id": "c1", "name": "weather"},
    ]
    prompt = only_chat(chat(messages=messages, tools=[TOOL]))
    assert json.loads(prompt.tools_json) == [TOOL]
    system, assistant, tool = prompt.turns
    assert (system.role, system.content) == ("system", "Be brief.")
    assert (assistant.content, json.loads(assistant.tool_calls_json)) == ("", [call])
    assert (tool.tool_call_id, tool.name) == ("c1", "weather")


def test_what_has_no_text_or_a_refusal_may_stand_in_the_history() -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    messages = [
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1"},
        {"role": "function", "name": "weather"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
    ]
    turns = only_chat(chat(messages=messages)).turns
    assert [turn.content for turn in turns] == ["", "", "", "No.", "a\nb"]


def test_tools_are_left_out_if_none_may_be_called() -> None:
    parsed = chat(tools=[TOOL], tool_choice="none")
    assert (only_chat(parsed).tools_json, parsed.calling) == ("", Calling.NONE)


@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "weather"}}]
)
def test_a_call_that_must_come_is_a_form_of_the_answer(choice: Any) -> None:
    parsed = chat(tools=[TOOL], tool_choice=choice)
    schema = schema_of(parsed)
    assert schema["properties"]["name"] == {"const": "weather"}
    assert schema["properties"]["arguments"] == TOOL["function"]["parameters"]  # type: ignore[index]
    assert parsed.calling is Calling.FORCED


@pytest.mark.parametrize("strict", [None, False, True])
def test_strict_refuses_what_cannot_be_forced_and_is_no_part_of_the_prompt(strict: Any) -> None:
    function = TOOL["function"] | {"strict": strict}  # type: ignore[operator]
    parsed = chat(tools=[{"type": "function", "function": function}], tool_choice="required")
    schema = {"name": "x", "strict": strict, "schema": {"type": "array"}}
    shaped = chat(response_format={"type": "json_schema", "json_schema": schema})
    for asked in (parsed, shaped):
        assert asked.request.response_format is not None
        assert asked.request.response_format.strict is bool(strict)
    assert "strict" not in only_chat(parsed).tools_json


SHAPED = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}


def test_an_answer_of_a_form_may_be_a_call_instead_and_must_be_one_that_is_required() -> None:
    free = chat(tools=[TOOL], response_format=SHAPED)
    assert (schema_of(free), free.calling) == ({"type": "array"}, Calling.MANY)
    required = chat(tools=[TOOL], tool_choice="required", response_format=SHAPED)
    wanted = free.request.response_format
    assert wanted is not None
    assert wanted.calls == required.request.response_format
    assert (required.calling, schema_of(required)["type"]) == (Calling.FORCED, "object")
    without = chat(tools=[TOOL], tool_choice="none", response_format=SHAPED)
    assert without.request.response_format == dataclasses.replace(wanted, calls=None)


def test_one_of_several_tools_may_be_named() -> None:
    other = {"type": "function", "function": {"name": "time"}}
    named = {"type": "function", "function": {"name": "time"}}
    one = chat(tools=[TOOL, other], tool_choice=named)
    assert schema_of(one)["properties"]["name"] == {"const": "time"}
    any_of_both = chat(tools=[TOOL, other], tool_choice="required")
    assert len(schema_of(any_of_both)["anyOf"]) == 2


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": named, "tools": [TOOL]}, "tool_choice")
        for named in ("sometimes", {"type": "function", "function": {"name": "x"}}, 7)
    ]
    + [
        ({"n": 0}, "n"),
        ({"prediction": "hello"}, "prediction"),
        ({"prediction": {"content": "hello"}}, "prediction.type"),
        ({"prediction": {"type": "text", "content": "hello"}}, "prediction.type"),
        ({"prediction": {"type": "content"}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": ""}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": []}}, "prediction.content"),
        ({"prediction": {"type": "content", "content": 7}}, "prediction.content"),
        (
            {"prediction": {"type": "content", "content": [{"type": "text", "text": ""}]}},
            "prediction.content",
        ),
        (
            {"prediction": {"type": "content", "content": [{"type": "image_url"}]}},
            "prediction.content",
        ),
        ({"temperature": "hot"}, "temperature"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"audio": {}}, "audio"),
        ({"modalities": ["audio"]}, "modalities[0]"),
        ({"tools": [TOOL, TOOL]}, "tools"),
        ({"tools": numbered(MAX_TOOLS + 1)}, "tools"),
        ({"max_tokens": 5, "max_completion_tokens": 7}, "max_tokens"),
        ({"messages": [{"role": "user"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        (
            {"tools": [{"type": "function", "function": {"name": "a\0b"}}]},
            "tools[0].function.name",
        ),
    ],
)
def test_a_bad_body_is_refused_with_its_parameter(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        chat(**fields)
    status, body = errors.refusal(errors.unreadable(refusal.value))
    assert (status, body["error"]["param"]) == (400, param), body


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ('{"messages":', "the body is not JSON: EOF while parsing a value at line 1 column 12"),
        ("[]", "the body must be a JSON object"),
        ("[" * 9000 + "]" * 9000, "the body is nested too deeply"),
    ],
)
def test_a_body_that_is_no_object_is_refused_as_a_whole(data: str, message: str) -> None:
    with pytest.raises(ValidationError) as refusal:
        ChatBody.model_validate_json(data)
    _, body = errors.refusal(errors.unreadable(refusal.value))
    assert (body["error"]["message"], body["error"]["param"]) == (message, None)


def test_fields_have_the_names_that_http_clients_know() -> None:
    for field, name in (
        ("sampling.top_p", "top_p"),
        ("tokens.ids[2]", "prompt"),
        ("text", "prompt"),
        ("chat", "messages"),
        ("chat.messages[1].tool_calls_json[0]", "messages[1].tool_calls[0]"),
        ("chat.tools_json", "tools"),
        ("stop[1]", "stop[1]"),
    ):
        _, body = errors.refusal(InvalidField(field, 1, "limit"))
        assert body["error"]["param"] == name
        assert body["error"]["message"] == f"{name}: 1 is not allowed; limit"


@pytest.mark.parametrize("ask", [chat, completion])
@pytest.mark.parametrize("name", UNSERVED)
def test_what_would_change_an_answer_and_is_not_served_is_refused_by_name(
    ask: Any, name: str
) -> None:
    for value in (None, *UNSERVED[name]):
        ask(**{name: value})
    with pytest.raises(ValidationError) as refusal:
        ask(**{name: ["x"]})
    status, body = errors.refusal(errors.unreadable(refusal.value))
    assert (status, body["error"]["param"]) == (400, name)
    assert body["error"]["message"].startswith(f"{name} is not supported here")


@pytest.mark.parametrize("name", OF_CHATS)
def test_a_completion_refuses_what_chats_alone_have_by_name(name: str) -> None:
    for value in (None, *OF_CHATS[name]):
        completion(**{name: value})
    with pytest.raises(ValidationError, match=f"{name} is not supported here: send "):
        completion(**{name: ["x"]})


def test_a_refusal_names_the_parameter_that_does_the_same() -> None:
    with pytest.raises(ValidationError, match=r"repeat_penalty is .* here: send repe"):
        chat(repeat_penalty=1.1)


def test_what_nobody_knows_or_changes_nothing_is_ignored() -> None:
    asked = {"user": "u", "store": True, "cache_prompt": True, "shoe_size": 43}
    assert chat(seed=1, **asked).request == chat(seed=1).request


def test_an_unknown_model_is_not_found() -> None:
    status, body = errors.refusal(UnknownModel("model: x"))
    assert (status, body["error"]["code"]) == (404, "model_not_found")


def text_of(deltas: list[dict[str, Any]]) -> str:
    return "".join(delta.get("content", "") for delta in deltas)


def test_a_call_is_found_wherever_the_text_is_cut() -> None:
    whole = f"Well. {CALL} So."
    for at in range(len("Well. "), len(whole) - len(" So.") + 1):
        found = ToolCalls(Calling.MANY)
        shown = found.push(whole[:at]) + found.push(whole[at:]) + found.finish()
        assert text_of(shown) == "Well.  So.", at
        (call,) = found.calls
        assert call["function"]["name"] == "weather"
        assert json.loads(call["function"]["arguments"]) == {"city": "Köln"}


@given(st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "<tool", "_call>", "x", "{}"])))
def test_what_is_no_call_stays_text(parts: list[str]) -> None:
    found = ToolCalls(Calling.MANY)
    shown = [*(delta for part in parts for delta in found.push(part)), *found.finish()]
    assert (text_of(shown), found.calls) == ("".join(parts), [])


def test_a_call_that_lacks_only_its_closing_tag_counts() -> None:
    found = ToolCalls(Calling.MANY)
    assert text_of(found.push(CALL.removesuffix("</tool_call>")) + found.finish()) == ""
    assert len(found.calls) == 1


def test_several_calls_are_kept_unless_one_is_wanted() -> None:
    for calling, count in ((Calling.MANY, 2), (Calling.ONE, 1)):
        found = ToolCalls(calling)
        assert text_of(found.push(CALL + CALL) + found.finish()) == ""
        assert len(found.calls) == count


def test_a_forced_call_is_the_whole_answer() -> None:
    found = ToolCalls(Calling.FORCED, ("weather", "time"))
    (begun,) = found.push('{"name": "weather", ')
    assert begun["tool_calls"][0]["function"] == {"name": "weather", "arguments": ""}
    assert text_of(found.push('"arguments": {}}') + found.finish()) == ""
    assert found.calls[0]["function"] == {"name": "weather", "arguments": "{}"}
    assert found.complete


ARGUMENTS = '{\n "city": "K\\"}]\\\\", "days": [{"n": 1}, {}]\n}'
FORCED = f'{{"name": "weather",\n "arguments": {ARGUMENTS}\n}}'


def forced(*pieces: str, functions: tuple[str, ...] = ("weather", "week")) -> ChatChoice:
    """A choice that must be a call, after some pieces of its text."""
    choice = ChatChoice(0, Calling.FORCED, functions)
    for piece in pieces:
        choice.take(GenerateResponse(text=piece))
    return choice


@pytest.mark.parametrize("at", range(len(FORCED) + 1))
def test_a_forced_call_comes_as_its_text_does(at: int) -> None:
    choice, arguments, names = forced(), "", []
    for response in (*map(GenerateResponse, (FORCED[:at], FORCED[at:])), last()):
        for chunk in choice.take(response):
            assert not chunk["delta"].get("content")
            for delta in chunk["delta"].get("tool_calls", []):
                names += [delta["function"]["name"]] if "id" in delta else []
                arguments += delta["function"]["arguments"]
    assert (names, arguments) == (["weather"], ARGUMENTS)
    message = choice.whole()["message"]
    assert message["content"] is None
    assert message["tool_calls"][0]["function"] == {"name": "weather", "arguments": ARGUMENTS}
    assert choice.whole()["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("finish", [Finish.LENGTH, Finish.STOP])
@pytest.mark.parametrize("at", range(FORCED.index("ea") + 2, len(FORCED)))
def test_a_forced_call_that_is_cut_off_has_the_arguments_so_far(at: int, finish: Finish) -> None:
    choice = forced(FORCED[:at])
    choice.take(last(finish))
    whole = choice.whole()
    assert whole["finish_reason"] == finish.value
    assert whole["message"]["content"] is None
    (call,) = whole["message"]["tool_calls"]
    assert call["function"]["name"] == "weather"
    so_far = ARGUMENTS[: max(0, at - FORCED.index(ARGUMENTS))]
    assert call["function"]["arguments"] == so_far


def test_a_forced_call_is_shown_once_its_function_is_known() -> None:
    names = ("week", "weather", "wée")
    shown = {
        '{"name": "we': None,
        '{"name": "wea': "weather",
        '{"name": "w\\u00e': "wée",
        '{"name": "wé': "wée",
        '{"name": "week"': "week",
    }
    for text, wanted in shown.items():
        choice = forced(text, functions=names)
        choice.take(last(Finish.LENGTH))
        message = choice.whole()["message"]
        found = [call["function"]["name"] for call in message.get("tool_calls", [])]
        assert (found, message["content"] or "") == ([wanted] if wanted else [], ""), text
    (call,) = forced("{", functions=("time",)).whole()["message"]["tool_calls"]
    assert call["function"] == {"name": "time", "arguments": ""}


def test_without_tools_a_call_is_text() -> None:
    found = ToolCalls(Calling.NONE)
    assert text_of(found.push(CALL) + found.finish()) == CALL


def last(finish: Finish = Finish.STOP, **usage: int) -> GenerateResponse:
    return GenerateResponse("", end=AnswerEnd(finish, Usage(**usage), Timing(), 11))


def test_calls_show_in_message_and_stream() -> None:
    choice = ChatChoice(0, Calling.MANY)
    chunks = choice.take(GenerateResponse(text="One moment. " + CALL)) + choice.take(last())
    assert [chunk["finish_reason"] for chunk in chunks] == [None, None, None, "tool_calls"]
    assert chunks[0]["delta"] == {"content": "One moment."}
    ((call,), (more,)) = (chunk["delta"]["tool_calls"] for chunk in chunks[1:3])
    assert (call["index"], call["type"], call["id"][:5]) == (0, "function", "call_")
    assert call["function"] == {"name": "weather", "arguments": ""}
    assert more == {"index": 0, "function": {"arguments": '{"city": "Köln"}'}}
    message = choice.whole()["message"]
    assert message["content"] == "One moment."
    assert message["tool_calls"][0]["function"]["name"] == "weather"


def test_an_answer_cut_by_its_length_keeps_that_reason() -> None:
    choice = ChatChoice(0, Calling.MANY)
    choice.take(GenerateResponse(text=CALL))
    choice.take(last(Finish.LENGTH))
    assert choice.whole()["finish_reason"] == "length"


def tokens(*texts: bytes) -> tuple[TokenLogprobs, ...]:
    top = (Likely(9, float("-inf"), b"z"),)
    return tuple(TokenLogprobs(Likely(i, -0.5, text), top) for i, text in enumerate(texts))


def test_logprobs_of_a_chat_have_bytes() -> None:
    choice = ChatChoice(0, Calling.NONE)
    response = GenerateResponse(text="é", logprobs=tokens(b"\xc3", b"\xa9"))
    (chunk,) = choice.take(response)
    choice.take(last())
    content = choice.whole()["logprobs"]["content"]
    assert chunk["logprobs"]["content"] == content
    assert [entry["bytes"] for entry in content] == [[0xC3], [0xA9]]
    assert content[0]["top_logprobs"] == [{"token": "z", "logprob": -9999.0, "bytes": [122]}]
    assert json.dumps(content, allow_nan=False)


def test_logprobs_of_a_completion_have_offsets() -> None:
    choice = CompletionChoice(0, Calling.NONE)
    first = choice.take(GenerateResponse(text="ab", logprobs=tokens(b"ab", b"\xc3")))
    second = choice.take(GenerateResponse(text="éc", logprobs=tokens(b"\xa9", b"c")))
    choice.take(last())
    assert [p["logprobs"]["text_offset"] for p in first + second] == [[0, 2], [2, 3]]
    whole = choice.whole()["logprobs"]
    assert whole["tokens"] == ["ab", "bytes:\\xc3", "bytes:\\xa9", "c"]
    assert whole["text_offset"] == [0, 2, 2, 3]
    assert whole["token_logprobs"] == [-0.5] * 4
    assert whole["top_logprobs"][0] == {"z": -9999.0}


def test_usage_counts_a_prompt_once_and_every_answer() -> None:
    parsed = completion(prompt=["a", "b"], n=2, seed=11)
    response = OpenAIResponse(
        [CompletionChoice(i, parsed.calling) for i in range(4)], parsed, "tiny", lambda: "r1"
    )
    spent = {"prompt_tokens": 3, "completion_tokens": 5, "draft_rows": 9, "accepted_rows": 4}
    spent |= {"prediction_tokens": 7}
    for index, accepted in enumerate((2, 5, 0, 9)):
        response.take(index, GenerateResponse(text=str(index)))
        predicted = {"accepted_prediction_tokens": accepted}
        response.take(index, last(**spent, **predicted, cached_prompt_tokens=1))
    whole = response.whole()
    assert whole["usage"] == {
        "prompt_tokens": 6,
        "completion_tokens": 20,
        "total_tokens": 26,
        "prompt_tokens_details": {"cached_tokens": 2},
        "completion_tokens_details": {
            "accepted_prediction_tokens": 16,
            "rejected_prediction_tokens": 5 + 2 + 7,
        },
    }
    assert [choice["text"] for choice in whole["choices"]] == ["0", "1", "2", "3"]
    assert (whole["system_fingerprint"], whole["outrider"]["seed"]) == ("r1", 11)
    assert [one["index"] for one in whole["outrider"]["choices"]] == [0, 1, 2, 3]


def test_a_stream_shows_the_trees_that_its_client_asks_for() -> None:
    parsed = chat(stream=True, draft_tree=True)
    assert parsed.request.shows_tree
    assert not chat(stream=True).request.shows_tree
    response = OpenAIResponse([ChatChoice(0, parsed.calling)], parsed, "tiny", lambda: "r1")
    tree = ShownTree(("The", " sky", " sea"), (0, 0), (1,), " is")
    (shown,) = response.take(0, GenerateResponse(text=" sky is", tree=tree))
    assert shown["outrider"] == {
        "tree": {
            "texts": ("The", " sky", " sea"),
            "parents": (0, 0),
            "accepted": (1,),
            "following": " is",
        }
    }
    (plain,) = response.take(0, GenerateResponse(text=" blue"))
    assert "outrider" not in plain
    with pytest.raises(ValidationError, match="draft_tree needs stream"):
        chat(draft_tree=True)


def test_a_stream_of_a_chat_begins_with_the_role_and_ends_with_usage() -> None:
    parsed = chat(stream=True, stream_options={"include_usage": True})
    response = OpenAIResponse([ChatChoice(0, parsed.calling)], parsed, "tiny", lambda: "r1")
    chunks = [*response.begin(), *response.take(0, GenerateResponse(text="hi"))]
    chunks += [
        *response.take(0, GenerateResponse(text="")),
        *response.take(0, last()),
        *response.end(),
    ]
    deltas = [chunk["choices"][0]["delta"] for chunk in chunks[:-1]]
    assert deltas == [{"role": "assistant", "content": ""}, {"content": "hi"}, {}]
    assert [chunk["usage"] for chunk in chunks[:-1]] == [None, None, None]
    assert chunks[-2]["outrider"]["seed"] == parsed.seed
    assert chunks[-1]["choices"] == []
    assert len({chunk["id"] for chunk in chunks}) == 1


def test_merged_streams_end_together_when_one_fails() -> None:
    ended: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            yield 1
            await asyncio.Event().wait()
        finally:
            ended.append("endless")

    async def failing() -> AsyncIterator[int]:
        yield 2
        raise InvalidField("field", 1, "limit")

    items: list[Any] = []

    async def read() -> None:
        async for item in merged([endless(), failing()]):
            items.append(item)

    with pytest.raises(InvalidField):
        asyncio.run(read())
    assert sorted(items) == [1, 2]
    assert ended == ["endless"]


def test_silence_is_told_as_often_as_it_lasts_so_long() -> None:
    async def read() -> list[Any]:
        goes_on = asyncio.Event()

        async def slow() -> AsyncIterator[str]:
            await goes_on.wait()
            yield "text"

        items: list[Any] = []
        async for item in merged([slow()], quiet_seconds=0.001):
            items.append(item)
            if len(items) == 3:
                goes_on.set()
        return items

    *silence, last = asyncio.run(asyncio.wait_for(read(), HANGS_SECONDS))
    assert silence[:3] == [None] * 3
    assert last == "text"


def test_what_is_not_shown_is_silence() -> None:
    parsed = chat(stream=True)
    response = OpenAIResponse([ChatChoice(0, Calling.ONE)], parsed, "tiny", lambda: "r1")

    async def parts() -> AsyncIterator[GenerateResponse]:
        for text in (*CALL, *CALL, ""):
            yield GenerateResponse(text=text)
        yield last()

    async def read() -> list[Any]:
        return [chunks async for chunks in shown(response, 0, parts())]

    found = asyncio.run(read())
    assert all(found)
    assert 2 < len(found) < len(CALL), "nothing of tags and of the second call"


def test_a_ping_is_no_event() -> None:
    assert PING.startswith(b":")
    assert PING.endswith(b"\n\n")


def test_an_event_is_one_line_to_every_reader() -> None:
    text = "one\u2028two\u2029three\u0085four\x1cfive\x0b\x0c\r\n"
    sent = event({"text": text}).decode()
    assert len(sent.rstrip("\n").splitlines()) == 1
    assert json.loads(sent.removeprefix("data: ")) == {"text": text}
    assert "é" in event({"text": "é"}).decode(), "others are as they are"


@pytest.mark.parametrize("address", ["", "here", "h:", ":x", "h:65536", "h:-1"])
def test_an_address_that_is_none_is_refused_by_its_setting(address: str) -> None:
    with pytest.raises(SettingsError, match=r"settings\.http_listen: .* it is host:port"):
        listen(address)


@pytest.mark.parametrize("address", ["127.0.0.1:0", ":0", "localhost:0"])
def test_a_port_has_one_listener(address: str) -> None:
    with listen(address) as first, pytest.raises(OSError, match=f"Errno {errno.EADDRINUSE}"):
        listen(f"{first.getsockname()[0]}:{first.getsockname()[1]}")


@pytest.mark.parametrize("text", [None, "", "\n  \n"])
def test_a_file_without_keys_is_refused(tmp_path: Any, text: str | None) -> None:
    if text is not None:
        (tmp_path / "keys").write_text(text)
    with pytest.raises(SettingsError, match=r"settings\.api_keys_file: .*keys"):
        ApiKeys(str(tmp_path / "keys"))


@pytest.mark.parametrize(
    ("authorization", "number"),
    [
        ("Bearer a", 0),
        ("bearer  b ", 1),
        (b"Bearer b", 1),
        ("Basic a", NO_KEY),
        ("a", NO_KEY),
        ("", NO_KEY),
    ],
)
def test_a_key_is_known_by_its_number_and_only_behind_bearer(
    tmp_path: Any, authorization: str | bytes, number: int
) -> None:
    (tmp_path / "keys").write_text("a\n\nb\n")
    keys = ApiKeys(str(tmp_path / "keys"))
    keys.number("Bearer a")
    assert keys.number(authorization) == number
    assert keys.allows(authorization) is (number != NO_KEY)


def test_a_number_stays_its_keys_whatever_the_file_holds_later(tmp_path: Any) -> None:
    file = tmp_path / "keys"
    file.write_text("a\nb\n")
    keys = ApiKeys(str(file))
    assert [keys.number(f"Bearer {key}") for key in "ab"] == [0, 1]
    replace(file, "b\nc\n")
    assert [keys.number(f"Bearer {key}") for key in "abc"] == [NO_KEY, 1, 2]


def test_keys_are_those_that_their_file_has_now(
    tmp_path: Any, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "keys"
    file.write_text("planted-1\n")
    keys = ApiKeys(str(file))

    def allowed() -> list[bool]:
        return [keys.allows(f"Bearer planted-{number}") for number in (1, 2)]

    assert allowed() == [True, False]
    replace(file, "planted-2\n")
    assert allowed() == [False, True]
    replace(file, "\n")
    assert allowed() == [False, False]
    replace(file, "planted-1\n\n")
    assert allowed() == [True, False]
    file.unlink()
    assert allowed() == [False, False]
    assert str(file) in caplog.text
    assert "planted" not in caplog.text


def replace(file: Any, text: str) -> None:
    """Exchange a file as a kubelet does, by a name: another inode, whatever the clock says."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.rename(file)
