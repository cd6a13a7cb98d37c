"""Objects of a JSON Schema that have the properties which it names, and no others.

By the standard an object that says nothing of other properties may have any, and a small model that
has to write one adds some for ever. An object is left open where it says so itself, and where
other schemas that apply to it may name more of its properties.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from outrider.worker.api.schema_references import BY_NAME, References, children

ALTERNATIVES = ("anyOf", "oneOf", "allOf", "$ref")
"""Keywords whose schemas apply to the object that they stand in. Alone in their schema, and one in
an `allOf`, they name all of its properties."""
JOINED = ("if", "then", "else", "not", "dependentSchemas", "dependencies", "$dynamicRef")
"""Keywords whose schemas apply to that object beside others."""
OF_OBJECTS = (
    "properties",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "required",
)
OPEN = (
    "additionalProperties",
    "unevaluatedProperties",
    "patternProperties",
    *ALTERNATIVES,
    *JOINED,
)
"""Keywords by which an object's schema is not all that says which properties it has."""


def with_closed_objects(schema: str) -> str:
    """Return a schema, as JSON, whose objects have no properties but those that it names.

    Raises `ValueError` if a name in it is no one part's.
    """
    root = json.loads(schema)
    if not isinstance(root, dict):
        return schema
    references, parts = References(root), list(_parts(root))
    joined = {
        id(one) for part in parts if not _is_choice(part) for one in _applied(part, references)
    }
    left = [part for part in parts if id(part) in joined]
    while left:  # what applies to a part that is joined is joined as well
        new = [one for one in _applied(left.pop(), references) if id(one) not in joined]
        joined |= set(map(id, new))
        left += new
    for part in parts:
        if id(part) not in joined and _names_all(part):
            part["additionalProperties"] = False
    return json.dumps(root)


def _parts(root: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schemas that a schema holds, itself the first."""
    left: list[tuple[Any, str]] = [(root, "")]
    while left:
        part, word = left.pop()
        if isinstance(part, dict) and word not in BY_NAME:
            yield part
        left += ((one, "" if word in BY_NAME else str(key)) for key, one in children(part, word))


def _applied(part: Mapping[str, Any], references: References) -> list[Any]:
    """Return the schemas in a part that apply to the same object as it does."""
    found = [references.target(part)] if "$ref" in part else []
    for word in (*ALTERNATIVES, *JOINED):
        value = part.get(word)
        if word in BY_NAME and isinstance(value, dict):
            found += value.values()
        elif word != "$ref":
            found += value if isinstance(value, list) else [value]
    return [one for one in found if isinstance(one, dict) and references.holds(one)]


def _is_choice(part: Mapping[str, Any]) -> bool:
    """True if each of the schemas that apply to a part's object is alone in that."""
    used = [word for word in ALTERNATIVES if word in part]
    others = any(word in part for word in (*JOINED, *OF_OBJECTS))
    joins = "allOf" in used and isinstance(part["allOf"], list) and len(part["allOf"]) > 1
    return not others and not joins and len(used) < 2


def _names_all(part: Mapping[str, Any]) -> bool:
    """True if a part says which properties an object has, and they are enough for it."""
    properties = part.get("properties")
    if not isinstance(properties, dict) or any(word in part for word in OPEN):
        return False
    required, least = part.get("required", []), part.get("minProperties", 0)
    named = isinstance(required, list) and all(name in list(properties) for name in required)
    return named and isinstance(least, int | float) and least <= len(properties)
