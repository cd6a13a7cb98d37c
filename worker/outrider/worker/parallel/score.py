"""Ranks of a draft score children together: each those among its own ids.

So what travels is a few candidates and one sum a row and rank, not a row of logits. Leaves scores
and their merging to `outrider.kernels.sampling.draft_scores_sharded`; rows whose settings need all
logits in one place are not scored here.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.draft_scores_sharded import Parts, PartScorer
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import ChildSpec

if TYPE_CHECKING:
    from outrider.worker.parallel.collectives import ProcessGroup

Floats = NDArray[np.float32]
NOTHING_SCORED: list[Parts] = []
FIXED = 3
"""Floats that a row and rank sends beside its candidates: the largest score, a sum of 64 bits."""


class Columns:
    """The ids that one rank has logits of, and their noise."""

    def __init__(self, output_ids: tuple[int, ...] | None, rank: int, width: int) -> None:
        """`output_ids` of the whole draft, of which each rank has `width`; None: all, in order."""
        self._output_ids = output_ids
        self._first, self._width = rank * width, width
        self._vocabulary = 0
        self._ids = np.empty(0, np.int32)
        self._scorer = PartScorer(self._ids)

    def score(
        self, group: "ProcessGroup", logits: Floats, rows: Rows, guesses: ChildSpec
    ) -> list[Parts] | None:
        """All ranks' parts of the children of each row with output, at the leader; else None.

        logits [outputs, >= width], of which those of padding are left out.
        """
        self._know(guesses.vocabulary)
        own = np.ascontiguousarray(logits[:, : len(self._ids)])
        each = guesses.each
        masks, mask = guesses.masks[:, self._ids], np.ascontiguousarray(each["mask"])
        tops = self._scorer.tops(own, masks, mask)
        top: Floats = group.gather_all(tops[:, None])[:, :, 0].max(axis=0)
        positions = rows.positions[rows.outputs].astype(np.int64) + 1
        names = ("seed", "choice", "temperature", "error_scale")
        seeds, choices, temperatures, scales = (np.ascontiguousarray(each[name]) for name in names)
        part = self._scorer.score(
            *(own, masks, mask, top, positions, seeds, choices, temperatures, scales),
            k=guesses.children,
        )
        gathered = group.gather(packed(part))
        return None if gathered is None else [unpacked(one) for one in gathered]

    def _know(self, vocabulary: int) -> None:
        """The target ids of this rank's columns, once the target's vocabulary is known."""
        if vocabulary == self._vocabulary:
            return
        self._vocabulary = vocabulary
        ids = np.array(
            range(vocabulary) if self._output_ids is None else self._output_ids, np.int32
        )
        self._ids = ids[self._first : self._first + self._width]
        self._scorer = PartScorer(self._ids)


def packed(part: Parts) -> Floats:
    """float32 [rows, FIXED + 2 children] that `unpacked` reads back, bit for bit."""
    totals = part.totals[:, None].view(np.float32)
    numbers = (part.peaks[:, None], totals, part.scores, part.tokens.view(np.float32))
    return np.ascontiguousarray(np.concatenate(numbers, axis=1))


def unpacked(numbers: Floats) -> Parts:
    """The inverse of `packed`, in memory of its own."""
    children = (numbers.shape[1] - FIXED) // 2
    own = numbers.copy()
    return Parts(
        tokens=own[:, FIXED + children :].view(np.int32),
        scores=own[:, FIXED : FIXED + children],
        peaks=own[:, 0],
        totals=np.ascontiguousarray(own[:, 1:FIXED]).view(np.float64)[:, 0],
    )
