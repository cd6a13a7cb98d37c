"""The custom resource definitions, without an API server."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic import Field
from tools.crds import ADMISSION, FOLDER, files

from outrider.operator.crd.definitions import DEFINITIONS, Definition
from outrider.operator.crd.schema import Schema, structural
from outrider.operator.spec.part import CountOrPercent, SpecPart


@pytest.mark.parametrize("path", files(), ids=lambda path: path.name)
def test_a_written_file_is_what_types_and_rules_say(path: Path) -> None:
    assert path.read_text(encoding="utf-8") == files()[path], "run `python -m tools.crds`"


def test_no_other_file_is_written() -> None:
    assert {*FOLDER.iterdir(), ADMISSION / "advice.yaml"} == set(files())


class Inner(SpecPart):
    """An inner part."""

    share: CountOrPercent = 1
    """A share."""
    left_out: int | None = None
    """Nothing by default."""


class Outer(SpecPart):
    """An outer part,
    in two lines."""

    inner: Inner = Inner()
    """What is in it."""
    free: dict[str, Any] | None = None
    """Anything."""
    names: Annotated[tuple[str, ...], Field(max_length=3)] = ()
    """Some names."""


def test_references_are_followed_and_null_is_left_out() -> None:
    assert structural(Outer) == {
        "description": "An outer part, in two lines.",
        "type": "object",
        "properties": {
            "inner": {
                "description": "What is in it.",
                "type": "object",
                "default": {"share": 1},
                "properties": {
                    "share": {
                        "description": "A share.",
                        "x-kubernetes-int-or-string": True,
                        "minimum": 0,
                        "pattern": "^(100|[1-9]?[0-9])%$",
                        "default": 1,
                    },
                    "leftOut": {
                        "description": "Nothing by default.",
                        "type": "integer",
                        "format": "int64",
                    },
                },
            },
            "free": {
                "description": "Anything.",
                "type": "object",
                "x-kubernetes-preserve-unknown-fields": True,
            },
            "names": {
                "description": "Some names.",
                "type": "array",
                "maxItems": 3,
                "items": {"type": "string"},
                "default": [],
            },
        },
    }


def test_what_a_structural_schema_cannot_say_is_an_error() -> None:
    class Even(SpecPart):
        number: Annotated[int, Field(multiple_of=2)]

    with pytest.raises(ValueError, match="no word for multipleOf"):
        structural(Even)


def nodes(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """A schema and all below it, by path."""
    yield path, schema
    for key, below in schema.get("properties", {}).items():
        yield from nodes(below, f"{path}.{key}")
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[]")


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.plural)
def test_every_field_is_described_and_every_list_bounded(definition: Definition) -> None:
    for path, node in nodes(definition.schema()):
        assert node.get("description") or path.startswith(".metadata"), path
        assert node.get("type") != "array" or "maxItems" in node, path
        assert node.get("type") != "number", path


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda d: d.plural)
def test_every_column_shows_something_that_is_there(definition: Definition) -> None:
    known = {path for path, _ in nodes(definition.schema())}
    for column in definition.columns:
        path = column.path.partition("[?")[0]
        assert path in known or path == ".metadata.creationTimestamp", column


def test_a_manifest_is_the_caller_s_to_change() -> None:
    first = DEFINITIONS[0].manifest()
    first["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["metadata"].clear()
    assert first != DEFINITIONS[0].manifest()
