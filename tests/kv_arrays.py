"""Keys of a KV cache by slot, for tests: blocks lie in memory one after the other."""

import numpy as np
from numpy.typing import NDArray


def keys_by_slot(k_t: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return a copy of keys [..., blocks, head_dim, 64] as [..., head_dim, slots]."""
    keys = k_t.swapaxes(-3, -2)
    return keys.reshape(*keys.shape[:-2], -1).copy()
