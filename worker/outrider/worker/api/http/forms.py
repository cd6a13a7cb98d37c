"""Forms of an answer as bodies ask for them, by OpenAI's name and by those of other servers.

vLLM calls them `structured_outputs`, formerly `guided_json` and so on; SGLang `json_schema`,
`regex` and `ebnf`; llama-server `json_schema` and `grammar`. Leaves what a form means to
`response_format`.
"""

import json
import re
from collections.abc import Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, model_validator

from outrider.worker.api.http.body_part import COUNTED, BodyPart
from outrider.worker.api.response_format import ResponseFormat

KINDS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("json_", "guided_json", "json_schema"), "json_schema"),
        **dict.fromkeys(("regex", "guided_regex", "choice", "guided_choice"), "regex"),
        **dict.fromkeys(("grammar", "guided_grammar", "ebnf"), "grammar"),
    }
)
"""Field of a `ResponseFormat` by parameter."""


def schema_text(value: object) -> object:
    """Return a JSON Schema as JSON."""
    return json.dumps(value) if isinstance(value, dict) else value


def regex_of_choices(value: object) -> object:
    """Return the regular expression of some texts."""
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError("it must be a list of one string or more")
    return "|".join(map(re.escape, value))


JsonObject = Annotated[dict[str, JsonValue], COUNTED]
SchemaText = Annotated[
    str, BeforeValidator(schema_text, json_schema_input_type=str | dict[str, JsonValue])
]
Choices = Annotated[str, BeforeValidator(regex_of_choices, json_schema_input_type=list[str])]


class JsonSchema(BodyPart):
    """A JSON Schema; its name is ignored."""

    schema_: JsonObject = Field(alias="schema")
    strict: bool | None = None


class ResponseFormatBody(BodyPart):
    """The response format that the client wants."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None
    """Where chats have the schema of a `json_schema`."""
    name: str | None = None
    schema_: JsonObject | None = Field(alias="schema", default=None)
    """Where /v1/responses has that, and llama-server and others the schema of a `json_object`."""
    strict: bool | None = None

    @model_validator(mode="after")
    def _has_its_schema(self) -> Self:
        if self.type == "json_schema" and self.json_schema is None and self.schema_ is None:
            raise ValueError("type json_schema needs a schema")
        return self

    @property
    def form(self) -> ResponseFormat | None:
        """What it asks for; None: text."""
        if self.type == "text":
            return None
        named = self.json_schema if self.type == "json_schema" else None
        schema, strict = (named or self).schema_, (named or self).strict
        if schema is None:
            return ResponseFormat(json_object=True)
        return ResponseFormat(json_schema=json.dumps(schema), strict=bool(strict))


class StructuredOutputs(BodyPart):
    """The form of the answer, as at vLLM."""

    model_config = ConfigDict(extra="forbid")

    json_: SchemaText | None = Field(alias="json", default=None)
    json_object: bool | None = None
    regex: str | None = None
    choice: Choices | None = None
    grammar: str | None = None
    disable_fallback: bool | None = None
    """Ignored: there is nothing to fall back to."""
    disable_any_whitespace: Literal[False] | None = None
    disable_additional_properties: Literal[False] | None = None
    whitespace_pattern: None = None
    structural_tag: None = None
    backend: None = Field(alias="_backend", default=None)
    backend_was_auto: Literal[False] | None = Field(alias="_backend_was_auto", default=None)

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if len(self.forms) != 1:
            raise ValueError(
                "structured_outputs has one of json, json_object, regex, choice, grammar"
            )
        return self

    @property
    def forms(self) -> list[ResponseFormat]:
        """What it asks for."""
        found = [*forms_of(self).values()]
        return [*found, ResponseFormat(json_object=True)] if self.json_object else found


class Forms(BodyPart):
    """Fields of a body that say which form its answer has."""

    response_format: ResponseFormatBody | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: SchemaText | None = None
    guided_regex: str | None = None
    guided_choice: Choices | None = None
    guided_grammar: str | None = None
    json_schema: SchemaText | None = None
    regex: str | None = None
    grammar: str | None = None
    ebnf: str | None = None

    @model_validator(mode="after")
    def _has_one_form(self) -> Self:
        if len(names := [*self.forms]) > 1:
            raise ValueError(f"{names[0]} and {names[1]} both say the form: send one of them")
        return self

    @cached_property
    def forms(self) -> dict[str, ResponseFormat]:
        """The form that the answer must have, by the parameter that asks for it."""
        found = forms_of(self)
        if self.response_format is not None and (form := self.response_format.form) is not None:
            found["response_format"] = form
        if self.structured_outputs is not None:
            found["structured_outputs"] = self.structured_outputs.forms[0]
        return found


def forms_of(part: BodyPart) -> dict[str, ResponseFormat]:
    """Return the forms by their names in `KINDS`; an empty text is none."""
    given = {name: getattr(part, name, None) for name in KINDS}
    return {
        name: ResponseFormat(**{KINDS[name]: text}, strict=False)
        for name, text in given.items()
        if text
    }
