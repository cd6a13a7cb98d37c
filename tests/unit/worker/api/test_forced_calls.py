"""Schemas of calls that an answer must be: references in parameters mean what they meant there."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel

from outrider.worker.api.http.from_openai import schema_of_calls
from outrider.worker.api.response_format import ResponseFormat, ResponseFormats
from outrider.worker.errors import InvalidField
from outrider.worker.sampling.grammar_tokenizer import GrammarTokenizer

END = 256


def tokenizer(more: int = 0) -> LLTokenizer:
    """A token for each byte, one that ends an answer, and `more` special ones."""
    special = range(END, END + 1 + more)
    words = [*(bytes([c]) for c in range(256)), *(f"<{at}>".encode() for at in special)]
    made = GrammarTokenizer(words, [*special], (END,))
    built = LLTokenizer(made, n_vocab=len(words), eos_token=[END])  # type: ignore[arg-type]
    made.longest_first = built.greedy_tokenize
    return built


def fits(schema: dict[str, Any], answer: object, of_tools: str | None = None) -> bool:
    """Whether an answer is allowed, by the grammar that a worker makes of a schema."""
    wanted = ResponseFormat(json_schema=json.dumps(schema), of_tools=of_tools)
    grammar = ResponseFormats(tokenizer).compile(wanted, ignore_end=False).grammar
    matcher = LLMatcher(tokenizer(), grammar)
    text = json.dumps(answer).encode()
    return matcher.validate_tokens([*text, END]) == len(text) + 1


class Item(BaseModel):
    name: str
    parts: list["Item"] = []


class Order(BaseModel):
    items: list[Item]


TREE = {
    "type": "object",
    "properties": {"v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}},
    "required": ["v"],
    "additionalProperties": False,
}
FUNCTIONS = [("order", Order.model_json_schema()), ("grow", TREE), ("stop", None)]


def call(name: str, arguments: object) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


@pytest.mark.parametrize("functions", [FUNCTIONS, FUNCTIONS[::-1]])
def test_nested_models_and_trees_are_what_their_functions_say(functions: Any) -> None:
    schema = schema_of_calls(functions)
    nested = {"items": [{"name": "a", "parts": [{"name": "b"}]}]}
    assert fits(schema, call("order", nested))
    assert not fits(schema, call("order", {"items": [{"parts": []}]}))
    assert fits(schema, call("grow", {"v": 1, "kids": [{"v": 2}]}))
    assert not fits(schema, call("grow", {"v": 1, "kids": [call("grow", {"v": 2})]}))
    assert fits(schema, call("stop", {"any": "thing"}))


def test_a_single_function_may_refer_to_itself() -> None:
    schema = schema_of_calls([("grow", TREE)])
    assert fits(schema, call("grow", {"v": 1, "kids": [{"v": 2, "kids": []}]}))
    assert not fits(schema, call("grow", {"v": "1"}))


def test_arguments_have_no_properties_but_those_that_are_named() -> None:
    schema = schema_of_calls(FUNCTIONS)
    item = {"name": "a", "other": 1}
    for arguments in ({"items": [item]}, {"items": [{"name": "a", "parts": [item]}]}):
        assert fits(schema, call("order", arguments))
        assert not fits(schema, call("order", arguments), of_tools="chat.tools_json")
    assert fits(schema, call("order", {"items": [{"name": "a"}]}), of_tools="chat.tools_json")
    assert fits(schema, call("stop", {"any": "thing"}), of_tools="chat.tools_json")


INTEGER, BOOLEAN = {"type": "integer"}, {"type": "boolean"}
REFERRING = [
    lambda x: {"$defs": {"a": x}, "properties": {"x": {"$ref": "#/$defs/a"}}},
    lambda x: {"$defs": {"a": {"$anchor": "b", **x}}, "properties": {"x": {"$ref": "#b"}}},
    lambda x: {"$defs": {"a": {"$id": "b", **x}}, "properties": {"x": {"$ref": "b"}}},
    lambda x: {
        "$id": f"https://example.com/{x['type']}",
        "$defs": {"a": x},
        "properties": {"x": {"$ref": "#/$defs/a"}},
    },
    lambda x: {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": x},
        "properties": {"x": {"$ref": "#/definitions/a"}},
    },
]
"""Ways to refer to a part, each the same name in two functions."""


@pytest.mark.parametrize("referring", REFERRING)
def test_names_of_parts_are_each_functions_own(referring: Callable[[Any], dict[str, Any]]) -> None:
    """Anchors and identifiers that two functions share name the parts of the one at hand."""
    strict = {"type": "object", "additionalProperties": False}
    schema = schema_of_calls(
        [("f", strict | referring(INTEGER)), ("g", strict | referring(BOOLEAN))]
    )
    assert fits(schema, call("f", {"x": 1}))
    assert not fits(schema, call("f", {"x": True}))
    assert fits(schema, call("g", {"x": True}))
    assert not fits(schema, call("g", {"x": 1}))


def refusal(*functions: tuple[str, Any]) -> InvalidField:
    """Why calls of functions are refused."""
    wanted = ResponseFormat(
        json_schema=json.dumps(schema_of_calls(functions)), of_tools="chat.tools_json"
    )
    with pytest.raises(InvalidField) as refused:
        ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
    return refused.value


def test_two_schemas_of_one_name_are_refused() -> None:
    first, second = (
        {
            "$id": "https://example.com/x",
            "$defs": {"a": x},
            "properties": {"x": {"$ref": "#/$defs/a"}},
        }
        for x in (INTEGER, BOOLEAN)
    )
    refused = refusal(("f", first), ("g", second))
    assert "two different schemas have the $id or $anchor 'https://example.com/x'" in str(refused)


def test_parameters_without_an_end_are_refused_by_function() -> None:
    endless = {"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}
    refused = refusal(("grow", endless))
    assert "#/$defs/grow/properties/next leads back to #/$defs/grow for ever" in str(refused)


def test_a_reference_to_nowhere_is_blamed_on_the_tools() -> None:
    refused = refusal(("f", {"properties": {"x": {"$ref": "#/$defs/Gone"}}}))
    assert refused.field == "chat.tools_json"
    assert "Gone" in str(refused)
