"""Time of the next poll of a service's workers, whatever passes came between."""

import pytest

from outrider.operator.observed.service import observe
from outrider.operator.spec import load
from outrider.operator.workers.poll import MIN_WAIT, WorkerPoll

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
