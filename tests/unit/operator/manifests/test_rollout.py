"""Changes from pods alone to groups, and back: bounds that always hold, and where they end."""

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.operator.manifests.rollout import Bounds, Count, bounds, step
from outrider.operator.spec.pods import Strategy, Update

ONE, STARTING = Count(1, 1), Count(1, 0)


@st.composite
def limits(draw: st.DrawFn) -> Bounds:
    """As a description may have them."""
    replicas = draw(st.integers(0, 6))
    surge = draw(st.integers(0, 3))
    if draw(st.booleans()):
        return Bounds(replicas, replicas, 0, recreate=True)
    return Bounds(replicas, draw(st.integers(0 if surge else 1, 3)), surge)


COUNTS = st.tuples(st.integers(0, 5), st.integers(0, 5)).map(
    lambda both: Count(max(both), min(both))
)


class Life:
    """Replicas of both kinds as they are made, get ready and go; every step keeps to the bounds."""

    def __init__(self, old: Count, new: Count, to: Bounds) -> None:
        self.old, self.new, self.to = old, new, to
        self.leaving = False

    @property
    def serving(self) -> int:
        return self.old.ready + self.new.ready

    def turn(self, writes: int = 2) -> bool:
        """One pass, which ends after so many writes; whether there was anything to write."""
        before, to = (self.old, self.new), self.to
        old, new = step(self.old, self.new, to, self.leaving)
        if new > self.new.replicas:
            assert old + new <= max(to.replicas + to.surge, self.old.replicas), "never more"
            assert not to.recreate or self.leaving + self.old.replicas == 0, "old ones go first"
        serving = self.serving
        if writes > 0:
            self.leaving |= to.recreate and old < self.old.replicas
            self.old = _to(self.old, old)
        if writes > 1:
            self.new = _to(self.new, new)
        assert self.serving >= min(serving, to.replicas - to.unavailable), "never fewer"
        return before != (self.old, self.new)

    def come_up(self) -> None:
        self.old, self.new = (Count(one.replicas, one.replicas) for one in (self.old, self.new))
        self.leaving = False


def _to(before: Count, replicas: int) -> Count:
    """So many of them; those that are not ready go first."""
    return Count(replicas, min(before.ready, replicas))


@settings(max_examples=300, deadline=None)
@given(COUNTS, COUNTS, limits(), st.lists(st.integers(0, 2), max_size=6), st.booleans())
@example(ONE, Count(), Bounds(1, 0, 1), [], True)
def test_any_change_keeps_to_its_bounds_and_ends_wherever_it_is_interrupted(
    old: Count, new: Count, to: Bounds, interruptions: list[int], slow: bool
) -> None:
    life = Life(old, new, to)
    for writes in interruptions:
        life.turn(writes)
        if not slow:
            life.come_up()
    for _ in range(40):
        life.turn()
        life.come_up()
    assert (life.old, life.new) == (Count(), Count(to.replicas, to.replicas))
    assert not life.turn(), "what is done stays done"


@given(st.integers(1, 6), limits())
def test_replicas_that_never_get_ready_cost_no_more_than_may_be_missing(
    replicas: int, to: Bounds
) -> None:
    to = dataclasses.replace(to, replicas=replicas, recreate=False)
    to = dataclasses.replace(to, unavailable=min(to.unavailable, replicas), surge=max(to.surge, 1))
    life = Life(Count(replicas, replicas), Count(), to)
    for _ in range(10):
        life.turn()
    assert life.serving == replicas - to.unavailable
    assert life.old.replicas + life.new.replicas <= replicas + to.surge


def test_one_that_does_not_serve_stays_while_the_new_one_starts() -> None:
    assert step(STARTING, STARTING, Bounds(1, 0, 1), leaving=False) == (1, 1)
    assert step(STARTING, ONE, Bounds(1, 0, 1), leaving=False) == (0, 1)


def test_new_ones_that_are_too_many_go() -> None:
    assert step(ONE, Count(2, 1), Bounds(1, 0, 1), leaving=False) == (0, 1)


def test_recreating_waits_until_no_old_pod_is_left() -> None:
    to = Bounds(2, 2, 0, recreate=True)
    assert step(ONE, Count(), to, leaving=False) == (0, 0)
    assert step(Count(), Count(), to, leaving=True) == (0, 0)
    assert step(Count(), Count(), to, leaving=False) == (0, 2)


@pytest.mark.parametrize(
    ("update", "replicas", "expected"),
    [
        (Update(), 3, Bounds(3, 0, 1)),
        (Update(maxSurge="34%", maxUnavailable="50%"), 3, Bounds(3, 1, 2)),
        (Update(maxSurge=0, maxUnavailable="10%"), 3, Bounds(3, 1, 0)),
        (Update(strategy=Strategy.RECREATE), 3, Bounds(3, 3, 0, recreate=True)),
    ],
    ids=["default", "percentages", "never stuck", "recreate"],
)
def test_bounds_are_rounded_as_those_of_deployments(
    update: Update, replicas: int, expected: Bounds
) -> None:
    assert bounds(replicas, update) == expected
