"""A service of which no target is asked for: said once, nothing wrong, no draft, and back again."""

from collections.abc import Callable

import pytest

from outrider.operator.cluster.client import ClusterError
from outrider.operator.control.reasons import PhaseChange
from tests.unit.operator.one_service import KEY, OneService

TEN_MINUTES = 40
"""Passes of 16 seconds."""


def suspended(service: OneService) -> None:
    service.edit(lambda spec: spec.update(suspend="Suspended"))


def resumed(service: OneService) -> None:
    service.edit(lambda spec: spec.update(suspend="Running"))


def scaled(number: int) -> Callable[[OneService], None]:
    """As `kubectl scale` does, where the service leaves the number to others."""

    def scale(service: OneService) -> None:
        where = ("Deployment", KEY[0], "chat-target")
        change = {"replicas": number}
        service.cluster.edit(where, lambda body: body["spec"].update(change), "kubectl")

    return scale


def replicas(service: OneService) -> list[int]:
    """Those asked for: the draft's, the target's."""
    return [one["spec"]["replicas"] for one in service.cluster.of("Deployment")]


@pytest.mark.parametrize(
    ("down", "up", "least", "mode"),
    [
        (suspended, resumed, 0, "Adaptive"),
        (suspended, resumed, 1, "Static"),
        (scaled(0), scaled(1), 0, "Static"),
        (scaled(0), scaled(1), 1, "Adaptive"),
    ],
)
def test_a_service_at_zero_is_at_rest_and_comes_back(
    down: Callable[[OneService], None],
    up: Callable[[OneService], None],
    least: int,
    mode: str,
) -> None:
    service = OneService()
    service.edit(lambda spec: spec.update(speculation={"mode": mode}))
    service.edit(lambda spec: spec["draft"].update(scaling={"minReplicas": least}))
    service.rest()
    before = replicas(service)
    assert before == [1, 1]
    down(service)
    service.rest()
    assert replicas(service) == [0 if down is suspended else least, 0]
    told = len(service.cluster.events)
    service.cluster.writes.clear()
    service.rest(TEN_MINUTES)
    assert service.cluster.writes == []
    assert service.cluster.events[told:] == []
    for kind, expected in {
        "TargetAvailable": ("False", "ScaledToZero"),
        "SpeculationActive": ("False", "NoTargets"),
        "Degraded": ("False", "AsExpected"),
        "Reconciling": ("False", "Complete"),
        "Stalled": ("False", "NotStalled"),
    }.items():
        assert service.condition(kind) == expected
    up(service)
    service.rest()
    assert replicas(service) == before
    assert service.condition("Ready") == ("True", "Serving")
    assert service.condition("SpeculationActive") == ("True", "Active")


def test_drafts_that_go_with_their_targets_are_said_to() -> None:
    service = OneService()
    service.rest()
    scaled(0)(service)
    service.rest()
    scaled(1)(service)
    service.rest()
    told = [note for reason, note in service.cluster.events if reason == PhaseChange.DRAFTS_SCALED]
    assert told == [
        "scaled draft 1→0: no target is asked for",
        "scaled draft 0→1: 1 is what the control loop decided on before",
    ]


def test_a_number_that_cannot_be_had_is_said_once() -> None:
    service = OneService()
    service.rest()
    service.edit(lambda spec: spec["draft"].update(scaling={"minReplicas": 3}))

    def refuse(verb: str, kind: str) -> ClusterError | None:
        refused = (verb, kind) == ("apply", "Deployment")
        return ClusterError("apply", 403, "exceeded quota") if refused else None

    service.cluster.refuse = refuse
    service.rest(TEN_MINUTES)
    told = [note for reason, note in service.cluster.events if reason == PhaseChange.DRAFTS_SCALED]
    assert told == ["scaled draft 1→3: the service allows 3 to 4"]
    assert service.condition("Degraded") == ("True", "Forbidden")
