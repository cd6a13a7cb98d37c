"""The JSON Schema of a call that an answer must be.

A function's parameters are a schema of their own. As a part of a larger one they have an `$id` of
their own, so that their references mean what they meant. Leaves which functions may be called to
`from_openai`.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def schema_of_calls(functions: Sequence[tuple[str, Mapping[str, Any] | None]]) -> dict[str, Any]:
    """Return the schema of a call of one of the functions, of which there is at least one.

    Each is its name, which no other has, and the schema of its parameters; None: any object.
    """
    shared: dict[str, Any] = {}
    calls = []
    for number, (name, parameters) in enumerate(functions):
        arguments: Mapping[str, Any] = parameters or {"type": "object"}
        if '"$ref"' in json.dumps(arguments):
            named = _named(arguments, f"https://tools.invalid/{number}/")
            shared[name], arguments = named, {"$ref": named["$id"]}
        calls.append(_call(name, arguments))
    schema = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return schema | ({"$defs": shared} if shared else {})


def _named(schema: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a schema with an `$id`: its own, where that is more than an anchor."""
    own = schema.get("$id")
    is_name = isinstance(own, str) and own.partition("#")[0]
    return {**schema, "$id": own if is_name else name}


def _call(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {"name": {"const": name}, "arguments": arguments},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }
