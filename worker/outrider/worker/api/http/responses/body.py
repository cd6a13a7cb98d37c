"""Body of /v1/responses, and the chat that it asks for.

Parameters that chats have by the same name, such as `temperature`, are theirs, extensions too.
"""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, model_validator

from outrider.worker.api.http import from_openai, unserved
from outrider.worker.api.http.body_part import (
    AT_FIRST_FAULT,
    COUNTED,
    FEW,
    MAX_TURNS,
    BodyPart,
)
from outrider.worker.api.http.forms import ResponseFormatBody
from outrider.worker.api.http.from_openai import OpenAIRequest
from outrider.worker.api.http.responses.input_items import InputItem, items_of, turns
from outrider.worker.api.http.responses.unserved import INSTEAD, UNSERVED
from outrider.worker.api.http.schemas import ChatBody, Count, Function, NamedFunction
from outrider.worker.api.tool_schemas import MAX_TOOLS

NAMES: Mapping[str, str] = {
    **dict.fromkeys(("prompt", "chat", "chat.messages"), "input"),
    "max_tokens": "max_output_tokens",
}
"""Names of the body's fields, by the gRPC request's."""


class OfFunction(BodyPart):
    """A tool that the server does not run itself."""

    type: Literal["function"]


class FunctionTool(Function, OfFunction):
    """A function that may be called."""

    @property
    def of_chat(self) -> dict[str, Any]:
        """The same in the body of a chat."""
        function = self.model_dump(exclude={"type"}, exclude_unset=True)
        return {"type": "function", "function": function}


class NamedChoice(NamedFunction, OfFunction):
    """The function that must be called."""


class TextOptions(BodyPart):
    """What the answer's text is like."""

    format: ResponseFormatBody | None = None
    verbosity: Literal["medium"] | None = None


class ReasoningOptions(BodyPart):
    """How much the model thinks; all of it is shown, and no summary."""

    effort: str | None = None


class ResponsesBody(BodyPart):
    """Body of POST /v1/responses."""

    model_config = ConfigDict(extra="allow")

    input: Annotated[
        list[InputItem],
        AT_FIRST_FAULT,
        Field(max_length=MAX_TURNS),
        BeforeValidator(items_of, json_schema_input_type=str | list[InputItem]),
    ]
    instructions: str | None = None
    tools: Annotated[list[FunctionTool], AT_FIRST_FAULT, Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedChoice | None = None
    text: TextOptions | None = None
    reasoning: ReasoningOptions | None = None
    max_output_tokens: Count | None = None
    include: Annotated[list[Literal["reasoning.encrypted_content"]], AT_FIRST_FAULT, FEW] | None = (
        None
    )
    """Ignored: reasoning is shown as it is."""
    metadata: Annotated[dict[str, str], COUNTED] | None = None

    @model_validator(mode="after")
    def _asks_for_what_is_served(self) -> Self:
        unserved.refuse(self.model_extra or {}, UNSERVED, INSTEAD)
        return self

    @property
    def chat(self) -> dict[str, Any]:
        """The body of the chat."""
        shared = {k: v for k, v in (self.model_extra or {}).items() if k not in UNSERVED}
        system = [{"role": "system", "content": self.instructions}] if self.instructions else []
        choice: Any = self.tool_choice
        if isinstance(choice, NamedChoice):
            choice = {"type": "function", "function": {"name": choice.name}}
        return {
            **shared,
            "messages": [*system, *turns(self.input)],
            "tools": [tool.of_chat for tool in self.tools or ()],
            "tool_choice": choice,
            "response_format": self.text and self.text.format,
            "reasoning_effort": self.reasoning.effort if self.reasoning else None,
            "max_tokens": self.max_output_tokens,
        }

    def repeated(self, chat: ChatBody) -> dict[str, Any]:
        """Return the fields that the response repeats."""
        given = self.model_dump(by_alias=True, exclude_none=True, include={"text", "reasoning"})
        choice = self.tool_choice
        return {
            "instructions": self.instructions,
            "max_output_tokens": self.max_output_tokens,
            "metadata": self.metadata or {},
            "parallel_tool_calls": chat.parallel_tool_calls is not False,
            "reasoning": given.get("reasoning", {}),
            "temperature": chat.temperature,
            "text": {"format": {"type": "text"}, **given.get("text", {})},
            "tool_choice": choice.model_dump()
            if isinstance(choice, NamedChoice)
            else choice or "auto",
            "tools": [tool.model_dump() for tool in self.tools or ()],
            "top_p": chat.top_p,
        }


def from_responses(body: ResponsesBody) -> OpenAIRequest:
    """Convert a body of /v1/responses; raise `InvalidField` or `ValidationError`."""
    chat = ChatBody.model_validate(body.chat)
    parsed = from_openai.chat(chat)
    names = {
        field: "text.format" if name == "response_format" else name
        for field, name in parsed.names.items()
    }
    return dataclasses.replace(parsed, names={**names, **NAMES}, repeated=body.repeated(chat))
