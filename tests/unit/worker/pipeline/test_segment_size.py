"""Planned segments: what commits most tokens a second, by measured times and expected reach."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.pipeline.segment_size import (
    BUSY,
    PipelineTimes,
    Seconds,
    SegmentPlan,
    plan_segments,
)

ROWS = 32


def times(
    stages: int, fixed: float, by_row: float, link: float = 0.0, delay: float = 0.0
) -> PipelineTimes:
    """Equal stages, equal links."""
    rows = np.arange(1, ROWS + 1)
    of_stage, of_link = fixed + by_row * rows, 1e-6 + link * rows
    return PipelineTimes(np.tile(of_stage, (stages, 1)), np.tile(of_link, (stages + 1, 1)), delay)


def reach(roots: int = 1, nodes: int = 64, fall: float = 0.9) -> Seconds:
    """Roots, then nodes of which each is a little less likely than the one before."""
    return np.concatenate([np.ones(roots), fall ** np.arange(1, nodes + 1)])


def test_rows_that_cost_nothing_are_shared_out_over_all_stages() -> None:
    assert plan_segments(times(5, fixed=10e-3, by_row=0.0), reach(nodes=79)) == SegmentPlan(
        rows=16, in_flight=5, prompt_rows=ROWS, most_rows=ROWS, pays=0.0
    )


@pytest.mark.parametrize("stages", [2, 4, 8])
def test_a_row_of_the_text_delays_one_sequence_by_all_stages(stages: int) -> None:
    plan = plan_segments(times(stages, fixed=8e-3, by_row=2e-3), reach(nodes=0))
    assert plan.rows == 1
    assert plan.pays == pytest.approx(2e-3 / 10e-3, rel=1e-3)
    dearer = plan_segments(times(stages, fixed=8e-3, by_row=4e-3), reach(nodes=0))
    assert dearer.pays > plan.pays


@pytest.mark.parametrize("stages", [2, 4, 8])
@pytest.mark.parametrize("roots", [8, 16])
def test_where_all_stages_are_busy_it_delays_the_slowest_alone(stages: int, roots: int) -> None:
    measured = times(stages, fixed=8e-3, by_row=1e-3)
    plan = plan_segments(measured, reach(roots=roots, nodes=0))
    assert plan.rows * plan.in_flight >= roots
    period = float(measured.seconds_each(plan.in_flight)[plan.rows - 1])
    tokens = roots / plan.in_flight
    assert plan.pays <= tokens * 1e-3 / period * 1.01
    assert plan.pays < 1


def test_without_a_second_row_nothing_is_known_of_its_cost() -> None:
    one = PipelineTimes(np.full((2, 1), 1e-3), np.zeros((3, 1)))
    assert plan_segments(one, np.ones(1)).pays == math.inf


def test_rows_that_cost_their_full_time_travel_alone() -> None:
    assert plan_segments(times(5, fixed=0.0, by_row=1e-3), reach()).rows == 1


def test_rows_of_many_sequences_travel_together() -> None:
    few = plan_segments(times(3, fixed=2e-3, by_row=2e-3), reach(roots=1))
    many = plan_segments(times(3, fixed=2e-3, by_row=2e-3), reach(roots=16))
    assert few.rows < many.rows


def test_a_slow_link_makes_small_segments() -> None:
    fast = plan_segments(times(3, fixed=1e-3, by_row=0.0, link=0.0), reach())
    slow = plan_segments(times(3, fixed=1e-3, by_row=0.0, link=5e-3), reach())
    assert slow.rows < fast.rows


def test_a_delay_needs_more_segments_under_way() -> None:
    near = plan_segments(times(3, fixed=10e-3, by_row=0.0), reach(), prompt_rows=7)
    far = plan_segments(times(3, fixed=10e-3, by_row=0.0, delay=50e-3), reach(), prompt_rows=7)
    assert (near.in_flight, far.in_flight) == (3, 8)
    assert far.rows < near.rows
    assert near.prompt_rows == 7


@given(
    stages=st.integers(1, 8),
    fixed=st.floats(0, 0.1),
    by_row=st.floats(1e-6, 0.01),
    link=st.floats(0, 0.01),
    delay=st.floats(0, 0.1),
    roots=st.integers(1, 20),
    nodes=st.integers(0, 200),
    fall=st.floats(0.1, 0.99),
)
def test_no_other_size_is_expected_to_commit_more(
    stages: int,
    fixed: float,
    by_row: float,
    link: float,
    delay: float,
    roots: int,
    nodes: int,
    fall: float,
) -> None:
    given_times, worth = times(stages, fixed, by_row, link, delay), reach(roots, nodes, fall)
    plan = plan_segments(given_times, worth)

    def rate(rows: int, fewer: int) -> float:
        slowest, around = given_times.slowest[rows - 1], given_times.round_trip[rows - 1]
        in_flight = max(1, int(np.ceil(BUSY * around / slowest)) - fewer)
        return float(worth[: rows * in_flight].sum() / max(around, in_flight * slowest))

    slowest, around = given_times.slowest[plan.rows - 1], given_times.round_trip[plan.rows - 1]
    fewer = int(np.ceil(BUSY * around / slowest)) - plan.in_flight
    assert fewer in (0, 1)
    best = max(rate(rows, fewer) for rows in range(1, ROWS + 1) for fewer in (0, 1))
    assert rate(plan.rows, fewer) >= best * (1 - 1e-9)


def test_a_gap_that_only_hurried_rows_would_fill_is_left() -> None:
    """A round trip of 2.3 stages: three segments would be busy, and late; two are enough."""
    plan = plan_segments(times(2, fixed=10e-3, by_row=0.0, delay=3e-3), reach(nodes=40, fall=0.7))
    assert plan.in_flight == 2
