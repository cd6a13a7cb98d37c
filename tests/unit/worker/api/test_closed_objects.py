"""Objects of forced calls have only the properties that their schema names, where it names all."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.worker.api.closed_objects import with_closed_objects

TEXT = {"type": "string"}
CITY = {"type": "object", "properties": {"name": TEXT}}
SHUT = CITY | {"additionalProperties": False}


def closed(schema: Any) -> Any:
    return json.loads(with_closed_objects(json.dumps(schema)))


@pytest.mark.parametrize(
    ("schema", "wanted"),
    [
        (CITY, SHUT),
        (CITY | {"required": ["name"], "title": "x"}, SHUT | {"required": ["name"], "title": "x"}),
        ({"properties": {}}, {"properties": {}, "additionalProperties": False}),
        ({"properties": {"a": CITY}}, {"properties": {"a": SHUT}, "additionalProperties": False}),
        ({"type": "array", "items": CITY}, {"type": "array", "items": SHUT}),
        ({"anyOf": [CITY, {"type": "null"}]}, {"anyOf": [SHUT, {"type": "null"}]}),
        ({"oneOf": [CITY, CITY]}, {"oneOf": [SHUT, SHUT]}),
        ({"allOf": [CITY], "description": "x"}, {"allOf": [SHUT], "description": "x"}),
        (
            {"$ref": "#/$defs/City", "$defs": {"City": CITY}},
            {"$ref": "#/$defs/City", "$defs": {"City": SHUT}},
        ),
    ],
)
def test_an_object_that_names_all_its_properties_has_no_others(schema: Any, wanted: Any) -> None:
    assert closed(schema) == wanted


OPEN = [
    {"type": "object"},
    CITY | {"additionalProperties": True},
    CITY | {"additionalProperties": TEXT},
    CITY | {"unevaluatedProperties": True},
    CITY | {"patternProperties": {"^x": TEXT}},
    CITY | {"required": ["name", "other"]},
    CITY | {"minProperties": 2},
    {"allOf": [CITY, {"type": "object", "properties": {"kind": TEXT}}]},
    {"allOf": [{"$ref": "#/$defs/City"}, CITY], "$defs": {"City": CITY}},
    CITY | {"anyOf": [{"type": "object", "properties": {"kind": TEXT}}, {"required": ["name"]}]},
    CITY | {"if": CITY, "then": {"properties": {"kind": TEXT}}},
    CITY | {"dependentSchemas": {"name": {"properties": {"kind": TEXT}}}},
    {"not": CITY},
    {"allOf": [{"anyOf": [CITY, {"$ref": "#/$defs/City"}]}, CITY], "$defs": {"City": CITY}},
    {"const": CITY},
    {"properties": 7},
    CITY | {"required": 7},
    CITY | {"required": [[]]},
    CITY | {"minProperties": "x"},
    {"allOf": 7, "anyOf": "x", "$ref": 3},
    [],
]


@pytest.mark.parametrize("schema", OPEN)
def test_an_object_that_may_have_others_stays_open(schema: Any) -> None:
    assert closed(schema) == schema


def test_a_part_that_is_alone_in_one_place_and_not_in_another_stays_open() -> None:
    city = {"$ref": "#/$defs/City"}
    both = {"a": city, "b": {"allOf": [city, {"properties": {"kind": TEXT}}]}}
    made = closed({"properties": both, "$defs": {"City": CITY}})
    assert made["$defs"]["City"] == CITY
    assert made["additionalProperties"] is False


def test_trees_are_closed_in_all_their_parts() -> None:
    tree = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}}
    assert list(objects(closed({"properties": {"root": tree}}))) == [False, False]


def objects(schema: Any) -> Iterator[Any]:
    """What each object with properties says of others."""
    if isinstance(schema, dict):
        if "properties" in schema:
            yield schema.get("additionalProperties")
        for part in schema.values():
            yield from objects(part)
