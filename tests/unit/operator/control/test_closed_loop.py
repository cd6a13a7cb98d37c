"""The policy against a service that answers to it, over some hours of random traffic."""

import argparse
import itertools

import pytest

from bench.control_loop.__main__ import EVERY, OVERLOADED, SIDES, Day, events, figures, live, series

NOON = 2 * 3600
OPTIONS = argparse.Namespace(
    seed=3, seconds=2 * NOON, peak=2.9, night=0.15, hit_rate=0.7, knee_rows=24
)


@pytest.fixture(scope="module")
def day() -> Day:
    return live(SIDES["controlled"], OPTIONS)


def test_drafting_goes_off_under_load_and_comes_back_after_it(day: Day) -> None:
    on = {point.second: point.decision.speculate for point in day.points}
    assert all(on[second] for second in on if second < 3600)
    at_noon = [on[second] for second in on if abs(second - NOON) < 1200]
    assert sum(at_noon) < 0.2 * len(at_noon)
    assert all(on[second] for second in on if second > 2 * NOON - 1800)
    assert day.points[-1].decision.max_rows == 16


def test_drafts_are_given_back_meanwhile_and_return(day: Day) -> None:
    drafts = [point.drafts for point in day.points]
    assert (drafts[0], min(drafts), max(drafts), drafts[-1]) == (2, 0, 2, 2)
    for point in day.points:
        assert point.drafts > 0 or not point.decision.speculate


def test_switches_are_few_and_apart(day: Day) -> None:
    on = [(p.second, p.decision.speculate) for p in day.points]
    switches = [b for (_, a), (b, c) in itertools.pairwise(on) if a != c]
    assert 2 <= len(switches) <= 16
    assert all(b - a >= 60 for a, b in itertools.pairwise(switches))


def test_requests_are_about_as_fast_as_with_the_better_of_on_and_off(day: Day) -> None:
    own = figures(day)["mean_latency_seconds"]
    others = [figures(live(SIDES[s], OPTIONS)) for s in ("always_on", "always_off")]
    assert own < 0.95 * min(other["mean_latency_seconds"] for other in others)


def test_a_queue_does_not_end_the_drafting_that_keeps_a_service_alive() -> None:
    values = {**vars(OPTIONS), "peak": 7.5, "hit_rate": 0.8, "knee_rows": 96, "seconds": 4800}
    overload = argparse.Namespace(**values)
    own, off = (live(SIDES[side], overload) for side in OVERLOADED)
    assert own.switches == 0
    assert figures(off)["mean_latency_seconds"] > 5 * figures(own)["mean_latency_seconds"]


def test_the_same_seed_is_the_same_day(day: Day) -> None:
    again = live(SIDES["controlled"], OPTIONS)
    assert events(again) == events(day)
    assert series({"controlled": again}) == series({"controlled": day})
    assert len(series({"controlled": day})["controlled"]["rows"]) == 2 * NOON // EVERY
