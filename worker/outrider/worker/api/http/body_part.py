"""Base of bodies and their parts: strict types, and what is not known is ignored; text of parts."""

from collections.abc import Mapping

from pydantic import BaseModel, ConfigDict


class BodyPart(BaseModel):
    """Part of a body."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)


def part_text(part: object, fields: Mapping[str, str], served: str) -> str:
    """Return the text of a content part, from the field that parts of its type have it in; raise
    `ValueError`, with the types that are `served`, for one of another type."""
    kind = part.get("type") if isinstance(part, dict) else None
    text = part.get(fields.get(str(kind), "")) if isinstance(part, dict) else None
    if not isinstance(text, str):
        raise ValueError(f"parts of type {served} are supported, not {kind!r:.32}")
    return text
