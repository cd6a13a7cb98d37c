"""Tools that a chat may call, and the calls that it made, parsed from JSON.

Their shapes are those of OpenAI's `tools` and `tool_calls`. Leaves their text in a prompt to the
model's chat template, and calls in an answer to `http.tool_calls`.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from outrider.worker.errors import InvalidField
from outrider.worker.host.json_members import members
from outrider.worker.sampling.params import require

SHOWN_CHARACTERS = 64
MAX_TOOLS = 128
MAX_DEPTH = 64
"""Most lists and objects within each other: what reads them calls itself for each."""
MAX_CHAT_MEMBERS = 1 << 16
"""Most members of all lists and objects in the tools and calls of a chat: more would not fit a
context of 128 Ki tokens."""


@dataclass(slots=True)
class ChatJson:
    """Reader of the JSON in one chat, whose members are counted before they are objects."""

    left: int = MAX_CHAT_MEMBERS
    """Members that may still come."""

    def load(self, text: str) -> Any:
        """Return the value of a JSON text; raises `ValueError` and `RecursionError`."""
        count = members(text.encode("utf-8", "surrogatepass"), 0)  # what is in strings comes later
        if count > self.left:
            words = "members of lists and objects in the tools and calls of a chat"
            raise ValueError(f"more than {MAX_CHAT_MEMBERS} {words}")
        self.left -= count
        return json.loads(text)


def parse_tools(field: str, text: str, chat: ChatJson) -> tuple[dict[str, Any], ...]:
    """Return the functions of a JSON array as in OpenAI's `tools`; raises `InvalidField`."""
    tools = _objects(field, text, chat)
    require(len(tools) <= MAX_TOOLS, field, f"{len(tools)} tools", f"at most {MAX_TOOLS}")
    for index, tool in enumerate(tools):
        _function(f"{field}[{index}]", tool)
    return tools


def parse_tool_calls(field: str, text: str, chat: ChatJson) -> tuple[dict[str, Any], ...]:
    """Return the calls of a JSON array as in OpenAI's `tool_calls`; raises `InvalidField`.

    Arguments, which OpenAI's clients send as JSON in a string, become the object that chat
    templates expect; others, as of a call that was cut off, stay the string that they are.
    """
    calls = _objects(field, text, chat)
    return tuple(_parsed_call(f"{field}[{at}]", call, chat) for at, call in enumerate(calls))


def _parsed_call(field: str, call: dict[str, Any], chat: ChatJson) -> dict[str, Any]:
    function = _function(field, call)
    arguments = function.get("arguments") or "{}"
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    try:
        value = chat.load(text)
    except (ValueError, RecursionError):
        value = None
    value = None if is_deep(value) else value
    arguments = value if isinstance(value, dict) else text
    return call | {"function": {"name": function["name"], **function, "arguments": arguments}}


def _function(field: str, value: dict[str, Any]) -> dict[str, Any]:
    function = value.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        limit = 'it must be {"type": "function", "function": {"name": ...}}'
        raise InvalidField(field, _short(value), limit)
    return function


def _objects(field: str, text: str, chat: ChatJson) -> tuple[dict[str, Any], ...]:
    value = _json(field, text, chat) if text else []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InvalidField(field, _short(value), "it must be a JSON array of objects")
    return tuple(value)


def _json(field: str, text: str, chat: ChatJson) -> Any:
    try:
        value = chat.load(text)
    except (ValueError, RecursionError) as error:
        raise InvalidField(field, text[:SHOWN_CHARACTERS], f"it must be JSON: {error}") from error
    if is_deep(value):
        limit = f"it may have {MAX_DEPTH} lists and objects within each other"
        raise InvalidField(field, text[:SHOWN_CHARACTERS], limit)
    return value


def is_deep(value: object) -> bool:
    """Return True if more than `MAX_DEPTH` lists and objects of JSON lie within each other."""
    level, depth = _holders([value]), 0
    while level and depth < MAX_DEPTH:
        level, depth = [below for one in level for below in _holders(_members(one))], depth + 1
    return bool(level)


def _holders(values: Iterable[object]) -> list[Any]:
    return [one for one in values if isinstance(one, list | dict)]


def _members(holder: list[Any] | dict[str, Any]) -> Iterable[object]:
    return holder.values() if isinstance(holder, dict) else holder


def _short(value: object) -> str:
    """Return the start of a refused value: a refusal must fit gRPC's trailers."""
    return repr(value)[:SHOWN_CHARACTERS]
