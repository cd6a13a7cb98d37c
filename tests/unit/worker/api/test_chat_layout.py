"""Calls and results in a chat's history, on templates that take them and on those that do not."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outrider.contract.inference import Message
from outrider.worker.api.call_tags import KNOWN_TAGS
from outrider.worker.api.text import Text
from outrider.worker.api.tool_schemas import ChatJson, parse_tool_calls
from outrider.worker.errors import InvalidField
from tests.tiny_models import write_tokenizer

ANY_ROLE = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NO_TOOL = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "<{{ m.role }}>{{ m.content }}{% endfor %}"
)
SKIPS_TOOL = (
    "{% for m in messages if m.role in ('user', 'assistant') %}<{{ m.role }}>{{ m.content }}"
    "{% endfor %}"
)
TAKES_ALL = (
    "{% for m in messages %}<{{ m.role }}>{{ m.name }}{{ m.content }}"
    "{% for c in m.tool_calls %}%s{% endfor %}{% endfor %}"
)
HERMES = (
    '<tool_call>\n{ "arguments": {{ c.function.arguments | tojson }}, '
    '"name": "{{ c.function.name }}"}\n</tool_call>'
)
QWEN = "<tool_call>\n{{ c.function | tojson }}\n</tool_call>"
LLAMA = (
    "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call at once') }}{% endif %}"
    '{"name": "{{ c.function.name }}", "parameters": {{ c.function.arguments | tojson }}}'
)
MISTRAL = (
    "{% if c.id | length != 9 %}{{ raise_exception('ids of 9 characters') }}{% endif %}"
    "[TOOL_CALLS] [{{ c.function | tojson }}]{{ c.id }}"
)
NEWER_MISTRAL = "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
ITEMS = (
    "{{ c.function.name }}({% for k, v in c.function.arguments | items %}{{ k }}={{ v }}"
    "{% endfor %})"
)


def text_of(template: str, folder: Path) -> Text:
    write_tokenizer(folder)
    (folder / "chat_template.jinja").write_text(template)
    return Text.load(folder)


def calls(*arguments: Any) -> tuple[dict[str, Any], ...]:
    made = [
        {"id": f"call_{at}", "function": {"arguments": given, "name": f"f{at}"}}
        for at, given in enumerate(arguments)
    ]
    return parse_tool_calls("calls", json.dumps(made), ChatJson())


def history(*arguments: Any) -> list[Message]:
    """A question, an assistant's calls with these arguments, and their results."""
    results = [Message("tool", f"r{at}", (), f"call_{at}") for at in range(len(arguments))]
    return [Message("user", "q"), Message("assistant", "", calls(*arguments)), *results]


@pytest.mark.parametrize(
    ("call", "tags"),
    [
        (HERMES, ("<tool_call>",)),
        (QWEN, ("<tool_call>",)),
        (MISTRAL, ("[TOOL_CALLS]",)),
        (NEWER_MISTRAL, ("[TOOL_CALLS]",)),
        ("<|made_up|>[{{ c.function | tojson }}]", ("<|made_up|>",)),
        (LLAMA, KNOWN_TAGS),
        (ITEMS, KNOWN_TAGS),
        ("", KNOWN_TAGS),
    ],
)
def test_tags_are_those_that_the_template_writes(
    call: str, tags: tuple[str, ...], tmp_path: Path
) -> None:
    assert text_of(TAKES_ALL.replace("%s", call), tmp_path).call_tags == tags


def test_a_template_that_takes_all_gets_all_as_it_is(tmp_path: Path) -> None:
    laid_out = text_of(TAKES_ALL.replace("%s", QWEN), tmp_path).apply_chat_template(history("{}"))
    call = '<tool_call>\n{"name": "f0", "arguments": {}}\n</tool_call>'
    assert laid_out == f"<user>q<assistant>{call}<tool>f0r0"


IN_WORDS = '<tool_call>\n{"name": "f0", "arguments": {"a": 1}}\n</tool_call>'


@pytest.mark.parametrize(
    ("template", "result"),
    [
        (ANY_ROLE, "<tool>r0"),
        (NO_TOOL, "<user><tool_response>\nr0\n</tool_response>\nthanks"),
        (SKIPS_TOOL, "<user><tool_response>\nr0\n</tool_response>\nthanks"),
    ],
)
def test_what_a_template_refuses_or_loses_is_said_in_words(
    template: str, result: str, tmp_path: Path
) -> None:
    more = Message("user", "thanks")
    laid_out = text_of(template, tmp_path).apply_chat_template([*history('{"a": 1}'), more])
    after = "<user>thanks" if "<tool>" in result else ""
    assert laid_out == f"<user>q<assistant>{IN_WORDS}{result}{after}"


def test_ids_have_the_length_that_a_template_wants(tmp_path: Path) -> None:
    text = text_of(TAKES_ALL.replace("%s", MISTRAL), tmp_path)
    call = {"id": "call_0123456789abcdef", "function": {"name": "f", "arguments": {}}}
    laid_out = text.apply_chat_template([Message("assistant", "", (call,))])
    assert laid_out.endswith("}]789abcdef")
    assert "000call0" in text.apply_chat_template(history("{}"))


def test_calls_have_a_turn_each_where_a_template_wants_that(tmp_path: Path) -> None:
    text = text_of(TAKES_ALL.replace("%s", LLAMA), tmp_path)
    first, second = (f'<assistant>{{"name": "f{at}", "parameters": {{}}}}' for at in (0, 1))
    stray = Message("tool", "r2", (), "call_2")
    laid_out = text.apply_chat_template([*history("{}", "{}"), stray, Message("user", "x")])
    assert laid_out == f"<user>q{first}<tool>f0r0{second}<tool>f1r1<tool>r2<user>x"


def test_thoughts_come_before_the_first_of_several_calls(tmp_path: Path) -> None:
    thinks = TAKES_ALL.replace("{{ m.name }}", "({{ m.reasoning_content }})")
    text = text_of(thinks.replace("%s", LLAMA), tmp_path)
    _, called, *results = history("{}", "{}")
    laid_out = text.apply_chat_template([replace(called, reasoning_content="hm"), *results])
    first, second = (f'{{"name": "f{at}", "parameters": {{}}}}' for at in (0, 1))
    assert laid_out == f"<assistant>(hm){first}<tool>()r0<assistant>(){second}<tool>()r1"


BROKEN = ['{"a": 2, "b": ', "null", [1, 2], "not json", "[" * 100_000]


@pytest.mark.parametrize("arguments", BROKEN)
def test_broken_arguments_are_handed_on_as_they_are(arguments: Any, tmp_path: Path) -> None:
    given = arguments if isinstance(arguments, str) else json.dumps(arguments)
    laid_out = text_of(TAKES_ALL.replace("%s", QWEN), tmp_path).apply_chat_template(
        history(arguments)
    )
    assert f'"arguments": {json.dumps(given)}' in laid_out


def test_broken_arguments_that_a_template_refuses_are_said_in_words(tmp_path: Path) -> None:
    text = text_of(TAKES_ALL.replace("%s", ITEMS), tmp_path)
    assert "f0(a=1)" in text.apply_chat_template(history('{"a": 1}'))
    laid_out = text.apply_chat_template(history('{"a": 1'))
    assert '<assistant><tool_call>\n{"name": "f0", "arguments": {"a": 1}\n' in laid_out
    assert laid_out.endswith("<tool>f0r0")


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
def test_no_arguments_are_an_empty_object(arguments: Any) -> None:
    (call,) = calls(arguments)
    assert call["function"] == {"name": "f0", "arguments": {}}
    assert list(call["function"]) == ["name", "arguments"], "the order in which models write them"


def test_a_chat_that_no_layout_saves_is_refused_in_the_templates_words(tmp_path: Path) -> None:
    text = text_of(NO_TOOL, tmp_path)
    with pytest.raises(InvalidField, match="roles must alternate"):
        text.apply_chat_template([Message("assistant", "x"), *history("{}")])
