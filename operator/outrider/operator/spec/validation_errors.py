"""Validation errors of a service description in words: the path, the value, what is allowed.

Reads what is allowed from the JSON schema, so that a limit is written once, where the field is.
"""

from collections.abc import Iterable, Mapping
from typing import Any

Schema = Mapping[str, Any]

_TYPES = {
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "string": "text",
    "object": "a mapping of keys to values",
}
_PATTERNS = {
    "hf://": "a URI such as file:///path, hf://organisation/name or package://module/path",
    "@sha256": "the name of an image, such as registry.example/team/name:tag",
    "(100|[1-9]?[0-9])%": "an integer from 0 or a percentage, as 1 or 25%",
    "[KMGTPE]i": "a quantity, as 2, 500m or 16Gi",
    "[0-9]{0,6}Mi|": "a number and Mi or Gi, such as 512Mi, at most 9999Gi",
    "[-.a-z0-9]*[a-z0-9])?$": "lower-case letters, digits, dashes and dots",
    "/)?[a-zA-Z0-9]": "the key of a label",
    "[^@": "text without spaces and @",
    "\\S+": "text without spaces",
}


def describe(problem: Mapping[str, Any], root: Schema) -> str:
    """Describe a problem that pydantic reports of a document of the schema `root`, in one line."""
    location = [key for key in problem["loc"] if key != "[key]"]
    path = ".".join(str(key) for key in location)
    kind = problem["type"]
    if kind == "missing":
        return f"{path}: missing; allowed: {allowed(_at(location, root), root)}"
    if kind == "extra_forbidden":
        return f"{path}: unknown key; allowed: {allowed(_at(location[:-1], root), root)}"
    schema, value = _at(location, root), problem["input"]
    return f"{path}: {_show(value)} is not allowed; allowed: {allowed(schema, root)}"


def allowed(schema: Schema, root: Schema) -> str:
    """Return the allowed values of a schema, in words."""
    schema = _resolve(schema, root)
    if "const" in schema:
        return str(schema["const"])
    if "enum" in schema:
        return " or ".join(_commas(schema["enum"]))
    if "properties" in schema:
        return f"the keys {', '.join(schema['properties'])}"
    words = _words(schema)
    if "items" in schema:
        return f"a list{_length(schema)}, each {allowed(schema['items'], root)}"
    if "maximum" in schema:
        words += f" from {schema['minimum']} to {schema['maximum']}"
    if "maxLength" in schema:
        words += f", at most {schema['maxLength']} characters"
    return words


def _length(schema: Schema) -> str:
    """Return how many items a list may have, in words; empty: any number."""
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if most is None:
        return f" of at least {least}" if least else ""
    return f" of {least} to {most}" if least else f" of at most {most}"


def _words(schema: Schema) -> str:
    pattern = schema.get("pattern", "")
    known = (words for part, words in _PATTERNS.items() if part in pattern)
    return next(known, _TYPES.get(schema.get("type", ""), "another value"))


def _at(location: Iterable[Any], root: Schema) -> Schema:
    """Return the schema of the value at a path of keys."""
    schema = root
    for key in location:
        schema = _resolve(schema, root)
        below = schema.get("properties", {}).get(key) or schema.get("additionalProperties")
        schema = below or schema.get("items") or {}
    return _resolve(schema, root)


def _resolve(schema: Schema, root: Schema) -> Schema:
    """Follow a reference, and take the one alternative to null."""
    if "anyOf" in schema:
        schema = next(s for s in schema["anyOf"] if s.get("type") != "null")
    if "$ref" in schema:
        return _resolve(root["$defs"][schema["$ref"].rpartition("/")[2]], root)
    return schema


def _commas(values: list[Any]) -> list[str]:
    head, last = [str(v) for v in values[:-1]], str(values[-1])
    return [", ".join(head), last] if head else [last]


def _show(value: Any) -> str:
    """Return the value, cut to a readable length."""
    if isinstance(value, dict):
        value = {str(k): v for k, v in value.items()}
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
