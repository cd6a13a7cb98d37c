"""The JSON Schema of a call that an answer must be.

A function's parameters are a schema of their own, with references from its root; as a part of a
larger one it lies under `$defs`, and its references are rebased to there. Leaves which functions
may be called to `from_openai`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

DATA = frozenset(("const", "enum", "default", "examples"))
"""Keywords whose values are data, in which `$ref` means nothing."""
BY_NAME = frozenset(
    ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
)
"""Keywords whose values name schemas; the names are no keywords."""


def schema_of_calls(functions: Sequence[tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """Return the schema of a call of one of the functions, of which there is at least one.

    Each is its name, and the schema of its parameters; None: any object.
    """
    shared: dict[str, Any] = {}
    calls = []
    for number, (name, parameters) in enumerate(functions):
        arguments: Mapping[str, Any] = parameters or {"type": "object"}
        root = f"#/$defs/{number}"
        rebased = rebase(arguments, root)
        if rebased != arguments:
            shared[str(number)], arguments = rebased, {"$ref": root}
        calls.append(_call(name, arguments))
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return schema | ({"$defs": shared} if shared else {})


def rebase(schema: Any, root: str) -> Any:
    """Return a schema whose references from its own root, `#` or `#/...`, are from `root`."""
    if isinstance(schema, list):
        return [rebase(one, root) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    return {key: _rebased(key, value, root) for key, value in schema.items()}


def _rebased(key: str, value: Any, root: str) -> Any:
    """Return the value of one keyword, rebased."""
    if key in DATA:
        return value
    if key in BY_NAME and isinstance(value, Mapping):
        return {name: rebase(one, root) for name, one in value.items()}
    if key == "$ref" and isinstance(value, str) and (value == "#" or value.startswith("#/")):
        return root + value[1:]
    return rebase(value, root)


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
