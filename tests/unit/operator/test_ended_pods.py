"""Pods that were evicted, or ended with their node, are kept by Kubernetes and by nobody else."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.operator.one_service import OneService

Step = Callable[[OneService], object]
STEPS: list[Step] = [
    lambda service: service.rest(5),
    lambda service: service.edit(lambda spec: spec["target"].update(image="worker:2")),
    lambda service: service.rest(5),
    lambda service: service.edit(lambda spec: spec.update(speculation={"mode": "Disabled"})),
    lambda service: service.rest(60),
    lambda service: service.edit(lambda spec: spec.update(speculation={"mode": "Adaptive"})),
    lambda service: service.rest(60),
    lambda service: service.restart(),
    lambda service: service.rest(5),
]


def put_ended(service: OneService, role: str, count: int, phase: str) -> None:
    """Leave pods of a role that have ended, one of them of a revision that nobody knows."""
    pods = service.cluster.of("Pod")
    pod = next(one for one in pods if one["metadata"]["labels"]["outrider.dev/role"] == role)
    for number in range(count):
        dead = copy.deepcopy(pod)
        meta = dead["metadata"]
        meta["name"] += f"-ended-{number}"
        if number == 0:
            meta["labels"]["outrider.dev/revision"] = "unknown"
        for key in ("uid", "resourceVersion", "generation"):
            meta.pop(key, None)
        ended = {"exitCode": 137, "reason": "ContainerStatusUnknown"}
        service.cluster.put_status(
            service.cluster.put(dead),
            {
                "phase": phase,
                "reason": "Evicted",
                "podIP": "10.0.0.99",
                "conditions": [{"type": "Ready", "status": "False", "reason": "PodFailed"}],
                "containerStatuses": [
                    {"name": "main", "restartCount": 0, "state": {"terminated": ended}}
                ],
            },
        )


def seen(service: OneService) -> dict[str, Any]:
    """What the operator says and wants."""
    kinds = ("Deployment", "StatefulSet", "ConfigMap")
    objects = [one for kind in kinds for one in service.cluster.of(kind)]
    return {
        "status": copy.deepcopy(service.raw["status"]),
        "objects": {one["metadata"]["name"]: one.get("spec", one.get("data")) for one in objects},
        "events": list(service.cluster.events),
    }


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
@pytest.mark.parametrize("role", ["draft", "target"])
def test_pods_that_have_ended_change_nothing(role: str, phase: str) -> None:
    alone = OneService()
    alone.edit(lambda spec: spec["draft"].update(scaling={"minReplicas": 0, "maxReplicas": 1}))
    alone.rest()
    beside = alone.copy()
    put_ended(beside, role, 3, phase)
    alone.restart()
    for step in STEPS:
        step(alone)
        step(beside)
        assert seen(beside) == seen(alone)
    drafts = seen(alone)["objects"]["chat-draft"]["replicas"]
    assert drafts == 1
