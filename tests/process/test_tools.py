"""Agents that call tools, with OpenAI's own client and models of several families."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import openai
import pytest

from outrider.contract.settings import Role
from tests.chain_models import write_chain
from tests.process import workers
from tests.process.conftest import Folders
from tests.process.workers import ANSWER_SECONDS

MODEL = "tiny"
CALLS, ANSWERS = "<|calls|>", "<|answers|>"
ASKED: dict[str, Any] = {"role": "user", "content": "Add 2 and 3."}
ADD: Any = {
    "type": "function",
    "function": {
        "name": "add",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
ARGUMENTS = ['{"a": 2,', ' "b"', ": 3}"]
AT_ONCE = {"stream_interval_ms": 0, "speculate": False}
"""A chunk for each token."""
ANSWER = ["It ", "is ", "5."]
CALL = '{"name": "add", "arguments": {"a": 2, "b": 3}}'
FORM = '{"sum": 5}'
INSTEAD = {CALLS: [FORM], ANSWERS: [FORM]}
"""What it says where a form forbids the usual."""
SUM: Any = {
    "type": "json_schema",
    "json_schema": {
        "name": "sum",
        "schema": {
            "type": "object",
            "properties": {"sum": {"type": "integer"}},
            "required": ["sum"],
            "additionalProperties": False,
        },
    },
}
TURNS = (
    "{%% for m in messages %%}<|{{ m.role }}|>{{ m.content }}"
    "{%% for c in m.tool_calls %%}%s{%% endfor %%}<|end|>{%% endfor %%}"
    "{%% if '%s' in messages[-1]|string %%}<|answers|>{%% else %%}<|calls|>{%% endif %%}"
)
"""The prompt ends with another token where the last turn is a result."""
HERMES = (
    '<tool_call>{"name": "{{ c.function.name }}", '
    '"arguments": {{ c.function.arguments | tojson }}}</tool_call>'
)
LLAMA = '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'
MISTRAL = "[TOOL_CALLS] [{{ c.function | tojson }}]"
NO_TOOLS = (
    "{% for m in messages %}"
    "{% if m.role not in ['user', 'assistant'] %}{{ raise_exception('no ' + m.role) }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if '<tool_response>' in messages[-1].content %}<|answers|>{% else %}<|calls|>{% endif %}"
)


@dataclass(frozen=True, slots=True)
class Family:
    """A way in which models write calls."""

    says: Sequence[str]
    template: str
    special: Sequence[str] = ()
    text: str | None = None
    """What it says before it calls."""
    instead: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """What it says where a form forbids what it usually says there, unless `INSTEAD` has it."""


def hermes(name: str) -> list[str]:
    return [
        "<tool_call>",
        f'\n{{"name": "{name}", "arguments": ',
        *ARGUMENTS,
        "}\n",
        "</tool_call>",
    ]


FAMILIES = {
    "hermes": Family(hermes("add"), TURNS % (HERMES, "tool")),
    "special tags": Family(
        ["I add.", *hermes("add")],
        TURNS % (HERMES, "tool"),
        ("<tool_call>", "</tool_call>"),
        "I add.",
        {CALLS: ["<tool_call>", FORM]},
    ),
    "llama": Family(
        ['{"name": "add", "parameters": ', *ARGUMENTS, "}"],
        TURNS % (LLAMA, "tool"),
        instead={CALLS: [CALL]},
    ),
    "python_tag": Family(
        ["<|python_tag|>", '{"name": "add", "parameters": ', *ARGUMENTS, "}"],
        TURNS % (LLAMA, "tool"),
        ("<|python_tag|>",),
        instead={"<|python_tag|>": [CALL]},
    ),
    "mistral": Family(
        ["[TOOL_CALLS]", ' [{"name": "add", "arguments": ', *ARGUMENTS, "}]"],
        TURNS % (MISTRAL, "tool"),
        ("[TOOL_CALLS]",),
    ),
    "a template without tools": Family(hermes("add"), NO_TOOLS),
}


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest) -> Family:
    return FAMILIES[request.param]


@pytest.fixture(scope="module")
def client(
    family: Family, folders: Folders, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[openai.OpenAI]:
    """A client of a model that calls `add`, and answers once it has the result."""
    model: Path = tmp_path_factory.mktemp("chain") / "chain"
    says = {CALLS: family.says, ANSWERS: ANSWER}
    instead = {**INSTEAD, **family.instead}
    write_chain(model, says, family.template, family.special, instead)
    settings = workers.settings_for(Role.TARGET, model, folders.cache)
    with (
        workers.started(settings, folders.logs) as target,
        openai.OpenAI(
            base_url=f"{target.url}/v1", api_key="none", timeout=ANSWER_SECONDS, max_retries=0
        ) as made,
    ):
        yield made


def ask(client: openai.OpenAI, turns: list[Any], **options: Any) -> Any:
    asked = {"model": MODEL, "temperature": 0, "max_tokens": 40, "tools": [ADD], **options}
    return client.chat.completions.create(messages=turns, **asked)


@pytest.mark.parametrize("form", [openai.omit, SUM])
def test_an_agent_calls_a_tool_and_answers_with_its_result(
    client: openai.OpenAI, family: Family, form: Any
) -> None:
    text, answer = (None, FORM) if form is SUM else (family.text, "It is 5.")
    (choice,) = ask(client, [ASKED], response_format=form).choices
    assert (choice.finish_reason, choice.message.content) == ("tool_calls", text)
    (call,) = choice.message.tool_calls
    given = json.loads(call.function.arguments)
    result = {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])}
    turns = [ASKED, choice.message.model_dump(), result]
    (choice,) = ask(client, turns, response_format=form).choices
    assert (choice.finish_reason, choice.message.content) == ("stop", answer)
    assert choice.message.tool_calls is None


def test_a_call_is_streamed_in_the_pieces_that_the_model_writes(
    client: openai.OpenAI, family: Family
) -> None:
    calls: dict[int, list[Any]] = {0: [], 1: []}
    ends: dict[int, str] = {}
    for chunk in ask(client, [ASKED], stream=True, n=2, extra_body=AT_ONCE):
        for choice in chunk.choices:
            assert choice.delta.content in (None, "", family.text)
            calls[choice.index] += choice.delta.tool_calls or ()
            if choice.finish_reason:
                ends[choice.index] = choice.finish_reason
    assert ends == {0: "tool_calls", 1: "tool_calls"}
    for first, *more in calls.values():
        assert (first.index, first.type, first.id[:5]) == (0, "function", "call_")
        assert (first.function.name, first.function.arguments) == ("add", "")
        assert [piece.function.arguments for piece in more] == ARGUMENTS
        assert all(
            (piece.index, piece.id, piece.function.name) == (0, None, None) for piece in more
        )


@pytest.mark.parametrize(
    ("options", "finish"), [({"stop": ['"b"']}, "stop"), ({"max_tokens": None}, "length")]
)
def test_a_call_that_is_cut_off_has_the_arguments_so_far(
    client: openai.OpenAI, family: Family, options: dict[str, Any], finish: str
) -> None:
    if finish == "length":
        options = {"max_tokens": list(family.says).index(ARGUMENTS[0]) + 1}
    (choice,) = ask(client, [ASKED], **options).choices
    (call,) = choice.message.tool_calls
    assert (choice.finish_reason, choice.message.content) == (finish, family.text)
    so_far = '{"a": 2, ' if finish == "stop" else '{"a": 2,'
    assert (call.function.name, call.function.arguments) == ("add", so_far)


@pytest.mark.parametrize("arguments", ['{"a": 2, "b": ', "null", "[1, 2]", "not json", ""])
def test_broken_arguments_in_the_history_refuse_nothing(
    client: openai.OpenAI, arguments: str
) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    turns = [ASKED, {"role": "assistant", "content": None, "tool_calls": [call]}]
    for content in ("5", None, []):
        result = {"role": "tool", "tool_call_id": "c1", "content": content}
        assert ask(client, [*turns, result]).choices[0].message.content == "It is 5."


def test_without_tools_a_call_is_text(client: openai.OpenAI) -> None:
    (choice,) = ask(client, [ASKED], tools=openai.omit).choices
    assert (choice.finish_reason, choice.message.tool_calls) == ("stop", None)
    assert "".join(ARGUMENTS) in choice.message.content
