"""Times of stages and links, learned from visits."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.worker.pipeline.planner import MeasuredTimes
from outrider.worker.pipeline.records import Visits

MOST = 16
STAGES = (0.010, 0.020)
"""Seconds of each stage for one row; a tenth more for each further one."""
LINK, EACH = 0.004, 0.001
"""Seconds of all links together for no row, and for each one."""


def stage_seconds(stage: int, rows: int) -> float:
    return STAGES[stage] * (0.9 + 0.1 * rows)


def passed(rows: int, waited: float = 0.0) -> tuple[float, Visits]:
    """Return the seconds and the visits of a segment that waited for so long in each stage; the
    stages' clocks do not agree."""
    visits, total = [], LINK + EACH * rows
    for stage in range(len(STAGES)):
        came, spent = 1000.0 * stage, stage_seconds(stage, rows)
        visits.append([rows, came, came + waited, came + waited + spent])
        total += waited + spent
    return total, np.array(visits)


@given(
    st.lists(
        st.tuples(st.integers(1, MOST), st.floats(0, 0.1)), min_size=2, unique_by=lambda v: v[0]
    )
)
def test_times_are_found_whatever_waited_before_a_stage(seen: list[tuple[int, float]]) -> None:
    measured = MeasuredTimes(len(STAGES))
    for rows, waited in seen:
        measured.learn(*passed(rows, waited))
    times = measured.times(MOST)
    assert times is not None
    known = sorted(rows for rows, _ in seen)
    for rows in range(known[0], known[-1] + 1):
        for stage in range(len(STAGES)):
            assert times.stages[stage, rows - 1] == pytest.approx(stage_seconds(stage, rows))
        assert times.links[0, rows - 1] == pytest.approx(EACH * rows, abs=1e-6)
    assert times.delay == pytest.approx(LINK, abs=1e-6)
    assert (np.diff(times.stages) >= 0).all()


def test_a_stage_that_becomes_slower_is_followed() -> None:
    measured = MeasuredTimes(1)
    for seconds in [0.01] * 5 + [0.03] * 50:
        measured.learn(1.0, np.array([[1, 0.0, 0.0, seconds]]))
    times = measured.times(1)
    assert times is not None
    assert times.stages[0, 0] == pytest.approx(0.03, rel=0.01)


def test_a_segment_that_lost_its_rows_says_nothing() -> None:
    measured = MeasuredTimes(2)
    measured.learn(1.0, np.array([[1, 0.0, 0.0, 1.0], [0, 0.0, 0.0, 0.0]]))
    measured.learn(1.0, np.zeros((0, 4)))
    assert measured.times(MOST) is None


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_one_pass_that_stalls_moves_no_time_far(rows: int) -> None:
    """Be it the first with so many rows, or one of many."""
    measured = MeasuredTimes(1)
    for _ in range(5):
        for count in (1, 4):
            measured.learn(1.0, np.array([[count, 0.0, 0.0, 0.01 + 0.001 * count]]))
    before = measured.times(8)
    measured.learn(9.0, np.array([[rows, 0.0, 0.0, 9.0]]))
    after = measured.times(8)
    assert before is not None
    assert after is not None
    assert (after.stages <= 2.0 * before.stages).all()
    assert (after.stages[0, 0] <= 1.1 * before.stages[0, 0]).all()
