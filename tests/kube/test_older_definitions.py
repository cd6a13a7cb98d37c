"""Definitions of another version than the operator: nothing falls silent, nobody is locked out."""

import contextlib
import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from outrider.operator.cluster.kinds import POD, SERVICE
from outrider.operator.status.report import REFUSED
from tests.kube.control_plane import KubectlError
from tests.kube.operator_process import Operators
from tests.kube.pod_workers import PodWorkers
from tests.kube.space import Refused, Space, service
from tests.kube.test_deletion import DEFINITION, define

Object = dict[str, Any]
STRICT_STATUS = 32
"""Newest minor version of Kubernetes that is known to refuse a status because of a rule of the spec
that was broken before; 1.34 takes it."""


def schema_of(definition: Object) -> Object:
    schema: Object = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return schema


def older_rules() -> Object:
    """A definition without the rules between the parts of `spec`."""
    definition: Object = copy.deepcopy(DEFINITION)
    spec = schema_of(definition)["spec"]
    for part in (spec, spec["properties"]["speculation"]):
        part.pop("x-kubernetes-validations", None)
    return definition


@pytest.fixture
def definitions_again(space: Space) -> Iterator[None]:
    yield
    define(space, DEFINITION)


def served(space: Space, definition: Object) -> None:
    """Defines it, and waits until its schema is what the server goes by."""
    mark = f"mark-{space.namespace}"
    marked = copy.deepcopy(definition)
    schema_of(marked)["spec"]["properties"]["suspend"]["enum"].append(mark)
    define(space, marked)
    tried = json.dumps({**service("mark"), "spec": {**service("mark")["spec"], "suspend": mark}})

    def known() -> bool:
        with contextlib.suppress(KubectlError):
            space.kubectl("create", "--dry-run=server", "-f", "-", stdin=tried)
            return True
        return False

    space.until(known, "the other definition is served")


def told_of_refusal(space: Space) -> bool:
    events = space.events("chat")
    return any(reason == REFUSED and "gainAbovePercent" in note for _, reason, note in events)


def ready_pods(space: Space) -> int:
    pods = space.items(POD)
    return sum(one["status"].get("phase") == "Running" for one in pods)


def test_a_service_that_was_stored_before_a_rule_goes_on(
    space: Space, operators: Operators, workers: PodWorkers, definitions_again: None
) -> None:
    served(space, older_rules())
    body = service("chat")
    speculation = body["spec"].setdefault("speculation", {})
    speculation.setdefault("control", {})["intervalSeconds"] = 2
    speculation |= {"disable": {"gainBelowPercent": 105}, "enable": {"gainAbovePercent": 105}}
    space.apply(body)
    served(space, DEFINITION)
    operators.start().wait_until_leading()
    if space.control_plane.minor_version() <= STRICT_STATUS:
        space.until(lambda: told_of_refusal(space), "the refused status is said")
        assert "status" not in space.there(SERVICE, "chat")
        space.until(lambda: ready_pods(space) == 2, "it serves nevertheless")
        return
    space.until_condition("chat", "Ready", "True", "Serving")
    with pytest.raises(Refused, match="gainAbovePercent"):
        space.patch(SERVICE, "chat", {"spec": {"speculation": {"maxRows": 7}}})
