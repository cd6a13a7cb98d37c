"""Log of segments: totals of stages, fates of rows, spans of the last ones, in bounded memory."""

import numpy as np
import pytest

from outrider.contract.state import SegmentTotals, StageTotals
from outrider.worker.messages import MAX_TIMELINE_SPANS
from outrider.worker.pipeline.records import Results, Segment
from outrider.worker.pipeline.segment_log import RequestRows, SegmentLog
from outrider.worker.pipeline.sequence import SentRow

VISITS = np.array([[5, 1.5, 2.0, 3.0], [3, 3.5, 3.5, 4.0]])
"""Two of five rows die between the stages."""


def segment(number: int) -> Segment:
    """Two rows of a prompt, a root, and two nodes."""
    ints = np.zeros(5, np.int32)
    return Segment(
        number=number,
        rows=np.arange(5) + 5 * number,
        sequence=np.zeros(5, np.int64),
        slots=ints,
        tokens=ints,
        positions=ints,
        ancestors=np.array([[0], [0], [0], [1], [3]], np.uint8),
        sample=np.array([False, False, True, True, True]),
    )


def results(number: int, visits: np.ndarray = VISITS) -> Results:  # type: ignore[type-arg]
    none = np.zeros(0, np.int32)
    floats = none.astype(np.float32)
    top = none.reshape(0, 0)
    return Results(number, none.astype(np.int64), none, floats, top, top.astype(np.float32), visits)


@pytest.fixture
def log() -> SegmentLog:
    log = SegmentLog(2)
    log.sent(segment(0), (), now=1.0)
    return log


def test_a_stage_is_busy_waits_and_holds_rows(log: SegmentLog) -> None:
    log.returned(results(0), now=4.5)
    first, second = log.stages
    assert (first.segments, first.rows, first.busy_seconds, first.queue_seconds) == (1, 5, 1.0, 0.5)
    assert first.row_seconds == 5 * 1.5
    assert first.link_seconds == 0.5
    assert (second.rows, second.row_seconds, second.link_seconds) == (3, 3 * 0.5, 0.5)
    assert log.totals.segment_seconds == 3.5


def test_rows_become_committed_or_pruned(log: SegmentLog) -> None:
    log.returned(results(0), now=4.5)
    log.decided([SentRow(3, 0)], [SentRow(4, 0)])
    assert log.totals == SegmentTotals(
        segments=1, segment_seconds=3.5, prompt_rows=2, committed_rows=2, pruned_rows=1
    )
    first, second = log.spans()
    assert (first.lane, first.rows, first.prompt_rows) == ("stage 0", 5, 2)
    assert (first.committed_rows, first.pruned_rows) == (2, 1)
    assert (second.lane, second.rows, second.pruned_rows) == ("stage 1", 3, 0)
    assert (second.came, second.began, second.ended) == (3.5, 3.5, 4.0)


def test_a_fate_may_be_known_long_after_the_result(log: SegmentLog) -> None:
    log.returned(results(0), now=4.5)
    assert log.spans()[0].committed_rows == 1
    log.sent(segment(1), (), now=5.0)
    log.decided([SentRow(3, 0)], [])
    assert log.spans()[0].committed_rows == 2


def test_a_segment_that_is_under_way_has_no_span(log: SegmentLog) -> None:
    assert log.spans() == ()


def test_a_stage_that_computed_no_row_has_no_span_and_no_time(log: SegmentLog) -> None:
    emptied = np.array([[5, 1.5, 2.0, 3.0], [0, 3.5, 3.8, 4.0]])
    log.returned(results(0, emptied), now=4.5)
    assert [span.lane for span in log.spans()] == ["stage 0"]
    assert log.stages[0].segments == 1
    assert log.stages[1] == StageTotals()


def test_results_of_rows_that_were_set_aside_count_once(log: SegmentLog) -> None:
    log.returned(results(0), now=4.5)
    assert log.returned(results(0, VISITS[:0]), now=6.0) is None
    assert log.totals.segments == 1


def test_only_the_last_segments_are_kept(log: SegmentLog) -> None:
    most = MAX_TIMELINE_SPANS // 2
    for number in range(1, most + 10):
        log.sent(segment(number), (), now=1.0)
        log.returned(results(number), now=4.5)
    spans = log.spans()
    assert len(spans) == MAX_TIMELINE_SPANS
    assert min(span.number for span in spans) == 10
    log.decided([], [SentRow(3, 0)])  # of one that is forgotten
    assert log.totals.pruned_rows == 1


def test_traced_rows_come_back_with_their_segment(log: SegmentLog) -> None:
    rows = RequestRows(request=7, first_row=5, rows=2)
    log.sent(segment(1), (rows,), now=1.0)
    logged = log.returned(results(1), now=4.5)
    assert logged is not None
    assert logged.traced == (rows,)
    assert [visit.rows for visit in logged.stage_visits] == [5, 3]


def test_stages_of_another_life_may_have_other_clocks(log: SegmentLog) -> None:
    ahead = VISITS + np.array([0.0, 100.0, 100.0, 100.0])
    log.returned(results(0, ahead), now=4.5)
    log.lose_group()
    log.sent(segment(1), (), now=1.0)
    log.returned(results(1), now=4.5)
    came = [span.came for span in log.spans() if span.number == 1]
    assert came == VISITS[:, 1].tolist()
