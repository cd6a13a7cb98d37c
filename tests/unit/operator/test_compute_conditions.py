"""Conditions: each reason has a situation in which it is said."""

from collections.abc import Callable
from typing import Any

import pytest
import yaml

from outrider.operator.conditions import REASONS, ConditionType
from outrider.operator.control.prometheus import Answer
from outrider.operator.interfaces import Object
from tests.unit.operator.one_service import SPEC, START, OneService

Scene = Callable[[OneService], None]
LATE = {"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}
UNSCHEDULED = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}


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
    service.edit(lambda spec: spec.update(surprise=1))
    service.rest(1)


def reported(kind: str, **report: Any) -> Scene:
    """A controller reports something else of all objects of a kind, at rest."""

    def scene(service: OneService) -> None:
        service.rest(4)
        for body in service.cluster.of(kind):
            service.cluster.put_status(body, {**body["status"], **report})
        service.pass_()

    return scene


def unscheduled(role: str) -> Scene:
    def scene(service: OneService) -> None:
        service.controllers.ready = lambda of: of != role
        service.rest(3)
        for pod in service.cluster.of("Pod"):
            if role in pod["metadata"]["name"]:
                service.cluster.put_status(pod, {"conditions": [UNSCHEDULED]})
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


def unreachable(service: OneService) -> None:
    server = {"source": "Prometheus", "prometheus": {"url": "http://prometheus"}}
    service.edit(lambda spec: spec.update(metrics=server))
    service.workers.prometheus = lambda question: Answer(failure="no answer")
    service.rest(6)


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


WAITING = {"name": "main", "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "m"}}}
COLOCATED = {"model": {"uri": "hf://o/s"}, "placement": "Colocated"}
SCENES: list[tuple[ConditionType, str, str, Scene]] = [
    (ConditionType.READY, "True", "Serving", rested),
    (ConditionType.READY, "False", "TargetNotReady", starting),
    (ConditionType.READY, "False", "Suspended", suspended),
    (ConditionType.READY, "Unknown", "InvalidSpec", unreadable),
    (ConditionType.TARGET_AVAILABLE, "True", "Ready", rested),
    (ConditionType.TARGET_AVAILABLE, "False", "PodsNotReady", starting),
    (ConditionType.TARGET_AVAILABLE, "False", "InsufficientCapacity", unscheduled("target")),
    (ConditionType.TARGET_AVAILABLE, "False", "ScaledToZero", suspended),
    (ConditionType.DRAFT_AVAILABLE, "True", "Ready", rested),
    (ConditionType.DRAFT_AVAILABLE, "False", "PodsNotReady", drafts_starting),
    (ConditionType.DRAFT_AVAILABLE, "False", "InsufficientCapacity", unscheduled("draft")),
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
    (ConditionType.LINK_ESTABLISHED, "True", "NotRequired", described(draft=None)),
    (ConditionType.METRICS_AVAILABLE, "True", "MetricsFound", rested),
    (ConditionType.METRICS_AVAILABLE, "False", "MetricsMissing", silent),
    (ConditionType.METRICS_AVAILABLE, "False", "PrometheusFailed", unreachable),
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
    assert len(found["resources"]) <= 16
    assert service.now > START
