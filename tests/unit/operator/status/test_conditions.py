"""Conditions: each reason has a situation in which it is said."""

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from outrider.operator.cluster.client import ClusterError
from outrider.operator.cluster.interfaces import Object
from outrider.operator.spec.conditions import REASONS, ConditionType
from tests.unit.operator.one_service import SPEC, START, OneService

Scene = Callable[[OneService], None]
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
GATED = {**UNSCHEDULED, "reason": "SchedulingGated"}
UNBOUND = {**UNSCHEDULED, "message": "pod has unbound immediate PersistentVolumeClaims."}


def rested(service: OneService) -> None:
    service.rest()


def begun(service: OneService) -> None:
    service.pass_()


def starting(service: OneService) -> None:
    service.controllers.ready = lambda role: False
    service.rest(2)


def drafts_starting(service: OneService) -> None:
    service.controllers.ready = lambda role: role == "target"
    service.rest(2)


def suspended(service: OneService) -> None:
    service.rest(4)
    service.edit(lambda spec: spec.update(suspend="Suspended"))
    service.rest(3)


def unreadable(service: OneService) -> None:
    service.edit(lambda spec: spec.update(suspend="Perhaps"))
    service.rest(1)


def reported(kind: str, **report: Any) -> Scene:
    """A controller reports something else of all objects of a kind, at rest."""

    def scene(service: OneService) -> None:
        service.rest(4)
        for body in service.cluster.of(kind):
            service.cluster.put_status(body, {**body["status"], **report})
        service.pass_()

    return scene


def unscheduled(role: str, condition: Object = UNSCHEDULED) -> Scene:
    def scene(service: OneService) -> None:
        service.controllers.ready = lambda of: of != role
        service.rest(3)
        for pod in service.cluster.of("Pod"):
            if role in pod["metadata"]["name"]:
                service.cluster.put_status(pod, {"conditions": [condition]})
        service.pass_()

    return scene


def without_pods(role: str) -> Scene:
    def scene(service: OneService) -> None:
        service.edit(lambda spec: spec[role].update(scaling={"mode": "Static"}))
        service.rest(2)
        service.cluster.edit(
            ("Deployment", "default", f"chat-{role}"), lambda body: body["spec"].update(replicas=0)
        )
        service.rest(2)

    return scene


def described(**changes: Any) -> Scene:
    def scene(service: OneService) -> None:
        service.edit(lambda spec: spec.update(changes))
        service.edit(lambda spec: [spec.pop(key) for key, value in changes.items() if not value])
        service.rest(10)

    return scene


def same_pod(share: float) -> Scene:
    def scene(service: OneService) -> None:
        service.workers.links_up = share
        described(draft={"model": {"uri": "hf://o/s"}, "placement": "SamePod"})(service)

    return scene


def links(detail: str, share: float = 0.0) -> Scene:
    def scene(service: OneService) -> None:
        service.edit(lambda spec: spec["draft"].update(replicas=2))
        service.workers.link_detail, service.workers.links_up = detail, share
        service.rest(4)

    return scene


def refused_inside(service: OneService) -> None:
    service.workers.refused_draft = "another tokenizer"
    described(draft=COLOCATED)(service)


def lost(passes: int) -> Scene:
    """Drafting is on, and every link goes."""

    def scene(service: OneService) -> None:
        service.rest()
        service.workers.links_up = 0.0
        service.rest(passes)

    return scene


def silent(service: OneService) -> None:
    service.rest(6)
    service.workers.silent = True
    service.rest(2)


def recreating(service: OneService) -> None:
    service.edit(lambda spec: spec["target"].update(update={"strategy": "Recreate"}))
    service.rest(2)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.pass_()
    service.pass_()


def rolling(service: OneService) -> None:
    service.rest(2)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.pass_()
    service.pass_()


def scaling(service: OneService) -> None:
    service.rest(2)
    service.edit(lambda spec: spec["target"].update(replicas=2))
    service.controllers.ready = lambda role: False
    service.rest(2)


def contested(service: OneService) -> None:
    service.rest(2)
    for _ in range(2):
        service.cluster.edit(
            ("Deployment", "default", "chat-draft"), lambda body: body["spec"].update(replicas=3)
        )
        service.rest(2)


def foreign(service: OneService) -> None:
    meta = {"name": "chat", "namespace": "default"}
    service.cluster.put({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta})
    service.pass_()


def unserved(service: OneService) -> None:
    service.optional_kinds = frozenset()
    service.edit(lambda spec: spec.update(monitoring={"mode": "Enabled"}))
    service.restart()
    service.pass_()


WAITING = {"name": "main", "state": {"waiting": {"reason": "ErrImagePull", "message": "m"}}}


def failed_at(role: str) -> Scene:
    """A new template of a role whose pods do not get ready in time."""

    def scene(service: OneService) -> None:
        service.rest(4)
        service.edit(lambda spec: spec[role].update(image="worker:2"))
        service.pass_()
        (live,) = (
            one
            for one in service.cluster.of("Deployment")
            if one["metadata"]["name"] == f"chat-{role}"
        )
        service.cluster.put_status(live, {**live["status"], "conditions": [LATE]})
        service.pass_()

    return scene


def failing_once(service: OneService) -> None:
    service.rest(4)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.cluster.refuse = lambda verb, kind: (
        ClusterError("apply", 503, "later") if (verb, kind) == ("apply", "Deployment") else None
    )
    service.pass_()


def failing(service: OneService) -> None:
    service.cluster.refuse = lambda verb, kind: (
        ClusterError("apply", 503, "later") if (verb, kind) == ("apply", "Service") else None
    )
    service.rest(3)


def broken(service: OneService) -> None:
    def reports(key: object) -> None:
        raise ValueError("what is this?")

    service.rest(2)
    service.workers.reports = reports  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(ValueError, match="what is this"):
            service.pass_()


COLOCATED = {"model": {"uri": "hf://o/s"}, "placement": "Colocated"}
SCENES: list[tuple[ConditionType, str, str, Scene]] = [
    (ConditionType.READY, "True", "Serving", rested),
    (ConditionType.READY, "False", "TargetNotReady", starting),
    (ConditionType.READY, "False", "RollingOut", rolling),
    (ConditionType.READY, "False", "RolloutFailed", failed_at("draft")),
    (ConditionType.READY, "False", "Suspended", suspended),
    (ConditionType.READY, "Unknown", "InvalidSpec", unreadable),
    (ConditionType.TARGET_AVAILABLE, "True", "Ready", rested),
    (ConditionType.TARGET_AVAILABLE, "False", "PodsNotReady", starting),
    (ConditionType.TARGET_AVAILABLE, "False", "InsufficientCapacity", unscheduled("target")),
    (ConditionType.TARGET_AVAILABLE, "False", "Queued", unscheduled("target", GATED)),
    (ConditionType.TARGET_AVAILABLE, "False", "ClaimNotBound", unscheduled("target", UNBOUND)),
    (ConditionType.TARGET_AVAILABLE, "False", "ScaledToZero", suspended),
    (ConditionType.DRAFT_AVAILABLE, "True", "Ready", rested),
    (ConditionType.DRAFT_AVAILABLE, "False", "PodsNotReady", drafts_starting),
    (ConditionType.DRAFT_AVAILABLE, "False", "InsufficientCapacity", unscheduled("draft")),
    (ConditionType.DRAFT_AVAILABLE, "False", "Queued", unscheduled("draft", GATED)),
    (ConditionType.DRAFT_AVAILABLE, "False", "ClaimNotBound", unscheduled("draft", UNBOUND)),
    (ConditionType.DRAFT_AVAILABLE, "False", "ScaledToZero", without_pods("draft")),
    (ConditionType.DRAFT_AVAILABLE, "True", "Colocated", described(draft=COLOCATED)),
    (ConditionType.DRAFT_AVAILABLE, "True", "Ready", same_pod(1.0)),
    (ConditionType.DRAFT_AVAILABLE, "False", "PodsNotReady", same_pod(0.0)),
    (ConditionType.DRAFT_AVAILABLE, "False", "NotRequired", described(draft=None)),
    (ConditionType.LINK_ESTABLISHED, "True", "Connected", rested),
    (ConditionType.LINK_ESTABLISHED, "True", "Connected", same_pod(1.0)),
    (ConditionType.LINK_ESTABLISHED, "False", "Connecting", same_pod(0.0)),
    (ConditionType.LINK_ESTABLISHED, "True", "PartiallyConnected", links("", 0.5)),
    (ConditionType.LINK_ESTABLISHED, "False", "Connecting", drafts_starting),
    (ConditionType.LINK_ESTABLISHED, "False", "Refused", links("another tokenizer")),
    (ConditionType.LINK_ESTABLISHED, "False", "Refused", refused_inside),
    (ConditionType.LINK_ESTABLISHED, "True", "NotRequired", described(draft=None)),
    (ConditionType.LINK_ESTABLISHED, "True", "NotRequired", described(draft=COLOCATED)),
    (ConditionType.METRICS_AVAILABLE, "True", "MetricsFound", rested),
    (ConditionType.METRICS_AVAILABLE, "False", "MetricsMissing", silent),
    (ConditionType.METRICS_AVAILABLE, "Unknown", "NoPods", starting),
    (ConditionType.PROGRESSING, "False", "Complete", rested),
    (ConditionType.PROGRESSING, "True", "RollingOut", begun),
    (ConditionType.PROGRESSING, "True", "RollingOut", rolling),
    (ConditionType.PROGRESSING, "True", "Recreating", recreating),
    (ConditionType.PROGRESSING, "True", "Scaling", scaling),
    (
        ConditionType.PROGRESSING,
        "False",
        "RolloutFailed",
        reported("Deployment", conditions=[LATE]),
    ),
    (ConditionType.PROGRESSING, "False", "Suspended", suspended),
    (ConditionType.DEGRADED, "False", "AsExpected", rested),
    (ConditionType.DEGRADED, "True", "InvalidSpec", unreadable),
    (ConditionType.DEGRADED, "True", "RolloutFailed", reported("Deployment", conditions=[LATE])),
    (ConditionType.DEGRADED, "True", "ReplicasContested", contested),
    (ConditionType.DEGRADED, "True", "ForeignObject", foreign),
    (ConditionType.DEGRADED, "True", "PodsFailing", reported("Pod", containerStatuses=[WAITING])),
    (ConditionType.DEGRADED, "False", "AsExpected", lost(4)),
    (ConditionType.DEGRADED, "True", "DraftLost", lost(24)),
    (ConditionType.DEGRADED, "True", "Forbidden", unserved),
    (ConditionType.DEGRADED, "True", "ApplyFailed", failing),
    (ConditionType.DEGRADED, "True", "OperatorFailed", broken),
    (ConditionType.RECONCILING, "False", "Complete", rested),
    (ConditionType.RECONCILING, "True", "Progressing", rolling),
    (ConditionType.RECONCILING, "True", "Applying", failing_once),
    (ConditionType.RECONCILING, "False", "Complete", failed_at("target")),
    (ConditionType.STALLED, "False", "NotStalled", rested),
    (ConditionType.STALLED, "False", "NotStalled", rolling),
    (ConditionType.STALLED, "True", "InvalidSpec", unreadable),
    (ConditionType.STALLED, "True", "OperatorFailed", broken),
    (ConditionType.STALLED, "True", "Forbidden", unserved),
    (ConditionType.STALLED, "True", "ForeignObject", foreign),
    (ConditionType.STALLED, "True", "RolloutFailed", failed_at("target")),
]


@pytest.mark.parametrize(
    ("kind", "holds", "reason", "scene"), SCENES, ids=lambda value: getattr(value, "__name__", None)
)
def test_a_situation_is_said_in_its_condition(
    kind: ConditionType, holds: str, reason: str, scene: Scene
) -> None:
    service = OneService()
    scene(service)
    assert service.condition(kind) == (holds, reason)


def test_a_service_whose_account_is_somebody_elses_runs_nothing_and_says_why() -> None:
    service = OneService()
    service.edit(
        lambda spec: spec["target"].update(
            podTemplate={"spec": {"automountServiceAccountToken": True}}
        )
    )
    foreign(service)
    service.rest(3)
    assert service.cluster.of("Deployment") == []
    every: list[Object] = service.raw["status"]["conditions"]
    (found,) = (one["message"] for one in every if one["type"] == "Degraded")
    assert "ServiceAccount chat belongs to somebody else" in found
    assert "what needs it stays as it is: Deployment chat-target" in found
    del service.cluster.stored["ServiceAccount", "default", "chat"]
    service.rest()
    assert service.condition("Ready") == ("True", "Serving")


def test_every_reason_has_its_situation() -> None:
    said = {(kind, reason) for kind, _, reason, _ in SCENES}
    elsewhere = {ConditionType.SPECULATION_ACTIVE}  # the control loop's tests
    known = {
        (kind, r.value) for kind, all_ in REASONS.items() for r in all_ if kind not in elsewhere
    }
    assert known - said == {(ConditionType.METRICS_AVAILABLE, "MetricsStale")}
    assert said <= known


def test_a_condition_keeps_its_time_while_it_holds() -> None:
    service = OneService()
    service.rest()

    def times() -> dict[str, str]:
        every: list[Object] = service.raw["status"]["conditions"]
        return {c["type"]: c["lastTransitionTime"] for c in every}

    before = times()
    service.controllers.ready = lambda role: role == "target"
    service.rest(2)
    changed = {kind for kind, at in times().items() if at != before[kind]}
    assert {"DraftAvailable", "Progressing"} <= changed
    assert not {"Ready", "TargetAvailable", "Degraded"} & changed


def test_events_tell_of_what_begins_and_ends() -> None:
    service = OneService()
    service.rest(3)
    reported("Pod", containerStatuses=[WAITING])(service)
    reported("Pod", containerStatuses=[])(service)
    told = [reason for reason, _ in service.cluster.events]
    assert told.index("Ready") < told.index("PodsFailing") < told.index("Recovered")


def test_the_status_has_ready_of_wanted_and_the_address() -> None:
    spec = yaml.safe_load(SPEC)
    spec["target"]["replicas"] = 2
    service = OneService(spec)
    service.rest(2)
    found = service.raw["status"]
    assert found["target"]["ready"] == "2/2"
    assert found["target"]["selector"] == "outrider.dev/service=chat,outrider.dev/role=target"
    assert found["url"] == "http://chat.default.svc:8000"
    assert len(found["resources"]) <= 64
    assert service.now > START


def ready_and_generations(service: OneService) -> tuple[str, int, int]:
    found = service.raw["status"]
    return service.condition("Ready")[0], found["observedGeneration"], found["rolledOutGeneration"]


def test_ready_is_never_true_at_a_generation_that_is_not_rolled_out() -> None:
    service = OneService()
    service.rest(4)
    assert ready_and_generations(service) == ("True", 1, 1)
    service.edit(lambda spec: spec["target"].update(image="worker:2"))
    service.pass_()  # the very pass that begins the rollout
    assert ready_and_generations(service) == ("False", 2, 1)
    assert service.condition("TargetAvailable")[0] == "True", "requests are answered meanwhile"
    service.rest(3)
    assert ready_and_generations(service) == ("True", 2, 2)
    service.edit(lambda spec: spec.update(speculation={"maxRows": 4}))
    service.pass_()
    assert ready_and_generations(service) == ("True", 3, 3), "no pod has to be replaced"


def test_a_generation_that_was_rolled_out_stays_ready_whatever_else_fails_to_roll() -> None:
    service = OneService()
    service.rest(4)
    failed_deployment = reported("Deployment", conditions=[LATE])
    failed_deployment(service)
    assert ready_and_generations(service) == ("True", 1, 1)
    assert service.condition("Stalled") == ("True", "RolloutFailed")


@pytest.mark.parametrize("condition", [GATED, UNSCHEDULED, UNBOUND])
def test_a_pod_that_no_node_has_taken_is_no_failing_pod(condition: Object) -> None:
    service = OneService()
    unscheduled("target", condition)(service)
    assert service.condition("Degraded")[0] == "False"
    assert service.raw["status"]["rolledOutGeneration"] == 0
    assert not any("RolledOut" in event for event in service.cluster.events)


@pytest.mark.parametrize(("scheduled", "stalled"), [(None, "False"), (60, "False"), (3600, "True")])
def test_time_in_a_queue_is_no_lost_progress(scheduled: int | None, stalled: str) -> None:
    """`scheduled`: seconds since a node took the pod; None: it waits in a queue."""
    service = OneService()
    service.controllers.ready = lambda role: role != "target"
    service.rest(3)
    at = moment(service.now - (scheduled or 0))
    taken = {"type": "PodScheduled", "status": "True", "lastTransitionTime": at}
    for pod in service.cluster.of("Pod"):
        if "target" in pod["metadata"]["name"]:
            service.cluster.put_status(pod, {"conditions": [taken if scheduled else GATED]})
    live = service.cluster.stored["Deployment", "default", "chat-target"].body
    service.cluster.put_status(live, {**live["status"], "conditions": [LATE]})
    service.pass_()
    assert service.condition("Stalled")[0] == stalled


def test_a_claim_without_a_volume_is_named() -> None:
    spec = yaml.safe_load(SPEC)
    spec["target"]["cache"] = {"type": "PersistentVolumeClaim", "size": "1Gi"}
    service = OneService(spec)
    unscheduled("target", UNBOUND)(service)
    words = next(c for c in service.raw["status"]["conditions"] if c["type"] == "TargetAvailable")
    assert (
        "claim chat-target-cache is not bound: storage class the cluster's default, "
        in words["message"]
    )


def test_new_targets_that_are_not_available_are_not_rolled_out() -> None:
    service = OneService()
    service.rest(4)
    service.edit(lambda spec: spec["target"].update(replicas=2))
    service.controllers.ready = lambda role: role == "draft"
    service.rest(3)
    assert service.raw["status"]["rolledOutGeneration"] == 1
    service.controllers.ready = lambda role: True
    service.rest(3)
    assert service.raw["status"]["rolledOutGeneration"] == 2


def test_an_edit_is_rolled_out_though_drafts_are_gone_that_it_does_not_concern() -> None:
    service = OneService()
    service.rest(4)
    service.controllers.ready = lambda role: role == "target"
    service.rest(3)
    service.edit(lambda spec: spec.update(speculation={"maxRows": 4}))
    service.rest(3)
    assert ready_and_generations(service) == ("True", 2, 2)


def test_a_roll_out_has_an_event_at_its_begin_and_its_end_and_edits_without_one_have_none() -> None:
    service = OneService()
    service.rest(4)
    service.cluster.events.clear()
    service.edit(lambda spec: spec.update(speculation={"maxRows": 4}))
    service.rest(3)
    told = [reason for reason, _ in service.cluster.events]
    assert not {"RollingOut", "RolledOut"} & {*told}
    service.edit(lambda spec: spec["draft"].update(image="worker:2"))
    service.rest(3)
    told = [(reason, note) for reason, note in service.cluster.events if "Roll" in reason]
    (begun, words), ended = told
    assert begun == "RollingOut"
    assert words.startswith("draft: revision ")
    assert ended == ("RolledOut", "generation 3 is rolled out")


@pytest.mark.parametrize(
    ("update", "said"),
    [({}, True), ({"maxSurge": 0, "maxUnavailable": 1}, False), ({"strategy": "Recreate"}, False)],
)
def test_new_pods_without_room_beside_old_ones_are_told_how_to_replace_them(
    update: Object, said: bool
) -> None:
    service = OneService()
    service.edit(lambda spec: spec["target"].update(update=update))
    service.rest(4)
    live = service.cluster.stored["Deployment", "default", "chat-target"].body
    service.cluster.put_status(live, {**live["status"], "replicas": 2})  # an old one serves on
    (pod,) = (one for one in service.cluster.of("Pod") if "target" in one["metadata"]["name"])
    service.cluster.put_status(pod, {"conditions": [UNSCHEDULED]})
    service.pass_()
    every = service.raw["status"]["conditions"]
    message = next(one["message"] for one in every if one["type"] == "Progressing")
    assert ("spec.target.update.maxSurge: 0" in message) is said


def test_a_problem_that_gives_way_to_another_is_an_event() -> None:
    service = OneService()
    reported("Pod", containerStatuses=[WAITING])(service)
    for live in service.cluster.of("Deployment"):
        service.cluster.put_status(live, {**live["status"], "conditions": [LATE]})
    service.pass_()
    told = [reason for reason, _ in service.cluster.events]
    assert told.index("PodsFailing") < told.index("RolloutFailed")
    assert "Recovered" not in told


def test_a_container_that_crashes_again_and_again_is_one_event_and_few_writes() -> None:
    service = OneService()
    service.rest(4)
    last = {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}
    service.cluster.events.clear()
    for restarts in range(2, 6):
        phases = ({"running": {"startedAt": moment(service.now)}}, last, CRASHING)
        for number, state in enumerate(phases):
            container = {"name": "main", "state": state, "lastState": last}
            container["restartCount"] = restarts - (number > 0)
            for pod in service.cluster.of("Pod"):
                put = {**pod["status"], "containerStatuses": [container]}
                service.cluster.put_status(pod, put)
            service.pass_()
            service.now += 5
            assert service.condition("Degraded") == ("True", "PodsFailing")
    told = [reason for reason, _ in service.cluster.events]
    assert told.count("PodsFailing") == 1
    assert "Recovered" not in told


CRASHING = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}


def moment(at: float) -> str:
    return datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat()
