"""Roll-outs of groups: bounds that hold after every write, and where they end."""

import dataclasses

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from outrider.operator.manifests.rollout import Bounds, Group, bounds, step
from outrider.operator.spec import Strategy, Update

A, B = Group("a", True, True), Group("b", True, True)
OLD = Group("old", False, True)


@st.composite
def limits(draw: st.DrawFn) -> Bounds:
    """As a description may have them."""
    replicas = draw(st.integers(0, 6))
    surge = draw(st.integers(0, 3))
    if draw(st.booleans()):
        return Bounds(replicas, replicas, 0, recreate=True)
    return Bounds(replicas, draw(st.integers(0 if surge else 1, 3)), surge)


GROUPS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=8).map(
    lambda found: [Group(number, *one) for number, one in enumerate(found)]
)


def serving(groups: list[Group]) -> int:
    return sum(group.ready for group in groups)


class Life:
    """Groups as they are made, get ready and go; every write keeps to the bounds."""

    def __init__(self, groups: list[Group], to: Bounds) -> None:
        self.groups, self.to, self.count = groups, to, 100
        self.leaving = False

    def turn(self, writes: int | None = None) -> bool:
        """One pass, which ends after so many writes; whether there was anything to write."""
        done = step(self.groups, self.to, self.leaving)
        steps = [self.make] * done.make + [lambda key=key: self.take(key) for key in done.gone]
        for write in steps[:writes]:
            write()
        return bool(steps)

    def make(self) -> None:
        self.count += 1
        assert len(self.groups) < self.to.replicas + self.to.surge, "never more"
        if self.to.recreate:
            assert not self.leaving
            assert all(group.fresh for group in self.groups), "old ones go first"
        self.groups.append(Group(self.count, True, False))

    def take(self, key: object) -> None:
        (group,) = (one for one in self.groups if one.key == key)
        self.groups.remove(group)
        self.leaving |= self.to.recreate and not group.fresh
        if group.ready:
            assert serving(self.groups) >= self.to.replicas - self.to.unavailable, "never fewer"

    def come_up(self) -> None:
        self.groups = [dataclasses.replace(group, ready=True) for group in self.groups]
        self.leaving = False


@settings(max_examples=300, deadline=None)
@given(GROUPS, limits(), st.lists(st.integers(0, 3), max_size=6), st.booleans())
@example([OLD], Bounds(1, 0, 1), [], True)
def test_any_roll_out_keeps_to_its_bounds_and_ends_wherever_it_is_interrupted(
    groups: list[Group], to: Bounds, interruptions: list[int], slow: bool
) -> None:
    life = Life(list(groups), to)
    for writes in interruptions:
        life.turn(writes)
        if not slow:
            life.come_up()
    for _ in range(40):
        life.turn()
        life.come_up()
    assert len(life.groups) == to.replicas
    assert all(group.fresh for group in life.groups)
    assert not life.turn(), "what is done stays done"


@given(st.integers(1, 6), limits())
def test_groups_that_never_get_ready_cost_no_more_than_may_be_missing(
    replicas: int, to: Bounds
) -> None:
    to = dataclasses.replace(to, replicas=replicas, recreate=False)
    to = dataclasses.replace(to, unavailable=min(to.unavailable, replicas), surge=max(to.surge, 1))
    life = Life([Group(number, False, True) for number in range(replicas)], to)
    for _ in range(10):
        life.turn()
    assert serving(life.groups) == replicas - to.unavailable
    assert len(life.groups) <= replicas + to.surge


def test_a_newer_revision_takes_the_place_of_one_that_does_not_come_up() -> None:
    stuck = Group("stuck", False, False)
    assert step([OLD, stuck], Bounds(1, 0, 1), False).gone == {"stuck"}
    assert step([OLD], Bounds(1, 0, 1), False).make == 1


def test_an_old_group_that_does_not_serve_stays_while_the_new_one_starts() -> None:
    away = dataclasses.replace(OLD, ready=False)
    starting = Group("new", True, False)
    assert step([away, starting], Bounds(1, 0, 1), False).gone == set()
    assert step([away, dataclasses.replace(starting, ready=True)], Bounds(1, 0, 1), False).gone


def test_what_is_undone_goes_and_nothing_is_made() -> None:
    done = step([dataclasses.replace(OLD, fresh=True), Group("new", False, False)],
                Bounds(1, 0, 1), False)  # fmt: skip
    assert (done.make, done.gone) == (0, {"new"})


def test_the_last_go_first_and_those_that_do_not_serve_before_them() -> None:
    assert step([A, B], Bounds(1, 0, 1), False).gone == {"b"}
    starting = dataclasses.replace(A, ready=False)
    assert step([starting, B], Bounds(1, 0, 1), False).gone == {"a"}


def test_recreating_waits_until_no_older_pod_is_left() -> None:
    to = Bounds(2, 2, 0, recreate=True)
    assert step([OLD], to, False) == dataclasses.replace(step([], to, True), gone={"old"})
    assert step([], to, True).make == 0
    assert step([], to, False).make == 2


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
