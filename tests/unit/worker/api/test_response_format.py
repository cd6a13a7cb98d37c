"""What a schema forces of an answer, what it leaves to the caller, and how far blanks may go."""

import asyncio
import json
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer

from outrider.worker.api.call_tags import call_grammar
from outrider.worker.api.http.from_openai import schema_of_calls
from outrider.worker.api.response_format import (
    MAX_COMPILING,
    CompiledFormat,
    ResponseFormat,
    ResponseFormats,
)
from outrider.worker.errors import InvalidField, QueueFull
from tests.unit.worker.api.test_forced_calls import END, tokenizer

TWO = {"type": "array", "items": {"type": "integer"}, "minItems": 2, "maxItems": 2}
OBJECT = {"type": "object", "additionalProperties": {"type": "boolean"}}
STRING = {"type": "string"}
UNFORCED = {
    "uniqueItems": {"type": "array", "items": {"type": "integer"}, "uniqueItems": True},
    "propertyNames": OBJECT | {"propertyNames": {"enum": ["r"]}},
    "not": {"not": {"type": "string"}},
    "dependencies": OBJECT | {"dependencies": {"a": []}},
    "dependentRequired": OBJECT | {"dependentRequired": {"a": ["b"]}},
    "contains": {"type": "array", "contains": {"const": 4}},
    "unevaluatedProperties": {"type": "object", "unevaluatedProperties": False},
    "if": OBJECT | {"if": {"required": ["a"]}, "then": {"required": ["b"]}},
}


def compiled(schema: Any, strict: bool = False) -> CompiledFormat:
    wanted = ResponseFormat(json_schema=json.dumps(schema), strict=strict)
    return ResponseFormats(tokenizer).compile(wanted, ignore_end=False)


def begins(made: CompiledFormat, text: str) -> bool:
    """Whether an answer may begin so."""
    matcher = LLMatcher(tokenizer(), made.grammar, log_level=0)
    return bool(matcher.validate_tokens(list(text.encode())) == len(text.encode()))


def ends(made: CompiledFormat, text: str) -> bool:
    """Whether that may be the whole answer, and the only thing that follows is its end."""
    matcher = LLMatcher(tokenizer(), made.grammar, log_level=0)
    assert matcher.consume_tokens(list(text.encode()))
    return matcher.is_accepting() and not any(begins(made, text + more) for more in " \n\t\r")


@pytest.mark.parametrize("blank", ["", " ", "\n", "\r\n", "\n" + 6 * "\t", "\n" + 20 * " "])
def test_a_space_or_a_break_with_indentation_may_stand_between_parts(blank: str) -> None:
    assert ends(compiled(TWO), f"[{blank}1,{blank}2{blank}]")


@pytest.mark.parametrize(
    "blank", ["  ", "\t", "\n\n", "\n \n", "\n \t", "\n" + 7 * "\t", "\n" + 21 * " "]
)
def test_blanks_never_go_on_without_end(blank: str) -> None:
    anything = ResponseFormats(tokenizer).compile(ResponseFormat(json_object=True), False)
    unbounded = TWO | {"x-guidance": {"whitespace_pattern": r"\s+"}}
    for made, opened in ((compiled(TWO), "["), (compiled(unbounded), "["), (anything, "{")):
        assert begins(made, opened + blank[:-1])
        assert not begins(made, opened + blank)


@pytest.mark.parametrize("word", UNFORCED)
def test_a_keyword_that_cannot_be_forced_is_a_warning(word: str) -> None:
    schema = {"type": "object", "properties": {"v": UNFORCED[word]}, "required": ["v"]}
    assert any(word in warning for warning in compiled(schema).warnings)
    with pytest.raises(InvalidField, match=word):
        compiled(schema, strict=True)


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("name", ["path", "binary", "password", "base64", "uri-reference", "own"])
def test_a_format_of_an_unknown_name_is_an_annotation(name: str, strict: bool) -> None:
    made = compiled(STRING | {"format": name}, strict)
    assert ends(made, '"any"')
    assert made.warnings == (f"Unknown format: {name}",)


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_forced_warns_of_nothing(strict: bool) -> None:
    made = compiled(STRING | {"format": "date"}, strict)
    assert made.warnings == ()
    assert ends(made, '"2026-11-28"')
    assert not begins(made, '"any')


def test_a_look_around_is_refused_however_lenient_the_request() -> None:
    with pytest.raises(InvalidField, match="look-around"):
        compiled(STRING | {"pattern": "^(?=a)b"})


@pytest.mark.parametrize(
    "grammar", ['root ::= "ze" tail\ntail ::= [a-z]+', 'start: "ze" TAIL\nTAIL: /[a-z]+/']
)
def test_a_grammar_is_read_in_both_syntaxes(grammar: str) -> None:
    made = ResponseFormats(tokenizer).compile(ResponseFormat(grammar=grammar), ignore_end=False)
    assert begins(made, "zebra")
    assert not begins(made, "ze1")


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        ("nonsense", "Expected ::="),
        ('tail ::= "a"', "No 'root' rule"),
        ("start: a", "unknown name"),
        ('root ::= root "a"', "no answer fits it|recursive"),
        ("root ::= (" * 1600, "too|Expected"),
        ("root ::= (" * 6000, "at most 16384 bytes"),
    ],
)
def test_a_grammar_that_is_none_is_refused_with_the_reason(grammar: str, why: str) -> None:
    with pytest.raises(InvalidField, match=rf"^format\.grammar: .*({why})"):
        ResponseFormats(tokenizer).compile(ResponseFormat(grammar=grammar), ignore_end=False)


ADA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CALLS = [("add", OBJECT), ("note", None)]


def calls(*functions: Any) -> ResponseFormat:
    schema = json.dumps(schema_of_calls(functions))
    return ResponseFormat(json_schema=schema, of_tools="chat.tools_json")


@pytest.mark.parametrize(
    ("form", "answer"),
    [
        ({"json_schema": json.dumps(ADA)}, '{"name": "Ada", "age": 36}'),
        ({"json_schema": json.dumps(TWO)}, "[1, 2]"),
        ({"json_object": True}, '{"name": "Ada", "arguments": 1}'),
        ({"regex": "yes|no"}, "yes"),
        ({"grammar": 'root ::= "yes" | "no"'}, "no"),
    ],
)
def test_an_answer_is_of_the_form_or_a_call_of_a_tool(form: dict[str, Any], answer: str) -> None:
    wanted = ResponseFormat(**form, calls=calls(*CALLS))
    made = ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
    for allowed in (answer, '{"name": "note", "arguments": {"text": "x"}}'):
        assert ends(made, allowed)
    if "json_object" not in form:
        assert not begins(made, '{"name": "other", "arguments"')
    assert not begins(made, "x")


CALL = '{"name": "note", "arguments": {"text": "x"}}'
OPEN, CLOSE = END + 1, END + 2
SIZE = END + 3
HERMES = ("<tool_call>", "\n", CALL, "\n", "</tool_call>")
SPECIAL_HERMES = (OPEN, "\n", CALL, "\n", CLOSE)
HERMES_IDS = {OPEN: b"<tool_call>", CLOSE: b"</tool_call>"}
GONE = {SIZE: b"<tool_call>"}
"""A special token of the tokenizer that the model has not."""


@pytest.mark.parametrize(
    ("tag", "special", "written"),
    [
        ("<tool_call>", {}, HERMES),
        ("<tool_call>", GONE, HERMES),
        ("<tool_call>", HERMES_IDS, SPECIAL_HERMES),
        ("[TOOL_CALLS]", {OPEN: b"[TOOL_CALLS]"}, (OPEN, " [", CALL, "]")),
        ("<tool▁call>", {}, ("<tool▁call>", CALL)),
    ],
)
def test_a_call_beside_a_form_may_be_written_with_the_tags_of_the_model(
    tag: str, special: dict[int, bytes], written: Sequence[str | int]
) -> None:
    wanted = ResponseFormat(json_schema=json.dumps(ADA), calls=calls(*CALLS))
    made = ResponseFormats(lambda: tokenizer(2), call_grammar([tag], special, SIZE)).compile(
        wanted, ignore_end=False
    )

    def taken(*pieces: str | int) -> int:
        matcher = LLMatcher(tokenizer(2), made.grammar, log_level=0)
        return matcher.validate_tokens(ids(*pieces))

    whole = len(ids(*written, END))
    assert taken(*written, END) == whole
    assert taken(*written, "I ") == whole - 1
    assert taken(written[0], "I ") == len(ids(written[0]))
    assert taken(written[0], CALL.replace("note", "other")) < len(ids(written[0], CALL))


def ids(*pieces: str | int) -> list[int]:
    """Return the tokens of texts, a byte each, and of special tokens."""
    return [at for one in pieces for at in (one.encode() if isinstance(one, str) else (one,))]


def test_a_form_and_the_calls_that_may_be_instead_are_each_refused_by_their_field() -> None:
    broken = {"properties": {"x": {"$ref": "#/$defs/Gone"}}}
    good, bad = json.dumps(ADA), json.dumps(broken)
    for form, tool, field in ((good, broken, "chat.tools_json"), (bad, ADA, "format.json_schema")):
        wanted = ResponseFormat(json_schema=form, calls=calls(("f", tool)))
        with pytest.raises(InvalidField, match="Gone") as refused:
            ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
        assert refused.value.field == field


def test_no_more_formats_are_compiled_at_once_than_may_wait() -> None:
    begin, wanted = threading.Event(), ResponseFormat(json_object=True)

    def late() -> LLTokenizer:
        assert begin.wait(60)
        return tokenizer()

    async def main() -> None:
        formats = ResponseFormats(late)
        some = [asyncio.create_task(formats.compiled(wanted, False)) for _ in range(MAX_COMPILING)]
        await asyncio.sleep(0)
        with pytest.raises(QueueFull, match="16 response formats are being compiled"):
            await formats.compiled(wanted, False)
        begin.set()
        form = ResponseFormats(tokenizer).compile(wanted, False)
        assert await asyncio.gather(*some) == [form] * MAX_COMPILING
        assert await formats.compiled(wanted, False) == form

    asyncio.run(main())


def test_a_base_that_every_reference_would_be_joined_to_has_a_bound() -> None:
    schema = {"$id": "https://a.example/" + "b/" * 2000, "properties": {"x": {"$ref": "c"}}}
    with pytest.raises(InvalidField, match=r"an \$id, .* has more than 2048 characters"):
        compiled(schema)
