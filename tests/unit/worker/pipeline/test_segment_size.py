"""Planned segments: large enough to be worth their time, small enough to keep all parts busy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.pipeline.segment_size import (
    NEAR_BEST,
    PipelineTimes,
    SegmentPlan,
    plan_segments,
)


def times(
    stages: int, fixed: float, by_row: float, link: float = 0.0, delay: float = 0.0
) -> PipelineTimes:
    """Equal stages, equal links, for up to 32 rows."""
    rows = np.arange(1, 33)
    of_stage, of_link = fixed + by_row * rows, 1e-6 + link * rows
    return PipelineTimes(np.tile(of_stage, (stages, 1)), np.tile(of_link, (stages + 1, 1)), delay)


def test_a_tree_is_cut_so_that_every_stage_has_a_segment() -> None:
    plan = plan_segments(times(5, fixed=10e-3, by_row=0.0), nodes=80)
    assert plan.in_flight == 6  # five stages, and the links between them
    assert plan.rows == 12  # 13 would be the most; 12 come near enough
    assert plan.rows * plan.in_flight <= 80


def test_rows_that_cost_their_full_time_travel_alone() -> None:
    assert plan_segments(times(5, fixed=0.0, by_row=1e-3), nodes=80).rows == 1


def test_a_slow_link_is_the_part_to_keep_busy() -> None:
    fast = plan_segments(times(3, fixed=1e-3, by_row=0.0, link=0.0), nodes=64)
    slow = plan_segments(times(3, fixed=1e-3, by_row=0.0, link=5e-3), nodes=64)
    assert slow.rows < fast.rows


def test_a_delay_needs_more_segments_under_way() -> None:
    near = plan_segments(times(3, fixed=10e-3, by_row=0.0), nodes=60)
    far = plan_segments(times(3, fixed=10e-3, by_row=0.0, delay=50e-3), nodes=60)
    assert far.in_flight == near.in_flight + 5
    assert far.rows < near.rows


def test_a_tree_too_small_for_all_parts_leaves_row_by_row() -> None:
    assert plan_segments(times(8, fixed=10e-3, by_row=0.0), nodes=3, prompt_rows=7) == SegmentPlan(
        rows=1, in_flight=9, prompt_rows=7
    )


@given(
    stages=st.integers(1, 8),
    fixed=st.floats(0, 0.1),
    by_row=st.floats(1e-6, 0.01),
    link=st.floats(0, 0.01),
    delay=st.floats(0, 0.1),
    nodes=st.integers(1, 500),
)
def test_no_smaller_segment_is_as_good(
    stages: int, fixed: float, by_row: float, link: float, delay: float, nodes: int
) -> None:
    given_times = times(stages, fixed, by_row, link, delay)
    plan = plan_segments(given_times, nodes)
    slowest, round_trip = given_times.slowest, given_times.round_trip
    assert plan.in_flight * slowest[plan.rows - 1] >= round_trip[plan.rows - 1] * (1 - 1e-9)
    rates = np.arange(1, 33) / slowest
    fits = [n for n in range(1, 33) if n * np.ceil(round_trip[n - 1] / slowest[n - 1]) <= nodes]
    best = max((rates[n - 1] for n in fits), default=rates[0])
    near = [n for n in fits if rates[n - 1] >= NEAR_BEST * best]
    assert plan.rows == min(near, default=1)
