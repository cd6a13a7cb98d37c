"""A draft's reading of a target's tokens: as the same ids, or those that spell them; and back."""

import numpy as np

from outrider.kernels.jit.compiled import njit
from outrider.worker.tree.growth import Ints
from outrider.worker.tree.reading import Reading


@njit()
def read(reading: Reading, tokens: Ints) -> Ints:
    """Return the draft's ids of the target's tokens, at least one of each."""
    first, ids, known = reading.first, reading.ids, reading.known
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
def is_one(reading: Reading, token: int) -> bool:
    """True if a token is read as one id."""
    first = reading.first
    return bool(first.shape[0] == 0 or first[token + 1] - first[token] == 1)


@njit()
def merged(reading: Reading, first: int, second: int) -> int:
    """Return the token that is read as two others, which the target has for them; -1: there is
    none."""
    pair = (np.int64(first) << 32) | np.int64(second)
    at = np.searchsorted(reading.pairs, pair)
    if at == reading.pairs.shape[0] or reading.pairs[at] != pair:
        return -1
    return int(reading.merged[at])


@njit()
def id_of(reading: Reading, token: int) -> int:
    """Return the draft's id of a token that both have."""
    first = reading.first
    return int(token if first.shape[0] == 0 else reading.ids[first[token]])
