"""When a workload counts as rolling out, so that drafts stay as they are; and whose it is."""

from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.observed import observe, workload
from tests.unit.operator.one_service import KEY, OneService


def deployment(wanted: int, **status: int) -> dict[str, Any]:
    return {
        "metadata": {"generation": 2},
        "spec": {"replicas": wanted},
        "status": {"observedGeneration": 2, **status},
    }


def failed(live: dict[str, Any]) -> dict[str, Any]:
    late = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
    return {**live, "status": {**live["status"], "conditions": [late]}}


@pytest.mark.parametrize(
    ("live", "rolls"),
    [
        (deployment(1, replicas=1, updatedReplicas=1, availableReplicas=1), False),
        (deployment(1, replicas=1, updatedReplicas=0, availableReplicas=1), True),
        (deployment(1, replicas=2, updatedReplicas=1, availableReplicas=1), True),
        (deployment(0, replicas=1, updatedReplicas=1, availableReplicas=1), False),
        (deployment(1), True),
        (failed(deployment(1, replicas=2, updatedReplicas=1, availableReplicas=1)), False),
    ],
    ids=["settled", "begun", "beside the old one", "given back", "created", "failed"],
)
def test_a_roll_out_lasts_until_no_older_pod_is_left(live: dict[str, Any], rolls: bool) -> None:
    assert workload(live).rolling_out is rolls


def test_what_is_left_of_a_service_that_is_gone_is_not_another_ones_of_its_name() -> None:
    service = OneService()
    service.rest(2)
    children = service.cluster.children(KEY)
    observed = observe(service.raw, children, ())
    assert observed.memory is not None
    assert observed.workload(Role.TARGET) is not None
    anew = {**service.raw, "metadata": {**service.raw["metadata"], "uid": "another"}}
    observed = observe(anew, children, ())
    assert observed.memory is None
    assert observed.workload(Role.TARGET) is None
