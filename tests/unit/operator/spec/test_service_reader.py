"""A description is read again only where it says something else."""

import copy

import pytest

from outrider.operator.spec import SpecError
from outrider.operator.spec.service import ServiceReader
from tests.unit.operator.one_service import OneService


def test_a_description_is_read_again_only_where_it_says_something_else() -> None:
    reader, body = ServiceReader(), copy.deepcopy(OneService().raw)
    first = reader.read(body)
    noted = copy.deepcopy(body)
    noted["metadata"]["resourceVersion"] = "77"
    noted["status"] = {"url": "somewhere"}
    assert reader.read(noted) is first
    noted["spec"]["speculation"] = {"maxRows": 5}  # a new default raises no generation
    assert reader.read(noted).spec.speculation.max_rows == 5


def test_what_cannot_be_read_is_refused_again_and_again() -> None:
    reader, body = ServiceReader(), copy.deepcopy(OneService().raw)
    reader.read(body)
    body = copy.deepcopy(body)  # what watches tell is never changed
    body["spec"]["suspend"] = "Perhaps"
    for _ in range(2):
        with pytest.raises(SpecError, match="suspend"):
            reader.read(body)


def test_unknown_fields_are_left_out_and_named_at_any_depth() -> None:
    reader, body = ServiceReader(), copy.deepcopy(OneService().raw)
    known = ServiceReader().read(body)
    body = copy.deepcopy(body)
    body["spec"]["newer"] = 1
    body["spec"]["target"]["model"]["newer"] = {"a": [1]}
    before = copy.deepcopy(body)
    for _ in range(2):
        assert reader.read(body) == known
        assert sorted(reader.unknown) == ["spec.newer", "spec.target.model.newer"]
    assert body == before, "what watches tell is never changed"
    body = copy.deepcopy(body)
    body["spec"]["suspend"] = "Perhaps"
    with pytest.raises(SpecError, match=r"\Aspec.suspend: .*\Z"):
        reader.read(body)
