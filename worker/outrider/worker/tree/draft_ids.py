"""Reading of a target's tokens by a draft: as the same ids, or as those that spell them."""

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.reading import Reading


@njit()
def read(reading: Reading, tokens: Ints) -> Ints:
    """Return the draft's ids of the target's tokens, at least one of each."""
    first, ids, known, _ = reading
    if first.shape[0] == 0:
        return np.minimum(tokens, np.int32(known - 1))
    found = np.empty(id_count(reading, tokens), np.int32)
    at = 0
    for token in tokens:
        for i in range(first[token], first[token + 1]):
            found[at] = ids[i]
            at += 1
    return found


@njit()
def id_count(reading: Reading, tokens: Ints) -> int:
    """Return the number of the draft's ids of the target's tokens."""
    first = reading.first
    if first.shape[0] == 0:
        return int(tokens.shape[0])
    count = 0
    for token in tokens:
        count += first[token + 1] - first[token]
    return int(count)


@njit()
def id_of(reading: Reading, token: int) -> int:
    """Return the draft's id of a token that both have."""
    first = reading.first
    return int(token if first.shape[0] == 0 else reading.ids[first[token]])
