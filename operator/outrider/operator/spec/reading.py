"""Validation of plain data as a part of `spec`, with every problem as one line.

What a person writes may have no unknown fields; what an API server has stored may, because its
definitions may be of another version. Leaves YAML to `document`, and the words to
`validation_errors`.
"""

import copy
from collections.abc import Mapping, Sequence
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
    """Return the `kind` that `document` describes, with no look at rules between fields; raise
    `SpecError`."""
    try:
        return kind.model_validate(document)
    except ValidationError as error:
        schema = kind.model_json_schema()
        raise SpecError("\n".join(describe(p, schema) for p in error.errors())) from None


def validate_stored(
    kind: type[Whole], document: Mapping[Any, Any]
) -> tuple[Whole, tuple[str, ...]]:
    """Return the `kind` that `document` describes, and the paths of the fields that this program
    does not know, which are left out; raise `SpecError`."""
    try:
        return kind.model_validate(document), ()
    except ValidationError as error:
        places = [p["loc"] for p in error.errors() if p["type"] == "extra_forbidden"]
    known = copy.deepcopy(dict(document))
    for place in places:
        _remove(known, place)
    return validate(kind, known), tuple(".".join(map(str, place)) for place in places)


def _remove(document: Any, place: Sequence[int | str]) -> None:
    """Remove a key of a mapping, at any depth."""
    *above, key = place
    for step in above:
        document = document[step]
    del document[key]


def without_server_fields(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object of an API server without the fields that the server and the operator own."""
    metadata = {key: body["metadata"][key] for key in _KEPT if key in body["metadata"]}
    return {key: body[key] for key in body if key != "status"} | {"metadata": metadata}
