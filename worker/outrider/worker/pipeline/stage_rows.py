"""Rows of a stage's forward pass, from a segment and what the stage knows of its sequences."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from outrider.worker.errors import ProtocolViolation
from outrider.worker.model.rows import Rows, joined
from outrider.worker.pipeline.records import Segment
from outrider.worker.pipeline.stage_sequence import PlacedRows, StageSequence


class SequenceRows(NamedTuple):
    """The rows of one sequence in a segment."""

    sequence: StageSequence
    rows: Segment
    placed: PlacedRows

    def for_pass(self, wants_logits: bool) -> Rows:
        """Return them as a forward pass takes them, with the logits that are to be sampled."""
        rows, placed = self.rows, self.placed
        offsets = np.maximum(placed.ancestors, 0) + np.int32(self.sequence.first_tree_offset)
        return Rows(
            tokens=rows.tokens,
            positions=rows.positions,
            slots=rows.slots,
            sequence=np.zeros(rows.count, np.int32),
            prefix=placed.prefix,
            ancestors=offsets,
            depth=placed.depth,
            outputs=np.flatnonzero(rows.sample & wants_logits).astype(np.int32),
            tables=self.sequence.table[None],
        )


def by_sequence(segment: Segment, sequences: Mapping[int, StageSequence]) -> Iterator[SequenceRows]:
    """Place the rows of each sequence of a segment, in order.

    Raises `ProtocolViolation` for a sequence that has not begun.
    """
    for number in dict.fromkeys(segment.sequence.tolist()):
        if number not in sequences:
            raise ProtocolViolation(f"rows of sequence {number}, which has not begun")
        rows = segment.keep(segment.sequence == number)
        yield SequenceRows(sequences[number], rows, sequences[number].place(rows))


def pass_rows(parts: list[SequenceRows], wants_logits: bool) -> Rows:
    """Return the rows of one pass, in the order of the segment."""
    return joined([part.for_pass(wants_logits) for part in parts])
