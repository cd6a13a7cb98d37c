"""Items of a response's input, and the turns of a chat that they are.

An assistant's texts and calls that follow each other are one turn. Reasoning is left out, as chat
templates leave out that of earlier turns.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ValidationInfo, model_validator

from outrider.worker.api.http.body_part import BodyPart, Content, joined_text

NEEDED: Mapping[str, tuple[str, ...]] = {
    "message": ("role", "content"),
    "function_call": ("call_id", "name", "arguments"),
    "function_call_output": ("call_id", "output"),
    "reasoning": (),
}
"""Fields that an item of each type must have."""


def content_of(value: object, about: ValidationInfo) -> object:
    """Return the text of a message's content; that of other items is not read."""
    return joined_text(value) if about.data.get("type") == "message" else None


def items_of(value: object) -> object:
    """Return the items of an input: a text is a user's."""
    if not isinstance(value, str | list):
        raise ValueError("it must be a string or a list of items")
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


class InputItem(BodyPart):
    """One item; fields that its type does not need are ignored."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: Annotated[
        str | None, BeforeValidator(content_of, json_schema_input_type=Content | None)
    ] = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: Annotated[
        str | None, BeforeValidator(joined_text, json_schema_input_type=Content | None)
    ] = None

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> Self:
        for name in NEEDED[self.type]:
            if getattr(self, name) is None:
                raise ValueError(f"an item of type {self.type} needs {name}")
        return self


def turns(items: Sequence[InputItem]) -> list[dict[str, Any]]:
    """Return the turns of a chat, as in the body of one."""
    found: list[dict[str, Any]] = []
    for item in items:
        is_next = bool(found) and found[-1]["role"] == "assistant"
        if item.type == "function_call":
            if not is_next:
                found.append({"role": "assistant", "content": []})
            found[-1].setdefault("tool_calls", []).append(_call(item))
        elif item.type == "function_call_output":
            turn = {"role": "tool", "tool_call_id": item.call_id, "content": item.output}
            found.append(turn)
        elif item.role == "assistant" and is_next:
            found[-1]["content"].append(item.content)
        elif item.type == "message":
            content = [item.content] if item.role == "assistant" else item.content
            found.append({"role": item.role, "content": content})
    for said in found:
        if said["role"] == "assistant":
            said["content"] = "\n".join(filter(None, said["content"]))
    return found


def _call(item: InputItem) -> dict[str, Any]:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}
