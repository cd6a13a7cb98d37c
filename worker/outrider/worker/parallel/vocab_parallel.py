"""Vocabulary parallelism: ranks sample tokens and score children, each among its own ids.

Only a few numbers for each row and rank travel, not a row of logits. Leaves the sampling noise and
the merging of scores to `outrider.kernels.sampling`, rows that need all logits in one place to
`engine.runner`.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.draft_scores import PartRows, PartScorer, ScoredPart
from outrider.kernels.sampling.gumbel_max import sample_part, tops
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import ChildSpec, SampleSpec

if TYPE_CHECKING:
    from outrider.worker.parallel.collectives import ProcessGroup

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]
NOTHING_SCORED: list[ScoredPart] = []
HEADER = 3
"""Floats that a row and rank sends before its children: the largest score, and 64 bits of a sum."""


def sample(
    group: "ProcessGroup", logits: Floats, columns: int, rows: Rows, spec: SampleSpec
) -> Int32 | None:
    """Sample the token after each row with output: int32[outputs] at the leader, None elsewhere.

    logits [outputs, >= columns] of this rank's `columns` ids. -1 where no logit is a number.
    """
    first = group.rank * columns
    real = min(columns, max(0, spec.vocabulary - first))
    own = np.ascontiguousarray(logits[:, :real])
    count = len(own)
    peaks = np.empty((count, 1), np.float32)
    tops(own, peaks[:, 0])
    top: Floats = group.all_gather(peaks)[:, :, 0].max(axis=0)
    found = np.empty((count, 2), np.float64)  # score, token
    tokens, scores = np.empty(count, np.int32), np.empty(count, np.float64)
    sample_part(own, top, _sampled_at(rows), spec.each, first, tokens, scores)
    found[:, 0], found[:, 1] = scores, tokens
    parts = group.gather(found.view(np.float32))
    return None if parts is None else best(parts.view(np.float64))


def best(candidates: NDArray[np.float64]) -> Int32:
    """Pick the tokens [rows] of the highest scores; the lowest id wins a tie.

    candidates [ranks, rows, (score, token)], ids rising by rank.
    """
    winner = candidates[:, :, 0].argmax(axis=0)  # the first of equals
    tokens = np.take_along_axis(candidates[:, :, 1], winner[None], axis=0)[0]
    sampled: Int32 = tokens.astype(np.int32)
    return sampled


class ChildScores:
    """Scores children of a draft's rows among the ids that one rank has logits of."""

    def __init__(self, output_ids: tuple[int, ...] | None, rank: int, width: int) -> None:
        """`output_ids` of the whole draft, of which each rank has `width`; None: all, in order."""
        self._output_ids = output_ids
        self._first, self._width = rank * width, width
        self._vocabulary = 0
        self._ids = np.empty(0, np.int32)
        self._scorer = PartScorer(self._ids)

    def score(
        self, group: "ProcessGroup", logits: Floats, rows: Rows, spec: ChildSpec
    ) -> list[ScoredPart] | None:
        """Score the children of each row with output: all ranks' parts at the leader, else None.

        logits [outputs, >= width], of which those of padding are left out.
        """
        self._set_vocabulary(spec.vocabulary)
        own = np.ascontiguousarray(logits[:, : len(self._ids)])
        part_rows = PartRows(
            _sampled_at(rows),
            np.ascontiguousarray(spec.each["settings"]),
            np.ascontiguousarray(spec.each["error_scale"]),
            spec.masks[:, self._ids],
            np.ascontiguousarray(spec.each["mask"]),
        )
        tops = self._scorer.tops(own, part_rows)
        top: Floats = group.all_gather(tops[:, None])[:, :, 0].max(axis=0)
        gathered = group.gather(packed(self._scorer.score(own, part_rows, top, spec.children)))
        return None if gathered is None else [unpacked(one) for one in gathered]

    def _set_vocabulary(self, vocabulary: int) -> None:
        """Find the target ids of this rank's columns, once the target's vocabulary is known."""
        if vocabulary == self._vocabulary:
            return
        self._vocabulary = vocabulary
        ids = np.array(
            range(vocabulary) if self._output_ids is None else self._output_ids, np.int32
        )
        self._ids = ids[self._first : self._first + self._width]
        self._scorer = PartScorer(self._ids)


def _sampled_at(rows: Rows) -> NDArray[np.int64]:
    """Return where the tokens after rows with output stand."""
    positions: NDArray[np.int64] = rows.positions[rows.outputs].astype(np.int64) + 1
    return positions


def packed(part: ScoredPart) -> Floats:
    """Encode as float32 [rows, HEADER + 2 children] that `unpacked` reads back, bit for bit."""
    totals = part.totals[:, None].view(np.float32)
    numbers = (part.peaks[:, None], totals, part.scores, part.tokens.view(np.float32))
    return np.ascontiguousarray(np.concatenate(numbers, axis=1))


def unpacked(numbers: Floats) -> ScoredPart:
    """Decode what `packed` encoded, into memory of its own."""
    children = (numbers.shape[1] - HEADER) // 2
    own = numbers.copy()
    return ScoredPart(
        tokens=own[:, HEADER + children :].view(np.int32),
        scores=own[:, HEADER : HEADER + children],
        peaks=own[:, 0],
        totals=np.ascontiguousarray(own[:, 1:HEADER]).view(np.float64)[:, 0],
    )
