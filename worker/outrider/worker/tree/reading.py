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
    """Place in `ids` where those of each token begin, int32[the target's tokens + 1]; empty: target
    and draft have the same ids."""
    ids: Ints
    known: int
    """Ids that the draft's model can read; the last one stands for others."""
    longest: int
    """Most ids of one token."""
    pairs: Ids
    """Pairs of tokens that target and draft both have, as which a third token is read, sorted:
    first << 32 | second, int64[pairs]."""
    merged: Ints
    """Tokens that the target alone has, each read as a pair of others, int32[pairs]."""

    @classmethod
    def same(cls, known: int) -> "Reading":
        """Return the reading of a draft that has its target's ids."""
        return cls(NO_IDS, NO_IDS, known, 1, NO_PAIRS, NO_IDS)
