"""Schemas of calls that an answer must be: references in parameters mean what they meant there."""

import json
from typing import Any

import pytest
from llguidance import LLMatcher, LLTokenizer
from pydantic import BaseModel

from outrider.worker.api.http.forced_calls import rebase, schema_of_calls
from outrider.worker.api.response_format import ResponseFormat, ResponseFormats
from outrider.worker.errors import InvalidField
from outrider.worker.sampling.grammar_tokenizer import GrammarTokenizer

END = 256


def tokenizer() -> LLTokenizer:
    """A token for each byte, and one that ends an answer."""
    words = GrammarTokenizer([*(bytes([c]) for c in range(256)), b"<end>"], [END], (END,))
    built = LLTokenizer(words, n_vocab=257, eos_token=[END])  # type: ignore[arg-type]
    words.longest_first = built.greedy_tokenize
    return built


def fits(schema: dict[str, Any], answer: object) -> bool:
    """Whether an answer is allowed, by the grammar that a worker makes of a schema."""
    wanted = ResponseFormat(json_schema=json.dumps(schema))
    grammar = ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
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


def test_data_names_and_other_references_stay() -> None:
    schema = {
        "properties": {"$ref": {"const": {"$ref": "#"}}, "const": {"$ref": "#/a"}},
        "enum": [{"$ref": "#"}],
        "allOf": [{"$ref": "#anchor"}, {"$ref": "https://example.com/#"}, True],
    }
    rebased = rebase(schema, "#/x")
    assert rebased["properties"].pop("const") == {"$ref": "#/x/a"}
    schema["properties"].pop("const")  # type: ignore[attr-defined]
    assert rebased == schema


def test_a_reference_to_nowhere_is_blamed_on_the_tools() -> None:
    schema = schema_of_calls([("f", {"properties": {"x": {"$ref": "#/$defs/Gone"}}})])
    wanted = ResponseFormat(json_schema=json.dumps(schema), of_tools="chat.tools_json")
    with pytest.raises(InvalidField) as refused:
        ResponseFormats(tokenizer).compile(wanted, ignore_end=False)
    assert refused.value.field == "chat.tools_json"
