"""Moving keys and values between slots, all layers in one call.

Which slots are moved, and why that is exact (rotary positions stay), is the caller's business.
"""

import numpy as np
from numba import njit


@njit(cache=True, nogil=True)
def move(k_t, v, sources, destinations):  # type: ignore[no-untyped-def]
    """Copies slot sources[i] to destinations[i]; as if all were read before any is written.

    k_t [layers, kv_heads, head_dim, slots], v [layers, kv_heads, slots, head_dim] float32;
    sources and destinations int32 [moves].
    """
    count = sources.shape[0]
    held = np.empty(count, np.float32)
    lines = np.empty((count, v.shape[3]), np.float32)
    for layer in range(k_t.shape[0]):
        for head in range(k_t.shape[1]):
            for d in range(k_t.shape[2]):
                line = k_t[layer, head, d]
                for i in range(count):
                    held[i] = line[sources[i]]
                for i in range(count):
                    line[destinations[i]] = held[i]
            values = v[layer, head]
            for i in range(count):
                lines[i] = values[sources[i]]
            for i in range(count):
                values[destinations[i]] = lines[i]
