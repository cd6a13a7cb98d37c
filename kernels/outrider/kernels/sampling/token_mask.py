"""Leaves out of a row of logits what a mask of one bit a token forbids.

Leaves where masks come from to the engine.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def forbid(row: np.ndarray, bits: np.ndarray) -> None:
    """-inf for every token whose bit is 0, in place; tokens without a bit are forbidden.

    row float32[vocab]; bits uint8[bytes]: token t is bit t % 8, the lowest first, of byte t // 8.
    """
    for token in range(row.shape[0]):
        byte = token >> 3
        allowed = byte < bits.shape[0] and (bits[byte] >> (token & 7)) & 1
        row[token] = row[token] if allowed else -np.inf
