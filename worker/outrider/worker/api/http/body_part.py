"""Base of bodies and their parts: strict types, and what is not known is ignored."""

from pydantic import BaseModel, ConfigDict


class BodyPart(BaseModel):
    """Part of a body."""

    model_config = ConfigDict(strict=True, extra="ignore", allow_inf_nan=False, frozen=True)
