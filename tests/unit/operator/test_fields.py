"""Edits of all fields: the right role rolls, or the policy changes, or an object, and no more."""

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from outrider.contract.settings import Role
from outrider.operator.cluster.interfaces import Object
from outrider.operator.cluster.kinds import OPTIONAL
from tests.merge_patch import laid_over
from tests.unit.operator.field_cases import BESIDE, CASES, Case, edit, leaves, within
from tests.unit.operator.one_service import KEY, OneService
from tests.unit.operator.small_cluster import copied

SPEC = """
target: {model: {uri: "hf://org/large"}, replicas: 1}
draft: {model: {uri: "hf://org/small"}, replicas: 1, engine: {maxRunning: 8}}
"""


def at_rest(base: Mapping[str, Any]) -> OneService:
    """A service whose objects are as it describes them, and whose workers do not answer."""
    service = OneService(laid_over(yaml.safe_load(SPEC), base), OPTIONAL)
    service.workers.silent = True
    service.rest(2)
    return service


def change(service: OneService, over: Mapping[str, Any]) -> None:
    """Lay something over the spec and let the operator act on it."""
    spec = laid_over(service.raw["spec"], over)
    service.cluster.edit(("SpeculativeService", *KEY), lambda body: body.update(spec=spec))
    service.rest(2)
    assert service.raw["status"]["observedGeneration"] == service.raw["metadata"]["generation"]
    assert service.condition("Degraded") == ("False", "AsExpected")


def templates(service: OneService) -> dict[str, Object]:
    """The pod template of each Deployment."""
    every = service.cluster.of("Deployment")
    return {one["metadata"]["name"]: copied(one["spec"]["template"]) for one in every}


def without_beside(told: Mapping[str, Any]) -> Object:
    return {key: value for key, value in told.items() if key not in BESIDE}


def test_every_field_has_a_case() -> None:
    assert sorted(leaves()) == sorted(CASES)


@pytest.mark.parametrize(("path", "case"), CASES.items(), ids=list(CASES))
def test_an_edit_changes_what_it_should_and_no_more(path: str, case: Case) -> None:
    service = at_rest(case.base)
    before, told = templates(service), service.policy
    change(service, laid_over(edit(path, case.value), case.beside))
    after = templates(service)
    rolled = {role for role in Role for name in [f"chat-{role}"]
              if name in before and name in after and before[name] != after[name]}  # fmt: skip
    assert rolled == case.rolls
    assert without_beside(service.policy) == without_beside(told | case.policy)
    assert case.policy.items() <= service.policy.items()
    if case.sets is not None:
        kind, name, where, value = case.sets
        found = service.cluster.stored.get((kind.name, "default", name))
        assert within(found and found.body, where) == value


def test_more_targets_start_no_draft_anew() -> None:
    service = at_rest({"draft": {"engine": None}})
    before = templates(service)
    change(service, {"target": {"replicas": 2}})
    assert templates(service) == before
