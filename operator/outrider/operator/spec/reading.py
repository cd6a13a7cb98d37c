"""Validation of plain data as a part of `spec`, with every problem as one line.

Leaves YAML to `document`, and the words to `validation_errors`.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import Field, ValidationError

from outrider.operator.spec.document import SpecError
from outrider.operator.spec.part import ObjectName, SpecPart
from outrider.operator.spec.validation_errors import describe

Whole = TypeVar("Whole", bound=SpecPart)


class Metadata(SpecPart):
    """Name, labels and annotations of the object."""

    name: str
    """Name of the object; a service's has at most 40 characters, so that its pods' names fit."""
    namespace: ObjectName | None = None
    """Namespace in a cluster; means nothing to `outrider run`."""
    labels: dict[str, str] = Field(default_factory=dict)
    """Labels in a cluster; mean nothing to `outrider run`."""
    annotations: dict[str, str] = Field(default_factory=dict)
    """Annotations in a cluster; mean nothing to `outrider run`."""


_KEPT = tuple(field.alias or name for name, field in Metadata.model_fields.items())


def validate(kind: type[Whole], document: Mapping[Any, Any]) -> Whole:
    """Return the `kind` that `document` describes; raise `SpecError`."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        schema = kind.model_json_schema()
        raise SpecError("\n".join(describe(p, schema) for p in error.errors())) from None


def without_server_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of an API server without the fields that the server and the operator own."""
    metadata = {key: body["metadata"][key] for key in _KEPT if key in body["metadata"]}
    return {key: body[key] for key in body if key != "status"} | {"metadata": metadata}
