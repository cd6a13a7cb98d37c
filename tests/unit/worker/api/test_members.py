"""Members of bodies are counted before they are objects; each list and object has a bound."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from outrider.worker.api.http.body_part import MAX_ITEMS, MAX_TURNS, counted
from outrider.worker.api.http.errors import ApiError, unreadable
from outrider.worker.api.http.infill import InfillBody
from outrider.worker.api.http.responses.body import ResponsesBody
from outrider.worker.api.http.schemas import ChatBody, CompletionBody
from outrider.worker.host.json_members import MAX_MEMBERS, PIECE, members

BODIES = (ChatBody, CompletionBody, InfillBody, ResponsesBody)
MANY = 4 * MAX_TURNS
CHAT, TEXT = {"messages": [{"role": "user", "content": "a"}]}, {"prompt": "a"}
JSON_VALUE = "JsonValue"


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[0,0,0]", 3),
        (r'["a,[{", "b\\", "c\",", {"d": []}]', 6),
        (json.dumps({"a": '"[,{\\' * 9, "b": "\\"}), 2),
    ],
)
def test_only_what_is_outside_of_strings_counts(text: str, count: int) -> None:
    pad = "[" * MAX_MEMBERS + text + "," * 7  # more than may be, so that strings are looked at
    assert members(pad.encode()) == MAX_MEMBERS + count + 7


def test_a_string_goes_on_from_piece_to_piece() -> None:
    text = json.dumps(["," * (3 << 20), "a", "," * (1 << 20)])
    assert members(text.encode()) == 3


@given(st.integers(PIECE - 9, PIECE + 9), st.text(alphabet='a\\",[', max_size=12))
def test_an_escape_may_lie_on_the_edge_of_a_piece(before: int, more: str) -> None:
    text = json.dumps(["," * before + more, "", more, 0])
    pad = "[" * MAX_MEMBERS  # so that strings are looked at
    assert members((pad + text).encode()) == MAX_MEMBERS + 4


def schemas(node: Any, before: tuple[str, ...] = ()) -> Iterator[tuple[Any, tuple[str, ...]]]:
    """Every list and object of a core schema but those of any JSON, with the functions that see
    its value before."""
    if isinstance(node, list | tuple):
        for one in node:
            yield from schemas(one)
    if not isinstance(node, dict) or JSON_VALUE in str(node.get("ref")):
        return
    if node.get("type") in ("list", "dict"):
        yield node, before
    for name, one in node.items():
        if name not in ("metadata", "serialization", "ref", "json_schema_input_schema"):
            function = node.get("function", {}) if node.get("type") == "function-before" else {}
            more = (getattr(function.get("function"), "__name__", ""),) if name == "schema" else ()
            yield from schemas(one, before + more if name == "schema" else ())


def unbounded(kind: type[BaseModel]) -> list[str]:
    """Lists and objects of a body that have no bound, or say more than one fault."""
    found = []
    for node, before in schemas(kind.__pydantic_core_schema__):
        is_list = node["type"] == "list"
        bounded = (
            "max_length" in node and node.get("fail_fast")
            if is_list
            else (counted.__name__ in before)
        )
        if not bounded:
            found.append(f"{node['type']} of {node.get('items_schema', node.get('values_schema'))}")
    return found


@pytest.mark.parametrize("kind", BODIES)
def test_every_list_and_object_of_a_body_has_a_bound(kind: type[BaseModel]) -> None:
    assert unbounded(kind) == []


def test_one_without_a_bound_is_found() -> None:
    class Unbounded(BaseModel):
        one: list[int]
        two: dict[str, float] | None = None

    class Holds(BaseModel):
        some: Unbounded

    assert len(unbounded(Holds)) == 2


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (ChatBody, {"messages": [0] * MANY}),
        (ChatBody, {"messages": [{}] * MANY}),
        (ChatBody, {"messages": [{"role": "user", "content": ""}] * MANY}),
        (ChatBody, {**CHAT, "stop": [0] * MANY}),
        (ChatBody, {**CHAT, "bad_words": ["a"] * MANY}),
        (ChatBody, {**CHAT, "stop_token_ids": [-1] * MANY}),
        (ChatBody, {**CHAT, "logit_bias": {str(n): "x" for n in range(MANY)}}),
        (ChatBody, {**CHAT, "tools": [{}] * MANY}),
        (ChatBody, {"messages": [{"role": "assistant", "tool_calls": [0] * MANY}]}),
        (ChatBody, {**CHAT, "chat_template_kwargs": dict.fromkeys(map(str, range(MANY)))}),
        (CompletionBody, {"prompt": ["a"] * MANY}),
        (CompletionBody, {**TEXT, "logit_bias": {str(n): 0 for n in range(MANY)}}),
        (InfillBody, {"input_prefix": "", "input_suffix": "", "input_extra": [0] * MANY}),
        (ResponsesBody, {"input": [0] * MANY}),
        (ResponsesBody, {"input": "a", "metadata": dict.fromkeys(map(str, range(MANY)), "b")}),
    ],
)
def test_many_wrong_members_are_one_fault(kind: type[BaseModel], given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        kind.model_validate_json(json.dumps(given))
    assert refused.value.error_count() <= 2  # of one member
    error = unreadable(refused.value)
    assert isinstance(error, ApiError)
    assert error.status == 400
    assert len(str(error)) < 500


def test_what_people_send_is_within_the_bounds() -> None:
    turns = [{"role": "user", "content": "a"}] * MAX_TURNS
    assert len(ChatBody.model_validate_json(json.dumps({"messages": turns})).messages) == MAX_TURNS
    ids = list(range(MAX_MEMBERS // 2))
    assert CompletionBody.model_validate_json(json.dumps({"prompt": ids})).prompt == [ids]
    biases = {str(n): 1.0 for n in range(MAX_ITEMS)}
    body = CompletionBody.model_validate_json(json.dumps({**TEXT, "logit_bias": biases}))
    assert body.logit_bias == biases
