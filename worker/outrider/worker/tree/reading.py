"""The draft's ids of each of a target's tokens, as arrays that compiled code reads.

Imports nothing that computes: server processes, which only pass it on, load no numba. Leaves making
one from two vocabularies to `checkpoints.translation`, and reading by it to `draft_ids`.
"""

from typing import NamedTuple

import numpy as np

from outrider.worker.tree.growth import Ids, Ints

NO_IDS = np.zeros(0, np.int32)
NO_PAIRS = np.zeros(0, np.int64)


class Reading(NamedTuple):
    """How a draft reads a target's tokens."""

    first: Ints
    """int32[target's tokens + 1] place in `ids` where each token's begin; empty: both have the same
    ids."""
    ids: Ints
    known: int
    """Ids that the draft's model can read; the last one stands for others."""
    longest: int
    """Most ids of one token."""
    pairs: Ids
    """int64[pairs], sorted: two tokens that both have, first << 32 | second, as which a third is
    read."""
    merged: Ints
    """int32[pairs] those third tokens, which the target alone has."""

    @classmethod
    def same(cls, known: int) -> "Reading":
        """Return the reading of a draft that has its target's ids."""
        return cls(NO_IDS, NO_IDS, known, 1, NO_PAIRS, NO_IDS)
