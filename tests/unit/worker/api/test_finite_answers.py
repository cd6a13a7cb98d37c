"""Schemas that only endless answers would fit are refused, endless parts of others left out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llguidance import LLMatcher

from outrider.worker.api.finite_answers import without_endless
from outrider.worker.api.response_format import ResponseFormat, ResponseFormats
from outrider.worker.errors import InvalidField
from tests.unit.worker.api.test_forced_calls import fits, tokenizer

INTEGER: Any = {"type": "integer"}
ROOT: Any = {"$ref": "#"}


def strict(properties: dict[str, Any], required: list[str] | None = None) -> Any:
    """The schema of an object, of which all properties are required if nothing else is said."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
        "additionalProperties": False,
    }


NODE: Any = strict({"next": {"$ref": "#/$defs/Node"}})
ENDLESS: list[tuple[Any, str]] = [
    (ROOT, "# leads back to # for ever"),
    (strict({"next": ROOT}), "#/properties/next leads back to # for ever"),
    (strict({"a/b": ROOT}), "#/properties/a~1b leads back to # for ever"),
    (strict({"const": strict({"x": ROOT})}), "#/properties/const/properties/x leads back to #"),
    (
        {"$defs": {"Node": NODE}, "$ref": "#/$defs/Node"},
        "#/$defs/Node/properties/next leads back to #/$defs/Node for ever",
    ),
    (strict({"v": {"type": "array", "minItems": 1, "items": ROOT}}), "#/properties/v/items"),
    ({"type": "array", "minItems": 2, "prefixItems": [INTEGER, ROOT]}, "#/prefixItems/1"),
    ({"type": "array", "minItems": 2, "items": [INTEGER], "additionalItems": ROOT}, "additional"),
    ({"type": "object", "additionalProperties": ROOT, "required": ["x"]}, "#/additionalProperties"),
    ({"anyOf": [strict({"a": ROOT}), strict({"b": ROOT})]}, "#/anyOf/0/properties/a leads back"),
    ({"oneOf": [ROOT]}, "#/oneOf/0 leads back to # for ever"),
    ({"allOf": [INTEGER, ROOT]}, "#/allOf/1 leads back to # for ever"),
    (strict({"n": {"$ref": "#tree"}}) | {"$anchor": "tree"}, "#/properties/n leads back to #"),
    (strict({"n": {"$ref": "t"}}) | {"$id": "https://a.example/t"}, "#/properties/n leads back"),
    (
        strict({"x": {**NODE, "type": ["object", "array"], "minItems": 1, "items": False}})
        | {"$defs": {"Node": NODE}},
        "#/$defs/Node/properties/next leads back",
    ),
    (strict({"n": {"$ref": "json-schema:///#"}}), "#/properties/n leads back to #"),
    (strict({"x": False}), "nothing fits what # needs"),
]


@pytest.mark.parametrize(("schema", "reason"), ENDLESS)
def test_a_schema_that_only_endless_answers_fit_is_refused_by_place(
    schema: Any, reason: str
) -> None:
    with pytest.raises(InvalidField, match="no answer fits it: ") as refused:
        ResponseFormats(tokenizer).compile(
            ResponseFormat(json_schema=json.dumps(schema)), ignore_end=False
        )
    assert reason in str(refused.value)


@pytest.mark.parametrize(
    ("schema", "answer", "other"),
    [
        (strict({"v": INTEGER, "next": ROOT}, ["v"]), {"v": 1, "next": {"v": 2}}, {"next": 1}),
        (strict({"next": {"anyOf": [ROOT, {"type": "null"}]}}), {"next": {"next": None}}, {}),
        (strict({"kids": {"type": "array", "items": ROOT}}), {"kids": [{"kids": []}]}, {}),
        (strict({"v": {"type": ["object", "null"], "properties": {"v": ROOT}}}), {"v": None}, 1),
        (strict({"v": {"enum": [{}], "$comment": "x"}}), {"v": {}}, {}),
    ],
)
def test_a_schema_that_may_end_means_what_it_meant(schema: Any, answer: Any, other: Any) -> None:
    assert without_endless(json.dumps(schema)) == json.dumps(schema)
    assert fits(schema, answer)
    assert not fits(schema, other)


@pytest.mark.parametrize(
    ("schema", "answer", "trap"),
    [
        ({"node": {"$ref": "#/$defs/Node"}, "v": INTEGER}, {"v": 1}, {"v": 1, "node": {}}),
        ({"v": {"anyOf": [INTEGER, {"$ref": "#/$defs/Node"}]}}, {"v": 1}, {"v": {"next": {}}}),
        ({"v": {"anyOf": [INTEGER, NODE]}}, {"v": 1}, {"v": {"next": {}}}),
        ({"v": {"type": "array", "items": {"$ref": "#/$defs/Node"}}}, {"v": []}, {"v": [{}]}),
        (
            {"v": {"properties": {"x": {"$ref": "#/$defs/Node"}}, "required": ["x"]}},
            {"v": 1},
            {"v": {"x": {}}},
        ),
    ],
)
def test_no_answer_enters_a_part_that_it_could_not_leave(
    schema: Any, answer: Any, trap: Any
) -> None:
    whole = strict(schema, ["v"]) | {"$defs": {"Node": NODE}}
    whole["properties"]["endless"] = {"$ref": "#/$defs/Node"}
    assert fits(whole, answer)
    opened = json.dumps(trap).partition("{}")[0]
    assert not begins(whole, opened + '{"')


def begins(schema: Any, text: str) -> bool:
    """Whether an answer may begin so."""
    source = ResponseFormats(tokenizer).compile(
        ResponseFormat(json_schema=json.dumps(schema)), ignore_end=False
    )
    return bool(
        LLMatcher(tokenizer(), source.grammar).validate_tokens(list(text.encode())) == len(text)
    )


@pytest.mark.parametrize(
    ("schema", "named"),
    [
        (strict({"x": {"$dynamicRef": "#a"}}) | {"$dynamicAnchor": "a"}, "$dynamic"),
        (strict({"x": {"$recursiveRef": "#"}}), "$recursiveRef"),
        (strict({"x": {"$ref": "https://example.com/order"}}), "https://example.com/order"),
        (strict({"x": {"$ref": "#gone"}}), "gone"),
        (strict({"x": {"$ref": "#/$defs/gone"}}), "gone"),
        (
            strict({"x": {"$anchor": "a"}, "y": {"$anchor": "a", "type": "null"}}),
            "$anchor 'json-schema:///#a'",
        ),
    ],
)
def test_references_that_name_no_part_are_refused_by_name(schema: Any, named: str) -> None:
    with pytest.raises(InvalidField) as refused:
        ResponseFormats(tokenizer).compile(
            ResponseFormat(json_schema=json.dumps(schema)), ignore_end=False
        )
    assert named in refused.value.reason.rpartition("is not allowed")[2]


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/default", "default": {"$ref": "#"}},
        {"$ref": "#/$defs", "$defs": {"properties": {"const": {"$ref": "#"}}}},
        {"$ref": "#/enum/0", "enum": [{"allOf": [False], "$ref": "#"}]},
    ],
)
def test_references_to_data_are_judged_by_nobody(schema: Any) -> None:
    assert without_endless(json.dumps(schema)) == json.dumps(schema)


KINDS = range(4)
refers = st.sampled_from([{"$ref": f"#/$defs/{kind}"} for kind in KINDS])
named = st.dictionaries(st.sampled_from("abc"), refers, max_size=3)
kinds = st.one_of(
    st.just(INTEGER),
    refers,
    st.builds(strict, named),
    st.builds(lambda properties: strict(properties, []), named),
    st.builds(lambda options: {"anyOf": options}, st.lists(refers, min_size=1, max_size=3)),
    st.builds(lambda all_of: {"allOf": all_of}, st.lists(refers, max_size=3)),
    st.builds(lambda one, n: {"type": "array", "items": one, "minItems": n}, refers, st.just(1)),
    st.builds(lambda one: {"type": ["array", "null"], "items": one, "minItems": 1}, refers),
)


def ends(kind: Any, defined: dict[str, Any], depth: int) -> bool:
    """Whether an answer fits whose parts lie no deeper: all of them, tried one by one."""
    if "$ref" in kind:
        kind, depth = defined[kind["$ref"].rpartition("/")[2]], depth - 1
        return depth >= 0 and ends(kind, defined, depth)
    held = [kind["properties"][name] for name in kind.get("required", ())]
    held += kind.get("allOf", [])
    if "null" not in kind.get("type", ()) and kind.get("minItems"):
        held.append(kind["items"])
    options = kind.get("anyOf")
    return all(ends(one, defined, depth) for one in held) and (
        options is None or any(ends(one, defined, depth) for one in options)
    )


@given(st.lists(kinds, min_size=len(KINDS), max_size=len(KINDS)))
def test_a_schema_is_refused_if_and_only_if_no_answer_ends(found: list[Any]) -> None:
    defined = {str(kind): one for kind, one in enumerate(found)}
    whole = json.dumps({"$defs": defined, "$ref": "#/$defs/0"})
    if ends({"$ref": "#/$defs/0"}, defined, len(KINDS)):
        without_endless(whole)
    else:
        with pytest.raises(ValueError, match="for ever"):
            without_endless(whole)
