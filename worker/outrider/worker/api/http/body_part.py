"""Base of bodies and their parts: strict types, and what is not known is ignored; text of parts."""

from pydantic import BaseModel, ConfigDict

PARTS = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""Field of the text of each kind of content part."""


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
