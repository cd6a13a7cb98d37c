"""Pace: no segment leaves before the slowest part can begin with it."""

import numpy as np
import pytest

from outrider.worker.pipeline.segment_size import Pace, PipelineTimes


@pytest.fixture
def times() -> PipelineTimes:
    """Stages of 2 and 3 s, one second more for each further row, and fast links."""
    stages = np.array([[2.0, 3.0, 4.0], [3.0, 4.0, 5.0]])
    return PipelineTimes(stages, np.full((3, 3), 0.1))


def test_the_first_segment_is_due_at_once(times: PipelineTimes) -> None:
    assert Pace(times).due < 0


def test_the_next_one_is_due_when_the_slowest_stage_is_free(times: PipelineTimes) -> None:
    pace = Pace(times)
    pace.sent(10.0, rows=2)
    assert pace.due == 14.0


def test_segments_that_left_early_are_all_waited_for(times: PipelineTimes) -> None:
    pace = Pace(times)
    pace.sent(10.0, rows=1)
    pace.sent(10.0, rows=1)
    assert pace.due == 16.0


def test_a_pause_is_not_made_up_for(times: PipelineTimes) -> None:
    pace = Pace(times)
    pace.sent(10.0, rows=1)
    pace.sent(20.0, rows=1)
    assert pace.due == 23.0


def test_more_rows_than_were_measured_take_as_long_as_the_most(times: PipelineTimes) -> None:
    pace = Pace(times)
    pace.sent(0.0, rows=70)
    assert pace.due == 5.0
