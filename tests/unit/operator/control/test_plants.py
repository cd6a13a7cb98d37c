"""The loop against plants that answer to it, chosen to make it go wrong."""

import functools
import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from bench.control_loop.plants import PLANTS, Outcome, Plant, live
from outrider.operator.control.probes import GUARD
from outrider.operator.control.settings import ControlSettings, ScalingRule, ShrinkPolicy

HOUR = 3600.0
MOST_POLICIES_AN_HOUR = 30
"""Policies that targets are told in any hour, with the default intervals."""
FIRST_SECONDS = 300.0
"""Work of targets that is lost at most before anything is known: drafting is found on."""
FIRST_START_SECONDS = 1200.0
"""Time that drafts stand there at most until their first start is over, and has been measured."""
RELAXED = settings(max_examples=4, deadline=None)


def periods(values: st.SearchStrategy[float]) -> st.SearchStrategy[Callable[[float], float]]:
    """Functions of time that go through a few values for ever, each for a while."""
    whiles = st.sampled_from([15.0, 45.0, 120.0, 400.0, 700.0, 3000.0])
    return st.lists(st.tuples(whiles, values), min_size=1, max_size=4).map(_cycle)


def _cycle(steps: list[tuple[float, float]]) -> Callable[[float], float]:
    whole = sum(seconds for seconds, _ in steps)

    def at(now: float) -> float:
        rest = now % whole
        for seconds, value in steps:
            if rest < seconds:
                return value
            rest -= seconds
        return steps[-1][1]

    return at


def _by_rows(gain: Callable[[float], float], better: float, at_most: int) -> Plant:
    def percent(now: float, rows: int) -> float:
        return gain(now) + (better if rows <= at_most else 0.0)

    return Plant(gain=percent)


GAINS = st.builds(
    _by_rows,
    periods(st.sampled_from([60.0, 90.0, 103.0, 109.0, 120.0, 160.0])),
    st.sampled_from([0.0, 0.0, 6.0, 30.0, -20.0]),
    st.sampled_from([1, 4, 8]),
)
BUSY = st.builds(
    replace,
    GAINS,
    running=periods(st.sampled_from([2.0, 9.0, 40.0])),
    waiting=st.sampled_from([0.0, 9.0]),
    start_seconds=periods(st.sampled_from([20.0, 60.0, 900.0])),
    lost=st.sampled_from([0.0, 0.1, 0.4]),
    late_windows=st.sampled_from([0, 0, 1, 4]),
    restart_every=st.sampled_from([0, 7, 50]),
    noise=st.sampled_from([0.0, 0.01, 0.05]),
    targets=st.sampled_from([1, 2, 3]),
    share=st.sampled_from([0.0, 0.0, 1 / 3, 1.0]),
)
"""Plants that always have work."""
ANY = st.builds(
    replace, BUSY, running=periods(st.sampled_from([0.0, 0.0, 2.0, 40.0])), share=st.just(0.0)
)
SEEDS = st.integers(0, 99)


@RELAXED
@given(ANY, SEEDS)
def test_targets_are_told_few_policies_whatever_happens(plant: Plant, seed: int) -> None:
    outcome = live(plant, 6 * HOUR, seed=seed)
    event(f"{outcome.policies_an_hour // 4 * 4} policies an hour or more")
    assert outcome.policies_an_hour <= MOST_POLICIES_AN_HOUR


@RELAXED
@given(BUSY, SEEDS)
def test_a_service_is_never_worse_off_than_without_drafts_by_more_than_the_guard(
    plant: Plant, seed: int
) -> None:
    seconds = 6 * HOUR
    outcome = live(plant, seconds, seed=seed)
    event(f"{outcome.loss(plant.share):.2f} lost")
    first = FIRST_SECONDS + plant.share * FIRST_START_SECONDS
    assert outcome.loss(plant.share) <= GUARD + first / seconds


@RELAXED
@given(st.builds(replace, ANY, running=st.just(lambda now: 9.0 if now < HOUR else 0.0)), SEEDS)
@example(
    Plant(
        gain=lambda now, rows: 90.0,
        running=lambda now: 9.0 if now < HOUR else 0.0,
        restart_every=50,
        targets=3,
    ),
    1,
)
def test_a_service_whose_work_ends_keeps_no_draft_for_long(plant: Plant, seed: int) -> None:
    asked = replace(plant, start_seconds=lambda now: 60.0)
    outcome = live(asked, HOUR + 900 + 900, seed=seed)
    event(f"{outcome.drafts} drafts")
    assert outcome.drafts == 0
    assert live(asked, 3 * HOUR, seed=seed).policies == outcome.policies


@RELAXED
@given(GAINS.filter(lambda plant: plant.gain(0.0, 16) < 100), SEEDS)
def test_nothing_swings_for_ever_where_nothing_changes(plant: Plant, seed: int) -> None:
    still = replace(plant, gain=lambda now, rows: plant.gain(0.0, rows))
    outcome = live(still, 16 * HOUR, seed=seed)
    half = sum(at >= 8 * HOUR for at in outcome.policies)
    event(f"{half} policies in the second half")
    assert half <= len(outcome.policies) / 2
    assert half <= 12


@functools.cache
def day(name: str, **changes: object) -> Outcome:
    """Several tests look at the same one."""
    return live(replace(PLANTS[name], **changes), 24 * HOUR)  # type: ignore[arg-type]


def test_an_idle_day_costs_a_quarter_of_an_hour_of_drafts() -> None:
    outcome = day("idle")
    assert outcome.drafts == 0
    assert outcome.draft_seconds <= 2 * 1000
    assert len(outcome.policies) == 1


def test_a_ceiling_that_pays_is_kept_and_the_one_above_is_tried_ever_more_rarely() -> None:
    outcome = day("two_ceilings")
    assert outcome.switches == []
    assert len(outcome.policies) <= 20
    assert outcome.loss(0) < -0.19


def test_a_queue_does_not_end_drafting_that_gains() -> None:
    assert day("long_queue").switches == []


@pytest.mark.parametrize("name", ["never_pays", "never_pays_2_gpus_by_6", "restarts"])
def test_probes_that_fail_become_rarer_without_limit(name: str) -> None:
    outcome = day(name)
    gaps = [later - earlier for earlier, later in itertools.pairwise(outcome.probes)]
    assert 2 <= len(gaps) <= 8
    assert all(later >= 1.7 * earlier for earlier, later in itertools.pairwise(gaps))
    assert outcome.draft_seconds <= 2 * 1.5 * HOUR


def test_a_probe_of_hardware_that_starts_slowly_is_rarer() -> None:
    quick = day("never_pays_2_gpus_by_6", start_seconds=lambda now: 20.0)
    assert day("never_pays_2_gpus_by_6").probes[0] == quick.probes[0]  # none was measured yet
    assert len(day("never_pays_2_gpus_by_6").probes) < len(day("never_pays").probes)
    slow = day("never_pays_2_gpus_by_6", start_seconds=lambda now: 1200.0)
    assert slow.probes[1] - slow.probes[0] > 2 * (quick.probes[1] - quick.probes[0])


def test_a_target_that_never_answers_blinds_nobody() -> None:
    outcome = day("one_silent_target")
    assert outcome.switches[0] <= 60
    assert outcome.draft_seconds <= 2 * 1.5 * HOUR


def test_bursts_that_are_over_before_drafts_start_hold_none_for_most_of_the_day() -> None:
    assert day("bursts").draft_seconds <= 0.2 * 2 * 24 * HOUR


def test_drafting_comes_back_through_late_metrics_and_slow_starts() -> None:
    for name in ("late_and_lost_metrics", "slow_starts"):
        assert day(name).loss(0) < -0.1


@RELAXED
@given(BUSY, SEEDS, st.sampled_from(ShrinkPolicy), st.sampled_from([0, 60, 900]))
def test_other_settings_bound_policies_by_their_own_intervals(
    plant: Plant, seed: int, shrink: ShrinkPolicy, idle: int
) -> None:
    scaling = ScalingRule(shrink=shrink, idle_seconds=idle)
    control = ControlSettings(interval_seconds=30, probe_interval_seconds=600, draft=scaling)
    outcome = live(plant, 6 * HOUR, control, seed)
    first = 2  # decisions of a service that begins, which come before any interval has passed
    assert outcome.policies_an_hour <= MOST_POLICIES_AN_HOUR / 2 + first
