"""When a workload counts as rolling out: then replicas of drafts stay as they are."""

from typing import Any

import pytest

from outrider.operator.observed import workload


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
