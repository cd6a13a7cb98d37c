"""What a stage refuses of a leader that keeps no books."""

from typing import Any

import numpy as np
import pytest

from outrider.worker.errors import ProtocolViolation
from outrider.worker.kv.block_pool import BLOCK
from outrider.worker.pipeline.records import Begin, Move, Segment
from outrider.worker.pipeline.stage_sequence import StageSequence
from outrider.worker.sampling.params import SamplingParams

PROMPT = np.array([1, 2, 3], np.int32)
TREE = BLOCK
"""First tree slot's number in the pool."""


def ints(*values: int) -> Any:
    return np.array(values, np.int32)


def rows(slots: Any, positions: Any, masks: list[int]) -> Segment:
    count = len(masks)
    numbers, ancestors = np.arange(count), np.zeros((count, 8), np.uint8)
    ancestors[:, 0] = masks
    ones = np.ones(count, np.int64)
    return Segment(0, numbers, ones, slots, slots, positions, ancestors, ones.astype(np.bool_))


def nodes(*places: tuple[int, int, int]) -> Segment:
    """Node rows: tree slot, position and mask of each."""
    slots, positions, masks = zip(*places, strict=True)
    return rows(ints(*slots) + np.int32(TREE), ints(*positions), list(masks))


def move(sources: Any, destinations: Any, freed: Any) -> Move:
    return Move(1, sources + np.int32(TREE), destinations, freed)


@pytest.fixture
def sequence() -> StageSequence:
    """A prompt, committed, and a root with one child in tree slots 0 and 1."""
    begun = StageSequence(Begin(1, PROMPT, 3, SamplingParams(), ints(), ints(1)))
    begun.place(rows(ints(0, 1, 2), ints(0, 1, 2), [0, 0, 0]))
    placed = begun.place(nodes((0, 3, 0b01), (1, 4, 0b11)))
    assert placed.ancestors.tolist() == [[0, -1], [0, 1]]
    return begun


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ((2, 5, 0b1011), "an ancestor in tree slot 3 has position -1, not 3"),
        ((2, 4, 0b110), "an ancestor in tree slot 1 has position 4, not 3"),
        ((2, 4, 0b011), "paths end in tree slots .1.; their rows have .2."),
    ],
)
def test_ancestors_that_are_no_path_to_the_row_are_refused(
    sequence: StageSequence, wrong: tuple[int, int, int], problem: str
) -> None:
    with pytest.raises(ProtocolViolation, match=problem):
        sequence.place(nodes(wrong))


def test_a_moved_slot_is_no_ancestor_any_more(sequence: StageSequence) -> None:
    assert sequence.move(move(ints(0), ints(3), ints())).tolist() == [TREE]
    with pytest.raises(ProtocolViolation, match="tree slot 0 has position -1"):
        sequence.place(nodes((2, 5, 0b101)))
    assert sequence.place(nodes((2, 5, 0b110))).ancestors.tolist() == [[1, 2]]


def test_a_freed_slot_is_no_ancestor_any_more(sequence: StageSequence) -> None:
    sequence.move(move(ints(), ints(), ints(TREE + 1)))
    with pytest.raises(ProtocolViolation, match="tree slot 1 has position -1"):
        sequence.place(nodes((2, 5, 0b111)))
    assert sequence.place(nodes((1, 4, 0b011))).ancestors.tolist() == [[0, 1]]


def test_freed_slots_are_the_sequences_own(sequence: StageSequence) -> None:
    with pytest.raises(ProtocolViolation, match="are not all tree slots of their sequence"):
        sequence.move(move(ints(), ints(), ints(TREE + BLOCK)))
