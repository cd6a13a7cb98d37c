"""Chats with tool calls and their results, laid out so that a model's chat template takes them.

Templates refuse calls and results, or leave them out: those that know no role `tool`, as most of
small models, Mistral's for ids of other lengths, Llama's for two calls in one turn. The first
layout that a template takes is used. Leaves the template itself to `text`.
"""

import json
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import Any

import jinja2

from outrider.contract.inference import Message
from outrider.worker.api.time_limit import TookTooLong

ASSISTANT, TOOL, USER = "assistant", "tool", "user"
ID_CHARACTERS = 9
"""Characters of each call's id, as Mistral's templates want it."""
Layout = Callable[[Sequence[Message]], list[Message]]
Render = Callable[..., str]
"""Returns the text that a template makes of messages, and of the tools in `tools`."""
TEMPLATE_ERRORS = (
    jinja2.TemplateError,
    TypeError,
    ValueError,
    AttributeError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    TookTooLong,
)
"""Errors of templates, which are programs: what they make of an odd tool is any of these."""

FUNCTION, VALUE, RESULT, SAID = "probed_function", "probed_value", "probed_result", "§"
PROBED_CALL: Mapping[str, Any] = {
    "id": "call_0123456789abcdef01234567",
    "type": "function",
    "function": {"name": FUNCTION, "arguments": {"key": VALUE}},
}
PROBED_TOOL = {
    "type": "function",
    "function": {
        "name": FUNCTION,
        "description": "",
        "parameters": {"type": "object", "properties": {"key": {"type": "string"}}},
    },
}
ASKED, CALLED = Message(USER, "x"), Message(ASSISTANT, "", (PROBED_CALL,))
ANSWERED = Message(TOOL, RESULT, tool_call_id=PROBED_CALL["id"], name=FUNCTION)


def needs_layout(messages: Sequence[Message]) -> bool:
    """True if a chat has what templates may refuse or lose."""
    return any(message.tool_calls or message.role == TOOL for message in messages)


def find_layouts(render: Render) -> tuple[Layout, ...]:
    """Return the layouts by which a template neither refuses a call nor loses one; the last is
    always one of them."""
    return (*(layout for layout in LAYOUTS[:-1] if _keeps(render, layout)), LAYOUTS[-1])


def _keeps(render: Render, layout: Layout) -> bool:
    try:
        text = render(layout([ASKED, CALLED, ANSWERED]), tools=[PROBED_TOOL])
    except TEMPLATE_ERRORS:
        return False
    return VALUE in text and RESULT in text


def with_names(messages: Sequence[Message]) -> list[Message]:
    """Name the function of each result, which some templates ask for and few clients send."""
    called = {
        str(call.get("id")): str(call["function"]["name"])
        for message in messages
        for call in message.tool_calls
    }
    return [
        replace(message, name=called.get(message.tool_call_id, ""))
        if message.role == TOOL and not message.name
        else message
        for message in messages
    ]


def as_they_are(messages: Sequence[Message]) -> list[Message]:
    """Leave all to the template."""
    return list(messages)


def with_short_ids(messages: Sequence[Message]) -> list[Message]:
    """Give calls ids of nine letters and digits."""
    return [
        replace(
            message,
            tool_calls=[{**call, "id": _short(call.get("id"))} for call in message.tool_calls],
            tool_call_id=_short(message.tool_call_id) if message.role == TOOL else "",
        )
        for message in messages
    ]


def with_a_turn_a_call(messages: Sequence[Message]) -> list[Message]:
    """Give each call of a turn its own turn, followed by its result."""
    laid_out: list[Message] = []
    left = deque(messages)
    while left:
        message = left.popleft()
        if len(message.tool_calls) < 2:
            laid_out.append(message)
            continue
        results: dict[str, list[Message]] = {}
        while left and left[0].role == TOOL:
            results.setdefault(left[0].tool_call_id, []).append(left.popleft())
        for at, call in enumerate(message.tool_calls):
            if at:
                message = replace(message, content="", reasoning_content="")
            laid_out.append(replace(message, tool_calls=(call,)))
            laid_out += results.pop(str(call.get("id")), [])
        laid_out += chain.from_iterable(results.values())
    return laid_out


def with_calls_in_words(messages: Sequence[Message]) -> list[Message]:
    """Write calls into the text of their turns, as Hermes and Qwen models do."""
    return [
        replace(message, content=_in_words(message), tool_calls=())
        if message.tool_calls
        else message
        for message in messages
    ]


def in_words(messages: Sequence[Message]) -> list[Message]:
    """Write calls so, and their results into users' turns, of which no two follow each other."""
    said = [
        Message(USER, f"<tool_response>\n{message.content}\n</tool_response>")
        if message.role == TOOL
        else message
        for message in with_calls_in_words(messages)
    ]
    laid_out: list[Message] = []
    for role, group in groupby(said, lambda message: message.role):
        turns = list(group)
        if role == USER:
            turns = [replace(turns[0], content="\n".join(turn.content for turn in turns))]
        laid_out += turns
    return laid_out


LAYOUTS: tuple[Layout, ...] = (
    as_they_are,
    with_short_ids,
    with_a_turn_a_call,
    with_calls_in_words,
    in_words,
)


def _in_words(message: Message) -> str:
    calls = (_call_in_words(call["function"]) for call in message.tool_calls)
    return "\n".join((*filter(None, [message.content]), *calls))


def _call_in_words(function: Mapping[str, Any]) -> str:
    arguments = function.get("arguments", {})
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>\n{{"name": {name}, "arguments": {arguments}}}\n</tool_call>'


def _short(name: object) -> str:
    letters = "".join(c for c in str(name or "") if c.isascii() and c.isalnum())
    return letters.rjust(ID_CHARACTERS, "0")[-ID_CHARACTERS:]
