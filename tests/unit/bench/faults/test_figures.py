"""Figures of faults, from samples that were written down."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bench.faults.figures import Gap, calm_gap, linked, rate, recovered, seen, share
from bench.faults.injector import Event
from bench.faults.plan import Fault, Kind
from bench.faults.samples import Sample

KILLED = Event(Fault(Kind.KILLED, draft=1, calm=6, seconds=4), began=10.0, returned=15.0)
ALL_UP = (2, 2, 2)


def samples(
    rates: Callable[[float], float],
    sessions: Callable[[float], tuple[int | None, ...]] = lambda at: (1, 1, 2),
    links: Callable[[float], tuple[int, ...]] = lambda at: ALL_UP,
) -> list[Sample]:
    """Samples of 30 s, five a second; `rates`: tokens a second by time."""
    found, tokens = [], 0.0
    for number in range(150):
        at = number / 5
        found.append(Sample(at, round(tokens), 0.1 * at, 4, links(at), sessions(at)))
        tokens += rates(at) / 5
    return found


def test_a_rate_is_taken_between_samples() -> None:
    assert rate(samples(lambda at: 100), 10.05, 12.05) == pytest.approx(100)


@pytest.mark.parametrize(("delay", "expected"), [(0.0, 0.0), (1.0, 1.0), (20.0, None)])
def test_a_rate_has_recovered_once_a_whole_second_is_as_fast(
    delay: float, expected: float | None
) -> None:
    found = samples(lambda at: 50 if 10 <= at < 15 + delay else 100)
    assert recovered(found, 15.0, 99.0) == (None if expected is None else pytest.approx(expected))


def test_a_rate_that_was_not_watched_for_long_enough_has_not_recovered() -> None:
    assert recovered(samples(lambda at: 100), 29.5, 90.0) is None


def test_a_draft_is_linked_once_all_targets_are() -> None:
    def links(at: float) -> tuple[int, ...]:
        return (2, 0 if at < 16 else 1 if at < 17 else 2, 2)

    found = samples(lambda at: 100, links=links)
    assert linked(found, 1, 15.0, targets=2) == pytest.approx(2.0)
    assert linked(found[:80], 1, 15.0, targets=2) is None


def test_what_is_seen_of_a_killed_draft() -> None:
    def sessions(at: float) -> tuple[int | None, ...]:
        return (1, 2, 1) if at < 10 else (3, None, 1)

    found = seen(
        KILLED,
        samples(lambda at: 80 if 10 <= at < 15 else 100, sessions),
        [Gap(9.0, 9.5), Gap(11.0, 11.3), Gap(20.0, 21.0)],
        targets=2,
    )
    assert found.rate_before == pytest.approx(100)
    assert found.rate_during == pytest.approx(80)
    assert found.recovered == pytest.approx(0.0)
    assert found.longest_gap == pytest.approx(0.3)
    assert found.waited == pytest.approx(0.05)
    assert found.share_before == pytest.approx(0.5)
    assert found.share_during is None
    assert found.moved == pytest.approx(1.0)
    assert found.spread == pytest.approx(2.0)


def test_sessions_of_drafts_that_say_nothing_are_not_counted() -> None:
    one = samples(lambda at: 100)[0]
    assert share([one, replace(one, sessions=(None, 4, 0))], 2) == pytest.approx(0.5)
    assert share([replace(one, sessions=(0, 0, 0))], 2) is None


def test_a_pause_that_meets_a_fault_is_not_calm() -> None:
    gaps = [Gap(9.9, 10.1), Gap(12.0, 13.0), Gap(14.9, 15.1), Gap(15.5, 15.9), Gap(17.0, 17.1)]
    assert calm_gap(gaps, [KILLED]) == pytest.approx(0.1)
