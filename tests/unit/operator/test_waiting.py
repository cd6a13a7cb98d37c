"""When a service's workers are looked at next, whatever woke passes meanwhile."""

import pytest

from outrider.operator.loop import MIN_WAIT, Looking
from outrider.operator.observed import observed

META = {"namespace": "a", "name": "chat", "uid": "u", "generation": 1}
AT_REST = observed({"kind": "SpeculativeService", "metadata": META}, [], [])


@pytest.mark.parametrize(
    ("asked_at", "now", "wait"),
    [
        (100.0, 100.0, 15.0),
        (100.0, 110.0, 5.0),  # a pass that was woken does not put the look off
        (100.0, 200.0, MIN_WAIT),
        (100.0, 40.0, 15.0),  # the clock was put back
    ],
)
def test_a_look_comes_an_interval_after_the_last(asked_at: float, now: float, wait: float) -> None:
    assert Looking(asked_at=asked_at).wait(AT_REST, now, 15.0) == wait
