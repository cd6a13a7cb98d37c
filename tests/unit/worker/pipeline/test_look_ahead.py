"""Rows that die while they wait: dropped at once, and none that lives with them."""

from collections import deque
from typing import Any

from outrider.worker.pipeline.records import End, Segment, drop_killed
from tests.unit.worker.pipeline.build import move, segment


def rows_in(queue: deque[Any]) -> list[list[int]]:
    """Row numbers of each segment."""
    return [record.rows.tolist() for record in queue if isinstance(record, Segment)]


def test_a_move_drops_the_rows_that_it_kills_and_their_hidden_vectors() -> None:
    queue = deque([segment(0, {1: (7, 64), 2: (7, 65), 3: (8, 65)})])
    drop_killed(move(7, [], [], [65]), queue)
    assert rows_in(queue) == [[1, 3]]
    hidden = queue[0].hidden
    assert hidden is not None
    assert hidden[:, 0].tolist() == [0.0, 2.0]


def test_a_segment_without_rows_keeps_its_place() -> None:
    queue = deque([segment(5, {1: (7, 64)}), segment(6, {2: (7, 65)})])
    drop_killed(move(7, [], [], [64]), queue)
    assert [one.number for one in queue] == [5, 6]
    assert rows_in(queue) == [[], [2]]


def test_a_row_lives_whose_slot_another_row_has_taken_over() -> None:
    """Row 1 is committed by the first move; row 2 then gets its slot, and dies."""
    queue: deque[Any] = deque(
        [segment(0, {1: (7, 64)}), move(7, [64], [3], []), segment(1, {2: (7, 64)})]
    )
    drop_killed(move(7, [], [], [64]), queue)
    assert rows_in(queue) == [[1], []]


def test_an_earlier_owner_of_a_slot_lives_in_a_queue_further_on() -> None:
    incoming: deque[Any] = deque([move(7, [64], [3], []), segment(1, {2: (7, 64)})])
    outgoing: deque[Any] = deque([segment(0, {1: (7, 64)})])
    drop_killed(move(7, [], [], [64]), incoming, outgoing)
    assert rows_in(incoming) == [[]]
    assert rows_in(outgoing) == [[1]]


def test_a_move_of_another_sequence_protects_nothing() -> None:
    queue: deque[Any] = deque([segment(0, {1: (7, 64)}), move(8, [64], [3], [])])
    drop_killed(move(7, [], [], [64]), queue)
    assert rows_in(queue) == [[]]


def test_an_end_drops_all_rows_of_its_sequence_but_no_move() -> None:
    records = [segment(0, {1: (7, 3), 2: (8, 90)}), move(7, [64], [4], []), segment(1, {3: (7, 4)})]
    queue: deque[Any] = deque(records)
    drop_killed(End(7), queue)
    assert rows_in(queue) == [[2], []]
    assert queue[1] is records[1]
