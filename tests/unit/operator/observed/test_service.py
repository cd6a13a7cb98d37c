"""When a workload counts as rolling out, so that drafts stay as they are; and whose it is."""

import datetime
from typing import Any

import pytest

from outrider.contract.settings import Role
from outrider.operator.cluster.kinds import DEPLOYMENT, LEADER_WORKER_SET
from outrider.operator.naming import (
    FIELD_MANAGER,
    PROGRESS_ANNOTATION,
    REPLICAS_ANNOTATION,
    REVISION_LABEL,
    ROLE_LABEL,
)
from outrider.operator.observed.pods import pod
from outrider.operator.observed.service import observe
from outrider.operator.observed.workload import workload
from tests.unit.operator.one_service import KEY, OneService


def deployment(wanted: int, **status: int) -> dict[str, Any]:
    return {
        "kind": DEPLOYMENT.name,
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
        (deployment(1, replicas=1, availableReplicas=1), True),
        (deployment(1, replicas=2, updatedReplicas=1, availableReplicas=1), True),
        (deployment(0, replicas=1, updatedReplicas=1, availableReplicas=1), False),
        (deployment(1), True),
        (failed(deployment(1, replicas=2, updatedReplicas=1, availableReplicas=1)), False),
    ],
    ids=[
        "settled",
        "begun",
        "without its zeros",
        "beside the old one",
        "given back",
        "created",
        "failed",
    ],
)
def test_a_roll_out_lasts_until_no_older_pod_is_left(live: dict[str, Any], rolls: bool) -> None:
    assert workload(live).rolling_out is rolls


def test_a_roll_out_has_begun_before_a_controller_that_counts_no_generation_has_seen_it() -> None:
    """As that of LeaderWorkerSets, whose numbers are those of the template before."""
    made = OneService()
    made.rest(2)
    (raw, *_) = made.cluster.of("Pod")
    labels = raw["metadata"]["labels"]
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas"), 1)
    newest = {"metadata": {"labels": {**labels, REVISION_LABEL: "next"}}}
    live = {
        "kind": LEADER_WORKER_SET.name,
        "metadata": {"generation": 2},
        "spec": {"replicas": 1, "leaderWorkerTemplate": {"workerTemplate": newest}},
        "status": counts,
    }
    found = workload(live, [pod(raw)])
    assert found.replacing
    assert not found.settled


def rolling(**more: str) -> dict[str, Any]:
    """A LeaderWorkerSet with one group of the newest template, which is to be ready in 60 s."""
    newest = {"metadata": {"labels": {REVISION_LABEL: "next"}}}
    entry = {"manager": FIELD_MANAGER, "operation": "Apply", "time": at(1000)}
    conditions = [{"type": kind, "status": status} for kind, status in more.items()]
    meta = {"annotations": {PROGRESS_ANNOTATION: "60"}, "generation": 2, "managedFields": [entry]}
    return {
        "kind": LEADER_WORKER_SET.name,
        "metadata": meta,
        "spec": {"replicas": 2, "leaderWorkerTemplate": {"workerTemplate": newest}},
        "status": {"conditions": conditions},
    }


def at(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat()


@pytest.mark.parametrize(
    ("conditions", "ready_for", "now", "fails"),
    [
        ({}, 0, 1050, False),
        ({}, 0, 1070, True),
        ({"Available": "False", "UpdateInProgress": "True"}, 0, 1070, True),
        ({"Available": "False", "UpdateInProgress": "False"}, 0, 1070, False),
        ({"Available": "False", "UpdateInProgress": "True"}, 30, 1070, False),
        ({"Available": "False", "UpdateInProgress": "True"}, 65, 1070, True),
    ],
    ids=["early", "first", "next", "served", "one has got ready", "another has not"],
)
def test_groups_that_are_made_anew_again_and_again_fail_a_roll_out(
    conditions: dict[str, str], ready_for: int, now: float, fails: bool
) -> None:
    young = {"type": "Ready", "status": "False", "lastTransitionTime": at(now - 1)}
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": at(now - ready_for)}
    stays = [young, ready] if ready_for else [young]
    leaders = [pod(leader(now, one), now) for one in stays]
    failed = workload(rolling(**conditions), leaders, now).failed
    assert failed == ("no new group was ready within 60 s" * fails)


def test_a_group_that_crashes_fails_a_roll_out_though_the_one_beside_it_serves() -> None:
    """The one that a rollout adds serves in its place."""
    live = rolling(Available="False", UpdateInProgress="True")
    live["metadata"]["annotations"][REPLICAS_ANNOTATION] = "1"
    now = 1070.0
    young = {"type": "Ready", "status": "False", "lastTransitionTime": at(now - 1)}
    served = {"type": "Ready", "status": "True", "lastTransitionTime": at(now - 65)}
    leaders = [pod(leader(now, one), now) for one in (young, served)]
    assert workload(live, leaders, now).failed == "no new group was ready within 60 s"


def leader(now: float, ready: dict[str, str]) -> dict[str, Any]:
    labels = {ROLE_LABEL: "target", REVISION_LABEL: "next"}
    meta = {"uid": "a", "name": "a", "labels": labels, "creationTimestamp": at(now - 2)}
    return {"metadata": meta, "status": {"conditions": [ready]}}


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
