"""Time of the next poll of a service's workers, and what the loop is told of the service."""

import pytest

from outrider.operator.observed.service import observe
from outrider.operator.spec import load
from outrider.operator.workers.poll import MIN_WAIT, WorkerPoll, control_inputs

META = {"namespace": "a", "name": "chat", "uid": "u", "generation": 1}
AT_REST = observe({"kind": "SpeculativeService", "metadata": META}, [], [])

PLAIN = load(
    "{apiVersion: outrider.dev/v1alpha1, kind: SpeculativeService, metadata: {name: chat},"
    " spec: {target: {model: {uri: 'hf://o/large'}}}}"
)


@pytest.mark.parametrize(
    ("scraped_at", "now", "wait"),
    [
        (100.0, 100.0, 15.0),
        (100.0, 110.0, 5.0),  # a pass that was woken does not put the look off
        (100.0, 200.0, MIN_WAIT),
        (100.0, 40.0, 15.0),  # the clock was put back
    ],
)
def test_a_look_comes_an_interval_after_the_last(
    scraped_at: float, now: float, wait: float
) -> None:
    assert WorkerPoll(scraped_at=scraped_at).wait(AT_REST, PLAIN, now) == wait


PAIR = (
    "{apiVersion: outrider.dev/v1alpha1, kind: SpeculativeService,"
    " metadata: {name: chat, annotations: {%s}}, spec: {target: {model: {uri: 'hf://o/large'}, %s},"
    " draft: {model: {uri: 'hf://o/small'}, %s}, speculation: {%s}}}"
)


def subject(notes: str = "", target: str = "", draft: str = "", speculation: str = "") -> str:
    service = load(PAIR % (notes, target, draft, speculation))
    return control_inputs(AT_REST, service, WorkerPoll(), contested=False, now=0.0).subject


@pytest.mark.parametrize(
    "change",
    [
        {"notes": "outrider.dev/probe-at: now"},
        {"target": "image: 'worker:2'"},
        {"target": "engine: {maxRunning: 3}"},
        {"target": "parallelism: {tensor: 2}"},
        {"draft": "resources: {limits: {cpu: 2}}"},
        {"draft": "engine: {kvMemory: 1Gi}"},
        {"speculation": "maxRows: 4"},
        {"speculation": "disable: {gainBelowPercent: 90}"},
    ],
    ids=str,
)
def test_what_gain_depends_on_is_another_subject(change: dict[str, str]) -> None:
    assert subject(**change) != subject()


@pytest.mark.parametrize(
    "change",
    [
        {"notes": "team: chat"},
        {"target": "replicas: 3"},
        {"draft": "scaling: {maxReplicas: 2}"},
        {"speculation": "control: {intervalSeconds: 5}"},
    ],
    ids=str,
)
def test_what_gain_does_not_depend_on_is_the_same_subject(change: dict[str, str]) -> None:
    assert subject(**change) == subject()
