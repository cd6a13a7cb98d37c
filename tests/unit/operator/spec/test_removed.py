"""Fields that are gone: named, and read past."""

from typing import Any

import pytest

from outrider.operator.spec.removed import REMOVED, without_removed
from outrider.operator.spec.service import ServiceReader
from tests.unit.operator.one_service import OneService


def spec_with(path: str, value: Any) -> dict[str, Any]:
    """A document with a value at a path."""
    *above, key = path.split(".")
    document: dict[str, Any] = {}
    part = document
    for one in above:
        part = part.setdefault(one, {})
    part[key] = value
    return document


@pytest.mark.parametrize("path", REMOVED)
@pytest.mark.parametrize("value", ["Static", None, {"url": "http://p"}])
def test_a_field_that_is_gone_is_left_out_and_named(path: str, value: Any) -> None:
    document = spec_with(path, value)
    known, (sentence,) = without_removed(document)
    assert sentence.startswith(f"{path} is gone")
    assert document == spec_with(path, value), "what was given is not changed"
    for one in path.split(".")[:-1]:
        known = known[one]
    assert known == {}


@pytest.mark.parametrize(
    ("named", "left"),
    [
        (["Draft", "Recycled"], {"sources": ["Draft"]}),
        (["Recycled"], {}),
        (["Recycled", "Suffix", "Recycled"], {"sources": ["Suffix"]}),
    ],
)
def test_a_source_that_is_gone_leaves_the_others_or_the_usual_ones(
    named: list[str], left: dict[str, Any]
) -> None:
    known, (sentence,) = without_removed(spec_with("spec.speculation.sources", named))
    assert known["spec"]["speculation"] == left
    assert "Recycled" in sentence


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"spec": None},
        {"spec": ["upgrade"]},
        {"spec": {"speculation": "planner", "inferencePool": 5}},
        {"spec": {"speculation": {"sources": "Recycled"}}},
        {"spec": {"target": {"upgrade": 1}}},
    ],
)
def test_nothing_else_is_touched(document: dict[str, Any]) -> None:
    assert without_removed(document) == (document, ())


def test_a_stored_service_is_served_without_them_and_advised() -> None:
    service = OneService()
    service.rest(2)
    before = ServiceReader().read(service.raw)
    service.edit(
        lambda spec: spec.update(
            upgrade="OnEdit",
            metrics={"source": "Prometheus", "prometheus": {"url": "http://p"}},
            speculation={"planner": "Static", "staticTable": [], "sources": ["Recycled"]},
        )
    )
    service.rest(2)
    assert ServiceReader().read(service.raw).spec == before.spec
    assert service.condition("Ready") == ("True", "Serving")
    said = service.raw["status"]["advice"]
    assert sum("is gone, and ignored" in one for one in said) == 5
    assert sum("is gone" in note for reason, note in service.cluster.events) == 5
