"""What OpenAI's own client can ask for, from a batching target: a draft changes none of it."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import openai
import pytest

from outrider.contract.settings import Role
from tests.process.conftest import Folders, MortalDraft
from tests.process.workers import ANSWER_SECONDS, PROMPT, Worker, pair_with, started

MODEL = "tiny"
CHAT: list[Any] = [{"role": "user", "content": "Hello"}]
RANDOM: dict[str, Any] = {"temperature": 0.9, "seed": 5}
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "kind": {"enum": ["small", "large"]},
    },
    "required": ["name", "kind"],
    "additionalProperties": False,
}
OBJECT = {"type": "json_object"}
SHAPED = {"type": "json_schema", "json_schema": {"name": "thing", "schema": SCHEMA}}
CITY = {
    "type": "object",
    "properties": {"city": {"enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
FAILS_LATE: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "thing",
        "schema": {
            "$defs": {"a": {"$id": "https://EXAMPLE.com/a", "$ref": "https://example.com/a"}},
            "type": "object",
            "properties": {"b": {"$ref": "https://example.com/a"}},
            "required": ["b"],
            "additionalProperties": False,
        },
    },
}
"""Its first member can be begun, and its value fits nothing, as only llguidance finds out: both
names are one, by the rules of hosts."""
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "parameters": CITY}},
    {"type": "function", "function": {"name": "time", "parameters": CITY}},
]
SHORTEN = {"logit_bias": {"32": -100, "10": -100, "9": -100, "13": -100}}
"""No white space: a random model would write little else between the braces of a form."""
ENDLESS = {"ignore_eos": True}
SAMPLED = [
    {"temperature": 0.0, "frequency_penalty": 0.4, "presence_penalty": 0.2},
    RANDOM | {"extra_body": {"repetition_penalty": 1.2, "top_k": 60, "min_p": 0.01}},
    RANDOM | {"logit_bias": {"97": 4, "98": -100}, "top_p": 0.95},
    {"temperature": 0.0, "n": 4},
    RANDOM | {"n": 4, "frequency_penalty": 0.2},
]


@pytest.fixture(scope="module")
def batching(
    folders: Folders, two_drafts_of_module: tuple[MortalDraft, MortalDraft]
) -> Iterator[Worker]:
    """A target that runs eight requests at once, with drafts."""
    settings = folders.settings(Role.TARGET, max_context=512, max_running=8)
    with started(settings, folders.logs) as worker:
        pair_with(worker, *(draft.address for draft in two_drafts_of_module))
        yield worker


@pytest.fixture(scope="module")
def two_drafts_of_module(
    both_drafts: tuple[MortalDraft, MortalDraft],
) -> tuple[MortalDraft, MortalDraft]:
    for draft in both_drafts:
        draft.until_ready()
    return both_drafts


@pytest.fixture
def client(batching: Worker) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(
        base_url=f"{batching.url}/v1", api_key="none", timeout=ANSWER_SECONDS, max_retries=0
    ) as made:
        yield made


def both_ways(ask: Any, extra: dict[str, Any] | None = None, **options: Any) -> Any:
    """The answer with a draft, once it is seen that the one without says the same."""
    given = {**(extra or {}), **options.pop("extra_body", {})}
    drafted = ask(model=MODEL, extra_body=given, **options)
    plain = ask(model=MODEL, extra_body={**given, "speculate": False}, **options)
    assert without_figures(drafted) == without_figures(plain)
    assert rows(plain) == 0
    return drafted


def without_figures(answer: Any) -> Any:
    """What the model said: names of calls are drawn anew in each answer."""
    choices = answer.model_dump()["choices"]
    for choice in choices:
        for call in (choice.get("message") or {}).get("tool_calls") or ():
            del call["id"]
    return choices


def rows(answer: Any) -> int:
    """Guesses that were verified."""
    return sum(int(one["draft_rows"]) for one in answer.model_extra["outrider"]["choices"])


def accepted(answer: Any) -> int:
    """Guesses that were right."""
    return sum(int(one["accepted_rows"]) for one in answer.model_extra["outrider"]["choices"])


@pytest.mark.parametrize("options", SAMPLED)
def test_settings_of_sampling_change_the_text_and_the_draft_does_not(
    client: openai.OpenAI, options: dict[str, Any]
) -> None:
    for ask, prompt in (
        (client.completions.create, {"prompt": PROMPT}),
        (client.chat.completions.create, {"messages": CHAT}),
    ):
        answer = both_ways(ask, ENDLESS, max_tokens=120, **prompt, **options)
        while not accepted(answer):  # no guess came in time
            answer = both_ways(ask, ENDLESS, max_tokens=120, **prompt, **options)
        assert len(answer.choices) == options.get("n", 1)
        assert all(choice.finish_reason == "length" for choice in answer.choices)


def test_log_probabilities_have_both_of_openais_shapes(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"max_tokens": 150, **RANDOM}
    chat = both_ways(
        client.chat.completions.create,
        ENDLESS,
        messages=CHAT,
        logprobs=True,
        top_logprobs=3,
        **options,
    )
    (choice,) = chat.choices
    assert len(choice.logprobs.content) == 150
    assert all(len(token.top_logprobs) == 3 for token in choice.logprobs.content)
    spelt = b"".join(bytes(token.bytes or ()) for token in choice.logprobs.content)
    assert spelt.decode(errors="replace").startswith(choice.message.content)
    whole = both_ways(client.completions.create, ENDLESS, prompt=PROMPT, logprobs=2, **options)
    found = whole.choices[0].logprobs
    assert len(found.tokens) == len(found.token_logprobs) == len(found.text_offset) == 150
    assert all(1 <= len(top) <= 3 for top in found.top_logprobs)
    assert accepted(chat) + accepted(whole) > 0


@pytest.mark.parametrize("form", [OBJECT, SHAPED])
def test_an_answer_is_json_of_the_form_that_was_asked_for(
    client: openai.OpenAI, form: dict[str, Any]
) -> None:
    given = SHORTEN if form is SHAPED else {"logit_bias": {"123": -5, "125": 9, "32": -100}}
    answer = both_ways(
        client.chat.completions.create,
        messages=CHAT,
        response_format=form,
        max_tokens=300,
        **given,
        **RANDOM,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "stop"
    made = json.loads(choice.message.content)
    assert isinstance(made, dict)
    if form is SHAPED:
        assert set(made) == {"name", "kind"}


@pytest.mark.parametrize(
    ("chosen", "names"),
    [
        ("required", {"weather", "time"}),
        ({"type": "function", "function": {"name": "time"}}, {"time"}),
    ],
)
def test_a_call_that_is_required_is_made(
    client: openai.OpenAI, chosen: Any, names: set[str]
) -> None:
    answer = both_ways(
        client.chat.completions.create,
        messages=CHAT,
        tools=TOOLS,
        tool_choice=chosen,
        max_tokens=200,
        **SHORTEN,
        **RANDOM,
    )
    (choice,) = answer.choices
    assert choice.finish_reason == "tool_calls"
    (call,) = choice.message.tool_calls
    assert call.function.name in names
    assert json.loads(call.function.arguments)["city"] in ("Rome", "Oslo")


def test_everything_at_once_is_what_each_is_alone(client: openai.OpenAI) -> None:
    asked: list[dict[str, Any]] = [
        {"messages": CHAT, "max_tokens": 80, "extra_body": ENDLESS | {"priority": priority}, **more}
        for priority, more in enumerate(SAMPLED[:1] + SAMPLED[2:])
    ]
    asked.append({"messages": CHAT, "max_tokens": 80, "response_format": SHAPED, **RANDOM})
    alone = [
        without_figures(client.chat.completions.create(model=MODEL, **options)) for options in asked
    ]
    with ThreadPoolExecutor(len(asked)) as pool:
        at_once = list(pool.map(lambda o: client.chat.completions.create(model=MODEL, **o), asked))
    assert [without_figures(answer) for answer in at_once] == alone
    assert sum(map(accepted, at_once)) > 0


def test_a_form_that_fails_late_ends_its_own_request_alone(client: openai.OpenAI) -> None:
    options: dict[str, Any] = {"model": MODEL, "messages": CHAT, **RANDOM}
    long = options | {"max_tokens": 200, "extra_body": ENDLESS}
    alone = without_figures(client.chat.completions.create(**long))
    with ThreadPoolExecutor(2) as pool:
        others = [pool.submit(lambda: client.chat.completions.create(**long)) for _ in range(2)]
        for _ in range(5):
            with pytest.raises(openai.BadRequestError, match="its form cannot be followed"):
                client.chat.completions.create(response_format=FAILS_LATE, **options)
        assert [without_figures(other.result()) for other in others] == [alone, alone]
