"""Base of all parts of a description, the rules between their fields, and the types of values that
they share.

Knows no field, and evaluates no rule: the API server does, and `outrider.cli.service.rules`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

RULES = "x-kubernetes-validations"
"""Key of a schema's rules."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule between the fields of a part; limits of a single field are where the field is."""

    cel: str
    """CEL, with the part as `self`; with `oldSelf` too it is about a change, which only the API
    server sees."""
    message: str
    """Error message if it does not hold."""
    field: str = ""
    """Key below the part that the error names, as `.engine`."""


def _add_rules(schema: dict[str, Any], part: type["SpecPart"]) -> None:
    """Write the rules of a part and of its bases into its schema."""
    bases = reversed(part.__mro__)
    rules = [rule for base in bases for rule in vars(base).get("rules", ())]
    if rules:
        schema[RULES] = [
            {"rule": rule.cel, "message": rule.message}
            | ({"fieldPath": rule.field} if rule.field else {})
            for rule in rules
        ]


class SpecPart(BaseModel):
    """Base of all parts: camelCase keys, no unknown keys, no change after reading."""

    rules: ClassVar[tuple[Rule, ...]] = ()
    """Rules between the part's own fields, beside those of its bases."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        extra="forbid",
        frozen=True,
        json_schema_extra=_add_rules,
        use_attribute_docstrings=True,
    )


QUANTITY = r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][-+]?[0-9]+)?$"
PERCENT = r"^(100|[1-9]?[0-9])%$"
MAX_INT64 = (1 << 63) - 1
"""Largest whole number of an API server."""
MAX_TEXT = 64
"""Characters of the longest quantity or percentage."""


def _whole_or_text(pattern: str) -> Callable[[Any], int | str]:
    def check(value: Any) -> int | str:
        whole = type(value) is int and 0 <= value <= MAX_INT64
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
