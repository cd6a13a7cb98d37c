"""Ranks draw tokens together: each of its own ids, the best of all wins.

So what travels is one number and one candidate a row and rank, not a row of logits. Leaves the dice
to `outrider.kernels.sampling.gumbel_max`; rows whose settings need all logits in one place are not
drawn here.
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outrider.kernels.sampling.gumbel_max import draw_part, tops
from outrider.worker.model.rows import Rows
from outrider.worker.parallel.step_message import SampleSpec

if TYPE_CHECKING:
    from outrider.worker.parallel.collectives import ProcessGroup

Floats = NDArray[np.float32]
Int32 = NDArray[np.int32]


def draw(
    group: "ProcessGroup", logits: Floats, columns: int, rows: Rows, draws: SampleSpec
) -> Int32 | None:
    """Token after each row with output, int32[outputs], at the leader; None elsewhere.

    logits [outputs, >= columns] of this rank's `columns` ids. -1 where no logit is a number.
    """
    first = group.rank * columns
    real = min(columns, max(0, draws.vocabulary - first))
    own = np.ascontiguousarray(logits[:, :real])
    count = len(own)
    peaks = np.empty((count, 1), np.float32)
    tops(own, peaks[:, 0])
    top: Floats = group.gather_all(peaks)[:, :, 0].max(axis=0)
    found = np.empty((count, 2), np.float64)  # score, token
    tokens, scores = np.empty(count, np.int32), np.empty(count, np.float64)
    positions = rows.positions[rows.outputs].astype(np.int64) + 1
    each = draws.each
    settings = (np.ascontiguousarray(each[name]) for name in ("seed", "choice", "temperature"))
    draw_part(own, top, positions, *settings, first, tokens, scores)
    found[:, 0], found[:, 1] = scores, tokens
    parts = group.gather(found.view(np.float32))
    return None if parts is None else best(parts.view(np.float64))


def best(candidates: NDArray[np.float64]) -> Int32:
    """[rows] tokens; candidates [ranks, rows, (score, token)], ids rising by rank: lowest wins."""
    winner = candidates[:, :, 0].argmax(axis=0)  # the first of equals
    tokens = np.take_along_axis(candidates[:, :, 1], winner[None], axis=0)[0]
    drawn: Int32 = tokens.astype(np.int32)
    return drawn
