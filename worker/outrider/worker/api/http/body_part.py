"""Base of bodies and their parts: strict types, and what is not known is ignored; text of parts."""

from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field, JsonValue

PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Field of the text of each kind of content part."""
MAX_ITEMS = 1024
"""Most members of a list or an object of a body that is neither a chat nor token ids."""
MAX_TURNS = 4096
"""Most messages of a chat."""


class HashableFailFast(FailFast):
    """`FailFast` as a member of unions, which hash what they hold."""

    __hash__ = object.__hash__


AT_FIRST_FAULT = HashableFailFast()
"""Option of a list's validation: one wrong member is said, not all of them."""
FEW = Field(max_length=MAX_ITEMS)


def counted(value: object) -> object:
    """Return an object that has no more than `MAX_ITEMS` members; raise `ValueError` for others."""
    if isinstance(value, dict) and len(value) > MAX_ITEMS:
        raise ValueError(f"it may have {MAX_ITEMS} members, not {len(value)}")
    return value


COUNTED = BeforeValidator(counted)
"""Validator that counts an object's members before pydantic looks at all of them."""


Content = str | list[dict[str, JsonValue]]
"""What `joined_text` takes, for JSON Schemas."""


class BodyPart(BaseModel):
    """Part of a body."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


def joined_text(value: object, *, between: str = "\n") -> object:
    """Return the text of content: a string, or parts that have text, joined by `between`; raise
    `ValueError` for parts of another kind."""
    return between.join(map(_text, value)) if isinstance(value, list) else value


def _text(part: object) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(PARTS.get(str(kind), "")) if isinstance(part, dict) else None
    if not isinstance(text, str):
        served = ", ".join(PARTS)
        raise ValueError(f"parts of type {served} with text are supported, not {kind!r:.32}")
    return text
