"""Base of all parts of a description, and the types of values that they share.

Knows no field.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError


class SpecPart(BaseModel):
    """Base of all parts: camelCase keys, no unknown keys, no change after reading."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
    )


QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
PERCENT = r"^(100|[1-9]?[0-9])%$"
MAX_TEXT = 64
"""Characters of the longest quantity or percentage."""


def _whole_or_text(pattern: str) -> Callable[[Any], int | str]:
    def check(value: Any) -> int | str:
        whole = type(value) is int and value >= 0
        text = isinstance(value, str) and len(value) <= MAX_TEXT and re.fullmatch(pattern, value)
        if not whole and not text:
            raise PydanticCustomError("int_or_string", "neither a number nor fitting text")
        return value  # type: ignore[no-any-return] # one of the two, as was just seen

    return check


def _schema(pattern: str) -> WithJsonSchema:
    return WithJsonSchema({"x-kubernetes-int-or-string": True, "minimum": 0, "pattern": pattern})


Count = Annotated[int, Field(strict=True)]
Quantity = Annotated[int | str, PlainValidator(_whole_or_text(QUANTITY)), _schema(QUANTITY)]
"""An amount as Kubernetes writes it: 2, 500m, 16Gi."""
CountOrPercent = Annotated[int | str, PlainValidator(_whole_or_text(PERCENT)), _schema(PERCENT)]
"""A number of pods, or a share of them."""
ObjectName = Annotated[
    str, Field(pattern=r"^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$", min_length=1, max_length=253)
]
"""Name of an object in the service's namespace."""
Seconds = Annotated[int, Field(strict=True, ge=1, le=3600)]
"""Up to an hour."""
