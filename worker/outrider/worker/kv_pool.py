"""The KV pool of one engine: keys and values of all layers, cut into one region per sequence.

What lies in which slot of a region is the sequence's business.
"""

import numpy as np
from numpy.typing import NDArray

REGION_MULTIPLE = 64
"""Regions start at multiples of the attention kernel's tile."""
PAD_SLOTS = 16
"""Unused slots that keep the pitch of keys off powers of two, whose lines fight for one cache set."""


class KVPool:
    """Preallocated keys and values; regions of `region` slots, one per sequence."""

    def __init__(
        self, layers: int, kv_heads: int, head_dim: int, max_context: int, max_sequences: int
    ) -> None:
        self.region = -(-max_context // REGION_MULTIPLE) * REGION_MULTIPLE
        """Slots of one region: `max_context`, rounded up to a multiple of 64."""
        self.sequences = max_sequences
        slots = self.region * max_sequences + PAD_SLOTS
        self.k_t: NDArray[np.float32] = np.zeros((layers, kv_heads, head_dim, slots), np.float32)
        self.v: NDArray[np.float32] = np.zeros((layers, kv_heads, slots, head_dim), np.float32)
        self._free = list(range(max_sequences - 1, -1, -1))

    def allocate(self) -> int | None:
        """First slot of a free region, or None when all are taken."""
        return self._free.pop() * self.region if self._free else None

    def free(self, base: int) -> None:
        """Gives the region back; raises `ValueError` unless `base` was allocated."""
        number, rest = divmod(base, self.region)
        if rest or not 0 <= number < self.sequences or number in self._free:
            raise ValueError(f"slot {base} does not start an allocated region")
        self._free.append(number)

    @property
    def used(self) -> int:
        """Slots in allocated regions."""
        return (self.sequences - len(self._free)) * self.region
