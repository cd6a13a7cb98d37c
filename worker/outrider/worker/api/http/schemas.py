"""Bodies of the OpenAI-compatible API, checked field by field.

Types and shapes only: the limits of values are those of the gRPC request, and are checked after
`from_openai`. Unknown parameters are ignored, as compatible servers do; those of `unserved` are
refused by name.
"""

import json
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    AliasChoices,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    model_validator,
)

from outrider.worker.api.http import unserved
from outrider.worker.api.http.body_part import (
    AT_FIRST_FAULT,
    COUNTED,
    FEW,
    MAX_TURNS,
    BodyPart,
    Content,
    joined_text,
)
from outrider.worker.api.http.forms import Forms, JsonObject
from outrider.worker.api.template_options import RESERVED, TemplateOptions
from outrider.worker.api.tool_schemas import MAX_TOOLS
from outrider.worker.host.json_members import MAX_MEMBERS

MAX_CHOICES = 64
"""Most answers to one HTTP request: prompts times n."""
MAX_UINT = 2**32 - 1
SILENT = ("assistant", "tool")
"""Roles whose turns may have no content: one that made calls, a call that gave nothing."""


def whole(value: object) -> object:
    """Return an integer for a whole number with a point: some languages have one kind of number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


Whole = Annotated[int, BeforeValidator(whole, json_schema_input_type=int)]
Count = Annotated[Whole, Field(ge=0, le=MAX_UINT)]
TokenIds = Annotated[list[int], AT_FIRST_FAULT, Field(max_length=MAX_MEMBERS)]
TextOrNull = Annotated[
    str,
    BeforeValidator(
        lambda value: "" if value is None else value, json_schema_input_type=str | None
    ),
]


def known_role(role: str) -> str:
    """Return a role by the name that chat templates know; OpenAI has a newer one for `system`, and
    an older one for `tool`."""
    return {"developer": "system", "function": "tool"}.get(role, role)


def one_or_many(value: object) -> object:
    """Make a list of a string."""
    return [value] if isinstance(value, str) else value


def text_of(value: object, about: ValidationInfo) -> object:
    """Return the text of a message's content, which is null where a role of `SILENT` has none."""
    if value is None:
        if about.data.get("role") not in SILENT:
            raise ValueError("null is for an assistant and a tool alone")
        return ""
    return joined_text(value)


def prediction_of(value: object) -> object:
    """Return the text of a prediction's content, whose parts follow each other."""
    return joined_text(value, between="")


def prompts_of(value: object) -> list[str | list[int]]:
    """Return the prompts of a completion: strings or token ids, one or several."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list) and value:
        if _are_ids(value):
            return [value]
        if all(isinstance(item, str) or _are_ids(item) for item in value):
            return value
    raise ValueError("it must be a string, token ids, or a list of several of either")


def _are_ids(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(item) is int and 0 <= item <= MAX_UINT for item in value)
    )


class StreamOptions(BodyPart):
    """Options of a streamed response."""

    include_usage: bool | None = None


class PredictionBody(BodyPart):
    """The answer that the client expects."""

    type: Literal["content"]
    content: Annotated[
        str, BeforeValidator(prediction_of, json_schema_input_type=Content), Field(min_length=1)
    ]


class Body(Forms):
    """Fields of both kinds of bodies."""

    model_config = ConfigDict(extra="allow")

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: Annotated[Whole, Field(ge=1, le=MAX_CHOICES)] | None = None
    stop: (
        Annotated[
            list[str],
            AT_FIRST_FAULT,
            FEW,
            BeforeValidator(one_or_many, json_schema_input_type=str | list[str]),
        ]
        | None
    ) = None
    seed: Annotated[Whole, Field(ge=-(2**63), le=2**64 - 1)] | None = None
    stop_token_ids: Annotated[list[Count], AT_FIRST_FAULT, FEW] | None = None
    include_stop_str_in_output: bool | None = None
    bad_words: Annotated[list[str], AT_FIRST_FAULT, FEW] | None = None
    min_tokens: Count | None = None
    max_tokens: Count | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: Annotated[Whole, Field(ge=-1, le=MAX_UINT)] | None = None
    min_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: Annotated[dict[str, float], COUNTED] | None = None
    priority: Annotated[Whole, Field(ge=-(2**31), le=2**31 - 1)] | None = None
    speculate: bool | None = None
    ignore_eos: bool | None = None
    stream_interval_ms: Count | None = None
    draft_tree: bool | None = None
    prediction: PredictionBody | None = None

    @model_validator(mode="after")
    def _asks_for_what_is_served(self) -> Self:
        unserved.refuse(self.model_extra or {})
        return self

    @model_validator(mode="after")
    def _streams_if_it_says_how(self) -> Self:
        if self.stream_options is not None and not self.stream:
            raise ValueError("stream_options needs stream")
        if self.stream_interval_ms is not None and not self.stream:
            raise ValueError("stream_interval_ms needs stream")
        if self.draft_tree and not self.stream:
            raise ValueError("draft_tree needs stream")
        return self


class CompletionBody(Body):
    """Body of POST /v1/completions."""

    prompt: Annotated[
        list[str | TokenIds],
        AT_FIRST_FAULT,
        FEW,
        BeforeValidator(prompts_of, json_schema_input_type=str | list[int] | list[str | list[int]]),
    ]
    logprobs: Count | None = None
    echo: bool | None = None
    add_special_tokens: Literal[True] | None = None
    suffix: str | None = None

    @model_validator(mode="after")
    def _asks_for_no_chat(self) -> Self:
        unserved.refuse(self.model_extra or {}, unserved.OF_CHATS, unserved.INSTEAD_OF_CHATS)
        return self

    @model_validator(mode="after")
    def _is_text_around_the_cursor(self) -> Self:
        if self.suffix and not all(isinstance(prompt, str) for prompt in self.prompt):
            raise ValueError("suffix needs a prompt that is text, not token ids")
        if self.suffix and self.echo:
            raise ValueError("echo shows no prompt that has a suffix")
        return self


class ChatMessage(BodyPart):
    """One turn of a chat, a `prompt.ChatTurn`."""

    role: Annotated[str, AfterValidator(known_role)]
    content: Annotated[str, BeforeValidator(text_of, json_schema_input_type=Content | None)] = ""
    name: TextOrNull = ""
    tool_call_id: TextOrNull = ""
    tool_calls: Annotated[list[JsonObject], AT_FIRST_FAULT, FEW] | None = None
    reasoning_content: TextOrNull = Field(
        validation_alias=AliasChoices("reasoning_content", "reasoning"), default=""
    )
    prefix: bool | None = None
    """Whether the answer goes on with it; DeepSeek's and Mistral's name for that."""
    partial: bool | None = None
    """The same by Moonshot's and Qwen's name."""

    @property
    def open_by(self) -> str:
        """Name of the field by which the answer goes on with it; empty: it does not."""
        return next((name for name in ("prefix", "partial") if getattr(self, name)), "")

    @property
    def tool_calls_json(self) -> str:
        """The calls as JSON; empty: none."""
        return json.dumps(self.tool_calls) if self.tool_calls else ""


class NamedFunction(BodyPart):
    """A function by its name."""

    name: Annotated[str, Field(min_length=1, pattern=r"^[^\x00-\x1f\x7f]*$")]


class NamedTool(BodyPart):
    """The function that must be called."""

    type: Literal["function"]
    function: NamedFunction


class Function(NamedFunction):
    """A function with its parameters."""

    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None


class Tool(BodyPart):
    """One function that may be called."""

    model_config = ConfigDict(extra="allow")

    type: Literal["function"]
    function: Function


class ChatBody(Body):
    """Body of POST /v1/chat/completions."""

    messages: Annotated[list[ChatMessage], AT_FIRST_FAULT, Field(max_length=MAX_TURNS)]
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Count | None = None
    tools: Annotated[list[Tool], AT_FIRST_FAULT, Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    parallel_tool_calls: bool | None = None
    suffix: Literal[""] | None = None
    echo: Literal[False] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: JsonObject | None = None
    reasoning_effort: str | None = None
    add_special_tokens: Literal[False] | None = None
    modalities: Annotated[list[Literal["text"]], AT_FIRST_FAULT, FEW] | None = None

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        limits = {self.max_tokens, self.max_completion_tokens} - {None}
        if len(limits) > 1:
            raise ValueError("max_tokens and max_completion_tokens differ: send one of them")
        for at, message in enumerate(self.messages):
            if message.role not in SILENT and "content" not in message.model_fields_set:
                raise ValueError(f"messages[{at}] has no content")
        if self.top_logprobs is not None and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs")
        self._check_layout()
        names = [tool.function.name for tool in self.tools or ()]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"tools has {twice!r:.64} twice")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            raise ValueError(f"tool_choice names {self.tool_choice.function.name!r:.64}, no tool")
        if self.tool_choice == "required" and not names:
            raise ValueError("tool_choice required needs tools")
        return self

    @property
    def continued_by(self) -> str:
        """Name of the field by which the answer goes on with the last message; empty: it does
        not."""
        if self.continue_final_message:
            return "continue_final_message"
        name = self.messages[-1].open_by if self.messages else ""
        return name and f"messages[{len(self.messages) - 1}].{name}"

    def _check_layout(self) -> None:
        if taken := RESERVED & {*(self.chat_template_kwargs or {})}:
            raise ValueError(f"chat_template_kwargs may not have {min(taken)}")
        for at, message in enumerate(self.messages[:-1]):
            if name := message.open_by:
                raise ValueError(f"messages[{at}].{name} is for the last message alone")
        if (name := self.continued_by) and self.add_generation_prompt:
            raise ValueError(f"{name} leaves no room for add_generation_prompt")
        if name and not (self.messages and self.messages[-1].content):
            raise ValueError(f"{name} needs a last message with text")

    @property
    def layout(self) -> TemplateOptions:
        """How the chat template lays it out."""
        effort = {"reasoning_effort": self.reasoning_effort} if self.reasoning_effort else {}
        return TemplateOptions(
            answers=self.add_generation_prompt is not False and not self.continued_by,
            continues=bool(self.continued_by),
            variables={**effort, **(self.chat_template_kwargs or {})},
        )

    @property
    def tools_json(self) -> str:
        """The tools as JSON, as templates lay them out; empty: none, or none may be called."""
        if not self.tools or self.tool_choice == "none":
            return ""
        shown = [
            tool.model_dump(exclude_unset=True, exclude={"function": {"strict"}})
            for tool in self.tools
        ]
        return json.dumps(shown)
