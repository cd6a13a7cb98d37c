"""Structural OpenAPI schemas of pydantic types, as an API server takes them.

What pydantic may write and a structural schema may not is either translated here or an error.
Leaves the types and the rest of a definition to `definitions`.
"""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode

from outrider.operator.spec.part import MAX_INT64, RULES

Schema = dict[str, Any]

_KEPT = (
    "type",
    "format",
    "enum",
    "pattern",
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "maxItems",
    "maxProperties",
    "default",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    RULES,
)
_DROPPED = {"title", "readOnly", "const"}
_INT32 = (1 << 31) - 1


def structural(kind: type[BaseModel], *, mode: JsonSchemaMode = "validation") -> Schema:
    """Return the schema of `kind`; `mode` "serialization" adds computed fields.

    Raises `ValueError` for what has no translation.
    """
    written = kind.model_json_schema(mode=mode)
    return _translated(written, written.get("$defs", {}))


def rules_of(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield each rule of a schema after the path of its part, as `.spec.draft`."""
    for rule in schema.get(RULES, ()):
        yield path, rule
    for key, below in schema.get("properties", {}).items():
        yield from rules_of(below, f"{path}.{key}")


def _translated(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Schema:
    """Return one schema and all below it, without references."""
    schema = _resolved(schema, parts)
    if unknown := schema.keys() - {*_KEPT, *_DROPPED, "description", *_NESTED}:
        raise ValueError(f"a structural schema has no word for {', '.join(sorted(unknown))}")
    made: Schema = {}
    if "description" in schema:
        made["description"] = " ".join(schema["description"].split())
    made |= {key: schema[key] for key in _KEPT if key in schema}
    if made.get("type") == "integer":
        made["format"] = "int32" if made.get("maximum", MAX_INT64) <= _INT32 else "int64"
    for key, translate in _NESTED.items():
        if key in schema:
            made |= translate(schema[key], parts)
    return made


def _resolved(schema: Mapping[str, Any], parts: Mapping[str, Any]) -> Schema:
    """Return what a reference means, or the one alternative to null, under the field's own keys."""
    own = {k: v for k, v in schema.items() if k not in ("$ref", "anyOf", "$defs")}
    if own.get("default", 0) is None:
        del own["default"]
    if "$ref" in schema:
        return _resolved(parts[schema["$ref"].rpartition("/")[2]], parts) | own
    if "anyOf" in schema:
        (one,) = (s for s in schema["anyOf"] if s.get("type") != "null")
        return _resolved(one, parts) | own
    return own


def _properties(properties: Mapping[str, Any], parts: Mapping[str, Any]) -> Schema:
    made = {key: _translated(schema, parts) for key, schema in properties.items()}
    for schema in made.values():
        if schema.get("type") == "object" and "default" in schema:
            schema["default"] = _defaults(schema)
    return {"properties": made}


def _defaults(schema: Schema) -> Schema:
    """Return an object's default with its fields written out: rules see defaults as written."""
    below = schema.get("properties", {}).items()
    return {key: copy.deepcopy(one["default"]) for key, one in below if "default" in one}


def _required(required: list[str], _: Mapping[str, Any]) -> Schema:
    return {"required": required}


def _items(items: Mapping[str, Any], parts: Mapping[str, Any]) -> Schema:
    return {"items": _translated(items, parts)}


def _additional(values: Mapping[str, Any] | bool, parts: Mapping[str, Any]) -> Schema:
    if isinstance(values, bool):
        return {"x-kubernetes-preserve-unknown-fields": True} if values else {}
    return {"additionalProperties": _translated(values, parts)}


_NESTED: dict[str, Callable[[Any, Mapping[str, Any]], Schema]] = {
    "required": _required,
    "properties": _properties,
    "items": _items,
    "additionalProperties": _additional,
}
