"""Odd values of the chart: for each, by the type that its schema gives it, what people mistype.

Leaves open whether one is right: the schema refuses it, or an API server takes what is made of it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]
WORDS = ("", "A_b", "a b", "-a", "a.b", "a" * 64, "a" * 254, "1", "a,b", "a:b", 1, None)
NUMBERS = (0, -1, 1 << 40, "1", 1.5)
MAPS: tuple[Any, ...] = (
    {},
    {"a": ""},
    {"a b": "c"},
    {"a/b/c": "d"},
    {"A/b": "c"},
    {"a": "b c"},
    {"a": "-b"},
    {"a": "b" * 64},
    {"a" * 64: "b"},
    {"a": 1},
)
OBJECTS: tuple[Any, ...] = ({}, {"unknown": "a"}, {"name": "A_b"}, {"name": ""}, {"key": "a b"})
OF_TYPE: Mapping[str, tuple[Any, ...]] = {
    "string": WORDS,
    "integer": NUMBERS,
    "number": NUMBERS,
    "boolean": ("true", 1),
}


def odd_values(schema: Schema) -> Iterator[tuple[str, Any]]:
    """Yield paths of values and odd values of each."""
    yield from _below(schema, schema["definitions"], "")


def _below(schema: Schema, known: Schema, path: str) -> Iterator[tuple[str, Any]]:
    for key, part in schema["properties"].items():
        if "properties" in part and "required" not in part:
            yield from _below(part, known, f"{path}{key}.")
        else:
            yield from ((f"{path}{key}", value) for value in _odd(part, known))


def _odd(part: Schema, known: Schema) -> Iterator[Any]:
    if "$ref" in part:
        part = known[part["$ref"].rpartition("/")[2]]
    for one in part.get("anyOf", ()):
        yield from _odd(one, known)
    kind = part.get("type", "string" if "enum" in part else None)
    yield from OF_TYPE.get(kind, ())
    if kind == "array":
        yield []
        for value in _odd(part["items"], known):
            yield from ([value], [value, value])
    if kind == "object":
        yield from MAPS if isinstance(part.get("additionalProperties"), Mapping) else OBJECTS
